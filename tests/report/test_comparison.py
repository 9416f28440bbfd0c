"""Runs as arms, their comparison in words, and the page: on run folders written by hand."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lingraft.errors import MeasurementError, RunFolderError
from lingraft.item_records import ItemRecord, write_items
from lingraft.measure.paired import holm
from lingraft.measurement import Measurement, write_measurements
from lingraft.report import write_report
from lingraft.report.comparison import (
    compare_runs,
    comparison_json,
    rules_in_words,
    write_comparison,
    write_comparison_json,
)
from lingraft.report.contenders import read_experiment
from lingraft.report.pareto import pareto_chart

HOSTILE = "<script>window.hostile = 1</script>\x1b[31m\u202e"
"""What may stand in an error."""

Write = Callable[..., Path]


class Outline(HTMLParser):
    """Text and attributes of a page, and the elements that are still open at its end."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.open += [tag] if tag not in {"meta", "link", "br"} else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] not in (["script"], ["style"]) else ""

    def values(self, name: str) -> list[str | None]:
        return [value for key, value in self.attributes if key == name]


@pytest.fixture
def write(write_arm: Write, tmp_path: Path) -> Write:
    """Return a function that writes a finished run folder: target and source bits per byte, right answers of 40."""
    return lambda name, *numbers, **more: write_arm(tmp_path / name, *numbers, **more)


def test_runs_that_are_called_alike_stay_apart(write: Write, tmp_path: Path) -> None:
    """As many folders above are named as it takes: none of three runs is lost for its name."""
    for place in ("x/runs", "y/runs", "y/others"):
        (tmp_path / place).mkdir(parents=True)
        write("demo", eu=1.5).rename(tmp_path / place / "demo")
    found = read_experiment([tmp_path / place / "demo" for place in ("x/runs", "y/runs", "y/others")])
    assert [arm.name for arm in found.arms] == ["x/runs/demo", "y/runs/demo", "others/demo"]


# Reading --------------------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_the_seed_alone_are_one_arm(write: Write) -> None:
    less = {"mix": {"eu": 1.0}}
    folders = [
        write("mixed_seed-1", seed=1), write("mixed_seed-0", seed=0), write("pure_seed-0", seed=0, stage=less),
    ]  # fmt: skip
    found = read_experiment(folders)
    assert [(arm.name, arm.seeds) for arm in found.arms] == [("mixed", (0, 1)), ("pure_seed-0", (0,))]
    assert [run.name for run in found.runs["mixed"]] == ["mixed_seed-0", "mixed_seed-1"]
    assert found.settings == {
        "stages.0.mix.en": {"mixed": "0.2", "pure_seed-0": "–"},
        "stages.0.mix.eu": {"mixed": "0.8", "pure_seed-0": "1"},
    }
    assert not found.has_one_seed


def test_the_same_recipe_run_twice_is_no_second_seed(write: Write) -> None:
    assert [arm.name for arm in read_experiment([write("one"), write("two")]).arms] == ["one", "two"]


def test_averaged_weights_are_an_arm_of_their_own(write: Write) -> None:
    found = read_experiment([write("a", averaged=1.4), write("b", stage={"mix": {"eu": 1.0}})])
    assert [arm.name for arm in found.arms] == ["a", "a, averaged weights", "b"]


SHADOW = {"ema": {"kind": "shadow"}}


def test_the_recipe_states_which_weights_are_compared(write: Write) -> None:
    """`last` leaves averaged weights out, `averaged` raw ones; nothing picks the better of the two afterwards."""
    folders = [
        write(rule, averaged=1.4, stage=SHADOW, measure={"checkpoint_rule": rule})
        for rule in ("last", "averaged", "both")
    ]  # fmt: skip
    found = compare_runs(folders)
    assert [arm.name for arm in found.experiment.arms] == [
        "last", "averaged, averaged weights", "both", "both, averaged weights"]  # fmt: skip
    assert found.experiment.runs["averaged, averaged weights"][0].name == "averaged"
    assert comparison_json(found)["checkpoint_rules"]["last"] == "last"
    assert "not stated alike in all recipes" in rules_in_words(found.experiment)
    assert any("measure.checkpoint_rule): last last, averaged averaged" in note for note in found.experiment.notes)


def test_a_rule_that_all_recipes_state_is_said_once(write: Write, tmp_path: Path) -> None:
    last = {"checkpoint_rule": "last"}
    folders = [write("a", averaged=1.4, measure=last), write("b", measure=last, stage={"mix": {"eu": 1.0}})]
    found = compare_runs(folders)
    assert [arm.name for arm in found.experiment.arms] == ["a", "b"]
    assert not any("rule" in note for note in found.experiment.notes)
    page = write_comparison(found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "stated beforehand, in all recipes alike: the raw ones." in page


def test_a_run_without_the_weights_of_its_rule_is_left_out(write: Write) -> None:
    averaged = {"stage": SHADOW, "measure": {"checkpoint_rule": "averaged"}}
    found = read_experiment([write("a"), write("b", stage={"mix": {"eu": 1.0}}), write("c", **averaged)])
    assert "no averaged weights were measured" in found.left_out["c"]


def test_what_is_no_finished_run_is_left_out_by_name_and_reason(write: Write) -> None:
    folders = [write("a"), write("b", stage={"mix": {"eu": 1.0}}), write("running"), write("old")]
    (folders[2] / "steps" / "stage-1-only.json").unlink()
    (folders[3] / "items.jsonl").unlink()
    found = read_experiment(folders)
    assert "its last stage, only, is not done" in found.left_out["running"]
    assert "it has no items.jsonl" in found.left_out["old"]
    with pytest.raises(RunFolderError, match=r"(?s)two finished runs, and 1 of these are\n  running: .*lingraft run"):
        read_experiment([folders[0], folders[2]])
    with pytest.raises(RunFolderError, match="is given twice"):
        read_experiment([folders[0], folders[0]])


def test_runs_of_other_languages_are_refused(write: Write) -> None:
    other = write("b", languages={"source": "en", "target": "gl"}, stage={"mix": {"gl": 1.0}})
    with pytest.raises(MeasurementError, match="b goes from en to gl, a from en to eu"):
        compare_runs([write("a"), other])


def test_what_a_reader_must_know_of_the_runs_is_noted(write: Write) -> None:
    other = write("b", base_model="org/other", stage={"tokens": 40_960})
    notes = read_experiment([write("a"), other]).notes
    assert notes == (
        "The runs differ in base model: a model, b other.",
        "The runs differ in training tokens: a 20,480, b 40,960.",
    )


def test_probes_whose_prompts_are_other_tokens_are_not_comparable_with_the_base(write: Write) -> None:
    folder = write("b")
    gate = "prompts_tokenised_differently"
    rows = [Measurement("expanded", 0, f"probe/copain/{gate}", 3, count=40),
            Measurement("expanded", 0, f"probe/sort/{gate}", 0, count=40)]  # fmt: skip
    write_measurements(folder / "measurements.jsonl", rows)
    assert read_experiment([write("a"), folder]).notes == (
        "Not comparable with the base model: b's tokenizer cuts 3 of 40 prompts of the probe copain otherwise than the "
        "base's.",
    )


# The verdict in words -------------------------------------------------------------------------------------------------


def _three(write: Write) -> list[Path]:
    return [
        write("plain", 1.6, 1.01, stage={"mix": {"eu": 0.9, "en": 0.1}}),
        write("better", 1.5, 1.02, noise=2),
        write("greedy", 1.3, 1.3, noise=3, stage={"mix": {"eu": 1.0}}),
    ]


def test_a_sure_recommendation(write: Write) -> None:
    words = compare_runs(_three(write)).recommendation
    assert (words.headline, words.kind) == ("Ship “better”.", "sure")
    assert words.reasons[0].startswith("Basque (eu): “better” needs 1.497 bits")
    assert "bits for a byte of text, the base model 1.999" in words.reasons[0]
    assert words.reasons[0].endswith("): better.")
    assert words.reasons[1].startswith("English (en): “better” needs 1.015 bits")
    assert words.reasons[1].endswith("): worse. +0.050 (5 %) would have been allowed.")
    assert words.caveat.startswith("One training run per arm: item uncertainty only.")
    told = "\n".join(words.reasons)
    assert "Worse for Basque (eu) than “better”, told apart: “plain”, by 0.1" in told
    assert "“greedy” is not to be shipped: English (en) text costs +0.29" in told


def test_a_tie_is_said(write: Write, tmp_path: Path) -> None:
    folders = [write("a", 1.5, 1.0), write("b", 1.5, 1.03, noise=2, stage={"mix": {"eu": 1.0}})]
    found = compare_runs(folders)
    words = found.recommendation
    assert words.kind == "unsure"
    assert words.headline == "Ship “a”; the data do not tell its gain from that of “b”."
    told = "\n".join(words.reasons)
    assert "more bits per byte than “b”, not told apart (p 0.094 by Holm's rule). A difference of 0.0" in told
    assert "costs English (en) least" in told
    assert found.verdict.tied
    page = write_comparison(found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert (
        "for the 1 by which the arm is chosen (and one of English (en), by itself), which are marked, and for the 1 others."
        in page
    )


def test_a_limit_that_an_interval_lies_across_is_said(write: Write) -> None:
    folders = [write("more", 1.3, 1.052), write("less", 1.6, 1.0, noise=2, stage={"mix": {"eu": 1.0}})]
    limit = compare_runs(folders).verdict.standing("more").loss
    assert limit is not None
    words = compare_runs(folders, limits={"source_rise": (limit.low + limit.value) / 2}).recommendation
    expected = "Ship “less”; whether “more”, which would gain more, costs too much is not settled."
    assert (words.headline, words.kind) == (expected, "unsure")
    assert "is allowed, and the interval reaches below; its gain is 0." in "\n".join(words.reasons)
    words = compare_runs(folders, limits={"source_rise": (limit.high + limit.value) / 2}).recommendation
    assert words.headline == "Ship “more”; whether it costs no more than it may is not settled."


def test_no_arm_is_recommended_where_all_cost_too_much(write: Write) -> None:
    folders = [write("a", 1.5, 1.2), write("b", 1.4, 1.3, noise=2, stage={"mix": {"eu": 1.0}})]
    words = compare_runs(folders).recommendation
    assert words.kind == "none"
    assert words.headline.startswith(
        "Ship none of them: every arm costs more than it may. “a” costs the source language"
    )
    assert compare_runs(folders, limits={"source_rise": 0.25}).verdict.chosen == "a"


def test_lost_in_context_learning_is_named(write: Write) -> None:
    folders = [write("a", 1.5, 1.0), write("b", 1.3, 1.0, right=10, noise=2, stage={"mix": {"eu": 1.0}})]
    found = compare_runs(folders)
    assert found.verdict.chosen == "a"
    assert any(
        "“b” is not to be shipped: in-context learning has clearly fallen" in r for r in found.recommendation.reasons
    )


def test_several_seeds_are_said_and_their_spread_shown(write: Write, tmp_path: Path) -> None:
    folders = [write(f"a_seed-{seed}", 1.5 + seed / 50, noise=seed, seed=seed) for seed in range(3)]
    folders += [
        write(f"b_seed-{seed}", 1.6 + seed / 50, noise=9 + seed, seed=seed, stage={"mix": {"eu": 1.0}})
        for seed in range(3)
    ]  # fmt: skip
    found = compare_runs(folders)
    assert found.verdict.chosen == "a"
    assert "3 training runs per arm that differ in their seed" in found.recommendation.caveat
    outline = Outline(write_comparison(found, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "standard deviation over seeds0.02" in outline.text


# The page -------------------------------------------------------------------------------------------------------------


def test_the_page_says_what_to_do_before_anything_else(write: Write, tmp_path: Path) -> None:
    found = compare_runs(_three(write), failed={"broken": f"the loss is not a number\n{HOSTILE}", "hostile": HOSTILE})
    text = write_comparison(found, tmp_path / "page.html", title="shares").read_text(encoding="utf-8")
    outline = Outline(text)
    assert outline.open == []
    identifiers = outline.values("id")
    assert len(identifiers) == len(set(identifiers))
    links = [str(href)[1:] for href in outline.values("href") if str(href).startswith("#")]
    assert set(links) <= set(identifiers)
    assert outline.text.index("Ship “better”.") < outline.text.index("What each arm gains and what it costs")
    assert "model: 5 ways of teaching it Basque (eu) without losing English (en)" in outline.text
    assert "broken: failed: the loss is not a number" in outline.text
    assert "<script>window" not in text
    assert "␛[31m⟦U+202E⟧" in outline.text
    assert not [href for href in (*outline.values("src"), *outline.values("href")) if str(href).startswith("http:")]


def test_the_page_on_several_runs_takes_the_comparison_in(write: Write, tmp_path: Path) -> None:
    """The same sections, word for word, before what is told of each run; `compare` and `report` count once."""
    folders = [write("a"), write("b", eu=1.7, stage={"mix": {"eu": 1.0}})]
    alone = write_comparison(compare_runs(folders), tmp_path / "compare.html").read_text(encoding="utf-8")
    whole = write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8")
    parts = alone[alone.index('<section id="recommendation"') : alone.rindex("</section>")]
    assert "Ship “a”." in parts
    assert parts in whole
    assert whole.index('id="reading"') < whole.index('id="summary"')
    outline = Outline(whole)
    assert outline.values("href").count("#recommendation") == 1
    assert len(outline.values("id")) == len(set(outline.values("id")))
    one = write_report(folders[:1], tmp_path / "one.html").read_text(encoding="utf-8")
    assert 'id="recommendation"' not in one


def test_what_is_not_comparable_stands_on_the_page_with_its_reason(write: Write, tmp_path: Path) -> None:
    folders = [write("a"), write("b", stage={"mix": {"eu": 1.0}}), write("c", text="2b", stage={"tokens": 40_960})]
    found = compare_runs(folders)
    assert [(one.quantity.label, one.second) for one in found.refused] == [("bits per byte, eu", "c")]
    assert "other held-out text" in found.refused[0].reason
    assert "“c” is not judged: bits per byte, eu: other held-out text" in "\n".join(found.recommendation.reasons)
    outline = Outline(write_comparison(found, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "bits per byte, Basque (eu), c against a: other held-out text" in outline.text


def test_perplexity_per_token_is_not_ranked_across_tokenizers(write: Write, tmp_path: Path) -> None:
    folders = [write("a"), write("b", stage={"mix": {"eu": 1.0}})]
    for number, folder in enumerate(folders):
        (folder / "vocabulary").mkdir()
        (folder / "vocabulary" / "tokenizer.json").write_text(json.dumps({"model": number}))
    found = compare_runs(folders)
    outline = Outline(write_comparison(found, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "perplexity per token: the runs have 2 different tokenizers" in outline.text
    assert any(note.startswith("The runs differ in tokenizer: a ") for note in found.experiment.notes)


def test_probes_with_other_options_are_refused(write: Write) -> None:
    probes = [{"probes": [{"name": "copain", "num_items": count}]} for count in (8, 7)]
    found = compare_runs([write("a", measure=probes[0]), write("b", measure=probes[1])])
    assert [one.reason for one in found.refused if one.quantity.is_probe] == [
        "other options of the probe (a: copain(num_items=8), b: copain(num_items=7))"
    ]


def test_tasks_asked_otherwise_are_refused(write: Write) -> None:
    """O-73: two versions of one harness give different numbers; O-67: so does another language of the prompt."""
    folders = [write("a"), write("b", stage={"mix": {"eu": 1.0}})]
    for folder, version, spoken in zip(folders, ("0.4.13", "0.4.9"), ("eu", "eu"), strict=True):
        write_items(folder / "items.jsonl", [ItemRecord("only", 1, "task/xnli_eu", "0", {"acc": 1.0}, "eu")])
        told = {"filed_as": "xnli_eu", "language": "eu", "lm_eval": version, "prompt_language": spoken}
        (folder / "tasks").mkdir()
        (folder / "tasks" / "only-1.json").write_text(json.dumps([told]))
    refused = [one for one in compare_runs(folders).refused if one.quantity.name == "task/xnli_eu"]
    assert [one.reason for one in refused] == ["other version of lm-eval (a: 0.4.13, b: 0.4.9)"]


def test_the_numbers_are_written_as_plain_values(write: Write, tmp_path: Path) -> None:
    found = compare_runs(_three(write))
    told = json.loads(write_comparison_json(found, tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert told == json.loads(json.dumps(comparison_json(found)))
    assert (told["chosen"], told["reference"], len(told["arms"])) == ("better", "plain", 3)
    assert told["arms"][1]["levels"]["bits per byte, eu"]["after"] == pytest.approx(1.5, abs=0.01)
    assert told["arms"][0]["falls"]["probe/copain, exact match"]["value"] == 0.0
    pairs = {(one["first"], one["second"]) for one in told["differences"]}
    assert pairs == {("plain", "better"), ("plain", "greedy"), ("better", "greedy")}


def test_what_the_choice_rests_on_is_told_apart_alike_in_words_and_in_the_tables(write: Write, tmp_path: Path) -> None:
    """Two arms are held against the best by what they gain: p counts twice for the smaller, whatever else is tabled."""
    folders = [
        write("best", 1.5, 1.0),
        write("near", 1.506, 1.01, noise=2, stage={"mix": {"eu": 1.0}}),
        write("far", 1.6, 0.9, noise=3, stage={"mix": {"eu": 0.5, "en": 0.5}}),
    ]
    found = compare_runs(folders)
    decisive = {one.second: one for one in found.matches if one.is_decisive and one.first == "best"}
    gains = {one.second: one for one in found.verdict.gains}
    assert decisive.keys() == gains.keys() == {"near", "far"}
    assert all(decisive[name].adjusted == gains[name].adjusted for name in gains)
    assert gains["far"].adjusted == pytest.approx(2 * gains["far"].p)
    others = [one for one in found.matches if not one.is_decisive]
    assert [one.adjusted for one in others] == list(holm([one.p for one in others]))
    page = Outline(write_comparison(found, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"for the 2 by which the arm is chosen, which are marked, and for the {len(others)} others." in page.text


def test_the_chart_has_a_point_for_each_arm_with_intervals_both_ways(write: Write) -> None:
    verdict = compare_runs(_three(write)).verdict
    chart = pareto_chart(verdict)
    assert chart is not None
    points = [trace for trace in chart.figure.data if trace.mode == "markers"]
    assert [trace.name for trace in points] == ["plain", "better (recommended)", "greedy"]
    assert points[1].y[0] == pytest.approx(-0.5, abs=0.01)
    assert chart.figure.layout.yaxis.autorange == "reversed"
    assert len(chart.figure.layout.shapes) == 1
    assert points[1].x[0] == pytest.approx(0.02, abs=0.01)
    assert points[1].error_x.array[0] > 0
    assert points[1].error_y.arrayminus[0] > 0
    front = next(trace for trace in chart.figure.data if trace.mode == "lines")
    assert len(front.x) == 3
    assert [row[0] for row in chart.rows] == ["plain", "better", "greedy"]
    assert [row[3] for row in chart.rows] == ["yes", "yes", "no"]
