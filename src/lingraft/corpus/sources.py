"""From the paths of a recipe to the files behind them."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lingraft.errors import CorpusError, nearest

__all__ = ["find_files"]

_KINDS = tuple(f"{kind}{packed}" for kind in (".txt", ".jsonl") for packed in ("", ".gz", ".zst"))
_KINDS_LISTED = ".txt, .jsonl (also .gz, .zst) or .parquet"


def find_files(paths: Sequence[str], where: str) -> list[Path]:
    """Return the readable files behind files, folders and globs, sorted by path, each once.

    A folder is searched with its sub-folders, for ``.txt``, ``.jsonl`` and ``.parquet``, the first two also
    as ``.gz`` or ``.zst``; other files in it, and names that begin with a dot, are not corpus files. A file
    that is reached twice, also over a symbolic link, is read once.

    Args:
        paths: the files, folders and globs.
        where: the recipe path that named them, such as ``corpora.eu.path``, for messages.

    Raises:
        CorpusError: a path leads to no such file; the message names ``where``, the path and the nearest name
            there is.
    """
    found: dict[Path, Path] = {}
    for given in paths:
        matches = _expand(given, where)
        if not matches:
            raise CorpusError(f"{where}: {given!r} leads to no {_KINDS_LISTED} file")
        for path in sorted(matches):
            found.setdefault(path.resolve(), path)
    return sorted(found.values())


def _expand(given: str, where: str) -> list[Path]:
    path = Path(given)
    if path.is_file():
        if not _is_readable(path):
            raise CorpusError(f"{where}: {given!r} is not a file of a kind that can be read: {_KINDS_LISTED}")
        return [path]
    if path.is_dir():
        return [file for file in _walk(path) if _is_readable(file)]
    if glob.has_magic(given):
        return [
            match for match in map(Path, glob.glob(given, recursive=True)) if match.is_file() and _is_readable(match)
        ]
    raise CorpusError(f"{where}: {given!r} does not exist{_nearest_existing(path)}{_hub_hint(path)}")


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if not name.startswith("."))


def _is_readable(path: Path) -> bool:
    return path.name.endswith((*_KINDS, ".parquet"))


def _nearest_existing(path: Path) -> str:
    """Compare the first part that is missing with what stands in its place."""
    while not path.parent.is_dir() and path.parent != path:
        path = path.parent
    return nearest(path.name, [item.name for item in path.parent.iterdir()]) if path.parent.is_dir() else ""


def _hub_hint(path: Path) -> str:
    """Recipes make paths absolute, so a dataset's name arrives as the end of a path without its folder."""
    if len(path.parts) < 2 or path.parent.exists() or path.suffix:
        return ""
    return f" (for the Hugging Face dataset {'/'.join(path.parts[-2:])}, add split: train)"
