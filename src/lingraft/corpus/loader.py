"""Packed sequences for training; the position is a pure function of the seed and of how much was consumed.

There is no loader state: the batch of a step is computed from the step number, so resuming costs the same anywhere.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from lingraft.errors import CorpusError

__all__ = ["Batch", "SequenceLoader", "TokenSource", "num_sequences", "permuted"]

_ROUNDS = 4


@runtime_checkable
class TokenSource(Protocol):
    """What the loader needs of a token store."""

    @property
    def tokens(self) -> np.ndarray:
        """All tokens of the corpus, document after document."""
        ...

    @property
    def document_ends(self) -> np.ndarray:
        """Where each document ends: the number of tokens up to there, rising."""
        ...


@dataclass(frozen=True)
class Batch:
    """The sequences of one optimiser step.

    Attributes:
        tokens: ``(batch, position + 1)``: inputs are all but the last column, labels all but the first. Nothing is
            padded, so no label is ever masked for being equal to a pad or end token.
        documents: the number of each token's document in its row, from 0.
        corpora: the corpus of each row.
    """

    tokens: Int[np.ndarray, "batch position_1"]
    documents: Int[np.ndarray, "batch position_1"]
    corpora: tuple[str, ...]

    @property
    def counts(self) -> Bool[np.ndarray, "batch position"]:
        """Whether each label is of the document of its input: no document has to foretell how the next one begins."""
        return np.asarray(self.documents[:, 1:] == self.documents[:, :-1])


def num_sequences(num_tokens: int, sequence_length: int) -> int:
    """Return how many sequences a stream holds: each needs its own inputs and one token more as last label."""
    return max(0, (num_tokens - 1) // sequence_length)


def permuted(index: int, size: int, key: bytes) -> int:
    """Return the place of ``index`` in a random order of ``range(size)``, without making the order.

    A Feistel network over the next even number of bits, walked until it lands inside (Black & Rogaway, 2002). It needs
    no memory and never changes with a library's version.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    value = index
    while True:
        left, right = value >> half, value & mask
        for number in range(_ROUNDS):
            mixed = hashlib.blake2b(bytes([number]) + right.to_bytes(8, "little"), key=key, digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(mixed, "little") & mask)
        value = left << half | right
        if value < size:
            return value


class SequenceLoader:
    """The batches of one stage.

    Args:
        stores: corpus → its token store.
        quotas: ``(step, corpus)``, columns in the order of ``stores``, as
            :func:`lingraft.corpus.mixing.quota_table` makes them.
        sequence_length: inputs per sequence, in tokens.
        seed: of the run.
        consumed: corpus → tokens that earlier stages took; reading goes on behind them.

    Raises:
        CorpusError: a corpus that must supply sequences is shorter than one.
    """

    def __init__(
        self,
        stores: Mapping[str, TokenSource],
        quotas: Int[np.ndarray, "step corpus"],
        *,
        sequence_length: int,
        seed: int,
        consumed: Mapping[str, int] | None = None,
    ) -> None:
        self._stores = dict(stores)
        self._names = list(stores)
        self._quotas = quotas
        self._before = np.vstack([np.zeros((1, len(self._names)), dtype=np.int64), np.cumsum(quotas, axis=0)])
        self._length = sequence_length
        self._seed = seed
        self._first = {name: -(-(consumed or {}).get(name, 0) // sequence_length) for name in self._names}
        self._sizes = {name: num_sequences(len(store.tokens), sequence_length) for name, store in stores.items()}
        for column, name in enumerate(self._names):
            if quotas[:, column].sum() and not self._sizes[name]:
                raise CorpusError(
                    f"corpora.{name}: {len(stores[name].tokens)} tokens are less than one sequence of {sequence_length}"
                )

    @property
    def num_steps(self) -> int:
        """Steps of the stage."""
        return len(self._quotas)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step (from 0)."""
        rows: list[tuple[str, np.ndarray, np.ndarray]] = []
        for column, name in enumerate(self._names):
            first = self._first[name] + int(self._before[step, column])
            rows += [(name, *self._sequence(name, first + n)) for n in range(int(self._quotas[step, column]))]
        order = [permuted(n, len(rows), self._key("order", step)) for n in range(len(rows))]
        tokens = np.stack([rows[n][1] for n in order]).astype(np.int64)
        documents = np.stack([rows[n][2] for n in order])
        return Batch(tokens, documents, tuple(rows[n][0] for n in order))

    def consumed(self, step: int) -> dict[str, int]:
        """Return corpus → tokens taken when ``step`` steps are done, earlier stages included."""
        return {n: (self._first[n] + int(self._before[step, c])) * self._length for c, n in enumerate(self._names)}

    def _sequence(self, name: str, index: int) -> tuple[np.ndarray, np.ndarray]:
        size = self._sizes[name]
        epoch, position = divmod(index, size)
        tile = permuted(position, size, self._key(name, epoch))
        begin, end = tile * self._length, (tile + 1) * self._length + 1
        store = self._stores[name]
        return store.tokens[begin:end], _documents_between(store.document_ends, begin, end)

    def _key(self, name: str, number: int) -> bytes:
        return hashlib.blake2b(f"{self._seed}/{name}/{number}".encode(), digest_size=32).digest()


def _documents_between(ends: np.ndarray, begin: int, end: int) -> Int[np.ndarray, "position"]:
    """Return the number of the document of each token in ``range(begin, end)``, counted from the first of them."""
    first, last = np.searchsorted(ends, np.array([begin, end - 1], dtype=ends.dtype), side="right").tolist()
    borders = np.zeros(end - begin, dtype=np.int64)
    borders[ends[first:last].astype(np.int64) - begin] = 1
    return borders.cumsum()
