"""Scores of single items on disk."""

import json
from pathlib import Path

import pytest

from lingraft.errors import MeasurementError
from lingraft.item_records import ItemRecord, read_items, write_items
from lingraft.measurement import Measurement
from lingraft.run import Run

RECORDS = [
    ItemRecord("base", 0, "probe/copain/min", "7", {"exact_match": 1.0, "gold_log_probability": -0.25}),
    ItemRecord("s", 64, "bits_per_byte", "ab12", {"bits": 10.5, "bytes": 8.0}, "eu", "page 3", averaged=True),
]


def test_records_come_back_in_order_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    assert list(read_items(path)) == []
    write_items(path, RECORDS[:1])
    with path.open("a") as file:
        file.write('{"stage": "s", "tok')
    write_items(path, RECORDS[1:])
    assert list(read_items(path)) == RECORDS
    assert '"averaged"' not in path.read_text().splitlines()[0]


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_score_that_is_not_finite_is_refused_with_its_whole_batch(tmp_path: Path, bad: float) -> None:
    record = ItemRecord("s", 5, "task/x", "3", {"gold_log_probability": bad})
    with pytest.raises(MeasurementError, match="task/x, item 3: gold_log_probability is"):
        write_items(tmp_path / "items.jsonl", [RECORDS[0], record])
    assert not (tmp_path / "items.jsonl").exists()


def test_a_line_that_is_no_record_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    write_items(path, RECORDS)
    with path.open("a") as file:
        file.write('{"stage": "s"}\n')
    with pytest.raises(MeasurementError, match=r"items\.jsonl:3: not an item's record"):
        list(read_items(path))


@pytest.mark.parametrize(
    ("field", "value"),
    [("scores", {"exact_match": "x"}), ("scores", [1.0]), ("name", 5), ("item", None), ("tokens", "1"), ("cluster", 7)],
)
def test_a_field_of_another_kind_is_no_record(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "items.jsonl"
    sound = {"stage": "s", "tokens": 1, "name": "probe/copain/min", "item": "0", "scores": {"exact_match": 1}}
    path.write_text(json.dumps(sound | {field: value}) + "\n")
    with pytest.raises(MeasurementError, match=r"items\.jsonl:1: not an item's record"):
        list(read_items(path))


def test_a_run_forgets_items_with_the_measurements_of_the_same_moment(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record_items(RECORDS)
    run.measure([Measurement("s", 64, "loss", 1.0), Measurement("s", 32, "loss", 2.0)])
    run.forget_measurements_after("s", 32)
    assert run.items() == RECORDS[:1]
    assert [row.tokens for row in run.measurements()] == [32]
    run.forget_measurements_of("base")
    assert run.items() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.jsonl", "measurements.jsonl"]
