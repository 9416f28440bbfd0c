"""What two models differ by, on the same items: paired tests, resampled intervals, and what could have been seen.

Items are what chance draws: questions, or documents. Two models that answer the same items share what is hard in them,
so a difference is looked at item by item, and never by whether two intervals overlap (Miller, 2024, arXiv 2411.00640,
sec. 4). The seed of a training run is another matter: ten thousand items say nothing about what another seed would have
given, so seeds are drawn apart (:func:`paired_difference` with several runs a side).
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lingraft.errors import MeasurementError

__all__ = [
    "Estimate",
    "McNemar",
    "arm_mean",
    "holm",
    "macro_mean",
    "mcnemar",
    "paired_difference",
    "smallest_detectable",
]

_RESAMPLES = 10_000
_AT_ONCE = 2**21
# z for 5 % on two sides and for a power of 80 %: 1.960 + 0.842.
_DETECTABLE = 2.8
_FEWEST_TOLD = 6
# Sums of the same numbers in another order differ by rounding.
_NOTHING = 1e-12

Number = int | float


@dataclass(frozen=True)
class McNemar:
    """Exact McNemar test of two models on items that each gets right or wrong.

    Attributes:
        gained: items that only the second gets right.
        lost: items that only the first gets right.
        p: two-sided p: that of a fair coin falling so unevenly in ``gained + lost`` throws.
        count: items in all.
    """

    gained: int
    lost: int
    p: float
    count: int

    @property
    def discordance(self) -> float:
        """The share of items on which the two differ."""
        return (self.gained + self.lost) / self.count


@dataclass(frozen=True)
class Estimate:
    """A mean, or a difference of two, with what resampling says of it.

    Attributes:
        value: the number itself.
        low: lower end of the 95 % percentile interval.
        high: upper end.
        p: two-sided p of the value being 0: twice the share of resamples on the other side of 0, or at it.
        error: the standard error: the standard deviation over resamples.
        items: items behind it.
        runs: training runs on each side.
        seed_sd: standard deviation over training runs; None with one.
    """

    value: float
    low: float
    high: float
    p: float
    error: float
    items: int
    runs: int = 1
    seed_sd: float | None = None

    @property
    def detectable(self) -> float:
        """The smallest true value that is told from 0 with a power of 80 % at 5 %: 2.8 standard errors."""
        return _DETECTABLE * self.error

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > _NOTHING or self.high < -_NOTHING

    @property
    def is_nothing(self) -> bool:
        """Whether no draw of the items gives anything but 0: every one of them has the same score on both sides."""
        return max(abs(self.value), abs(self.low), abs(self.high)) <= _NOTHING and self.error <= _NOTHING

    @property
    def negated(self) -> "Estimate":
        """The same with the other sign: a fall of bits per byte told as a gain."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)


def mcnemar(first: Sequence[Number], second: Sequence[Number]) -> McNemar:
    """Return the exact McNemar test: of items that one gets right and the other wrong, each side should have half.

    p = min(1, 2 Σ_{k ≤ min(gained, lost)} C(n, k) / 2ⁿ) with n = gained + lost (McNemar, 1947, Psychometrika 12:153).

    Args:
        first: the score of one model on each item, 0 or 1.
        second: that of the other on the same items, in the same order.

    Raises:
        MeasurementError: the two differ in length, are empty, or hold another number than 0 and 1.
    """
    _refuse_unpaired(len(first), len(second))
    if odd := next((score for score in (*first, *second) if score not in (0, 1)), None):
        raise MeasurementError(f"McNemar's test is for items that are right, 1, or wrong, 0; one has {odd}")
    gained = sum(a < b for a, b in zip(first, second, strict=True))
    lost = sum(a > b for a, b in zip(first, second, strict=True))
    uneven = gained + lost
    tail = sum(math.comb(uneven, k) for k in range(min(gained, lost) + 1))
    # Whole numbers are divided: 2ⁿ as a float overflows at 1,024 items.
    p = float(min(1.0, 2 * tail / (1 << uneven)))
    return McNemar(gained, lost, p, len(first))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values, in the order given: the chance of one false alarm among all stays below each.

    The k-th smallest of m is multiplied by m − k + 1, and none gets less than a smaller one has
    (Holm, 1979, Scand. J. Statist. 6:65).

    Raises:
        MeasurementError: a value is not between 0 and 1.
    """
    if wrong := [p for p in p_values if not 0 <= p <= 1]:
        raise MeasurementError(f"p lies between 0 and 1, not {wrong[0]}")
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = least
    return tuple(adjusted)


def smallest_detectable(discordance: float, items: int) -> float:
    """Return the smallest true paired difference of two shares that is found in 8 of 10 tries at 5 %: 2.8 √(d / n).

    It is 6 / n at least: five items that all go one way are p 0.06 by McNemar's exact test, six are 0.03.

    Args:
        discordance: d, the share of items on which the two models differ.
        items: n.

    Raises:
        MeasurementError: there are no items, or the share is none.
    """
    if items <= 0 or not 0 <= discordance <= 1:
        raise MeasurementError(f"a share of {discordance} of {items} items is no discordance")
    return max(_DETECTABLE * math.sqrt(discordance / items), _FEWEST_TOLD / items)


def arm_mean(
    runs: Sequence[Sequence[Number]],
    denominators: Sequence[Number],
    *,
    strata: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable | None] | None = None,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return the macro mean over strata of Σ numerators / Σ denominators, with its interval.

    Items are drawn with replacement within their stratum, as whole clusters where they share a passage; of several
    training runs, runs are drawn too (see :func:`paired_difference`).

    Args:
        runs: run → the numerator of each item: its score, or its bits.
        denominators: of each item: 1 for a score, its bytes for bits.
        strata: of each item, as its task; all in one by default.
        clusters: of each item, or None where it stands by itself.
        resamples: how many.
        seed: of the draws.

    Raises:
        MeasurementError: there are no runs or no items, or lists differ in length.
    """
    spread = _spread(runs, denominators, strata, clusters, resamples, seed)
    return _estimate(spread, len(denominators), np.random.default_rng([seed, 1]))


def macro_mean(
    runs: Sequence[Sequence[Number]], denominators: Sequence[Number], *, strata: Sequence[Hashable] | None = None
) -> float:
    """Return the number that :func:`arm_mean` puts an interval around, without drawing anything.

    Raises:
        MeasurementError: there are no runs or no items, or lists differ in length.
    """
    values, _ = _spread(runs, denominators, strata, None, 0, 0)
    return float(values.mean())


def paired_difference(
    first: Sequence[Sequence[Number]],
    second: Sequence[Sequence[Number]],
    denominators: Sequence[Number],
    *,
    strata: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable | None] | None = None,
    seeds_match: bool = False,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return second minus first on the same items: the difference of the macro means of :func:`arm_mean`.

    In every resample both sides have the same items. With several runs on a side the draw is hierarchical: training
    runs with replacement, then items, the same for all runs, since every run answers them all. Drawn runs
    are spread by √(S / (S − 1)) around the mean of all S, without which S runs would seem less different than they are
    (Rao and Wu, 1988, JASA 83:231); an interval from two or three runs is too narrow all the same.

    Args:
        first: run → the numerator of each item.
        second: the same of the other side.
        denominators: of each item; both sides have the same.
        strata: of each item, as its task; all in one by default.
        clusters: of each item, or None where it stands by itself.
        seeds_match: the n-th runs of both sides have the same seed, and are drawn together.
        resamples: how many.
        seed: of the draws.

    Raises:
        MeasurementError: a side has no runs, there are no items, lists differ in length, or ``seeds_match`` and the
            sides have different numbers of runs.
    """
    if seeds_match and len(first) != len(second):
        raise MeasurementError(f"{len(first)} runs cannot be matched with {len(second)}, seed by seed")
    spread = _spread([*first, *second], denominators, strata, clusters, resamples, seed)
    values, draws = spread
    cut, count = len(first), len(denominators)
    if not first or not second:
        raise MeasurementError("a difference needs a run on either side")
    generator = np.random.default_rng([seed, 1])
    if seeds_match:
        return _estimate((values[cut:] - values[:cut], draws[cut:] - draws[:cut]), count, generator)
    sides = [(values[:cut], draws[:cut]), (values[cut:], draws[cut:])]
    drawn = [_over_runs(part, generator) for _, part in sides]
    runs, spreads = min(len(first), len(second)), [_sd(part) for part, _ in sides]
    seed_sd = math.hypot(*(s for s in spreads if s is not None)) if any(s is not None for s in spreads) else None
    return _summary(values[cut:].mean() - values[:cut].mean(), drawn[1] - drawn[0], count, runs, seed_sd)


_Spread = tuple[np.ndarray, np.ndarray]


def _spread(
    runs: Sequence[Sequence[Number]],
    denominators: Sequence[Number],
    strata: Sequence[Hashable] | None,
    clusters: Sequence[Hashable | None] | None,
    resamples: int,
    seed: int,
) -> _Spread:
    """Return each run's macro mean, and its macro means over resamples of the items, the same for all runs."""
    count = len(denominators)
    for part in (*runs, *(x for x in (strata, clusters) if x is not None)):
        _refuse_unpaired(len(part), count)
    if not runs or not count:
        raise MeasurementError("there is nothing to compare: no runs, or no items")
    above, below = np.asarray(runs, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    generator = np.random.default_rng(seed)
    groups = list(_groups(strata, clusters, count))
    values, draws = np.zeros(len(runs)), np.zeros((len(runs), resamples))
    for members in groups:
        tops = np.stack([above[:, part].sum(axis=1) for part in members], axis=1)
        bottoms = np.array([below[part].sum() for part in members])
        values += tops.sum(axis=1) / bottoms.sum()
        edges = range(0, resamples, max(1, _AT_ONCE // len(members)))
        for start, stop in pairwise([*edges, resamples]):
            picks = generator.integers(len(members), size=(stop - start, len(members)))
            draws[:, start:stop] += tops[:, picks].sum(axis=2) / bottoms[picks].sum(axis=1)
    return values / len(groups), draws / len(groups)


def _groups(
    strata: Sequence[Hashable] | None, clusters: Sequence[Hashable | None] | None, count: int
) -> Iterator[list[list[int]]]:
    """Yield, stratum by stratum in the order in which they appear, the items of each of its clusters."""
    found: dict[Hashable, dict[Hashable, list[int]]] = {}
    for index in range(count):
        cluster = clusters[index] if clusters is not None else None
        # An item of no cluster is one of its own.
        key = ("item", index) if cluster is None else ("cluster", cluster)
        found.setdefault(strata[index] if strata is not None else None, {}).setdefault(key, []).append(index)
    for stratum in found.values():
        yield list(stratum.values())


def _over_runs(draws: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the mean over runs drawn with replacement, for each resample of the items."""
    runs, resamples = draws.shape
    if runs == 1:
        return np.asarray(draws[0])
    picks = generator.integers(runs, size=(resamples, runs))
    middle = draws.mean(axis=0)
    drawn = np.take_along_axis(draws.T, picks, axis=1).mean(axis=1)
    return np.asarray(middle + math.sqrt(runs / (runs - 1)) * (drawn - middle))


def _sd(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _estimate(spread: _Spread, items: int, generator: np.random.Generator) -> Estimate:
    values, draws = spread
    return _summary(values.mean(), _over_runs(draws, generator), items, len(values), _sd(values))


def _summary(value: float, drawn: np.ndarray, items: int, runs: int, seed_sd: float | None) -> Estimate:
    low, high = np.quantile(drawn, [0.025, 0.975])
    fewer = min(int((drawn <= _NOTHING).sum()), int((drawn >= -_NOTHING).sum()))
    p = min(1.0, 2 * (fewer + 1) / (len(drawn) + 1))
    return Estimate(float(value), float(low), float(high), p, float(drawn.std()), items, runs, seed_sd)


def _refuse_unpaired(one: int, other: int) -> None:
    if one != other or not one:
        raise MeasurementError(f"pairs need two scores for each item, got {one} and {other}")
