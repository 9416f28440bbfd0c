"""The registry of guards against forgetting, and what a guard may look at when a stage starts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from lingraft.errors import RecipeError
from lingraft.registry import Registry
from lingraft.training.companion import Companion

__all__ = ["Guard", "SourceText", "bind_guard", "guard", "guards"]

Guard = Callable[..., Companion]

guards: Registry[Guard] = Registry("guard")
guard = guards.register


@dataclass(frozen=True)
class SourceText:
    """A little source text, and a place for what was computed from it.

    Attributes:
        sequences: ``tokens`` → so many tokens of source text (fewer if there are no more), spread over the source
            corpora's training part, as sequences of inputs and one label more.
        kept: ``(name, make)`` → what ``make`` gives, or gave when the stage first began: a stage that goes on takes the
            same bits again, and does not compute them twice.
    """

    sequences: Callable[[int], Sequence[Int[Tensor, "position_1"]]]
    kept: Callable[[str, Callable[[], dict[str, Tensor]]], Mapping[str, Tensor]]


def bind_guard(name: str, options: Mapping[str, Any], where: str) -> Guard:
    """Return a guard with its options filled in: what makes it from a stage's start and source text.

    Raises:
        RecipeError: the name or an option is unknown, one is missing, or a value lies outside of what the guard's
            ``limits`` allow; the message names the recipe path ``where``.
    """
    entry = guards.get(name, where)
    for option, (low, high) in entry.marks.get("limits", {}).items():
        value = options.get(option)
        if isinstance(value, int | float) and not low <= value <= high:
            allowed = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
            raise RecipeError(f"{where}.{option}: must be {allowed}, not {value!r}")
    return entry.bind(options, where)
