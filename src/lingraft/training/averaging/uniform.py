"""A soup of one stage's own weights: their plain mean over the last part of the stage."""

from collections.abc import Mapping

from torch import Tensor, nn

from lingraft.training.averaging.average import ShadowWeights, average

__all__ = ["UniformAverage"]


@average("uniform", reference="arXiv 1803.05407")
class UniformAverage(ShadowWeights):
    """The mean of the weights after every η-th step of the last part of a stage, each with the same weight.

    sₙ = sₙ₋₁ + (θ − sₙ₋₁) / n: a soup of checkpoints without the checkpoints (arXiv 1803.05407, 2306.03241). Before the
    first of them there is no average.

    Args:
        parameters: name → what trains.
        every: η, in optimiser steps.
        after: the step behind which it begins.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, every: int = 10, after: int = 0) -> None:
        super().__init__(parameters)
        self.every, self.after = every, after

    def after_update(self, step: int) -> None:
        """Take the raw weights into the mean if step ``step`` is one of those that count."""
        if step > self.after and step % self.every == 0:
            self.mix_in(1 / (self.updates + 1))

    def averaged(self) -> dict[str, Tensor] | None:
        """Return the mean by name, None before anything is in it."""
        return super().averaged() if self.updates else None
