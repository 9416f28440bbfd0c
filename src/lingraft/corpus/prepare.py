"""One corpus, from its sources to a training and a validation file, with an account of the way."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from lingraft.corpus.bad_values import BadLines
from lingraft.corpus.cleaning import clean, count_words, script_histogram
from lingraft.corpus.document import Document, Rejects
from lingraft.corpus.hub import read_hub
from lingraft.corpus.readers import read_files
from lingraft.corpus.sources import find_files
from lingraft.corpus.split import find_leakage, is_held_out
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import hash_file, publish_folder

__all__ = ["prepare_corpus", "read_prepared", "refuse_empty", "source_fingerprint"]

_SIDES = ("train", "validation")


def source_fingerprint(files: Sequence[Path]) -> str:
    """Return 64 hex digits that change when a file is added, renamed or changed in any byte.

    The content is read: a file edited in place to the same size and time is noticed. Folders do not count, so
    that a corpus may move; the order of files does, because it is the order of the documents.
    """
    digest = hashlib.sha256()
    for path in files:
        digest.update(json.dumps([path.name, path.stat().st_size, hash_file(path)]).encode() + b"\n")
    return digest.hexdigest()


@dataclass
class _Side:
    """One half of the split, as it is being written."""

    file: IO[bytes]
    num_documents: int = 0
    num_bytes: int = 0
    num_words: int = 0
    longest: tuple[int, str] = (0, "")
    scripts: Counter[str] = field(default_factory=Counter)

    def add(self, document: Document) -> None:
        size = len(document.text.encode())
        self.num_documents += 1
        self.num_bytes += size
        self.num_words += count_words(document.text)
        self.longest = max(self.longest, (size, document.id))
        self.scripts.update(script_histogram([document.text]))
        line = json.dumps({"id": document.id, "text": document.text}, ensure_ascii=False)
        self.file.write(line.encode() + b"\n")


def prepare_corpus(
    name: str,
    folder: Path,
    *,
    paths: Sequence[str],
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    text_field: str = "text",
    bad_lines: BadLines = "error",
    max_bad_fraction: float = 0.001,
    normalise: Literal["none", "nfc"] = "none",
    deduplicate: bool = True,
    min_characters: int = 1,
    max_documents: int | None = None,
    validation: float = 0.05,
    split_by: Literal["content", "id"] = "content",
) -> dict[str, Any]:
    """Read, clean and split one corpus into ``folder``; return the figures that a run records.

    The folder appears whole, with ``train.jsonl`` and ``validation.jsonl`` (a line is ``{"id", "text"}``) and
    the data report, ``report.json``. The options are those of a recipe's corpus, and ``name`` is its name
    there; with ``split``, each of ``paths`` is a Hugging Face dataset. The same sources and options give the
    same bytes.

    Returns:
        ``train_documents``, ``train_bytes`` (of text, UTF-8), ``train_words``, ``validation_documents``,
        ``validation_bytes``, ``train_sha256`` and ``validation_sha256`` (of the files), ``rejected``.

    Raises:
        CorpusError: a source is missing or bad (:func:`find_files`, :func:`read_files`, :func:`read_hub`),
            nothing is left, or one side of the split is empty although ``validation`` is neither 0 nor 1.
            Nothing is written.
        MissingExtraError: the format needs a package that is not installed.
    """
    where = f"corpora.{name}"
    rejects = Rejects()
    reading: dict[str, Any] = {"corpus": name, "text_field": text_field, "rejects": rejects, "where": where}
    reading |= {"bad_lines": bad_lines, "max_bad_fraction": max_bad_fraction}
    files = [] if split else find_files(paths, f"{where}.path")
    documents = clean(
        _read_datasets(paths, config, split, revision, reading) if split else read_files(files, **reading),
        normalise=normalise,
        deduplicate=deduplicate,
        min_characters=min_characters,
        max_documents=max_documents,
        rejects=rejects,
    )
    record: dict[str, Any] = {}

    def fill(temporary: Path) -> None:
        sides = _write_sides(documents, temporary, validation, split_by)
        refuse_empty(*(sides[side].num_documents for side in _SIDES), fraction=validation, rejects=rejects, where=where)
        record.update(_record(sides, temporary, rejects))
        _write_report(temporary, record | _describe(sides, temporary, rejects, files or paths))

    publish_folder(folder, fill)
    return record


def _write_report(folder: Path, report: dict[str, Any]) -> None:
    text = json.dumps(report, ensure_ascii=False, indent=1)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _read_datasets(
    names: Iterable[str], config: str | None, split: str, revision: str | None, options: dict[str, Any]
) -> Iterator[Document]:
    for name in names:
        yield from read_hub(name, config=config, split=split, revision=revision, **options)


def _write_sides(
    documents: Iterable[Document], folder: Path, fraction: float, by: Literal["content", "id"]
) -> dict[str, _Side]:
    with ExitStack() as stack:
        sides = {side: _Side(stack.enter_context((folder / f"{side}.jsonl").open("wb"))) for side in _SIDES}
        for document in documents:
            poll()
            sides["validation" if is_held_out(document, fraction, by) else "train"].add(document)
    return sides


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


def _record(sides: dict[str, _Side], folder: Path, rejects: Rejects) -> dict[str, Any]:
    train, validation = (sides[side] for side in _SIDES)
    return {
        "train_documents": train.num_documents,
        "train_bytes": train.num_bytes,
        "train_words": train.num_words,
        "validation_documents": validation.num_documents,
        "validation_bytes": validation.num_bytes,
        "train_sha256": hash_file(folder / "train.jsonl"),
        "validation_sha256": hash_file(folder / "validation.jsonl"),
        "rejected": rejects.total,
    }


def _describe(
    sides: dict[str, _Side], folder: Path, rejects: Rejects, sources: Sequence[Path] | Sequence[str]
) -> dict[str, Any]:
    """Return what the data report adds; it is shown around, so files are named without folders."""
    size, longest = max(side.longest for side in sides.values())
    train, validation = (read_prepared(folder / f"{side}.jsonl") for side in _SIDES)
    return {
        "sources": [_describe_source(source) for source in sources],
        "documents": sum(side.num_documents for side in sides.values()),
        "words": sum(side.num_words for side in sides.values()),
        "bytes": sum(side.num_bytes for side in sides.values()),
        "longest_document": {"id": longest, "bytes": size},
        "scripts": dict((sides["train"].scripts + sides["validation"].scripts).most_common()),
        "rejects": rejects.as_json(),
        "notes": dict(sorted(rejects.notes.items())),
        "leakage": find_leakage(train, validation),
    }


def _describe_source(source: Path | str) -> dict[str, Any]:
    if isinstance(source, str):
        return {"dataset": source}
    return {"file": source.name, "bytes": source.stat().st_size, "sha256": hash_file(source)}


def read_prepared(path: Path) -> Iterator[Document]:
    r"""Yield the documents of a ``train.jsonl`` or ``validation.jsonl``, in their order.

    The corpus is named by the folder that the file stands in.

    Raises:
        CorpusError: the file is missing, or a line of it is not as :func:`prepare_corpus` writes them.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield _parse_prepared(line, path, number)
    except OSError as error:
        raise CorpusError(f"{path}: prepared text cannot be read: {error}") from error


def _parse_prepared(line: bytes, path: Path, number: int) -> Document:
    try:
        row = json.loads(line)
        return Document(text=row["text"], corpus=path.parent.name, id=row["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path}:{number}: not a line of prepared text: {error!r}") from error
