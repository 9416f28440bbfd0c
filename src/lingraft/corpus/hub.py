"""Documents out of a Hugging Face dataset, streamed; only the hub's own client may cache it."""

from collections.abc import Iterable, Iterator
from typing import Any

from lingraft.corpus.bad_values import BadLines, BadValueError, BadValues, check_row
from lingraft.corpus.document import Document, Rejects, RejectSample, escape
from lingraft.errors import CorpusError, MissingExtraError

__all__ = ["read_hub"]


def read_hub(
    name: str,
    *,
    split: str,
    config: str | None = None,
    revision: str | None,
    text_field: str,
    corpus: str,
    bad_lines: BadLines,
    max_bad_fraction: float,
    rejects: Rejects,
    where: str,
) -> Iterator[Document]:
    """Yield the documents of one split of a dataset, row by row, in its own order.

    The rules on rows are those of :func:`lingraft.corpus.readers.read_files`; the id of a row without one is
    ``name:row``. Code that a dataset brings along is never run. Without ``revision`` the dataset can change
    between two runs, so a recipe that is to be repeated states it.

    Raises:
        CorpusError: the dataset, its revision or its split cannot be had (the message names the recipe path
            ``where``); a row is bad (``bad_lines`` is ``error``), or too many are.
        MissingExtraError: ``datasets`` is not installed.
    """
    bad = BadValues(bad_lines, max_bad_fraction, rejects, where)
    label = f"{name}@{revision}" if revision else name
    for number, row in enumerate(_rows(name, config, split, revision, where), start=1):
        bad.num_seen += 1
        try:
            text, identifier = check_row(row, text_field)
        except BadValueError as error:
            bad.refuse(RejectSample(label, number, None, error.reason, escape(repr(row))), error.hint)
            continue
        yield Document(text, corpus, identifier or f"{name}:{number}")
    bad.settle()


def _rows(name: str, config: str | None, split: str, revision: str | None, where: str) -> Iterator[dict[str, Any]]:
    """Turn whatever the hub's client raises, and it raises a lot, into one error with the recipe path."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("reading Hugging Face datasets", "hub") from error
    # A missing dataset is an OSError, a missing split a ValueError, an empty file a bare StopIteration.
    failures = (
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        TypeError,
        StopIteration,
        datasets.exceptions.DatasetsError,
    )
    problem = f"{where}: the split {split!r} of the Hugging Face dataset {name!r} cannot be read"
    try:
        rows = _start(datasets.load_dataset(path=name, name=config, split=split, revision=revision, streaming=True))
    except failures as error:
        raise CorpusError(f"{problem}: {_reason(error)}") from error
    while True:
        try:
            row = next(rows, None)
        except failures as error:
            raise CorpusError(f"{problem}: {_reason(error)}") from error
        if row is None:
            return
        yield row


def _start(dataset: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return iter(dataset)


def _reason(error: BaseException) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__
