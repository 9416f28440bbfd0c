"""Probes on the page: names taken apart, task tables, ladders, baselines, and what cannot be compared."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lingraft.measurement import Measurement
from lingraft.report.blocks import Figures
from lingraft.report.probing import probes_of
from lingraft.report.reading import RunRecord, read_record
from lingraft.report.rows import Rows


def words(markup: str) -> str:
    """Return the text of markup on one line."""
    parser, found = HTMLParser(), []
    parser.handle_data = found.append  # type: ignore[method-assign]
    parser.feed(markup)
    return " ".join(" ".join(found).split())


@pytest.fixture
def record(everything_run: Path) -> RunRecord:
    return read_record(everything_run)


def test_the_mean_of_copain_stands_beside_its_baseline(record: RunRecord) -> None:
    figures = Figures()
    text = words(probes_of([record], figures))
    copain = next(f for f in figures.specifications if any("picking" in t.get("name", "") for t in f["data"]))
    assert copain["layout"]["yaxis"]["tickformat"] == ".0%"
    assert "any element of the list, by chance 31.0 % the first element 32.5 %" in text
    assert "max 41.0 % → 39.0 % [29.0 %, 49.0 %], −2.0 points 97.0 % → 97.0 %" in text
    assert "5-shot-arrow, max 41.0 % → 36.0 %" in text


def test_a_ladder_has_base_end_and_exchanged_answers_over_k(record: RunRecord) -> None:
    figures = Figures()
    probes_of([record], figures)
    ladders = [f for f in figures.specifications if f["layout"]["xaxis"]["title"]["text"] == "demonstrations (k)"]
    assert len(ladders) == 6
    base, end, control = ladders[0]["data"]
    assert (base["name"], base["x"]) == ("base model", [-1, 0, pytest.approx(1.585, abs=1e-3), 3, 4])
    assert end["y"] == pytest.approx([0.15, 0.25, 0.35, 0.467, 0.5587], abs=1e-3)
    assert (control["name"], control["y"]) == ("adapted model, answers exchanged", [0.25] * 4)
    assert ladders[0]["layout"]["xaxis"]["ticktext"] == ["0", "1", "3", "8", "16"]


def test_prompts_that_are_other_tokens_are_not_comparable(record: RunRecord) -> None:
    text = words(probes_of([record], Figures()))
    assert "Not comparable with the base model" in text
    assert "Sort : 12 of 300 prompts; in all 9,100 tokens before, 9,044 after." in text
    alike = Rows(replace(r, value=0) if r.name.endswith("differently") else r for r in record.rows)
    assert "before and after are comparable" in words(probes_of([replace(record, rows=alike)], Figures()))


def test_original_items_are_labelled_so(record: RunRecord) -> None:
    assert "Copain-style tasks (regenerated items)" in words(probes_of([record], Figures()))
    rows = Rows([*record.rows, Measurement("base", 0, "probe/copain/original_items", 1.0)])
    assert "Copain-style tasks (original items)" in words(probes_of([replace(record, rows=rows)], Figures()))


def test_a_probe_that_nobody_knows_gets_a_table_and_no_probes_a_sentence(record: RunRecord) -> None:
    rows = Rows(
        [Measurement("base", 0, "probe/other/some_task/acc", 0.5), Measurement("a", 9, "probe/other/x/acc", 0.7)]
    )
    assert "some task 50.0 % → —" in words(probes_of([replace(record, rows=rows)], Figures()))
    assert "No probe was measured yet" in probes_of([replace(record, rows=Rows())], Figures())
