"""Averaging of weights while they train (arXiv 2506.00288, sec. 5)."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lingraft.errors import CheckpointError

__all__ = ["LiveEma", "half_life"]


class LiveEma:
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

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, decay: float, every: int) -> None:
        self.decay = decay
        self.every = every
        self._parameters = dict(parameters)
        self._anchor = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> bool:
        """Average if step ``step`` (from 1, after the optimiser) is one of the η-th; return whether it was."""
        if step % self.every:
            return False
        for name, parameter in self._parameters.items():
            # lerp(θ', θ_old, α) = θ' + α (θ_old − θ'): exact for weights that did not move.
            parameter.lerp_(self._anchor[name], self.decay)
            self._anchor[name].copy_(parameter)
        return True

    def state(self) -> dict[str, Tensor]:
        """Return θₜ₋η by name; with the step number it is the whole state."""
        return dict(self._anchor)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over a saved state.

        Raises:
            CheckpointError: it is of other parameters.
        """
        if state.keys() != self._anchor.keys():
            raise CheckpointError(
                f"the saved average has {len(state)} tensors, this stage averages {len(self._anchor)}"
            )
        for name, tensor in state.items():
            self._anchor[name].copy_(tensor)


def half_life(decay: float, every: int) -> float:
    """Return after how many steps the weight of an old value has halved: η · ln ½ / ln α."""
    return every * math.log(0.5) / math.log(decay)
