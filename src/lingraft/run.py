"""The run folder: what a run is made of on disk, and the rules by which it may be touched.

    runs/name/
      recipe.yaml          the resolved recipe
      changes.jsonl        what was changed in it, or in the data, while it ran (see Run.adopt)
      environment.json     versions and machine, from an allow-list
      steps/               one marker per finished step: the hash of its inputs
      corpora/             cleaned documents, split, with a data report
      base/                the base model, where it had to be converted first
      vocabulary/          the expanded tokenizer, its learned tokens and its gates
      embeddings/          the expanded model, with the origin of every row
      tokens/              token stores, one per corpus and tokenizer hash
      stages/1-name/       checkpoints while it runs, weights when it is done
      measurements.jsonl   every number (see lingraft.measurement)
      items.jsonl          scores of single items and documents (see lingraft.item_records)
      samples.jsonl        the same prompts before and after
      model/               the exported model
      report.html

Whatever appears here appears whole: files are written under another name, synced, and renamed.
"""

import errno
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from lingraft.errors import RunFolderError
from lingraft.item_records import ItemRecord, read_items, write_items
from lingraft.measurement import Measurement, read_measurements, write_measurements
from lingraft.recipe import Recipe
from lingraft.recipe_file import differing_paths, dump_recipe, parse_recipe
from lingraft.recipe_stage import MEMORY, SAVING
from lingraft.version import __version__

__all__ = [
    "OF_THE_TOKENIZER",
    "Run",
    "describe_environment",
    "fingerprint",
    "hash_file",
    "publish_file",
    "publish_folder",
    "read_own",
    "refused_write",
    "write_file",
]

OF_THE_TOKENIZER = (
    "fertility",
    "tokens_per_byte",
    "tokens_per_character",
    "segmentation_drift",
    "segmentation_drift/tokens",
)

_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_SPECTATORS = re.compile(r"track[.:]")  # a run may be watched by other trackers tomorrow
# What a published folder says of itself may be said better later.
_WORDS = re.compile(r"(export|corpora\.[^.]+\.license)[.:]")
_SAVING = re.compile(rf"stages\.\d+\.({'|'.join(SAVING)})")
_MEMORY = re.compile(rf"stages\.\d+\.batch\.({'|'.join(MEMORY)})|measure\.batch_size")
_UNPUBLISHED = re.compile(r"\..+\.\d+(\.old)?\.tmp")
_PACKAGES = ("accelerate", "gguf", "numpy", "plotly", "safetensors", "tokenizers", "torch", "transformers")


def fingerprint(value: Any) -> str:
    """Return 16 hex digits that change when a JSON-able value changes."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_file(path: Path, between: Callable[[], None] | None = None) -> str:
    """Return the SHA-256 of a file's bytes in hex; ``between`` is called after every 4 MiB."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(2**22):
            digest.update(block)
            if between is not None:
                between()
    return digest.hexdigest()


def refused_write(error: BaseException | None) -> str | None:
    """Return what the system says where an error is a write that it refused: a full disk, a quota; None otherwise."""
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        return os.strerror(error.errno)
    # safetensors hands the system's error on in words alone.
    number = re.search(r"os error (\d+)", str(error)) if isinstance(error, SafetensorError) else None
    return os.strerror(int(number[1])) if number and int(number[1]) in _REFUSALS else None


def read_own(path: Path) -> Any:
    """Return what a JSON file of a run folder holds.

    Raises:
        RunFolderError: it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{path}: missing or damaged ({error}); delete it, and the same command makes it again"
        ) from error


def write_file(path: Path, text: str) -> None:
    """Write a text file so that at any moment it is the old one or the new one, whole."""
    publish_file(path, lambda to: to.write_text(text, encoding="utf-8", newline="\n"))


def publish_file(path: Path, fill: Callable[[Path], object]) -> None:
    """Make a file appear whole: ``fill`` writes it under another name, then it is synced and renamed.

    A file that was there before is replaced; a failed ``fill`` leaves it as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fill(temporary)
        _sync(temporary)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(path)
    _sync(path.parent)


def publish_folder(path: Path, fill: Callable[[Path], None]) -> Path:
    """Make a folder appear whole: ``fill`` writes under another name, then all is synced and renamed.

    A folder that was there before is replaced; a failed ``fill`` leaves it as it was. Files get the usual
    modes (safetensors writes 0600).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        fill(temporary)
        _settle(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if path.exists():
        retired = path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
        path.rename(retired)
        temporary.rename(path)
        shutil.rmtree(retired)
    else:
        temporary.rename(path)
    _sync(path.parent)
    return path


def _settle(folder: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    for item in sorted(folder.rglob("*")):
        if item.is_file():
            item.chmod(0o666 & ~umask)
        _sync(item)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Run:
    """A handle on one run folder, held by one process at a time.

    Use it as a context manager: the folder is locked inside. Reading needs no lock.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.accepted: frozenset[str] = frozenset()
        self._lock = FileLock(self.folder / ".lock")
        self._watchers: list[Callable[[Sequence[Measurement]], None]] = []

    def __enter__(self) -> "Run":
        self._refuse_foreign_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise RunFolderError(f"{self.folder}: another process is working in this run folder") from error
        except OSError as error:
            raise RunFolderError(f"{self.folder}: no run folder can be made there: {error.strerror}") from error
        self._remove_orphans()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if said := refused_write(error):
            raise RunFolderError(
                f"{self.folder}: nothing more can be written there: {said}; what was finished is kept: make room, and "
                "the same command goes on from here"
            ) from error

    def _refuse_foreign_folder(self) -> None:
        """Leave a folder that is not ours as it is: nothing is locked, made or cleared there."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RunFolderError(f"{self.folder} is a file, not a run folder")
        if not self.folder.is_dir() or self.path("recipe.yaml").exists():
            return
        # environment.json stands alone when a process was killed before it had written the recipe.
        ours = (".lock", "environment.json")
        strangers = sorted(
            p.name for p in self.folder.iterdir() if p.name not in ours and not _UNPUBLISHED.fullmatch(p.name)
        )
        if strangers:
            raise RunFolderError(f"{self.folder} is not empty and is not a run folder (it holds {strangers[0]!r})")

    def _remove_orphans(self) -> None:
        """Clear what a killed process had not published: only names of the form that we make."""
        for orphan in [path for path in self.folder.rglob(".*.tmp") if _UNPUBLISHED.fullmatch(path.name)]:
            shutil.rmtree(orphan) if orphan.is_dir() else orphan.unlink()

    def adopt(self, recipe: Recipe, accept: Collection[str] = ()) -> None:
        """Make this folder the run of ``recipe``, or check that it already is.

        Args:
            recipe: the recipe.
            accept: what may have changed since the run was begun: ``mix`` (of stages that are not done), ``data`` (the
                files of corpora) and ``memory`` (``batch.micro_batch`` and ``batch.checkpoint_activations`` of stages
                that are not done, ``measure.batch_size``). What is done already stays as it is; the change is written
                to ``changes.jsonl``. ``measure.alarm``, ``checkpoint_every`` and ``saves_beside`` may change in any
                case: no weight shows them.

        Raises:
            RunFolderError: the folder holds a run of another recipe; the differences are listed.
        """
        self.accepted = frozenset(accept)
        stored = self.path("recipe.yaml")
        if stored.exists():
            differences = [d for d in differing_paths(self.recipe, recipe) if not _SPECTATORS.match(d)]
            told = [line for line in differences if not _WORDS.match(line)]
            ways = {line: self._way_to_change(line.split(":")[0], recipe) for line in told}
            if any(way not in {"", *self.accepted} for way in ways.values()):
                listed = "\n  ".join(
                    line + (f" (--accept-changed {way} goes on with it)" if way else "")
                    for line, way in ways.items()
                    if way not in {"", *self.accepted}
                )
                raise RunFolderError(
                    f"{self.folder} holds a run of another recipe; nothing was changed. Choose another folder (--to), "
                    f"or undo these:\n  {listed}"
                )
            if told:
                self._write_change({"accepted": sorted(self.accepted), "recipe": told})
            if differences:
                write_file(stored, dump_recipe(recipe))
            return
        write_file(self.path("environment.json"), json.dumps(describe_environment(), indent=2))
        write_file(stored, dump_recipe(recipe))

    def _way_to_change(self, path: str, recipe: Recipe) -> str | None:
        """Return the word by which a value may change in this run: empty where it needs none, None where none helps."""
        parts = path.split(".")
        # It changes no weight, and other limits are an answer to an alarm.
        if parts[:2] == ["measure", "alarm"] or _SAVING.fullmatch(path):
            return ""
        is_memory = _MEMORY.fullmatch(path)
        if is_memory or (parts[0] == "stages" and parts[2:3] == ["mix"]):
            return ("memory" if is_memory else "mix") if not self._is_done(parts, recipe) else None
        return "data" if parts[0] == "corpora" and parts[-1] != "language" else None

    def _is_done(self, parts: Sequence[str], recipe: Recipe) -> bool:
        """Whether a value belongs to a stage that is done: the recipe goes on saying what that was made with."""
        if parts[0] != "stages" or int(parts[1]) >= len(recipe.stages):
            return parts[0] == "stages"
        index = int(parts[1])
        return self.finished(f"stage-{index + 1}-{recipe.stages[index].name}") is not None

    def _write_change(self, change: Mapping[str, Any]) -> None:
        with self.path("changes.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(change, ensure_ascii=False) + "\n")

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe of this run."""
        path = self.path("recipe.yaml")
        if not path.exists():
            raise RunFolderError(f"{self.folder} is not a run folder: it has no recipe.yaml")
        try:
            return parse_recipe(path.read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise RunFolderError(f"{path}: byte {error.start} is not UTF-8; the run folder is damaged") from error

    def path(self, *parts: str) -> Path:
        """Return a path inside the folder."""
        return self.folder.joinpath(*parts)

    def step(
        self,
        name: str,
        inputs: Mapping[str, Any],
        action: Callable[[], Mapping[str, Any] | None],
        makes: Sequence[Path] = (),
        source: str | None = None,
    ) -> dict[str, Any]:
        """Do a step, or skip it when it was finished with the same inputs; return what it recorded.

        The marker is written after everything the step made is in place, so a killed step is done again; so is one
        whose files (``makes``) have been deleted since. Where a change was accepted (:meth:`adopt`), corpora are read
        again, the models that no stage has touched are measured again on what is held out now, and every other step
        that is done stays as it is.

        Raises:
            RunFolderError: a step that reads from outside the folder (``source`` says what) was finished with other
                inputs: going on would overwrite the results of one data set with those of another.
        """
        marker = self.path("steps", f"{name}.json")
        key = fingerprint(inputs)
        found = self.finished(name)
        if found is not None and found["inputs"] == key and all(path.exists() for path in makes):
            return dict(found["record"])
        if found is not None and self.accepted and all(path.exists() for path in makes):
            if not source and not ("data" in self.accepted and name.startswith("measure-")):
                write_file(marker, json.dumps({"inputs": key, "record": found["record"]}, ensure_ascii=False, indent=1))
                return dict(found["record"])
            if "data" in self.accepted and name.startswith("corpus-"):
                self._write_change({"accepted": sorted(self.accepted), "step": name, "was": found["inputs"], "is": key})
                source = None
        if source and found is not None and found["inputs"] != key:
            raise RunFolderError(
                f"{self.folder}: {source} has changed since this run was begun; nothing was changed here. Choose "
                "another folder (--to), or put it back"
            )
        # From here on the old marker would vouch for files that it has not seen.
        marker.unlink(missing_ok=True)
        record = dict(action() or {})
        write_file(marker, json.dumps({"inputs": key, "record": record}, ensure_ascii=False, indent=1))
        return record

    def finished(self, name: str) -> dict[str, Any] | None:
        """Return the marker of a finished step, its ``inputs`` hash and its ``record``; None if it is not done.

        A marker that cannot be read counts as none: the step is done again.
        """
        marker = self.path("steps", f"{name}.json")
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.keys() >= {"inputs", "record"} else None

    def measure(self, rows: Iterable[Measurement]) -> None:
        """Append rows to ``measurements.jsonl``, then show them to whoever watches."""
        made = tuple(rows)
        write_measurements(self.path("measurements.jsonl"), made)
        for watcher in self._watchers:
            watcher(made)

    def watch(self, watcher: Callable[[Sequence[Measurement]], None]) -> None:
        """Call ``watcher`` with all rows that are measured from now on, batch by batch, after they are written."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[Sequence[Measurement]], None]) -> None:
        """Call ``watcher`` no longer."""
        self._watchers.remove(watcher)

    def measurements(self) -> list[Measurement]:
        """Return all rows so far."""
        return list(read_measurements(self.path("measurements.jsonl")))

    def record_items(self, records: Iterable[ItemRecord]) -> None:
        """Append the scores of single items to ``items.jsonl``."""
        write_items(self.path("items.jsonl"), records)

    def items(self) -> list[ItemRecord]:
        """Return the scores of single items so far."""
        return list(read_items(self.path("items.jsonl")))

    def forget_measurements_after(self, stage: str, tokens: int) -> None:
        """Drop a stage's rows past a number of tokens: those made after the checkpoint that it goes on from."""
        self._keep(lambda row: row.stage != stage or row.tokens <= tokens)

    def forget_measurements_named(self, *names: str) -> None:
        """Drop all rows of some names: the step that makes them is being done again."""
        self._keep(lambda row: row.name not in names)

    def forget_measurements_of(self, *stages: str) -> None:
        """Drop the rows of some stages, except those that describe the tokenizer: the stage begins again."""
        self._keep(lambda row: row.stage not in stages or row.name in OF_THE_TOKENIZER)

    def replace_rows(
        self,
        belongs: Callable[[Measurement | ItemRecord], bool],
        rows: Sequence[Measurement],
        records: Sequence[ItemRecord],
    ) -> None:
        """Put rows and records of another run in the place of those here that belong to the same part of it."""
        self._keep(lambda row: not belongs(row))
        write_measurements(self.path("measurements.jsonl"), rows)
        write_items(self.path("items.jsonl"), records)

    def _keep(self, wanted: Callable[[Measurement | ItemRecord], bool]) -> None:
        """Drop rows and records that are not wanted; each file is put in place of the old one as a whole."""
        _rewrite(self.path("items.jsonl"), read_items, write_items, wanted)
        _rewrite(self.path("measurements.jsonl"), read_measurements, write_measurements, wanted)


def _rewrite(
    path: Path,
    read: Callable[[Path], Iterator[Any]],
    write: Callable[[Path, Iterable[Any]], None],
    wanted: Callable[[Any], bool],
) -> None:
    rows = list(read(path))
    kept = [row for row in rows if wanted(row)]
    if len(kept) < len(rows):
        replacement = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        write(replacement, kept)
        replacement.replace(path)


def describe_environment() -> dict[str, Any]:
    """Return versions and the machine's kind; no variable of the environment, no name, no path."""
    versions = {"lingraft": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "versions": versions,
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
    }
