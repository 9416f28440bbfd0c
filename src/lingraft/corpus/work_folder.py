"""A folder in which tasks prepare a corpus together belongs to one preparation of it, and refuses any other."""

import dataclasses
import functools
import inspect
import json
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from lingraft.corpus.document import escape
from lingraft.corpus.prepare import Place, Preparation
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import hash_file, write_file
from lingraft.version import __version__

__all__ = ["claim_folder", "refuse_changed_sources"]

_RECORD = "work.json"
_SHOWN = 5
# These are asked for when all tasks are done: after another answer nothing has to be read again.
_ASKED_LAST = ("reading.max_bad_fraction", "max_other_script")


def claim_folder(
    work: Path, name: str, place: Place, preparation: Preparation, *, tasks: int, made: Collection[str]
) -> None:
    """Make a folder the place of one preparation, or check that it already is.

    What is written down is all that decides on what tasks hand to each other: the files by name and content, the
    options, the functions among them with the files that they stand in, a language model's content, the number of
    tasks, the versions of lingraft and of Unicode. Where the files lie does not count.

    Args:
        work: the folder, which may not be there yet.
        name: of the corpus in the recipe.
        place: its files.
        preparation: the options.
        tasks: parts that the files are cut into.
        made: names of what tasks make in the folder: where one is there without a record, it is of unknown origin.

    Raises:
        CorpusError: it is the place of another one; the message names what differs.
    """
    path, told = work / _RECORD, _told(name, place, preparation, tasks)
    way_out = "Give another work folder, or remove this one to begin anew"
    if not path.exists():
        if found := next((each for each in made if (work / each).exists()), None):
            raise CorpusError(f"{work}: it holds {found}, and no record of what text and options that is of. {way_out}")
        write_file(path, json.dumps(told, indent=1) + "\n")
        return
    stored = _stored(path, way_out)
    differences = [*_changed_files(stored["files"], told["files"]), *_changed_values(stored, told)]
    if differences:
        listed = "\n  ".join(differences[:_SHOWN])
        more = f"\n  and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise CorpusError(f"{work}: what it holds was made otherwise. {way_out}, or undo these:\n  {listed}{more}")


def refuse_changed_sources(work: Path, sources: list[Mapping[str, Any]]) -> None:
    """Check that files are still what they were when the work was begun; nothing is said of a folder without a record.

    Args:
        work: the folder.
        sources: each file's ``file`` and ``sha256``, as a data report lists them.

    Raises:
        CorpusError: a file was changed while tasks read, so that no one knows which of it they have read.
    """
    path = work / _RECORD
    if not path.exists():
        return
    now = [[source["file"], source["sha256"]] for source in sources]
    changed = next(_changed_files(_stored(path, "Remove this folder to begin anew")["files"], now), None)
    if changed:
        raise CorpusError(f"{work}: the files were changed while they were read. Remove it to begin anew: {changed}")


def _stored(path: Path, way_out: str) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        files, options = stored["files"], stored["options"]
        is_sound = all(isinstance(name, str) and isinstance(digest, str) for name, digest in files) and dict(options)
    except (OSError, ValueError, KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise CorpusError(f"{path}: the record of what this folder is for cannot be read. {way_out}")
    return dict(stored)


def _told(name: str, place: Place, preparation: Preparation, tasks: int) -> dict[str, Any]:
    options = dict(_flat(_plain(preparation), ""))
    language = preparation.cleaning.language
    if language is not None and Path(language.model).is_file():
        options["cleaning.language.model"] = hash_file(Path(language.model), poll)
    told = {
        "files": [[path.name, hash_file(path, poll)] for path in place.files],
        "corpus": name,
        "tasks": tasks,
        "lingraft": __version__,
        "unicode": unicodedata.unidata_version,
        "options": {path: value for path, value in options.items() if path not in _ASKED_LAST},
    }
    return dict(json.loads(json.dumps(told, default=str)))


def _plain(value: Any) -> Any:
    """Return a value of options as JSON holds it."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, functools.partial):
        return _plain(value.func) | {"options": _plain([list(value.args), value.keywords])}
    if callable(value):
        return _function(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _function(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the name of a function and what its file holds: an own filter may be another one under the same name."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    told = {"function": f"{getattr(kind, '__module__', None)}:{kind.__qualname__}"}
    try:
        return told | {"file": hash_file(Path(inspect.getsourcefile(kind) or ""))}
    except (OSError, TypeError):
        return told


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _changed_files(before: list[list[str]], now: list[list[str]]) -> Iterator[str]:
    if before == now:
        return
    first, second = (sorted(name for name, _ in files) for files in (before, now))
    for what, names in (("gone", set(first) - set(second)), ("new", set(second) - set(first))):
        yield from (f"{what}: the file {escape(name)}" for name in sorted(names))
    if first == second:
        changed = [name for (name, old), (same, new) in zip(sorted(before), sorted(now), strict=True) if old != new]
        yield from (f"changed: the file {escape(name)}" for name in changed)
        if not changed:
            yield "the files are in another order"
    elif set(first) == set(second):
        yield f"{len(first)} → {len(second)} files"


def _changed_values(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    one, other = ({**told, **told.get("options", {})} for told in (before, now))
    for path in sorted((one.keys() | other.keys()) - {"files", "options"}):
        if one.get(path) != other.get(path):
            yield f"{path}: {one.get(path)!r} → {other.get(path)!r}"
