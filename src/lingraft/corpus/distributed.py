"""The preparation of one corpus by many processes or machines: the same functions as steps of datatrove pipelines.

Three pipelines (https://github.com/huggingface/datatrove), each done by tasks that know nothing of each other:

    judge      many tasks: read a share of the files and decide on each document by itself
    compare    one task: decide which documents repeat earlier ones, by digests and signatures alone
    split      as many tasks as the first: write the documents that stay, and count them

Then :func:`gather` joins what the tasks wrote. The result is that of :func:`~lingraft.corpus.prepare.prepare_corpus`,
byte for byte. A step is a function of ``(data, rank, world_size)``, as every executor of datatrove takes them; a task
that was finished is not done again, and a folder of tasks serves one preparation of one corpus (:func:`claim`).
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.bad_values import BadValues
from lingraft.corpus.cleaning import Judge, Repetitions, content_digest, reject
from lingraft.corpus.document import Document, Rejects, RejectSample
from lingraft.corpus.near_duplicates import signatures
from lingraft.corpus.prepare import SIDES, Place, Preparation, Side, read_prepared, refuse_empty, write_report
from lingraft.corpus.readers import read_some
from lingraft.corpus.split import is_held_out
from lingraft.corpus.work_folder import claim_folder, refuse_changed_sources
from lingraft.errors import CorpusError, MissingExtraError
from lingraft.run import publish_folder

__all__ = ["Compare", "JudgeFiles", "SplitSides", "claim", "gather", "prepare_by_tasks"]

_DIGEST_BYTES = 32
_COUNTED = ("counts", "repairs", "findings", "notes")


@dataclass(frozen=True)
class _Step:
    """What every step knows.

    Attributes:
        name: the name of the corpus in the recipe.
        place: where its files lie.
        preparation: what is done with them.
        work: a folder that all tasks can reach.
        tasks: how many tasks judge and split.
    """

    name: str
    place: Place
    preparation: Preparation
    work: Path
    tasks: int

    def of_task(self, kind: str, rank: int) -> Path:
        """Return the file or folder of one kind that belongs to a task; the folder above it is made."""
        (self.work / kind).mkdir(parents=True, exist_ok=True)
        return self.work / kind / f"{rank:05d}"

    def files_of(self, rank: int) -> list[Path]:
        """Return the share of the files: neighbours, so that the tasks' results joined are in the order of files."""
        files = self.place.sources.files
        return list(files[len(files) * rank // self.tasks : len(files) * (rank + 1) // self.tasks])


class JudgeFiles(_Step):
    """Read a share of the files, and keep the documents that are fit by themselves, with digests and signatures."""

    def __call__(self, _data: Any = None, rank: int = 0, _world_size: int = 1) -> None:
        """Do the task of one rank."""
        rejects, where = Rejects(), f"corpora.{self.name}"
        bad = BadValues(self.preparation.reading, rejects, where)
        judge, near = Judge(self.preparation.cleaning, rejects, where), self.preparation.cleaning.near_duplicates
        with ExitStack() as stack:
            kinds = ("documents", "digests", "signatures")
            documents, digests, rows = (stack.enter_context(self.of_task(kind, rank).open("wb")) for kind in kinds)
            for document in filter(None, map(judge, read_some(self.files_of(rank), self.name, bad))):
                line = json.dumps({"id": document.id, "text": document.text}, ensure_ascii=False)
                documents.write(line.encode() + b"\n")
                digests.write(content_digest(document.text))
                if near is not None:
                    rows.write(signatures([document.text], near).tobytes())
        _write_account(self.of_task("judged", rank), rejects, {"seen": bad.num_seen, "bad": bad.num_bad})


class Compare(_Step):
    """Decide which documents repeat earlier ones: one task, since that depends on all documents before."""

    def __call__(self, _data: Any = None, _rank: int = 0, _world_size: int = 1) -> None:
        """Do the task."""
        rejects = Rejects()
        repetitions = Repetitions(self.preparation.cleaning, rejects)
        for task in range(self.tasks):
            digests = self.of_task("digests", task).read_bytes()
            reasons = [
                repetitions.reason_against(digests[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES], row)
                for place, row in enumerate(self._signatures(task, len(digests) // _DIGEST_BYTES))
            ]
            self.of_task("reasons", task).write_text(json.dumps(reasons), encoding="utf-8")
        _write_account(self.of_task("compared", 0), rejects, {})

    def _signatures(self, task: int, count: int) -> Iterator[NDArray[np.uint32] | None]:
        near = self.preparation.cleaning.near_duplicates
        if near is None:
            yield from [None] * count
        else:
            stored = np.fromfile(self.of_task("signatures", task), dtype=np.uint32)
            yield from stored.reshape(count, near.num_hashes)


class SplitSides(_Step):
    """Write the documents that stay, each on its side, and count them."""

    def __call__(self, _data: Any = None, rank: int = 0, _world_size: int = 1) -> None:
        """Do the task of one rank."""
        rejects, folder = Rejects(), self.of_task("sides", rank)
        folder.mkdir(exist_ok=True)
        reasons = json.loads(self.of_task("reasons", rank).read_text(encoding="utf-8"))
        with ExitStack() as stack:
            sides = {side: Side(stack.enter_context((folder / f"{side}.jsonl").open("wb"))) for side in SIDES}
            for read, reason in zip(read_prepared(self.of_task("documents", rank)), reasons, strict=True):
                document = Document(read.text, self.name, read.id)
                if reason is not None:
                    reject(document, reason, rejects)
                    continue
                held_out = is_held_out(document, self.preparation.validation, self.preparation.split_by)
                sides["validation" if held_out else "train"].add(document)
        _write_account(self.of_task("split", rank), rejects, {side: _counts(sides[side]) for side in SIDES})


def claim(step: _Step) -> None:
    """Make the work folder of some steps theirs, or check that it is; to be called once, before the first of them.

    Args:
        step: any of the three steps.

    Raises:
        CorpusError: the folder holds what was made of other files, with other options or by another number of tasks;
            the message names what differs and what to do.
    """
    made = ("documents", "judged", "logs/JudgeFiles")
    claim_folder(step.work, step.name, step.place, step.preparation, tasks=step.tasks, made=made)


def gather(step: _Step, folder: Path) -> dict[str, Any]:
    """Join what the tasks wrote into ``folder``, as ``prepare_corpus`` would have made it, and return the same.

    Args:
        step: any of the three steps.
        folder: what is made; it appears whole.

    Raises:
        CorpusError: too many lines of the whole corpus are bad, nothing is left, one side of the split is empty, a
            file was changed since :func:`claim`, or the account of a task is missing.
    """
    rejects, seen = Rejects(), {"seen": 0, "bad": 0}
    for rank in range(step.tasks):
        counts = _absorb_account(step.of_task("judged", rank), rejects)
        seen = {name: seen[name] + counts[name] for name in seen}
    where = f"corpora.{step.name}"
    BadValues(step.preparation.reading, rejects, where, seen["seen"], seen["bad"]).settle()
    _absorb_account(step.of_task("compared", 0), rejects)
    record: dict[str, Any] = {}

    def fill(temporary: Path) -> None:
        with ExitStack() as stack:
            sides = {side: Side(stack.enter_context((temporary / f"{side}.jsonl").open("wb"))) for side in SIDES}
            for rank in range(step.tasks):
                counts = _absorb_account(step.of_task("split", rank), rejects)
                for side in SIDES:
                    _join(sides[side], counts[side], step.of_task("sides", rank) / f"{side}.jsonl")
        totals = (sides[side].num_documents for side in SIDES)
        refuse_empty(*totals, fraction=step.preparation.validation, rejects=rejects, where=where)
        record.update(write_report(temporary, sides, rejects, step.place, step.preparation))
        report = json.loads((temporary / "report.json").read_text(encoding="utf-8"))
        refuse_changed_sources(step.work, report["sources"])

    publish_folder(folder, fill)
    return record


def prepare_by_tasks(
    name: str,
    folder: Path,
    place: Place,
    preparation: Preparation,
    work: Path,
    *,
    tasks: int,
    workers: int = 1,
) -> dict[str, Any]:
    """Do the same as ``prepare_corpus`` by tasks of datatrove's local executor, and return the same.

    Args:
        name: the name of the corpus in the recipe.
        folder: what is made.
        place: its files.
        preparation: the options.
        work: a folder for what tasks hand to each other, and for datatrove's logs; a second call of the same text and
            options goes on with it.
        tasks: parts that the files are cut into.
        workers: processes at a time.

    Raises:
        CorpusError: see :func:`claim` and :func:`gather`; or the corpus has datasets or ``max_documents``, which only
            a reader of the whole knows, or fewer files than tasks.
        MissingExtraError: datatrove is not installed.
    """
    try:
        from datatrove.executor import LocalPipelineExecutor
    except ImportError as error:
        raise MissingExtraError("preparing a corpus by tasks", "data") from error
    _refuse_undivided(name, place, preparation, tasks)
    given = (name, place, preparation, work, tasks)
    judge, compare, split = JudgeFiles(*given), Compare(*given), SplitSides(*given)
    claim(judge)
    for step, count in ((judge, tasks), (compare, 1), (split, tasks)):
        logs = str(work / "logs" / type(step).__name__)
        LocalPipelineExecutor([step], tasks=count, workers=min(workers, count), logging_dir=logs).run()
    return gather(split, folder)


def _refuse_undivided(name: str, place: Place, preparation: Preparation, tasks: int) -> None:
    if place.datasets:
        raise CorpusError(
            f"corpora.{name}.path: a dataset ({place.datasets[0].label}) cannot be read by tasks; give files"
        )
    if preparation.cleaning.max_documents is not None:
        raise CorpusError(f"corpora.{name}.max_documents: tasks cannot count together; give fewer files")
    if not 1 <= tasks <= len(place.sources.files):
        raise CorpusError(
            f"corpora.{name}: {tasks} tasks for {len(place.sources.files)} files; each needs one at least"
        )


def _counts(side: Side) -> dict[str, Any]:
    scripts = {"scripts": side.scripts.tolist(), "longest": list(side.longest)}
    return scripts | {name: getattr(side, name) for name in ("num_documents", "num_bytes", "num_words")}


def _join(side: Side, counts: dict[str, Any], path: Path) -> None:
    with path.open("rb") as file:
        shutil.copyfileobj(file, side.file)
    for name in ("num_documents", "num_bytes", "num_words"):
        setattr(side, name, getattr(side, name) + counts[name])
    size, longest = counts["longest"]
    side.longest = max(side.longest, (size, longest))
    side.scripts = side.scripts + np.array(counts["scripts"], dtype=np.int64)


def _write_account(path: Path, rejects: Rejects, counts: dict[str, Any]) -> None:
    told: dict[str, Any] = {kind: getattr(rejects, kind) for kind in _COUNTED}
    told["samples"] = {reason: [asdict(each) for each in samples] for reason, samples in rejects.samples.items()}
    path.write_text(json.dumps({"rejects": told, "counts": counts}), encoding="utf-8")


def _absorb_account(path: Path, rejects: Rejects) -> dict[str, Any]:
    """Add the account of a task to that of the corpus, and return its counts."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{path}: the account of a task cannot be read ({error}); remove the work folder, and begin anew"
        ) from error
    told, part = stored["rejects"], Rejects()
    for kind in _COUNTED:
        getattr(part, kind).update(told[kind])
    part.samples = {reason: [RejectSample(**each) for each in samples] for reason, samples in told["samples"].items()}
    rejects.absorb(part)
    counts: dict[str, Any] = stored["counts"]
    return counts
