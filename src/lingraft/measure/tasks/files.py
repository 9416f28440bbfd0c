"""Tasks in a folder: lm-eval's YAML files with their data beside them, read without a hub and without a cache.

The data of a task are the files that its ``dataset_kwargs: {data_files: …}`` names, seen from the YAML file, or else
``TASK.SPLIT.jsonl`` (``.json``, ``.parquet``) or ``SPLIT.jsonl`` beside it: so a YAML file of lm-eval's own can be
copied as it is, next to the files that its hub data set consists of.

Rows are read anew from the bytes of the files every time and known by their hash. The cache of ``datasets`` goes by
path, size and time of change, and hands out old rows for a file that was rewritten within the same second.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.errors import MeasurementError, MissingExtraError

__all__ = [
    "SPLITS",
    "TaskData",
    "data_files",
    "files_by_name",
    "folder_digest",
    "read_rows",
    "read_splits",
    "yaml_names",
]

SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
"""The keys of a task that name a split."""

_SUFFIXES = (".jsonl", ".json", ".parquet")
_NAMED = re.compile(r"^(task|group)\s*:\s*([\"']?)([^\s\"'#]+)\2\s*(?:#.*)?$", re.MULTILINE)
_TAGS = re.compile(r"^tag[ \t]*:[ \t]*(?:\n((?:[ \t]*-[ \t]*\S+[ \t]*\n?)+)|([\w.\-\"']+))", re.MULTILINE)


@dataclass(frozen=True)
class TaskData:
    """The rows of a task by split, and the hash of the bytes they were read from."""

    splits: Mapping[str, list[dict[str, Any]]]
    sha256: str


def yaml_names(folder: Path) -> dict[str, Path | None]:
    """Return the names of tasks and groups that YAML files state, each with its file, and of tags, without one.

    Files are looked at as text: names that come about by ``include`` alone are not among them.
    """
    found: dict[str, Path | None] = {}
    for path, text in _texts(folder):
        for match in _NAMED.finditer(text):
            found.setdefault(match[3], path)
        for match in _TAGS.finditer(text):
            for tag in re.findall(r"[\w.\-]*\w", match[1] or match[2] or ""):
                found.setdefault(tag, None)
    return found


def files_by_name(folder: Path) -> dict[str, list[Path]]:
    """Return the YAML files that state each task or group of a folder; more than one is one too many."""
    found: dict[str, list[Path]] = {}
    for path, text in _texts(folder):
        for name in dict.fromkeys(match[3] for match in _NAMED.finditer(text)):
            found.setdefault(name, []).append(path)
    return found


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    # What several YAML files include often has no ending.
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", "") and path.is_file()):
        yield path, path.read_bytes().decode("utf-8-sig", errors="replace")


def folder_digest(folder: Path) -> str:
    """Return the hash of all files of a folder, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def data_files(config: Mapping[str, Any], yaml_path: Path) -> dict[str, list[Path]]:
    """Return split → files of a task.

    Args:
        config: the task's YAML, includes resolved.
        yaml_path: its file; relative names are seen from there.

    Raises:
        MeasurementError: a split that the task names has no file.
    """
    folder, task = yaml_path.parent, str(config.get("task"))
    options = config.get("dataset_kwargs") or {}
    if not isinstance(options, dict):
        raise MeasurementError(f"{yaml_path}: task {task!r}: dataset_kwargs is a mapping, as in {{data_files: …}}")
    given = options.get("data_files")
    if isinstance(given, str | list):
        given = {str(config.get("training_split") or config.get("test_split") or "train"): given}
    found: dict[str, list[Path]] = {}
    for split in dict.fromkeys(str(config[key]) for key in SPLITS if config.get(key)):
        if given is not None:
            names = given.get(split, [])
            files = [folder / name for name in ([names] if isinstance(names, str) else names)]
        else:
            beside = [folder / f"{stem}{suffix}" for stem in (f"{task}.{split}", split) for suffix in _SUFFIXES]
            files = [path for path in beside if path.is_file()][:1]
        if not files or (missing := next((path for path in files if not path.is_file()), None)):
            wanted = missing if files else f"{folder / task}.{split}.jsonl, or {split}.jsonl there"
            raise MeasurementError(
                f"{yaml_path}: task {task!r} has no data for its split {split!r}: there is no {wanted}"
            )
        found[split] = files
    return found


def read_splits(config: Mapping[str, Any], yaml_path: Path) -> TaskData:
    """Return the rows of a task, read from its files.

    Raises:
        MeasurementError: a file is missing, cannot be read, or has no rows; the message names file and line.
    """
    digest, splits = hashlib.sha256(yaml_path.read_bytes()), {}
    for split, files in data_files(config, yaml_path).items():
        rows = [row for path in files for row in read_rows(path)]
        if not rows:
            raise MeasurementError(f"{files[0]}: the split {split!r} of {config.get('task')!r} has no rows")
        splits[split] = rows
        for path in files:
            digest.update(path.read_bytes())
    return TaskData(splits, digest.hexdigest())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a ``.jsonl``, ``.json`` or ``.parquet`` file.

    Raises:
        MeasurementError: it is none of them, or cannot be read.
        MissingExtraError: it is parquet, and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    if path.suffix not in _SUFFIXES:
        raise MeasurementError(f"{path}: items are read from {', '.join(_SUFFIXES)}, not {path.suffix or 'this'}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
        rows = json.loads(text) if path.suffix == ".json" else list(_lines(text, path))
    except UnicodeDecodeError as error:
        raise MeasurementError(f"{path}: byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise MeasurementError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise MeasurementError(f"{path}: not JSON that can be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise MeasurementError(f"{path}: items are JSON objects, one a line, or a list of them in a .json file")
    return rows


def _lines(text: str, path: Path) -> Iterator[Any]:
    # Not splitlines(): a line separator within a string of JSON ends no line.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise MeasurementError(f"{path}:{number}: not JSON: {error.msg}: {line[:60]!r}") from error
            except (ValueError, RecursionError) as error:
                raise MeasurementError(f"{path}:{number}: not JSON that can be read: {error}") from error


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("reading parquet files", "parquet") from error
    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise MeasurementError(f"{path}: not a parquet file that can be read: {error}") from error
    return rows
