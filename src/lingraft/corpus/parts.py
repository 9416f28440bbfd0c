"""A corpus encoded in parts: each appears whole, so what is done survives a kill, and several processes can share it.

NAME.parts/00003/
  tokens.ds      the tokens of some consecutive documents, one after another
  lengths        how many tokens each of them has, 8 bytes each
  part.json      which bytes of which text, in which tokens; counts and hashes
"""

import itertools
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import hash_file, publish_folder

__all__ = ["LENGTHS", "TOKENS", "Encoding", "Part", "TextRange", "cut_text", "is_part", "read_range", "write_part"]

TOKENS = "tokens.ds"
"""The file of a part's tokens."""

LENGTHS = "lengths"
"""The file of its documents' lengths."""

_RECORD = "part.json"
_NARROW_ENTRIES = 2**16
_BATCH_DOCUMENTS = 256
_BATCH_CHARACTERS = 2**20
_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Encoding:
    """How texts become tokens.

    Attributes:
        encode_batch: turns texts into the ids of the text alone, without start and end tokens; these are put here, to
            every document alike.
        vocabulary_size: ids are below it.
        start_id: in front of every document, or None.
        end_id: behind every document, whether or not there is a start.
    """

    encode_batch: Callable[[list[str]], list[list[int]]]
    vocabulary_size: int
    start_id: int | None
    end_id: int

    def __post_init__(self) -> None:
        """Refuse border tokens that the vocabulary does not have."""
        for role, special in (("start", self.start_id), ("end", self.end_id)):
            if special is not None and not 0 <= special < self.vocabulary_size:
                raise CorpusError(f"documents.{role}: id {special} is not in a vocabulary of {self.vocabulary_size}")

    @property
    def dtype(self) -> Any:
        """The type of a stored token: 2 bytes where they are enough."""
        return np.dtype("<u2" if self.vocabulary_size <= _NARROW_ENTRIES else "<u4")


@dataclass(frozen=True)
class TextRange:
    """Some whole lines of a prepared text: bytes from ``begin`` up to ``end``; ``first`` numbers the first of them."""

    begin: int
    end: int
    first: int


@dataclass(frozen=True)
class Part:
    """A part on disk, with its counts."""

    folder: Path
    num_tokens: int
    num_documents: int
    num_bytes: int


def cut_text(path: Path, size: int) -> list[TextRange]:
    """Return ranges of about ``size`` bytes that together are the whole of a prepared text, cut between its lines."""
    ranges: list[TextRange] = []
    begin = position = 0
    first = number = 1
    with path.open("rb") as file:
        for line in file:
            position += len(line)
            number += 1
            if position - begin >= size:
                ranges.append(TextRange(begin, position, first))
                begin, first = position, number
    return [*ranges, TextRange(begin, position, first)] if position > begin else ranges


def read_range(path: Path, piece: TextRange) -> Iterator[str]:
    """Yield the texts of some lines of a prepared text.

    Raises:
        CorpusError: the file is missing, or a line of it is not one of prepared text.
    """
    number = piece.first
    try:
        with path.open("rb") as file:
            file.seek(piece.begin)
            while file.tell() < piece.end:
                yield json.loads(file.readline())["text"]
                number += 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path}:{number}: not a line of prepared text: {error!r}") from error


def write_part(
    documents: Iterable[str], encoding: Encoding, folder: Path, *, first: int = 1, key: Mapping[str, Any] | None = None
) -> Part:
    """Encode some consecutive documents of a corpus into ``folder``, which appears whole.

    Memory: four batches, each of up to 256 documents and about 1 M characters, and 8 bytes a document.

    Args:
        documents: their texts.
        encoding: how.
        folder: where to.
        first: the number of the first of them in its corpus, for messages.
        key: what the part was made of; see :func:`is_part`.

    Raises:
        CorpusError: a document encodes to nothing, to an id that the vocabulary does not have, or to a start or end
            token inside its text (a text in which ``</s>`` stands would end there). The message gives the document's
            number, from 1, and the id. Nothing is written.
    """
    counts = [0, 0, 0]

    def fill(temporary: Path) -> None:
        with (temporary / TOKENS).open("wb") as tokens, (temporary / LENGTHS).open("wb") as lengths:
            for texts, encoded in _encoded(documents, encoding.encode_batch):
                poll()
                stream, sizes = _with_borders(texts, encoded, encoding, first + counts[1])
                # Not tofile, which on a full disk says nothing of the reason.
                tokens.write(stream.data)
                lengths.write(sizes.astype("<u8").data)
                for n, more in enumerate((len(stream), len(sizes), sum(len(text.encode()) for text in texts))):
                    counts[n] += more
        record = {"key": dict(key or {}), "counts": counts}
        record["sha256"] = {name: hash_file(temporary / name, poll) for name in (TOKENS, LENGTHS)}
        (temporary / _RECORD).write_text(json.dumps(record), encoding="utf-8")

    publish_folder(folder, fill)
    return Part(folder, *counts)


def is_part(folder: Path, key: Mapping[str, Any]) -> Part | None:
    """Return the part in a folder if it was made of what ``key`` says and every byte of it stands, else None."""
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        sound = record["key"] == dict(key) and all(
            hash_file(folder / n, poll) == h for n, h in record["sha256"].items()
        )
        return Part(folder, *record["counts"]) if sound else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in documents:
        batch.append(text)
        characters += len(text)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encoded(
    documents: Iterable[str], encode_batch: Callable[[list[str]], list[list[int]]]
) -> Iterator[tuple[list[str], list[list[int]]]]:
    """Yield batches and their ids, in order; two are encoded while the last one is being checked and written.

    Of two, because one leaves cores idle at its end, when its last texts are encoded and its ids are handed to Python.
    """
    with ThreadPoolExecutor(_BATCHES_AHEAD) as encoders:
        waiting: deque[tuple[list[str], Future[list[list[int]]]]] = deque()
        for batch in _batches(documents):
            waiting.append((batch, encoders.submit(encode_batch, batch)))
            if len(waiting) > _BATCHES_AHEAD:
                texts, ids = waiting.popleft()
                yield texts, ids.result()
        while waiting:
            texts, ids = waiting.popleft()
            yield texts, ids.result()


def _with_borders(
    texts: list[str], encoded: list[list[int]], encoding: Encoding, first: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return a batch as one stream, start and end tokens put in, and the length of each document in it."""
    if len(encoded) != len(texts):
        raise CorpusError(f"{len(texts)} documents were encoded to {len(encoded)}; encode_batch must keep their number")
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    flat = _flat(encoded)
    _check(flat, sizes, encoding, first)
    leading = 0 if encoding.start_id is None else 1
    lengths = sizes + leading + 1
    ends = lengths.cumsum()
    stream = np.empty(int(ends[-1]), dtype=encoding.dtype)
    is_text = np.ones(len(stream), dtype=bool)
    is_text[ends - 1] = False
    stream[ends - 1] = encoding.end_id
    if encoding.start_id is not None:
        is_text[ends - lengths] = False
        stream[ends - lengths] = encoding.start_id
    stream[is_text] = flat
    return stream, lengths


def _flat(encoded: list[list[int]]) -> NDArray[Any]:
    """Return all ids one behind another; through an array of Python's own, which takes a list three times as fast."""
    ids = array("I")
    try:
        for document in encoded:
            ids.fromlist(document)
    except OverflowError:
        # A negative id, or one of more than 32 bits, is for the check to name.
        return np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.int64)
    return np.frombuffer(ids, dtype=np.uintc)


def _check(flat: NDArray[Any], sizes: NDArray[np.int64], encoding: Encoding, first: int) -> None:
    if not sizes.all():
        raise CorpusError(f"document {first + int(sizes.argmin())} encodes to no token")
    wrong = (flat < 0) | (flat >= encoding.vocabulary_size)
    borders = {special for special in (encoding.start_id, encoding.end_id) if special is not None}
    inside = np.logical_or.reduce([flat == special for special in sorted(borders)])
    if not (wrong | inside).any():
        return
    place = int((wrong | inside).argmax())
    number, token = first + int(np.searchsorted(sizes.cumsum(), place, side="right")), int(flat[place])
    if wrong[place]:
        raise CorpusError(
            f"document {number} encodes to id {token}; the vocabulary has {encoding.vocabulary_size} entries"
        )
    raise CorpusError(
        f"document {number} has the start or end token {token} inside its text; "
        "encode without adding special tokens and without reading them from the text"
    )
