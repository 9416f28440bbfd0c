"""Results in a model card: everything measured that a reader needs, each thing once."""

import json
import shutil
from pathlib import Path

import pytest

from lingraft.measurement import Measurement, write_measurements
from lingraft.report import model_card

LAST = "continued-pretraining"


@pytest.fixture
def everything(everything_run: Path, tmp_path: Path) -> Path:
    """A finished run with every kind of row, tasks that say how they were asked, and a group of two."""
    folder = tmp_path / "run"
    shutil.copytree(everything_run, folder)
    rows = [
        Measurement(stage, tokens, f"task/{name}", value, "eu", None, None, count)
        for stage, tokens, value in (("base", 0, 0.25), (LAST, 102_400, 0.5))
        for name, count in (("both/acc", 10), ("both/one/acc", 6), ("both/two/acc", 4), ("both/one/seams_crossed", 6))
    ]
    rows += [Measurement(LAST, tokens, "alarm/forgetting/source", value) for tokens, value in ((90_000, 0.08),)]
    write_measurements(folder / "measurements.jsonl", rows)
    told = {"lm_eval": "0.4.13", "shots": 5, "prompt_language": "eu", "chance": 0.25}
    records = [{"filed_as": name, **told} for name in ("both/one", "both/two")]
    records.append({"filed_as": "xstorycloze_eu", **told, "shots": 0, "chance": 0.5, "prompt_language": None})
    (folder / "base_tasks.json").write_text(json.dumps(records), encoding="utf-8")
    return folder


def lines_of(card: str) -> dict[str, list[str]]:
    """Return the rows of the tables of results by their first cell."""
    part = card[card.index("## Results") : card.index("## How it was made")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.split("\n") if line[:2] == "| "]
    assert {len(row) for row in rows} == {5}
    return {row[0].strip(): row[1:] for row in rows}


def test_tasks_have_metric_items_and_how_they_were_asked(everything: Path) -> None:
    lines = lines_of(model_card(everything))
    asked = "both: acc (5-shot, prompt in eu, guessing 25.0 %)"
    assert lines[f"Basque (eu): {asked}"] == ["25.0 %", "50.0 %", "+25.0 points", "10"]
    name = r"xstorycloze eu: acc\_norm (by characters) (0-shot, guessing 50.0 %)"
    assert lines[name][2:] == ["+5.0 points", "1,511"]
    assert lines["xstorycloze eu: perplexity of labels, of the right one"][2] == ""
    assert not [line for line in lines if "both, one" in line], "a group's mean is enough"
    card = model_card(everything)
    assert "Asked by lm-eval 0.4.13. A token spans the seam between prompt and answer in 0 of 6 items." in card


def test_ladder_generation_and_alarms_are_summed_up(everything: Path) -> None:
    card = model_card(everything)
    lines = lines_of(card)
    assert lines["position: area over log₂ of demonstrations"][2:] == ["−5.0 points", "300"]
    assert "position: gain by true demonstrations over exchanged ones" in lines
    assert lines["questions: answers in the target language"][:2] == ["10.0 %", "70.0 %"]
    assert (
        "- forgetting: source text costs this much more (first in stage continued-pretraining after 61.4k tokens; "
        "2 times, largest 0.08)" in card
    )
    assert "No alarm" not in card


def test_a_run_without_alarms_says_so(finished_run: Path) -> None:
    card = model_card(finished_run)
    assert "No alarm on forgetting was raised in training." in card
    assert "### Downstream tasks" not in card


@pytest.mark.parametrize(
    "text", ["{", "[1, {}]", '{"a": 1}', '[{"filed_as": "both/one", "shots": "<b>|", "lm_eval": []}]']
)
def test_a_record_of_tasks_that_cannot_be_read_costs_the_card_nothing(everything: Path, text: str) -> None:
    (everything / "base_tasks.json").write_text(text, encoding="utf-8")
    card = model_card(everything)
    assert "<b>" not in card
    assert any(line.startswith("Basque (eu): both: acc") for line in lines_of(card))
