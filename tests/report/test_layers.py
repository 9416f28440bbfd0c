"""The heat map by layer and drift by layer, against the rows they are drawn from."""

from dataclasses import replace
from pathlib import Path

import pytest

from lingraft.measurement import Measurement
from lingraft.report.layers import drift_charts, layer_charts
from lingraft.report.reading import RunRecord, read_record
from lingraft.report.rows import Rows


@pytest.fixture
def record(everything_run: Path) -> RunRecord:
    return read_record(everything_run)


def test_layers_go_across_kinds_down_and_the_last_moment_counts(record: RunRecord) -> None:
    (chart,) = layer_charts([record])
    (heat,) = chart.figure.data
    assert (list(heat.x), list(heat.y)) == ([0, 1, 2, 3, 4, 5], ["attention", "mlp", "norm"])
    assert heat.z[0] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01, 0.012])
    assert chart.columns == ("layer", "attention", "mlp", "norm")
    assert chart.rows[1] == ("1", "0.004", "0.0056", "0.0008")


def test_runs_have_one_scale_of_colours_and_a_layer_may_lack_a_kind(record: RunRecord) -> None:
    other = Rows([Measurement("a", 9, "shift/layer/0/mlp/relative_l2", 0.5)])
    other = Rows([*other, Measurement("a", 9, "shift/layer/3/attention/relative_l2", 0.1)])
    charts = layer_charts([record, replace(record, rows=other)])
    assert [c.figure.data[0].zmax for c in charts] == [0.5, 0.5]
    assert [list(line) for line in charts[1].figure.data[0].z] == [[0.5, None], [None, 0.1]]


def test_divergence_goes_over_tokens_and_cka_over_layers(record: RunRecord) -> None:
    divergence, likeness = drift_charts([record])
    assert list(divergence.figure.data[1].x) == [20_480, 61_440, 102_400]
    assert list(likeness.figure.data[0].y) == pytest.approx([1, 0.99, 0.98, 0.97, 0.96, 0.95])
    assert layer_charts([replace(record, rows=Rows())]) == drift_charts([replace(record, rows=Rows())]) == []
