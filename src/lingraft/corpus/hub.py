"""Documents out of a Hugging Face dataset: streamed from the hub, or in a folder that ``save_to_disk`` has written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.corpus.bad_values import BadValues, Reading
from lingraft.corpus.document import Document, Rejects
from lingraft.errors import CorpusError, MissingExtraError, nearest

__all__ = ["DatasetName", "is_saved_dataset", "read_dataset"]


@dataclass(frozen=True)
class DatasetName:
    """Which rows: those of one split of a dataset on the hub, or of a folder that ``save_to_disk`` has written.

    Attributes:
        path: the name on the hub, or the folder.
        split: its name; None for a folder that holds a single one.
        config: the configuration of a dataset that has several.
        revision: the commit, tag or branch of a dataset on the hub.
    """

    path: str
    split: str | None
    config: str | None = None
    revision: str | None = None

    @property
    def label(self) -> str:
        """The name as it stands in messages: ``name@revision``, or the folder."""
        return f"{self.path}@{self.revision}" if self.revision else self.path

    @property
    def stem(self) -> str:
        """What the ids of rows without one begin with: the name, of a folder without those above it."""
        return Path(self.path).name if is_saved_dataset(self.path) else self.path


def is_saved_dataset(path: str | Path) -> bool:
    """Return whether ``path`` is a folder as ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` leaves it."""
    folder = Path(path)
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def read_dataset(
    name: DatasetName, reading: Reading, *, corpus: str, rejects: Rejects, where: str
) -> Iterator[Document]:
    """Yield the documents of one split of a dataset, row by row, in its own order; no more rows are fetched than asked.

    The rules on rows are those of :func:`lingraft.corpus.readers.read_files`; the id of a row without one is
    ``name:row``. Code that a dataset brings along is never run. Without ``revision`` the dataset can change
    between two runs, so a recipe that is to be repeated states it.

    Raises:
        CorpusError: the dataset, its revision or its split cannot be had (the message names the recipe path
            ``where``); its text field is no text; a row is bad (``bad_lines`` is ``error``), or too many are.
        MissingExtraError: ``datasets`` is not installed.
    """
    bad = BadValues(reading, rejects, where)
    for number, row in enumerate(_rows(name, reading.text_field, where), start=1):
        fit = bad.table_row(row, name.label, number)
        if fit is not None:
            yield Document(fit.texts[0], corpus, fit.name or f"{name.stem}:{number}")
    bad.settle()


def _rows(name: DatasetName, text_field: str, where: str) -> Iterator[dict[str, Any]]:
    """Turn whatever the client raises, and it raises a lot, into one error with the recipe path."""
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
    which = f"the split {name.split!r} of the Hugging Face dataset" if name.split else "the saved dataset"
    problem = f"{where}: {which} {name.path!r} cannot be read"
    try:
        found = _saved(datasets, name, where) if is_saved_dataset(name.path) else _streamed(datasets, name)
        _refuse_other_types(found, text_field, where, name)
        rows = _start(found)
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


def _streamed(datasets: Any, name: DatasetName) -> Any:
    return datasets.load_dataset(
        path=name.path, name=name.config, split=name.split, revision=name.revision, streaming=True
    )


def _saved(datasets: Any, name: DatasetName, where: str) -> Any:
    found = datasets.load_from_disk(name.path)
    if isinstance(found, datasets.DatasetDict):
        if name.split not in found:
            hint = nearest(name.split or "", found)
            raise CorpusError(
                f"{where}.split: {name.path} holds the splits {', '.join(found)}; name one{hint} (given: {name.split})"
            )
        found = found[name.split]
    elif name.split not in (None, str(found.split)):
        raise CorpusError(f"{where}.split: {name.path} holds the one split {found.split}, not {name.split!r}")
    return found


def _refuse_other_types(found: Any, text_field: str, where: str, name: DatasetName) -> None:
    """Refuse a column of lists or numbers at once, not at its first row; a stream may not know its columns."""
    features = getattr(found, "features", None) or {}
    feature = features.get(text_field)
    kind = getattr(feature, "dtype", type(feature).__name__)
    if feature is not None and kind not in ("string", "large_string", "string_view", "null"):
        raise CorpusError(f"{where}.text: column {text_field!r} of {name.path} is of type {kind}, not text")


def _start(dataset: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return iter(dataset)


def _reason(error: BaseException) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__
