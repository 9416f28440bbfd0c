"""Which corpus supplies which sequence of a stage, exactly: a schedule's shares made into whole sequences.

The stage is cut into blocks, a thousand or two of them, and at the schedule's knots. At the border of two blocks
each corpus has supplied a whole number of sequences that is less than one away from the integral of its share. Within a
block its sequences are spread evenly. Both follow from the schedule alone, so the sequence at any place is found at
once, wherever a run goes on.
"""

import heapq
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from lingraft.corpus.mixing import Mixture, Schedule
from lingraft.errors import RecipeError, nearest

__all__ = ["Apportionment", "apportion", "spread"]

_BLOCKS = 1024
_ROUNDING = 1e-9


class Apportionment:
    """The corpus of every sequence of a stage.

    Args:
        corpora: the columns.
        groups: the group (language) of each column.
        borders: where blocks begin, in sequences, from 0 to the whole.
        supplied: ``(border, corpus)``, sequences that each corpus has supplied up to there.
    """

    def __init__(
        self,
        corpora: Sequence[str],
        groups: Sequence[str],
        borders: Int[np.ndarray, "border"],
        supplied: Int[np.ndarray, "border corpus"],
    ) -> None:
        self.corpora = tuple(corpora)
        self._groups = tuple(groups)
        self._borders = borders
        self._supplied = supplied

    @property
    def num_sequences(self) -> int:
        """Sequences of the stage."""
        return int(self._borders[-1])

    @property
    def totals(self) -> dict[str, int]:
        """Corpus → sequences that it supplies in the whole stage."""
        return dict(zip(self.corpora, self._supplied[-1].tolist(), strict=True))

    def before(self, place: int) -> Int[np.ndarray, "corpus"]:
        """Return how many of the first ``place`` sequences each corpus supplies."""
        block = self._block(place)
        inside = self._pattern(block)[: place - int(self._borders[block])]
        return np.asarray(self._supplied[block] + np.bincount(inside, minlength=len(self.corpora)))

    def slots(self, first: int, last: int) -> Int[np.ndarray, "sequence"]:
        """Return the column of the corpus that supplies each sequence from ``first`` up to ``last``, exclusive."""
        pieces = [np.empty(0, dtype=np.int64)]
        while first < last:
            block = self._block(first)
            begin, end = int(self._borders[block]), min(last, int(self._borders[block + 1]))
            pieces.append(self._pattern(block)[first - begin : end - begin])
            first = end
        return np.concatenate(pieces)

    def _block(self, place: int) -> int:
        return min(int(np.searchsorted(self._borders, place, side="right")) - 1, len(self._borders) - 2)

    def _pattern(self, block: int) -> Int[np.ndarray, "sequence"]:
        return _spread_in_groups(tuple((self._supplied[block + 1] - self._supplied[block]).tolist()), self._groups)


def apportion(
    schedule: Schedule,
    corpora: Sequence[str],
    num_sequences: int,
    *,
    groups: Sequence[str] | None = None,
    grain: int = 1,
) -> Apportionment:
    """Return which corpus supplies which of a stage's sequences.

    Sequences are shared out among groups first, the languages, then among the corpora of each. What a group has
    supplied is less than one sequence away from the integral of its share at the border of every block and at the end,
    and less than two anywhere, so that its share of any thousand sequences is within 0.4 points of the schedule's. For
    a corpus of a larger group add its share of the group's. A corpus whose share is 0 gets none as long as another is
    owed any.

    Args:
        schedule: the mix over time; between its knots it is asked in the middle of each block.
        corpora: the columns.
        num_sequences: of the stage.
        groups: the group of each column; by default each is its own.
        grain: sequences per step; blocks are whole steps, or whole parts of one, about a thousand or two of them.

    Raises:
        RecipeError: the schedule asks for a corpus that has no column.
    """
    borders = _cut(schedule.knots, num_sequences, grain)
    middles = (borders[1:] + borders[:-1]) / (2 * num_sequences)
    shares = np.array([_shares(schedule(float(middle)), corpora) for middle in middles])
    members = list(groups or corpora)
    names = list(dict.fromkeys(members))
    columns = [[c for c, own in enumerate(members) if own == name] for name in names]
    of_groups = np.stack([shares[:, own].sum(axis=1) for own in columns], axis=1)
    outer = _carried(of_groups, np.diff(borders))
    supplied = np.zeros((len(borders), len(corpora)), dtype=np.int64)
    for group, own in enumerate(columns):
        whole = of_groups[:, group : group + 1]
        # A group may be given one sequence more after its share has ended; any of its corpora may then supply it.
        inner = np.divide(shares[:, own], whole, out=np.full((len(whole), len(own)), 1 / len(own)), where=whole > 0)
        supplied[:, own] = _carried(inner, np.diff(outer[:, group]))
    return Apportionment(corpora, members, borders, supplied)


def _carried(
    shares: Float[np.ndarray, "block column"], sizes: Int[np.ndarray, "block"]
) -> Int[np.ndarray, "border column"]:
    """Return how many each column has got at each border, when every block's whole number is shared out."""
    integral = np.zeros((shares.shape[1], len(sizes) + 1))
    integral[:, 1:] = np.cumsum(shares.T * sizes, axis=1)
    supplied = np.zeros((len(sizes) + 1, shares.shape[1]), dtype=np.int64)
    for block, size in enumerate(sizes.tolist()):
        given = [size] if shares.shape[1] == 1 else _share_out(integral, supplied[block].tolist(), block, size)
        supplied[block + 1] = supplied[block] + given
    return supplied


def _cut(knots: Sequence[float], num_sequences: int, grain: int) -> Int[np.ndarray, "border"]:
    steps = -(-num_sequences // grain)
    if steps >= _BLOCKS:
        places = set(range(0, num_sequences, grain * -(-steps // (2 * _BLOCKS))))
    else:
        parts = min(grain, -(-_BLOCKS // steps))
        places = {n * grain // parts for n in range(steps * parts)}
    # A knot at 10 % of 90 sequences is at 9, though 0.1 × 90 is a little more.
    inside = {int(np.ceil(knot * num_sequences - _ROUNDING * num_sequences)) for knot in knots}
    return np.array([*sorted(n for n in places | inside if 0 <= n < num_sequences), num_sequences], dtype=np.int64)


def _shares(mixture: Mixture, corpora: Sequence[str]) -> list[float]:
    """Return the shares in the order of the columns, scaled to sum to 1 exactly."""
    for name, share in mixture.items():
        if share > 0 and name not in corpora:
            raise RecipeError(f"mix: corpus {name!r} is not among {', '.join(corpora)}{nearest(name, corpora)}")
    total = sum(mixture.values())
    return [mixture.get(name, 0.0) / total for name in corpora]


def _share_out(integral: np.ndarray, supplied: list[int], block: int, size: int) -> list[int]:
    """Give out the sequences of a block: what is owed in whole first, then one by one to the earliest deadline.

    Giving left-over sequences to the corpus that would be the first to fall behind (Tijdeman, 1980, "The chairman
    assignment problem") keeps every corpus less than one from its integral; the largest remainder breaks that from six
    corpora on.
    """
    now, then = integral[:, block].tolist(), integral[:, block + 1].tolist()
    columns = range(len(supplied))
    owed = [then[c] - supplied[c] for c in columns]
    has_share = [then[c] > now[c] for c in columns]
    given = [max(0, int(np.floor(amount + _ROUNDING))) for amount in owed]
    slack = 1 / max(2, 2 * len(supplied) - 2)
    while sum(given) > size:
        taken = [c for c in columns if given[c]]
        given[max(taken, key=lambda c: _when(integral[c], supplied[c] + given[c]))] -= 1
    deadlines: dict[int, float] = {}
    for _ in range(size - sum(given)):
        able = _able(owed, given, has_share, slack)
        for c in able if len(able) > 1 else ():
            if c not in deadlines:
                deadlines[c] = _when(integral[c], supplied[c] + given[c] + 1 - slack)
        chosen = min(able, key=lambda c: (deadlines.get(c, 0.0), given[c] - owed[c]))
        given[chosen] += 1
        deadlines.pop(chosen, None)
    return given


def _able(owed: list[float], given: list[int], has_share: list[bool], slack: float) -> list[int]:
    """Return the corpora that may take one more: those that are owed enough of one, else those that are owed most."""
    columns = range(len(owed))
    rest = [owed[c] - given[c] for c in columns]
    for least, any_share in ((slack - _ROUNDING, False), (_ROUNDING, False), (slack, True)):
        able = [c for c in columns if rest[c] > least and (any_share or has_share[c])]
        if able:
            return able
    return [c for c in columns if rest[c] >= max(rest)]


def _when(integral: np.ndarray, amount: float) -> float:
    """Return the time, in blocks, at which a corpus's integral reaches an amount; infinity if it never does."""
    after = int(integral.searchsorted(amount))
    if after == 0 or after == len(integral):
        return 0.0 if after == 0 else float("inf")
    below, above = float(integral[after - 1]), float(integral[after])
    return after - 1 + (amount - below) / (above - below)


@lru_cache(maxsize=256)
def _spread_in_groups(counts: tuple[int, ...], groups: tuple[str, ...]) -> Int[np.ndarray, "sequence"]:
    """Return an even order of groups, within which the corpora of each come in an even order."""
    names = list(dict.fromkeys(groups))
    columns = [[c for c, own in enumerate(groups) if own == name] for name in names]
    outer = spread(tuple(sum(counts[c] for c in own) for own in columns))
    order = np.empty_like(outer)
    for group, own in enumerate(columns):
        order[outer == group] = np.array(own)[spread(tuple(counts[c] for c in own))]
    return order


def spread(counts: tuple[int, ...]) -> Int[np.ndarray, "sequence"]:
    """Return an even order of some items of each kind: at every place, each kind is less than one from its share.

    Item j of c that come n times among N may be taken from place N (j + s) / n on and must be by N (j + 1 − s) / n,
    with s = 1 / (2 k − 2) for k kinds; taking the earliest deadline first always works (Tijdeman, 1980).

    Args:
        counts: how often each kind comes; the kinds are 0, 1, 2, …
    """
    size, kinds = sum(counts), [kind for kind, count in enumerate(counts) if count]
    order = np.empty(size, dtype=np.int64)
    if len(kinds) < 2:
        order[:] = kinds[0] if kinds else 0
        return order
    parts = 2 * len(kinds) - 2
    waiting = [(-(-size // (parts * counts[kind])), kind, 0) for kind in kinds]
    heapq.heapify(waiting)
    ready: list[tuple[float, int, int]] = []
    for place in range(1, size + 1):
        while waiting and (waiting[0][0] <= place or not ready):
            _, kind, item = heapq.heappop(waiting)
            heapq.heappush(ready, (size * (parts * (item + 1) - 1) / counts[kind], kind, item))
        _, kind, item = heapq.heappop(ready)
        order[place - 1] = kind
        if item + 1 < counts[kind]:
            heapq.heappush(waiting, (-(-size * (parts * (item + 1) + 1) // (parts * counts[kind])), kind, item + 1))
    return order
