"""From the paths of a recipe to the files behind them, and an account of the files that are passed over."""

import glob
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.errors import CorpusError, nearest
from lingraft.polling import poll
from lingraft.run import hash_file

__all__ = ["Sources", "find_files", "find_sources"]

_KINDS = tuple(f"{kind}{packed}" for kind in (".txt", ".jsonl") for packed in ("", ".gz", ".zst"))
_KINDS_LISTED = ".txt, .jsonl (also .gz, .zst) or .parquet"
_UNKNOWN = "not of a kind that can be read, by its name"
_NO_FILE = "a pipe, a socket or a device"
_HIDDEN = "hidden: its name begins with a dot"


@dataclass(frozen=True)
class Sources:
    """The files of a corpus.

    Attributes:
        files: those that are read, sorted by path, each once.
        ignored: those that a folder or glob also holds, each with the reason why it is not read.
        copies: files whose bytes are those of another, with that other; they are not read either.
    """

    files: tuple[Path, ...]
    ignored: tuple[tuple[Path, str], ...] = ()
    copies: tuple[tuple[Path, Path], ...] = ()


def find_files(paths: Sequence[str], where: str) -> list[Path]:
    """Return the readable files behind files, folders and globs, as :func:`find_sources` finds them."""
    return list(find_sources(paths, where).files)


def find_sources(paths: Sequence[str], where: str) -> Sources:
    """Return the readable files behind files, folders and globs, sorted by path, each once, and what was passed over.

    A folder is searched with its sub-folders, for ``.txt``, ``.jsonl`` and ``.parquet``, the first two also as ``.gz``
    or ``.zst``; links to folders are followed, but not in circles. Files of other names, and names that begin with a
    dot, are passed over and listed. A file that is reached twice, also over a link, is read once; so is one whose
    content is that of another.

    Args:
        paths: the files, folders and globs.
        where: the recipe path that named them, such as ``corpora.eu.path``, for messages.

    Raises:
        CorpusError: a path leads to no such file, to a link that leads nowhere, or to a name that is not UTF-8; the
            message names ``where``, the path and the nearest name there is.
    """
    found: dict[Path, Path] = {}
    ignored: dict[Path, str] = {}
    for given in paths:
        matches = [match for match in _expand(given, where) if _is_wanted(match, ignored, where)]
        if not matches:
            hint = f"; of {len(ignored)} other files the first is {next(iter(ignored))}" if ignored else ""
            raise CorpusError(f"{where}: {given!r} leads to no {_KINDS_LISTED} file{hint}")
        for path, _ in sorted(matches):
            found.setdefault(path.resolve(), path)
    files, copies = _without_copies(sorted(found.values()))
    return Sources(tuple(files), tuple(sorted(ignored.items())), tuple(copies))


def _is_wanted(match: tuple[Path, str], ignored: dict[Path, str], where: str) -> bool:
    path, reason = match
    if not reason and path.is_symlink() and not path.exists():
        raise CorpusError(f"{where}: {str(path)!r} is a link that leads nowhere ({os.readlink(path)})")
    if not reason and not _is_unicode(path.name):
        raise CorpusError(f"{where}: the name of the file {os.fsencode(path)!r} is not UTF-8; rename it")
    if reason:
        ignored[path] = reason
    return not reason


def _expand(given: str, where: str) -> Iterator[tuple[Path, str]]:
    """Yield the files behind one path, each with the reason for which it is passed over, or an empty one."""
    path = Path(given)
    if not given:
        raise CorpusError(f"{where}: a path is empty; name a file, a folder or a glob")
    if path.is_file():
        if not _is_readable(path):
            raise CorpusError(f"{where}: {given!r} is not a file of a kind that can be read: {_KINDS_LISTED}")
        yield path, ""
    elif path.is_dir():
        yield from _walk(path, frozenset())
    elif glob.has_magic(given):
        for match in _glob(path):
            if not match.is_dir():
                yield match, _why_passed_over(match)
    elif path.is_symlink():
        raise CorpusError(f"{where}: {given!r} is a link that leads nowhere ({os.readlink(path)})")
    elif path.exists():
        raise CorpusError(f"{where}: {given!r} is {_NO_FILE}; text is read from files, more than once")
    else:
        raise CorpusError(f"{where}: {given!r} does not exist{_nearest_existing(path)}{_hub_hint(path)}")


def _glob(pattern: Path) -> Iterable[Path]:
    """Links to folders are not followed behind ``**``: there they could lead in circles."""
    if "**" not in pattern.parts:
        return map(Path, glob.glob(str(pattern)))
    magic = next(index for index, part in enumerate(pattern.parts) if glob.has_magic(part))
    base, rest = Path(*pattern.parts[:magic]), Path(*pattern.parts[magic:])
    found = base.glob(str(rest))
    return (match for match in found if not any(_is_hidden(part) for part in match.relative_to(base).parts))


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[tuple[Path, str]]:
    inside = above | {folder.resolve()}
    for entry in sorted(folder.iterdir()):
        if _is_hidden(entry.name):
            yield entry, _HIDDEN
        elif not entry.is_dir():
            yield entry, _why_passed_over(entry)
        elif entry.is_symlink() and entry.resolve() in inside:
            yield entry, "a link to a folder that it lies in"
        else:
            yield from _walk(entry, inside)


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _why_passed_over(path: Path) -> str:
    """Return why a file of a folder is not read, or nothing; of a pipe one would wait for ever for the first line."""
    if not _is_readable(path):
        return _UNKNOWN
    return _NO_FILE if path.exists() and not path.is_file() else ""


def _is_readable(path: Path) -> bool:
    return path.name.endswith((*_KINDS, ".parquet"))


def _without_copies(files: list[Path]) -> tuple[list[Path], list[tuple[Path, Path]]]:
    """Part the files that equal an earlier one; only files of the same size are read for it."""
    sizes: defaultdict[int, list[Path]] = defaultdict(list)
    for path in files:
        sizes[path.stat().st_size].append(path)
    first: dict[str, Path] = {}
    copies: dict[Path, Path] = {}
    for size, same in sizes.items():
        for path in same if size and len(same) > 1 else ():
            original = first.setdefault(hash_file(path, poll), path)
            if original is not path:
                copies[path] = original
    return [path for path in files if path not in copies], sorted(copies.items())


def _is_unicode(name: str) -> bool:
    """Return whether a name, as the system gives it, can be written: its bytes need not be text."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


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
