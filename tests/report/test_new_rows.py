"""What the page says of the new rows: what they cost, where they came from, their lengths, the bake-off."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lingraft.measurement import Measurement, write_measurements
from lingraft.report.new_rows import bakeoff_table, new_rows
from lingraft.report.reading import RunRecord, read_record

HOSTILE = "<img src=x onerror=1>\x1b[31m\u202e"


def run(folder: Path, steps: Mapping[str, Any], rows: list[Measurement] | None = None) -> RunRecord:
    """Return what is read of a folder that holds steps and measurements, and nothing else that is needed."""
    (folder / "steps").mkdir(parents=True)
    for name, record in steps.items():
        (folder / "steps" / f"{name}.json").write_text(json.dumps({"inputs": "x", "record": record}), encoding="utf-8")
    write_measurements(folder / "measurements.jsonl", rows or [])
    return read_record(folder)


def norms(side: str, old: float, new: float, script: float | None = None) -> list[Measurement]:
    values = {"old": old, "script": script, "new": new}
    return [
        Measurement("expanded", 0, f"norm/{side}/{kind}", value, count=1_000)
        for kind, value in values.items()
        if value is not None
    ]


def tasting(label: str, last: float | None, failure: str | None = None) -> dict[str, Any]:
    target = {"0": 2.5, "50": last} if last is not None else {}
    return {"label": label, "target": target, "source": {"0": 0.9, "50": 0.95} if target else {}, "failure": failure}


def test_rows_are_counted_by_where_they_came_from_and_fallbacks_warn(tmp_path: Path) -> None:
    counts = {"copied": 49_152, "initialised": 1_990, "fallback": 10, "padding": 48}
    whole = {"copied": 49_152, "initialised": 2_000}
    page = new_rows(run(tmp_path, {"embeddings": {"methods": "focus", "input": counts, "output": whole}}))
    assert page.count('class="warning"') == 1
    assert "! For 10 of 2,000 new input rows the method could not be used" in page
    assert "embeddings/origins-input.jsonl" in page
    for number in ("49,152", "1,990", "2,000", "48"):
        assert f">{number}<" in page


def test_what_rows_and_head_cost_by_hand(finished_run: Path, tmp_path: Path) -> None:
    vocabulary, recipe = tmp_path / "vocabulary", (finished_run / "recipe.yaml").read_text("utf-8")
    vocabulary.mkdir()
    (vocabulary / "expansion.json").write_text(json.dumps({"num_old": 1_000}), "utf-8")
    (tmp_path / "recipe.yaml").write_text(recipe, "utf-8")
    (tmp_path / "embeddings/model").mkdir(parents=True)
    (tmp_path / "embeddings/model/config.json").write_text('{"hidden_size": 512}', "utf-8")
    rows = [Measurement(s, 0, "tokens_per_byte", v, "eu") for s, v in (("base", 0.5), ("expanded", 0.25))]
    step = {"rows": 2_048, "tied": False, "input": {"copied": 2_000, "padding": 48}, "output": {"copied": 2_048}}
    page = new_rows(run(tmp_path, {"embeddings": step}, rows))
    # 2,048 · 512 · 2 matrices · 4 bytes = 8 MiB; 2 · 1,000 · 512 · 0.5 and 2 · 2,048 · 512 · 0.25.
    assert "1,000 tokens, a matrix now has 2,048 rows, 48 of them padding; input and head have a matrix each" in page
    assert "matrix each: 8 MiB" in page
    assert "For a byte of Basque (eu) the head computes 0.51 MFLOP before and 0.52 after" in page


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (1.0, 1.21, "In the median new input rows are 21% longer than old ones; rows that come out longer"),
        (1.0, 0.5, "In the median new input rows are 50% shorter than old ones;"),
        (1.0, 1.19, None),
        (1.0, 0.81, None),
        (0.0, 1.0, None),
    ],
)
def test_rows_whose_length_stands_out_are_told(tmp_path: Path, old: float, new: float, words: str | None) -> None:
    page = new_rows(run(tmp_path, {}, norms("input", old, new)))
    assert "Lengths of rows before training" in page
    assert (words in page) if words else ("In the median" not in page)


def test_each_matrix_has_its_line_and_both_share_one_sentence(tmp_path: Path) -> None:
    rows = [*norms("input", 2.0, 3.0, 1.5), *norms("output", 1.0, 0.5)]
    page = new_rows(run(tmp_path, {}, rows))
    for value in ("2.000", "1.500", "3.000", "1.000", "0.500"):
        assert f"{value}<small> of 1,000</small>" in page
    assert "new input rows are 50% longer than old ones and new output rows are 50% shorter than old ones;" in page
    assert page.count("2407.12869") == 1
    assert "—" in page


def test_the_bakeoff_marks_what_was_chosen_and_says_why_one_failed(tmp_path: Path) -> None:
    tastings = [tasting("mean", 2.9401), tasting("align", 2.4484), tasting("omp", None, "no shared token")]
    record = run(tmp_path, {"bakeoff": {"chosen": "align", "tastings": tastings}})
    page = bakeoff_table(record)
    for words in ("2.9401", "2.4484", "0.9500", "target, step 0", "target, step 50", "source, step 50"):
        assert words in page
    assert page.count("✓ chosen") == 1
    assert page.index("align") < page.index("✓ chosen") < page.index("omp")
    assert page.count("✕ failed") == 1
    assert "no shared token" in page
    assert "Values at step 0 do not predict which that will be (arXiv 2608.03494)" in page
    assert record.bakeoff["chosen"] == "align"


def test_a_bakeoff_in_which_all_failed_still_says_why(tmp_path: Path) -> None:
    page = bakeoff_table(run(tmp_path, {"bakeoff": {"tastings": [tasting("omp", None, "no donor")]}}))
    assert "no donor" in page


def test_rows_of_the_bakeoff_are_no_training(tmp_path: Path) -> None:
    rows = [Measurement("bakeoff", 25_600, "bits_per_byte/align", 2.4, "eu")]
    assert run(tmp_path, {}, rows).stages == ()


def test_without_records_there_is_nothing(tmp_path: Path) -> None:
    record = run(tmp_path, {})
    assert new_rows(record) == ""
    assert bakeoff_table(record) == ""
    assert record.init_methods is None
    assert record.bakeoff == {}


def test_hostile_labels_and_reasons_are_text(tmp_path: Path) -> None:
    steps = {
        "embeddings": {"methods": HOSTILE, "input": {"copied": HOSTILE, "fallback": HOSTILE}},
        "bakeoff": {"chosen": HOSTILE, "tastings": [tasting(HOSTILE, 2.0), tasting("b", None, HOSTILE)]},
    }
    record = run(tmp_path, steps)
    for block in (new_rows(record), bakeoff_table(record)):
        assert "<img" not in block
        assert not set("\x1b\u202e") & set(block)
        assert "⟦U+202E⟧" in block
