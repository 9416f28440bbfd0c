"""A quadratic penalty on the distance from the stage's start."""

from math import inf
from typing import ClassVar

import torch

from lingraft.training.companion import Companion, StageStart
from lingraft.training.guards.guard import SourceText, guard

__all__ = ["L2Start"]


@guard("l2_start", reference="arXiv 1802.01483", copies=1, limits={"strength": (0, inf)})
class L2Start(Companion):
    """Adds λ/2 · Σ (θ − θ₀)² to the loss: λ · (θ − θ₀) to each gradient, before gradients are clipped.

    θ₀ is what the stage begins with, new rows as they were filled. AdamW divides the pull by the size of the gradients
    as it does with all of the gradient; ``ema: {kind: to_start}`` is a pull that it does not see.

    Args:
        start: the stage's start.
        source: not looked at.
        strength: λ, at least 0.
    """

    group: ClassVar[str] = "l2_start"

    def __init__(self, start: StageStart, source: SourceText, *, strength: float) -> None:  # noqa: ARG002 - as all guards
        self.strength = strength
        self._parameters = dict(start.parameters)
        self._start = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def before_update(self, step: int) -> None:  # noqa: ARG002 - the same at every step
        """Add the pull to the gradients; weights at their start, frozen rows among them, get none."""
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                parameter.grad.add_(parameter - self._start[name], alpha=self.strength)
