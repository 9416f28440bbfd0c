"""Tasks' data from files: named or found beside the YAML, read anew each time."""

import os
from pathlib import Path

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.tasks.files import data_files, folder_digest, read_rows, read_splits, yaml_names


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_names_of_tasks_groups_and_tags_are_found_without_reading_yaml(tmp_path: Path) -> None:
    one = write(tmp_path / "a.yaml", "include: x\ntask: eus_one  # a remark\ntag:\n  - many\n  - more\n")
    two = write(tmp_path / "deep" / "b.yaml", "group: 'whole'\ntask:\n  - eus_one\ntag: alone\n")
    write(tmp_path / "c.yaml", "doc_to_text: 'task: nothing'\n")
    assert yaml_names(tmp_path) == {"eus_one": one, "many": None, "more": None, "whole": two, "alone": None}


def test_data_are_the_named_files_else_those_beside_the_yaml(tmp_path: Path) -> None:
    yaml = write(tmp_path / "t.yaml", "task: t\n")
    named = write(tmp_path / "rows" / "x.jsonl", "{}\n")
    config = {"task": "t", "test_split": "test", "dataset_kwargs": {"data_files": {"test": "rows/x.jsonl"}}}
    assert data_files(config, yaml) == {"test": [named]}
    plain = write(tmp_path / "test.json", "[]")
    assert data_files({"task": "t", "test_split": "test"}, yaml) == {"test": [plain]}
    own = write(tmp_path / "t.test.jsonl", "{}\n")
    assert data_files({"task": "t", "test_split": "test", "fewshot_split": "test"}, yaml) == {"test": [own]}
    assert data_files({"task": "t", "test_split": "all", "dataset_kwargs": {"data_files": ["rows/x.jsonl"]}}, yaml) == {
        "all": [named]
    }


def test_a_split_without_a_file_says_what_would_be_one(tmp_path: Path) -> None:
    yaml = write(tmp_path / "t.yaml", "task: t\n")
    with pytest.raises(MeasurementError, match=r"no data for its split 'dev': there is no .*t\.dev\.jsonl, or dev\.js"):
        data_files({"task": "t", "validation_split": "dev"}, yaml)
    given = {"task": "t", "test_split": "test", "dataset_kwargs": {"data_files": {"test": ["gone.jsonl"]}}}
    with pytest.raises(MeasurementError, match=r"there is no .*gone\.jsonl"):
        data_files(given, yaml)


def test_rows_rewritten_with_the_same_size_and_time_are_the_new_ones(tmp_path: Path) -> None:
    yaml = write(tmp_path / "t.yaml", "task: t\n")
    path = write(tmp_path / "test.jsonl", '{"a": 1}\n')
    before, times = read_splits({"task": "t", "test_split": "test"}, yaml), path.stat()
    write(path, '{"a": 2}\n')
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = read_splits({"task": "t", "test_split": "test"}, yaml)
    assert (before.splits["test"], after.splits["test"]) == ([{"a": 1}], [{"a": 2}])
    assert before.sha256 != after.sha256


def test_rows_of_every_kind(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"a": 1, "t": "ñ\u2028x"}, {"a": 2, "t": "b"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "r.parquet")
    write(tmp_path / "r.jsonl", '{"a": 1, "t": "ñ\u2028x"}\n\n{"a": 2, "t": "b"}')
    write(tmp_path / "r.json", '\ufeff[{"a": 1, "t": "ñ\u2028x"}, {"a": 2, "t": "b"}]')
    assert all(read_rows(tmp_path / f"r.{kind}") == rows for kind in ("parquet", "jsonl", "json"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.jsonl", b'{"a": 1}\n{"a": \n', r"r\.jsonl:2: not JSON"),
        ("r.jsonl", b"[1]\n", "items are JSON objects"),
        ("r.json", b'{"a": 1}', "items are JSON objects"),
        ("r.jsonl", b'{"a": "\xff"}\n', "byte 7 is not UTF-8"),
        ("r.csv", b"a\n", r"read from \.jsonl, \.json, \.parquet, not \.csv"),
        ("r.parquet", b"PAR", "not a parquet file"),
    ],
)
def test_what_is_no_row_is_told_with_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MeasurementError, match=message):
        read_rows(tmp_path / name)


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    yaml = write(tmp_path / "t.yaml", "task: t\n")
    write(tmp_path / "test.jsonl", "\n")
    with pytest.raises(MeasurementError, match="the split 'test' of 't' has no rows"):
        read_splits({"task": "t", "test_split": "test"}, yaml)


def test_the_digest_of_a_folder_knows_names_and_contents(tmp_path: Path) -> None:
    write(tmp_path / "a", "x")
    first = folder_digest(tmp_path)
    write(tmp_path / "b", "")
    second = folder_digest(tmp_path)
    write(tmp_path / "a", "y")
    assert len({first, second, folder_digest(tmp_path)}) == 3
