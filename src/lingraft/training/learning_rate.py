"""The learning rate as a function of the step, and nothing else: resuming cannot restart it."""

import math
from collections.abc import Callable, Mapping

from lingraft.errors import RecipeError, TrainingError
from lingraft.registry import Registry

__all__ = [
    "constant",
    "cosine",
    "end_rate",
    "infinite",
    "learning_rate",
    "linear",
    "lr_schedule",
    "lr_schedules",
    "wsd",
]

lr_schedules: Registry[Callable[..., float]] = Registry("learning-rate schedule")
lr_schedule = lr_schedules.register


@lr_schedule("cosine", reference="arXiv 1608.03983")
def cosine(progress: float) -> float:
    """Return half a cosine from 1 to 0 as ``progress`` goes from 0 to 1: ½ (1 + cos π p)."""
    return (1 + math.cos(math.pi * progress)) / 2


@lr_schedule("linear", reference="arXiv 1810.04805")
def linear(progress: float) -> float:
    """Return 1 − p."""
    return 1 - progress


@lr_schedule("constant", reference="arXiv 2506.00288, released configurations")
def constant(progress: float) -> float:  # noqa: ARG001 - every shape is asked with the progress
    """Return 1 at all times."""
    return 1.0


@lr_schedule("wsd", reference="arXiv 2404.06395, sec. 4")
def wsd(progress: float, *, decay: float = 0.1) -> float:
    """Return 1 until the last ``decay`` of the way, then a straight line to 0 (warm-up, stable, decay).

    The paper leaves the form of the decay open and finds a tenth of the tokens enough for it.
    """
    return min(1.0, (1 - progress) / decay) if decay > 0 else 1.0


@lr_schedule("infinite", reference="arXiv 2403.08763, sec. 7")
def infinite(
    progress: float, *, floor: float, cooldown: float = 0.6, plateau: float = 0.55, decay: float = 0.15
) -> float:
    """Return a share of the peak that cools down along a cosine to ``plateau``, stays there, and anneals to ``floor``.

    With p the progress, c ``cooldown``, h ``plateau`` and d ``decay``: h + ½ (1 − h)(1 + cos π p/c) up to c; h up to
    1 − d; then h · (floor/h)^((p − 1 + d)/d). A stage that another is to continue takes ``decay`` 0 and ends on h.

    Raises:
        ValueError: cooldown and decay overlap, or the rate would anneal to 0.
    """
    if cooldown + decay > 1 + 1e-9:
        raise ValueError(f"cooldown and decay are {cooldown:.0%} and {decay:.0%} of the way behind the warm-up")
    if decay > 0 and not 0 < floor <= plateau:
        raise ValueError(f"the anneal leads from plateau {plateau:g} to floor {floor:g}; floor must be in (0, plateau]")
    if progress < cooldown:
        return plateau + (1 - plateau) * (1 + math.cos(math.pi * progress / cooldown)) / 2
    if progress <= 1 - decay or decay == 0:
        return plateau
    return float(plateau * (floor / plateau) ** ((progress - 1 + decay) / decay))


def learning_rate(
    step: int,
    *,
    num_steps: int,
    warmup_steps: int,
    peak: float,
    floor: float,
    schedule: str,
    options: Mapping[str, float] | None = None,
) -> float:
    """Return the rate of a step (from 0).

    During warm-up it is ``peak · (step + 1) / warmup_steps``; after that ``peak · (floor + (1 − floor) · shape(p))``
    with ``p = (step − warmup_steps) / (num_steps − warmup_steps)``, which would be 1 at the stage's end, behind the
    last step. So no step is ever made at rate 0, whatever the floor. A shape that itself asks for the floor returns the
    share of the peak.

    Args:
        step: from 0.
        num_steps: of the stage.
        warmup_steps: of them, at its beginning.
        peak: the highest rate.
        floor: the share of the peak that most shapes lead to.
        schedule: the shape's name.
        options: the shape's own; lengths are shares of the way behind the warm-up.

    Raises:
        RecipeError: the warm-up is longer than the stage, the schedule or an option is unknown, or options do not fit.
        TrainingError: the step is not one of the stage's: its schedule is over, another stage has its own; or its rate
            is not a positive number.
    """
    if warmup_steps > num_steps:
        raise RecipeError(f"lr.warmup: {warmup_steps} steps of warm-up do not fit into {num_steps} steps")
    if not 0 <= step < num_steps:
        raise TrainingError(f"step {step} is not one of the {num_steps} steps of this schedule")
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    rate = peak * _share((step - warmup_steps) / (num_steps - warmup_steps), floor, schedule, options or {})
    if not (math.isfinite(rate) and rate > 0):
        raise TrainingError(f"lr.schedule: {schedule!r} gives step {step + 1} the rate {rate!r}; nothing is learned so")
    return rate


def end_rate(*, peak: float, floor: float, schedule: str, options: Mapping[str, float] | None = None) -> float:
    """Return the rate behind the last step, which a stage that does not warm up again begins with; it may be 0."""
    return peak * _share(1.0, floor, schedule, options or {})


def _share(progress: float, floor: float, schedule: str, options: Mapping[str, float]) -> float:
    """Return the rate as a share of the peak."""
    entry = lr_schedules.get(schedule, "lr.schedule")
    knows_floor = "floor" in entry.options()
    shape = entry.bind({**options, "floor": floor} if knows_floor else options, "lr")
    try:
        value = shape(progress)
    except TypeError as error:
        raise RecipeError(f"lr.schedule: {schedule!r} does not take a progress between 0 and 1: {error}") from error
    except ValueError as error:
        raise RecipeError(f"lr.schedule: {schedule!r}: {error}") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecipeError(f"lr.schedule: {schedule!r} must return a number, it returned {value!r}")
    return float(value if knows_floor else floor + (1 - floor) * value)
