"""Packed sequences for training; the position is a pure function of the seed and of how much was consumed.

There is no loader state: the batch of a step is computed from the step number, so resuming costs the same anywhere.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from lingraft.corpus.apportionment import Apportionment
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
        places: the sequence of its corpus that each row is, counted from 0 where the corpus begins.
    """

    tokens: Int[np.ndarray, "batch position_1"]
    documents: Int[np.ndarray, "batch position_1"]
    corpora: tuple[str, ...]
    places: tuple[int, ...] = ()

    def describe(self) -> str:
        """Return which sequences these are, as in ``eu 12, eu 7, en 3``, so that a suspicious one can be looked up."""
        return ", ".join(f"{name} {place}" for name, place in zip(self.corpora, self.places, strict=False))

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

    Which corpus supplies a sequence is the apportionment's to say; which of its sequences that is, a permutation that
    is another one in every pass. So a batch is a function of the seed, of the step and of where each corpus stood when
    the mix began: of nothing that would have to be saved. Rows lie in the order of the apportionment, which is even, so
    that forward passes and ranks see the mix that the step has.

    Args:
        stores: corpus → its token store; the columns of ``mix``.
        mix: which corpus supplies which sequence of the stage.
        sequences: per step.
        sequence_length: inputs per sequence, in tokens.
        seed: of the run.
        consumed: corpus → tokens taken before this stage; reading goes on behind them.

    Raises:
        CorpusError: a corpus that must supply sequences is shorter than one.
    """

    def __init__(
        self,
        stores: Mapping[str, TokenSource],
        mix: Apportionment,
        *,
        sequences: int,
        sequence_length: int,
        seed: int,
        consumed: Mapping[str, int] | None = None,
    ) -> None:
        self._stores = {name: stores[name] for name in mix.corpora}
        self._mix = mix
        self._sequences = sequences
        self._length = sequence_length
        self._seed = seed
        self._since = 0
        self._first = self._in_sequences(consumed or {})
        self._sizes = {n: num_sequences(len(store.tokens), sequence_length) for n, store in self._stores.items()}
        for name, total in mix.totals.items():
            if total and not self._sizes[name]:
                raise CorpusError(
                    f"corpora.{name}: {len(stores[name].tokens)} tokens are less than one sequence of {sequence_length}"
                )

    @property
    def num_steps(self) -> int:
        """Steps of the stage."""
        return self._mix.num_sequences // self._sequences

    def batch(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> Batch:
        """Return the batch of a step (from 0), or the part of it that one of several ranks takes.

        Ranks take equal parts of one list, one behind the other, so together they read what a single process reads, and
        every rank has the same number of steps.

        Raises:
            CorpusError: there is no such rank, or the step's sequences cannot be divided among the ranks.
        """
        size, rest = divmod(self._sequences, num_ranks) if num_ranks > 0 else (0, 1)
        if not 0 <= rank < num_ranks:
            raise CorpusError(f"there is no rank {rank} among {num_ranks} (ranks count from 0)")
        if rest:
            raise CorpusError(f"batch: {self._sequences} sequences a step cannot be divided among {num_ranks} ranks")
        first = step * self._sequences + rank * size
        columns = self._mix.slots(first, first + size)
        next_of = self._taken(first)
        corpora = tuple(self._mix.corpora[column] for column in columns)
        places = []
        for column, name in zip(columns.tolist(), corpora, strict=True):
            places.append(self._place(name, int(next_of[column])))
            next_of[column] += 1
        rows = [self._sequence(name, place) for name, place in zip(corpora, places, strict=True)]
        tokens, documents = (np.stack(part).astype(np.int64) for part in zip(*rows, strict=True))
        return Batch(tokens, documents, corpora, tuple(places))

    def consumed(self, step: int) -> dict[str, int]:
        """Return corpus → tokens taken when ``step`` steps are done, earlier stages included."""
        taken = self._taken(step * self._sequences).tolist()
        return {name: count * self._length for name, count in zip(self._mix.corpora, taken, strict=True)}

    def state(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint keeps: where each corpus stands, and a hash of the batch that comes next."""
        first = {
            name: count * self._length for name, count in zip(self._mix.corpora, self._first.tolist(), strict=True)
        }
        return {"since": self._since, "first": first, "cursors": self.consumed(step), "next": self._hash(step)}

    def go_on(self, step: int, state: Mapping[str, Any], *, changed: bool = False) -> None:
        """Go on from a checkpoint.

        Args:
            step: steps done.
            state: what :meth:`state` returned then.
            changed: the mix or the data are not what they were, and that is wanted: every corpus is read on from where
                it stood, and the new mix holds from here.

        Raises:
            CorpusError: the next batch is not the one that was to come, although nothing should have changed.
        """
        self._since = step if changed else int(state["since"])
        self._first = self._in_sequences(state["cursors"] if changed else state["first"])
        if not changed and self._hash(step) != state["next"]:
            raise CorpusError(
                f"step {step + 1}: the next batch is not the one that the checkpoint expects; tokens, mix or seed have "
                "changed"
            )

    def _in_sequences(self, tokens: Mapping[str, int]) -> Int[np.ndarray, "corpus"]:
        return np.array([-(-int(tokens.get(name, 0)) // self._length) for name in self._mix.corpora], dtype=np.int64)

    def _taken(self, place: int) -> Int[np.ndarray, "corpus"]:
        """Return how many sequences of each corpus were taken before the stage's sequence ``place``."""
        taken: np.ndarray = self._first + self._mix.before(place) - self._mix.before(self._since * self._sequences)
        return taken

    def _hash(self, step: int) -> str:
        if step >= self.num_steps:
            return "the stage is over"
        batch = self.batch(step)
        return hashlib.sha256(batch.tokens.tobytes() + batch.documents.tobytes()).hexdigest()

    def _place(self, name: str, index: int) -> int:
        """Return which sequence of a corpus is read as its ``index``-th."""
        size = self._sizes[name]
        epoch, position = divmod(index, size)
        return permuted(position, size, self._key(name, epoch))

    def _sequence(self, name: str, place: int) -> tuple[np.ndarray, np.ndarray]:
        begin, end = place * self._length, (place + 1) * self._length + 1
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
