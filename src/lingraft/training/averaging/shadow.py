"""The shadow average: raw weights train on, a moving average of them is measured and exported."""

from collections.abc import Mapping

from torch import nn

from lingraft.training.averaging.average import ShadowWeights, average
from lingraft.training.horizon import shadow_decay

__all__ = ["ShadowEma"]


@average("shadow", reference="https://doi.org/10.1137/0330046")
class ShadowEma(ShadowWeights):
    """An exponential moving average for evaluation: sₙ = dₙ · sₙ₋₁ + (1 − dₙ) · θ every η steps, from s₀ = θ₀.

    dₙ = min(α, (1 + n) / (10 + n)) for the n-th update, so that the start is soon forgotten; without ``warmup`` it is
    α at once. n is saved with the average: a resumed stage does not begin to forget again.

    Args:
        parameters: name → what trains.
        decay: α.
        every: η, in optimiser steps.
        warmup: whether dₙ grows to α.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], *, decay: float = 0.999, every: int = 1, warmup: bool = True
    ) -> None:
        super().__init__(parameters)
        self.decay, self.every, self.warmup = decay, every, warmup

    def after_update(self, step: int) -> None:
        """Mix the raw weights in if step ``step`` is one of the η-th."""
        if step % self.every == 0:
            self.mix_in(1 - shadow_decay(self.updates + 1, self.decay, warmup=self.warmup))
