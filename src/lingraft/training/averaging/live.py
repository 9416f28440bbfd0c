"""The average that replaces the weights being trained (arXiv 2506.00288, sec. 5)."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from lingraft.training.averaging.average import average, refuse_low_precision
from lingraft.training.companion import Companion, refuse_other_tensors

__all__ = ["LiveEma"]


@average("live", reference="arXiv 2506.00288, sec. 5")
class LiveEma(Companion):
    """The paper's average: it replaces the weights that are being trained, and training goes on from it.

        θₜ = θ'ₜ                                if t mod η ≠ 0
        θₜ = α · θₜ₋η + (1 − α) · θ'ₜ           otherwise

    θ' are the fp32 weights after the optimiser's step, α is ``decay``, η is ``every``. α weighs the *old* weights: with
    η = 1 every update is scaled by 1 − α, with η > 1 this is the Lookahead optimiser (arXiv 1907.08610). The moments of
    the optimiser are left alone, as in the published recursion.

    Args:
        parameters: name → what trains, in fp32; θ₀ is taken from them now.
        decay: α.
        every: η, in optimiser steps.
    """

    group: ClassVar[str] = "average"

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, decay: float = 0.92, every: int = 1) -> None:
        refuse_low_precision(parameters)
        self.decay = decay
        self.every = every
        self._parameters = dict(parameters)
        self._anchor = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    @torch.no_grad()
    def after_update(self, step: int) -> None:
        """Average if step ``step`` is one of the η-th."""
        if step % self.every:
            return
        for name, parameter in self._parameters.items():
            # lerp(θ', θ_old, α) = θ' + α (θ_old − θ'): exact for weights that did not move.
            parameter.lerp_(self._anchor[name], self.decay)
            self._anchor[name].copy_(parameter)

    def state(self) -> dict[str, Tensor]:
        """Return θₜ₋η by name; with the step number it is the whole state."""
        return dict(self._anchor)

    def load(self, state: Mapping[str, Tensor], counters: Mapping[str, int]) -> None:  # noqa: ARG002 - has none
        """Take over a saved state.

        Raises:
            CheckpointError: it is of other parameters.
        """
        refuse_other_tensors(state, self._anchor, "average")
        for name, tensor in state.items():
            self._anchor[name].copy_(tensor)
