"""Intervals: of shares, and of ratios of sums."""

import math
from collections.abc import Sequence

import numpy as np

from lingraft.errors import MeasurementError

__all__ = ["bootstrap_ratio", "macro_interval", "wilson_interval"]

_Z95 = 1.959963984540054


def wilson_interval(successes: int | float, trials: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a share (Wilson, 1927, JASA 22:209).

    Raises:
        MeasurementError: there were no trials.
    """
    if trials <= 0:
        raise MeasurementError("an interval needs at least one trial")
    share, z2 = successes / trials, _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    # Rounding must not put the share outside its own interval at 0 or 1.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def bootstrap_ratio(
    numerators: Sequence[int | float], denominators: Sequence[int | float], *, resamples: int = 1000, seed: int = 0
) -> tuple[float, float] | tuple[None, None]:
    """Return the 95 % percentile interval of Σ numerators / Σ denominators, documents being drawn with replacement.

    Both sums take part in each draw, so a long document weighs as it does in the number itself. One document alone has
    no interval: every draw would be itself, and say that nothing is uncertain.

    Raises:
        MeasurementError: the two lists differ in length or are empty.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise MeasurementError(
            f"a ratio needs pairs, got {len(numerators)} numerators and {len(denominators)} denominators"
        )
    if len(numerators) == 1:
        return None, None
    above, below = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(len(above), size=(resamples, len(above)))
    ratios = above[picks].sum(axis=1) / below[picks].sum(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def macro_interval(
    strata: Sequence[Sequence[int | float]], *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of the strata's means, items being drawn within each stratum.

    Every stratum keeps its own number of items in every draw, and all strata weigh the same (stratified bootstrap).

    Raises:
        MeasurementError: there is no stratum, or one without items.
    """
    if not strata or not all(strata):
        raise MeasurementError("a macro mean needs at least one stratum, and items in each")
    generator, total = np.random.default_rng(seed), np.zeros(resamples)
    for stratum in strata:
        values = np.asarray(stratum, dtype=np.float64)
        if np.isin(values, (0, 1)).all():
            # How many ones are drawn is all that counts, and its distribution is known.
            total += generator.binomial(len(values), values.mean(), size=resamples) / len(values)
        else:
            total += values[generator.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(total / len(strata), [0.025, 0.975])
    return float(low), float(high)
