"""Whether the training text gives away what is to be measured: rows of 13 words that stand in both.

The test of GPT-3 (arXiv 2005.14165, appendix C): case and punctuation aside, and an item of 8 to 12 words is looked for
whole. Shorter ones cannot be told from common phrases.
"""

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.characters import hash_rows
from lingraft.corpus.document import Document, escape
from lingraft.corpus.streams import MAX_LINE_BYTES, read_lines
from lingraft.errors import CorpusError

__all__ = ["Overlap", "Watched", "read_items"]

_MAX_ROWS = 2**23
_MIN_WORDS = 8
_SAMPLES = 3


@dataclass
class Watched:
    """Documents that training text should not hold, and what was found of them.

    Attributes:
        name: what they are: ``validation``, or the name of a file of evaluation items.
        documents: how many there are.
        too_short: those of fewer than 8 words, which are not looked for.
        unwatched: those left out because the set is too large to hold; the rest is a sample of it.
        overlapping: training text → the numbers (in order, from 0) of those found in it.
        rows: number → the hashes of its rows.
        labels: number → id and beginning.
    """

    name: str
    documents: int = 0
    too_short: int = 0
    unwatched: int = 0
    overlapping: dict[str, set[int]] = field(default_factory=dict)
    rows: dict[int, NDArray[np.uint64]] = field(default_factory=dict)
    labels: dict[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of the watched documents that stand in training text, those too short counted as clean."""
        return len(self._found) / max(1, self.documents - self.unwatched)

    @property
    def _found(self) -> set[int]:
        return set().union(*self.overlapping.values())

    def as_json(self) -> dict[str, Any]:
        """Return counts, share and three samples, as the data report stores them."""
        samples = [self.labels[number] for number in sorted(self._found)[:_SAMPLES]]
        return {
            "name": self.name,
            "documents": self.documents,
            "overlapping": len(self._found),
            "share": self.share,
            "found_in": {name: len(numbers) for name, numbers in self.overlapping.items() if numbers},
            "too_short": self.too_short,
            "unwatched": self.unwatched,
            "samples": [{"at": name, "text": text} for name, text in samples],
        }


class Overlap:
    """A table of rows to look for, of one or several watched sets, and the search through training text.

    Memory: 8 bytes for each row of words, for at most 8 million of them a set. A larger set is represented by a sample
    of its documents, those with the smallest hashes of their content.
    """

    def __init__(self, n: int = 13) -> None:
        self.n = n
        self.watched: list[Watched] = []
        self._sizes = {n}
        self._seen: dict[str, NDArray[np.bool_]] = {}
        self._first_bits = np.zeros(2, dtype=np.bool_)
        self._index: tuple[NDArray[np.uint64], NDArray[np.int64], list[tuple[Watched, int]]] | None = None

    def watch(self, name: str, documents: Iterable[Document]) -> Watched:
        """Take in a set and return the account of it; all sets are watched before the first text is read."""
        found = Watched(name)
        heap: list[tuple[int, int]] = []
        size = 0
        for number, document in enumerate(documents):
            found.documents += 1
            rows = self._rows_of(document.text)
            if not len(rows):
                found.too_short += 1
                continue
            found.rows[number] = np.unique(rows)
            found.labels[number] = (document.id, escape(document.text))
            order = int.from_bytes(hashlib.sha256(document.text.encode()).digest()[:8], "big")
            heapq.heappush(heap, (-order, number))
            size += len(rows)
            while size > _MAX_ROWS and len(heap) > 1:
                dropped = heapq.heappop(heap)[1]
                size -= len(found.rows.pop(dropped))
                found.unwatched += 1
        self.watched.append(found)
        self._index = None
        return found

    def _rows_of(self, text: str) -> NDArray[np.uint64]:
        """Return the rows of n words; of a shorter text, the one of all its words."""
        rows = hash_rows(text, (self.n,))[0]
        for size in range(self.n - 1, min(_MIN_WORDS, self.n) - 1, -1):
            if len(rows):
                return rows
            rows = hash_rows(text, (size,))[0]
            if len(rows):
                self._sizes.add(size)
        return rows

    def read(self, text: str, within: str) -> None:
        """Look for the watched rows in a piece of the training text that is named ``within``."""
        if self._index is None:
            self._index = self._build()
            bits = min(26, 4 + len(self._index[0]).bit_length())
            self._first_bits = np.zeros(2**bits, dtype=np.bool_)
            self._first_bits[self._index[0] >> np.uint64(64 - bits)] = True
        table = self._index[0]
        if not len(table):
            return
        seen = self._seen.setdefault(within, np.zeros(len(table), dtype=np.bool_))
        for rows in hash_rows(text, tuple(sorted(self._sizes))):
            rows = rows[self._may_hold(rows)]
            place = np.minimum(np.searchsorted(table, rows), len(table) - 1)
            seen[place[table[place] == rows]] = True

    def _may_hold(self, rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tell most rows that are not in the table by their first bits, which is much faster than to look for them."""
        shift = np.uint64(64 - (len(self._first_bits).bit_length() - 1))
        found: NDArray[np.bool_] = self._first_bits[rows >> shift]
        return found

    def settle(self) -> None:
        """Fill ``overlapping`` of all watched sets, after the last text was read."""
        if self._index is None:
            return
        _, starts, owners = self._index
        for within, seen in self._seen.items():
            for hit in np.flatnonzero(seen).tolist():
                for watched, number in owners[starts[hit] : starts[hit + 1]]:
                    watched.overlapping.setdefault(within, set()).add(number)

    def _build(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], list[tuple[Watched, int]]]:
        """Return the rows in order, where the owners of each begin, and the owners."""
        pairs = [(watched, number, rows) for watched in self.watched for number, rows in watched.rows.items()]
        if not pairs:
            return np.zeros(0, dtype=np.uint64), np.zeros(1, dtype=np.int64), []
        every = np.concatenate([rows for _, _, rows in pairs])
        owner = np.repeat(np.arange(len(pairs)), [len(rows) for _, _, rows in pairs])
        order = np.argsort(every, kind="stable")
        table, first = np.unique(every[order], return_index=True)
        starts = np.append(first, len(every))
        return table, starts, [(pairs[index][0], pairs[index][1]) for index in owner[order].tolist()]


def read_items(path: Path) -> Iterator[Document]:
    """Yield the evaluation items of a file: a line of text, or all texts in a line of JSON, whatever they are called.

    Raises:
        CorpusError: the file cannot be read or is a table, a line is too long or no text, or one of JSON is none.
    """
    if path.suffix == ".parquet":
        raise CorpusError(f"{path}: items are read from .txt or .jsonl, not from a table")
    for line in read_lines(path):
        if not line.content.strip():
            continue
        problem = f"{path}:{line.number}: byte {line.byte}: not a line of items"
        if line.too_long:
            raise CorpusError(f"{problem}: longer than {MAX_LINE_BYTES} bytes")
        try:
            content = line.content.decode()
            text = "\n".join(_texts_in(json.loads(content))) if ".jsonl" in path.suffixes[-2:] else content
            text.encode()
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{problem}: {error}") from error
        yield Document(text, path.name, f"{path.name}:{line.number}")


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(child)
