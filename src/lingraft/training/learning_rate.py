"""The learning rate as a function of the step, and nothing else: resuming cannot restart it."""

import math
from collections.abc import Callable

from lingraft.errors import RecipeError, TrainingError
from lingraft.registry import Registry

__all__ = ["constant", "cosine", "learning_rate", "linear", "lr_schedule", "lr_schedules"]

lr_schedules: Registry[Callable[[float], float]] = Registry("learning-rate schedule")
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


def learning_rate(step: int, *, num_steps: int, warmup_steps: int, peak: float, floor: float, schedule: str) -> float:
    """Return the rate of a step (from 0).

    During warm-up it is ``peak · (step + 1) / warmup_steps``; after that ``peak · (floor + (1 − floor) · shape(p))``
    with ``p = (step − warmup_steps) / (num_steps − warmup_steps)``, which would be 1 at the stage's end, behind the
    last step. So no step is ever made at rate 0, whatever the floor.

    Raises:
        RecipeError: the warm-up is longer than the stage, or the schedule is unknown.
        TrainingError: the step is not one of the stage's: its schedule is over, another stage has its own.
    """
    if warmup_steps > num_steps:
        raise RecipeError(f"lr.warmup: {warmup_steps} steps of warm-up do not fit into {num_steps} steps")
    if not 0 <= step < num_steps:
        raise TrainingError(f"step {step} is not one of the {num_steps} steps of this schedule")
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    shape = lr_schedules.get(schedule, "lr.schedule").function
    progress = (step - warmup_steps) / (num_steps - warmup_steps)
    return float(peak * (floor + (1 - floor) * shape(progress)))
