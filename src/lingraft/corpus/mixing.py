"""Which corpus supplies which sequence: mixtures, schedules over a stage, and exact apportionment.

All sequences of a stage have the same length, so a share of sequences is a share of tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from lingraft.errors import RecipeError
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

    Every row sums to ``sequences``. What rounding owes a corpus is carried to the next step, so that at every step border
    the number supplied is less than one sequence per corpus away from the schedule's integral.

    Args:
        schedule: the mix over time, asked at the start of each step.
        corpora: the columns.
        num_steps: the rows.
        sequences: sequences per step.
    """
    table = np.zeros((num_steps, len(corpora)), dtype=np.int64)
    owed = np.zeros(len(corpora))
    for index in range(num_steps):
        mixture = schedule(index / num_steps)
        owed += sequences * np.array([mixture.get(name, 0.0) for name in corpora])
        table[index] = _apportion(owed, sequences)
        owed -= table[index]
    return table


def _apportion(owed: np.ndarray, sequences: int) -> np.ndarray:
    """Give out whole sequences: the whole parts first, what is left to the largest remainders."""
    given = np.maximum(np.floor(owed + 1e-9), 0).astype(np.int64)
    rest = owed - given
    while given.sum() > sequences:
        column = int(np.argmin(np.where(given > 0, rest, np.inf)))
        given[column] -= 1
        rest[column] += 1
    while given.sum() < sequences:
        column = int(np.argmax(rest))
        given[column] += 1
        rest[column] -= 1
    return given
