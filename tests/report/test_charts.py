"""Figures hold the measured numbers, their intervals, and a table that says the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from lingraft.measurement import Measurement
from lingraft.report.charts import (
    bits_per_byte_charts,
    fertility_chart,
    shift_charts,
    training_charts,
)
from lingraft.report.drawing import COLOURS, Series, line_chart
from lingraft.report.reading import RunRecord, read_record


@pytest.fixture
def record(finished_run: Path) -> RunRecord:
    return read_record(finished_run)


@pytest.fixture
def other(other_run: Path) -> RunRecord:
    return read_record(other_run)


def test_a_line_a_band_and_the_base_by_hand() -> None:
    points = [Measurement("a", t, "x", v, None, v - 0.1, v + 0.2) for t, v in ((0, 2.0), (10, 1.0))]
    base = Measurement("base", 0, "x", 1.5)
    chart = line_chart("T", "C", "bits", [Series("one", points, base)])
    band, line, reference = chart.figure.data
    assert list(band.x) == [0, 10, 10, 0]
    assert list(band.y) == pytest.approx([2.2, 1.2, 0.9, 1.9])
    assert (list(line.x), list(line.y), line.name) == ([0, 10], [2.0, 1.0], "one")
    assert (list(reference.x), list(reference.y), reference.name) == ([0, 10], [1.5, 1.5], "base model")
    assert list(line.customdata) == ["2.000 [1.900, 2.200]", "1.000 [0.900, 1.200]"]
    assert chart.rows == (
        ("one", "base", "0", "1.500", ""),
        ("one", "a", "0", "2.000", "1.900 to 2.200"),
        ("one", "a", "10", "1.000", "0.900 to 1.200"),
    )


def test_stages_are_marked_and_named() -> None:
    points = [Measurement("a", t, "x", 1.0) for t in (0, 10)]
    chart = line_chart("T", "C.", "y", [Series("one", points)], [("first", 0), ("<second>", 5)])
    assert [shape.x0 for shape in chart.figure.layout.shapes] == [0, 5]
    assert chart.caption == "C. Vertical lines: 1 first, 2 <second>."


def test_labels_are_made_literal() -> None:
    chart = line_chart("T", "C", "y", [Series("<b>&", [Measurement("a", 0, "x", 1.0)])])
    assert chart.figure.data[0].name == "&lt;b&gt;&amp;"
    assert chart.rows[0][0] == "<b>&"


def test_each_language_has_its_chart_target_first(record: RunRecord) -> None:
    charts = bits_per_byte_charts([record])
    assert [c.title for c in charts] == ["Bits per byte, Basque (eu)", "Bits per byte, English (en)"]
    assert charts[0].figure.data[1].y[0] == 2.31


def test_runs_are_overlaid_in_colours_and_dashes_of_their_own(record: RunRecord, other: RunRecord) -> None:
    lines = [t for t in bits_per_byte_charts([record, other])[1].figure.data if t.name]
    assert [t.name for t in lines] == ["smollm2-basque", "without-replay", "base model"]
    assert len({t.line.color for t in lines}) == len({t.line.dash for t in lines}) == 3


def test_bases_that_differ_get_a_line_each(record: RunRecord, other: RunRecord) -> None:
    rows = tuple(replace(r, value=1.1) if (r.stage, r.language) == ("base", "en") else r for r in other.rows)
    names = [t.name for t in bits_per_byte_charts([record, replace(other, rows=rows)])[1].figure.data if t.name]
    assert names[-2:] == ["smollm2-basque: base model", "without-replay: base model"]


def test_training_has_loss_mix_rate_and_norm(record: RunRecord) -> None:
    charts = training_charts([record])
    assert [c.title for c in charts] == ["Training loss", "Mix of corpora and learning rate", "Gradient norm"]
    *shares, rate = charts[1].figure.data
    assert {t.stackgroup for t in shares} == {"mix"}
    assert sum(t.y[0] for t in shares) == pytest.approx(1)
    assert (rate.name, rate.yaxis, rate.stackgroup) == ("learning rate", "y2", None)


def test_shift_has_one_line_per_kind(record: RunRecord, other: RunRecord) -> None:
    (chart,) = shift_charts([record])
    assert [t.name for t in chart.figure.data] == ["embeddings old", "embeddings new", "attention", "mlp", "norm"]
    assert len(shift_charts([record, other])) == 2


def test_fertility_before_and_after(record: RunRecord) -> None:
    chart = fertility_chart([record])
    assert chart is not None
    assert [list(t.y) for t in chart.figure.data] == [[2.75, 1.31], [1.68, 1.31]]
    assert chart.rows[2] == ("expanded tokenizer", "Basque (eu)", "1.680")


def test_nothing_measured_gives_no_chart(record: RunRecord) -> None:
    empty = replace(record, rows=())
    assert bits_per_byte_charts([empty]) == shift_charts([empty]) == []
    assert training_charts([empty]) == []
    assert fertility_chart([empty]) is None


def test_colours_are_okabe_and_itos() -> None:
    assert {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"} <= set(COLOURS)
