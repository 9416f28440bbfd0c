"""One corpus, from where it lies to a training and a validation file, with an account of the way."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.bad_values import Reading
from lingraft.corpus.characters import count_words, name_scripts, script_counts
from lingraft.corpus.cleaning import Cleaning, clean
from lingraft.corpus.document import Document, Rejects
from lingraft.corpus.hub import DatasetName, is_saved_dataset, read_dataset
from lingraft.corpus.readers import read_files
from lingraft.corpus.sources import Sources, find_sources
from lingraft.corpus.split import is_held_out
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import hash_file, publish_folder

__all__ = [
    "SIDES",
    "Place",
    "Preparation",
    "Side",
    "find_place",
    "prepare_corpus",
    "read_place",
    "read_prepared",
    "refuse_empty",
    "source_fingerprint",
    "write_report",
]

SIDES = ("train", "validation")
"""The two files of a prepared corpus."""

_IGNORED_SHOWN = 20


def source_fingerprint(files: Sequence[Path]) -> str:
    """Return 64 hex digits that change when a file is added, renamed or changed in any byte.

    The content is read: a file edited in place to the same size and time is noticed. Folders do not count, so
    that a corpus may move; the order of files does, because it is the order of the documents.
    """
    digest = hashlib.sha256()
    for path in files:
        digest.update(json.dumps([path.name, path.stat().st_size, hash_file(path, poll)]).encode() + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True)
class Place:
    """Where a corpus lies, as it was found.

    Attributes:
        sources: its files, and those passed over.
        datasets: the Hugging Face datasets, on the hub or in folders.
    """

    sources: Sources
    datasets: tuple[DatasetName, ...] = ()

    @property
    def files(self) -> list[Path]:
        """All files that the text comes from: a change in one of them changes the corpus."""
        saved = [Path(each.path) for each in self.datasets if is_saved_dataset(each.path)]
        return [
            *self.sources.files,
            *(file for folder in saved for file in sorted(folder.rglob("*")) if file.is_file()),
        ]


def find_place(
    paths: Sequence[str],
    where: str,
    *,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
) -> Place:
    """Return what stands behind the paths of a corpus; with ``split``, each is a Hugging Face dataset.

    A folder that ``save_to_disk`` has written is a dataset too, with or without ``split``.

    Raises:
        CorpusError: see :func:`~lingraft.corpus.sources.find_sources`.
    """
    names = [path for path in paths if split or is_saved_dataset(path)]
    others = [path for path in paths if path not in names]
    datasets = tuple(DatasetName(name, split, config, revision) for name in names)
    return Place(find_sources(others, f"{where}.path") if others else Sources(()), datasets)


def read_place(place: Place, reading: Reading, *, corpus: str, rejects: Rejects, where: str) -> Iterator[Document]:
    """Yield the documents of a corpus in their order: those of the files, then those of the datasets."""
    yield from read_files(place.sources.files, reading, corpus=corpus, rejects=rejects, where=where)
    for name in place.datasets:
        yield from read_dataset(name, reading, corpus=corpus, rejects=rejects, where=where)


@dataclass(frozen=True)
class Preparation:
    """What is done with a corpus: the options of a recipe's corpus, in the words of this room.

    Attributes:
        reading: how lines and rows are read.
        cleaning: what documents must be like.
        validation: the share that is held out.
        split_by: what decides on which side a document falls.
        max_other_script: a larger share of letters in scripts that are not the corpus's is warned of.
    """

    reading: Reading = field(default_factory=Reading)
    cleaning: Cleaning = field(default_factory=Cleaning)
    validation: float = 0.05
    split_by: Literal["content", "id"] = "content"
    max_other_script: float = 0.1


@dataclass
class Side:
    """One half of the split, as it is being written.

    Attributes:
        file: where its lines go.
        num_documents: how many there are.
        num_bytes: of text, in UTF-8.
        num_words: of all documents.
        longest: bytes and id of the longest document.
        scripts: letters of each script, as ``script_counts`` orders them.
    """

    file: IO[bytes]
    num_documents: int = 0
    num_bytes: int = 0
    num_words: int = 0
    longest: tuple[int, str] = (0, "")
    scripts: NDArray[np.int64] = field(default_factory=lambda: np.zeros_like(script_counts("")))

    def add(self, document: Document) -> None:
        """Write a document and count it."""
        size = len(document.text.encode())
        self.num_documents += 1
        self.num_bytes += size
        self.num_words += count_words(document.text)
        self.longest = max(self.longest, (size, document.id))
        self.scripts = self.scripts + script_counts(document.text)
        line = json.dumps({"id": document.id, "text": document.text}, ensure_ascii=False)
        self.file.write(line.encode() + b"\n")


def prepare_corpus(
    name: str,
    folder: Path,
    place: Place,
    preparation: Preparation = Preparation(),
    read: Callable[[Rejects], Iterable[Document]] | None = None,
) -> dict[str, Any]:
    """Read, clean and split one corpus into ``folder``; return the figures that a run records.

    The folder appears whole, with ``train.jsonl`` and ``validation.jsonl`` (a line is ``{"id", "text"}``) and
    the data report, ``report.json``. The same place and options give the same bytes.

    Args:
        name: the name of the corpus in the recipe.
        folder: what is made.
        place: where the text lies, from :func:`find_place`.
        preparation: the options.
        read: gives the documents of the place and counts what is bad in it; :func:`read_place` by default.

    Returns:
        ``train_documents``, ``train_bytes`` (of text, UTF-8), ``train_words``, ``validation_documents``,
        ``validation_bytes``, ``train_sha256`` and ``validation_sha256`` (of the files), ``rejected``.

    Raises:
        CorpusError: a file or row is bad (:func:`read_files`, :func:`read_dataset`), nothing is left, or one side of
            the split is empty although ``validation`` is neither 0 nor 1. Nothing is written.
        MissingExtraError: the format or a check needs a package that is not installed.
    """
    where = f"corpora.{name}"
    rejects = Rejects()
    found = read(rejects) if read else read_place(place, preparation.reading, corpus=name, rejects=rejects, where=where)
    documents = clean(found, preparation.cleaning, rejects, where)
    record: dict[str, Any] = {}

    def fill(temporary: Path) -> None:
        with ExitStack() as stack:
            sides = {side: Side(stack.enter_context((temporary / f"{side}.jsonl").open("wb"))) for side in SIDES}
            for document in documents:
                poll()
                held_out = is_held_out(document, preparation.validation, preparation.split_by)
                sides["validation" if held_out else "train"].add(document)
        counts = (sides[side].num_documents for side in SIDES)
        refuse_empty(*counts, fraction=preparation.validation, rejects=rejects, where=where)
        record.update(write_report(temporary, sides, rejects, place, preparation))

    publish_folder(folder, fill)
    return record


def refuse_empty(train: int, validation: int, *, fraction: float, rejects: Rejects, where: str) -> None:
    """Raise a CorpusError where a corpus, or a side of its split that was asked for, has no document.

    Args:
        train: documents to train on.
        validation: documents held out.
        fraction: the share that was to be held out.
        rejects: what was rejected, and why.
        where: the corpus's path in the recipe.
    """
    if train + validation == 0:
        raise CorpusError(f"{where}: an empty corpus: no document is left (rejected: {rejects.reasons()})")
    if train == 0 and fraction < 1:
        raise CorpusError(
            f"{where}: all {validation} documents are held out, none is left to train on; lower {where}.validation"
        )
    if validation == 0 and fraction > 0:
        raise CorpusError(
            f"{where}: none of the {train} documents is held out, at {where}.validation {fraction:.2%}; "
            "raise it, or give more and shorter documents (a text file is one document, or one per 64 KiB)"
        )


def write_report(
    folder: Path, sides: dict[str, Side], rejects: Rejects, place: Place, preparation: Preparation
) -> dict[str, Any]:
    """Write ``report.json`` beside the two files and return the part of it that a run records."""
    train, validation = (sides[side] for side in SIDES)
    record = {
        "train_documents": train.num_documents,
        "train_bytes": train.num_bytes,
        "train_words": train.num_words,
        "validation_documents": validation.num_documents,
        "validation_bytes": validation.num_bytes,
        "train_sha256": hash_file(folder / "train.jsonl", poll),
        "validation_sha256": hash_file(folder / "validation.jsonl", poll),
        "rejected": rejects.total,
    }
    report = record | _describe(sides, rejects, place, preparation)
    text = json.dumps(report, ensure_ascii=False, indent=1)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8", newline="\n")
    return record


def _describe(sides: dict[str, Side], rejects: Rejects, place: Place, preparation: Preparation) -> dict[str, Any]:
    """Return what the data report adds; it is shown around, so files are named without folders."""
    size, longest = max(side.longest for side in sides.values())
    sources = place.sources
    told: dict[str, Any] = {
        "documents": sum(side.num_documents for side in sides.values()),
        "words": sum(side.num_words for side in sides.values()),
        "bytes": sum(side.num_bytes for side in sides.values()),
        "longest_document": {"id": longest, "bytes": size},
        "normalise": preparation.cleaning.normalise,
        "scripts": name_scripts(sides["train"].scripts + sides["validation"].scripts),
        **rejects.as_json(),
        "sources": [*map(_describe_file, sources.files), *({"dataset": name.label} for name in place.datasets)],
        "ignored_files": len(sources.ignored),
        "ignored": [{"file": _writable(path.name), "why": why} for path, why in sources.ignored[:_IGNORED_SHOWN]],
        "copies": [{"file": path.name, "same_as": first.name} for path, first in sources.copies],
    }
    return told | {"warnings": list(_warnings(told, preparation))}


def _writable(name: str) -> str:
    """Return the name of a file that is passed over, whose bytes need not be text."""
    return name.encode(errors="backslashreplace").decode()


def _describe_file(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": hash_file(path, poll)}


def _warnings(told: dict[str, Any], preparation: Preparation) -> Iterator[str]:
    letters = {name: count for name, count in told["scripts"].items() if name != "Common"}
    expected = preparation.cleaning.scripts or set(list(letters)[:1])
    others = {name: count for name, count in letters.items() if name not in expected}
    share = sum(others.values()) / max(1, sum(letters.values()))
    if share > preparation.max_other_script:
        yield f"{share:.1%} of the letters are not {' or '.join(sorted(expected))} but {', '.join(list(others)[:3])}"
    decomposed, total = told["notes"].get("documents not in NFC (kept)", 0), told["documents"]
    if 0 < decomposed < total:
        yield f"mixed normal forms: {decomposed:,} of {total:,} documents are not in NFC; normalise: nfc changes that"
    if told["ignored_files"]:
        yield f"{told['ignored_files']:,} files were passed over; the first is {told['ignored'][0]['file']}"
    if told["copies"]:
        yield f"{len(told['copies']):,} files are copies of others and were read once"
    if cut := told["notes"].get("last lines cut off, left out", 0):
        yield f"{cut:,} files end in the middle of a line"


def read_prepared(path: Path) -> Iterator[Document]:
    r"""Yield the documents of a ``train.jsonl`` or ``validation.jsonl``, in their order.

    The corpus is named by the folder that the file stands in.

    Raises:
        CorpusError: the file is missing, or a line of it is not as :func:`prepare_corpus` writes them.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                poll()
                yield _parse_prepared(line, path, number)
    except OSError as error:
        raise CorpusError(f"{path}: prepared text cannot be read: {error}") from error


def _parse_prepared(line: bytes, path: Path, number: int) -> Document:
    try:
        row = json.loads(line)
        return Document(text=row["text"], corpus=path.parent.name, id=row["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path}:{number}: not a line of prepared text: {error!r}") from error
