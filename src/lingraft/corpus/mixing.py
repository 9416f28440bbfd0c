"""Which corpus supplies which sequence: mixtures, schedules over a stage, and exact apportionment.

All sequences of a stage have the same length, so a share of sequences is a share of tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from lingraft.errors import RecipeError, nearest
from lingraft.registry import Registry

__all__ = [
    "Mixture",
    "Schedule",
    "constant",
    "make_schedule",
    "mix_schedule",
    "mix_schedules",
    "quota_table",
    "step",
]

Mixture = Mapping[str, float]
"""Corpus → share of the tokens; the shares sum to 1."""

Schedule = Callable[[float], Mixture]
"""Fraction of the stage that has passed, in [0, 1) → the mixture that holds then."""

mix_schedules: Registry[Callable[..., Mixture]] = Registry("mix schedule")
mix_schedule = mix_schedules.register

_TOLERANCE = 1e-6
_ROUNDING = 1e-9


@mix_schedule("constant", reference="arXiv 2407.12869")
def constant(fraction: float, *, mix: Mixture) -> Mixture:  # noqa: ARG001 - every schedule is asked with the fraction
    """Return the same mixture at all times."""
    return mix


@mix_schedule("step", reference="arXiv 2506.00288, curriculum")
def step(fraction: float, *, at: float, before: Mixture, after: Mixture) -> Mixture:
    """Return ``before`` until the fraction ``at`` of the stage has passed, ``after`` from there on.

    The paper's curriculum is a bilingual mix for the first 10 % of the steps and the target language alone after that.

    Raises:
        ValueError: ``at`` does not lie between 0 and 1.
    """
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at <= 1:
        raise ValueError(f"at must be a fraction of the stage such as 10%, not {at!r}")
    return before if fraction < at else after


def make_schedule(name: str, options: Mapping[str, Any], where: str) -> Schedule:
    """Return a registered schedule with its options bound and its mixtures checked at both ends.

    Raises:
        RecipeError: the name or an option is unknown, or a mixture is not one; the message names the path ``where``.
    """
    bound = mix_schedules.get(name, where).bind(options, where)
    for fraction in (0.0, 0.999999):
        try:
            mixture = bound(fraction)
        except (ValueError, TypeError, AttributeError) as error:
            raise RecipeError(f"{where}: {error}") from error
        total = sum(mixture.values()) if isinstance(mixture, Mapping) else None
        if total is None or abs(total - 1) > _TOLERANCE or min(mixture.values()) < 0:
            raise RecipeError(
                f"{where}: the shares of a mix must be positive and sum to 1, at {fraction:g} they are {mixture!r}"
            )
    return bound


def quota_table(
    schedule: Schedule, corpora: Sequence[str], num_steps: int, sequences: int
) -> Int[np.ndarray, "step corpus"]:
    """Return how many sequences each corpus supplies to each optimiser step.

    Every row sums to ``sequences``. What rounding owes a corpus is carried on, so that at every step border the number
    supplied is less than one sequence per corpus away from the schedule's integral. Left-over sequences go to the
    corpus that would be the first to fall behind (Tijdeman, 1980, "The chairman assignment problem"): giving them to
    the largest remainder breaks that bound from six corpora on. A corpus whose share is 0 gets none as long as another
    is owed any.

    Args:
        schedule: the mix over time, asked at the start of each step.
        corpora: the columns.
        num_steps: the rows.
        sequences: sequences per step.

    Raises:
        RecipeError: the schedule asks for a corpus that has no column.
    """
    shares = np.array([_shares(schedule(index / num_steps), corpora) for index in range(num_steps)])
    ideal = np.vstack([np.zeros((1, len(corpora))), np.cumsum(shares * sequences, axis=0)])
    table = np.zeros((num_steps, len(corpora)), dtype=np.int64)
    supplied = np.zeros(len(corpora), dtype=np.int64)
    for index in range(num_steps):
        table[index] = _apportion(ideal, supplied, index, sequences)
        supplied += table[index]
    return table


def _shares(mixture: Mixture, corpora: Sequence[str]) -> list[float]:
    """Return the shares in the order of the columns, scaled to sum to 1 exactly."""
    for name, share in mixture.items():
        if share > 0 and name not in corpora:
            raise RecipeError(f"mix: corpus {name!r} is not among {', '.join(corpora)}{nearest(name, corpora)}")
    total = sum(mixture.values())
    return [mixture.get(name, 0.0) / total for name in corpora]


def _apportion(ideal: np.ndarray, supplied: np.ndarray, step: int, sequences: int) -> np.ndarray:
    """Give out the sequences of a step: what is owed in whole first, then one by one to the earliest deadline."""
    owed, has_share = ideal[step + 1] - supplied, ideal[step + 1] > ideal[step]
    slack = 1 / max(2, 2 * len(owed) - 2)
    given: np.ndarray = np.maximum(np.floor(owed + _ROUNDING), 0).astype(np.int64)
    while given.sum() > sequences:
        taken = np.flatnonzero(given).tolist()
        given[max(taken, key=lambda c: _when(ideal[:, c], float(supplied[c] + given[c])))] -= 1
    while given.sum() < sequences:
        rest = owed - given
        choices = (
            has_share & (rest > slack - _ROUNDING),
            has_share & (rest > _ROUNDING),
            rest > slack,
            rest >= rest.max(),
        )
        able = np.flatnonzero(next(choice for choice in choices if choice.any())).tolist()
        deadlines = {
            c: _when(ideal[:, c], float(supplied[c] + given[c] + 1 - slack)) for c in (able if len(able) > 1 else ())
        }
        given[min(able, key=lambda c: (deadlines.get(c, 0.0), -float(owed[c] - given[c])))] += 1
    return given


def _when(integral: np.ndarray, amount: float) -> float:
    """Return the time, in steps, at which a corpus's integral reaches an amount; infinity if it never does."""
    after = int(np.searchsorted(integral, amount))
    if after == 0 or after == len(integral):
        return 0.0 if after == 0 else np.inf
    below, above = integral[after - 1], integral[after]
    return float(after - 1 + (amount - below) / (above - below))
