"""An average with the weights that the stage began with: a leash of fixed strength."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from lingraft.training.averaging.average import average, refuse_low_precision
from lingraft.training.companion import Companion

__all__ = ["ToStart"]


@average("to_start", reference="arXiv 2506.00288, sec. 5, toward the initial weights")
class ToStart(Companion):
    """Pulls the weights being trained back toward the stage's start θ₀: θₜ = α · θ₀ + (1 − α) · θ'ₜ every η steps.

    Under a constant update u per step the weights come to rest η · u · (1 − α) / α away from the start; without pull
    the way back halves every η · ln ½ / ln(1 − α) steps. θ₀ is not saved: it is the stage's starting weights, which a
    resumed stage loads first.

    Args:
        parameters: name → what trains, in fp32; θ₀ is taken from them now.
        decay: α, the share of the start.
        every: η, in optimiser steps.
    """

    group: ClassVar[str] = "average"

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, decay: float = 0.01, every: int = 10) -> None:
        refuse_low_precision(parameters)
        self.decay, self.every = decay, every
        self._parameters: list[Tensor] = list(parameters.values())
        self._start = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def after_update(self, step: int) -> None:
        """Pull if step ``step`` is one of the η-th; weights that did not move stay as they are, bit for bit."""
        if step % self.every == 0:
            torch._foreach_lerp_(self._parameters, self._start, self.decay)
