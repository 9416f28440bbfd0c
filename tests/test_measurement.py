"""Rows on disk."""

from pathlib import Path

import pytest

from lingraft.errors import MeasurementError
from lingraft.measurement import Measurement, read_measurements, write_measurements

ROWS = [
    Measurement("base", 0, "bits_per_byte", 1.25, "eu", 1.2, 1.3, 180),
    Measurement("base", 0, "bits_per_byte/lossy_documents", 3, "eu"),
    Measurement("s", 1024, "loss", 2.0),
]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    assert list(read_measurements(path)) == []
    write_measurements(path, ROWS[:1])
    write_measurements(path, ROWS[1:])
    assert list(read_measurements(path)) == ROWS
    assert '"low"' not in path.read_text().splitlines()[1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["value", "low", "high"])
def test_a_number_that_is_not_finite_is_refused_with_its_whole_batch(tmp_path: Path, bad: float, field: str) -> None:
    row = Measurement(**{"stage": "s", "tokens": 5, "name": "loss", "value": 1.0} | {field: bad})
    with pytest.raises(MeasurementError, match="loss at s, 5 tokens"):
        write_measurements(tmp_path / "m.jsonl", [ROWS[0], row])
    assert not (tmp_path / "m.jsonl").exists()


@pytest.mark.parametrize("torn", ['{"stage": "s", "tok', "x" * 10_000])
def test_a_torn_last_line_is_left_out_and_does_not_spoil_the_next(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "m.jsonl"
    write_measurements(path, ROWS)
    with path.open("a") as file:
        file.write(torn)
    assert list(read_measurements(path)) == ROWS
    write_measurements(path, ROWS[:1])
    assert list(read_measurements(path)) == [*ROWS, ROWS[0]]


def test_a_file_that_is_one_torn_line_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"stage')
    write_measurements(path, ROWS)
    assert list(read_measurements(path)) == ROWS
