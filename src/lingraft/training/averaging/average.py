"""The registry of averages, and what those share that keep weights of their own beside the raw ones."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lingraft.errors import TrainingError
from lingraft.registry import Registry
from lingraft.training.companion import Companion, refuse_other_tensors

__all__ = ["ShadowWeights", "average", "averages", "refuse_low_precision", "start_of"]

averages: Registry[Callable[..., Any]] = Registry("average")
average = averages.register


def start_of(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return fp32 copies of weights by name; shards stay shards.

    Raises:
        TrainingError: a parameter is not of a floating type, so that it cannot be averaged.
    """
    other = [name for name, parameter in parameters.items() if not parameter.is_floating_point()]
    if other:
        raise TrainingError(f"ema: {len(other)} parameters are not numbers with a fraction, the first is {other[0]}")
    return {name: p.detach().to(torch.float32, copy=True) for name, p in parameters.items()}


def refuse_low_precision(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise a TrainingError where the weights being trained are not at least fp32.

    An average that replaces them would be rounded away: 8 % of a small step is less than half a unit of bf16.
    """
    low = [name for name, p in parameters.items() if p.dtype not in (torch.float32, torch.float64)]
    if low:
        raise TrainingError(
            f"ema: an average that replaces the weights needs them in fp32; {len(low)} are not, the first is {low[0]} "
            f"({parameters[low[0]].dtype})"
        )


class ShadowWeights(Companion):
    """An average that is kept beside the raw weights: fp32, measured and exported, and never trained from."""

    group: ClassVar[str] = "average"

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._weights = start_of(parameters)
        self._updates = 0

    @torch.no_grad()
    def mix_in(self, share: float) -> None:
        """Move the average towards the raw weights: s ← s + share · (θ − s), exact for weights that did not move."""
        raw = [parameter.detach().float() for parameter in self._parameters.values()]
        torch._foreach_lerp_(list(self._weights.values()), raw, share)
        self._updates += 1

    @property
    def updates(self) -> int:
        """How often the raw weights were mixed in."""
        return self._updates

    def state(self) -> dict[str, Tensor]:
        """Return the average by name."""
        return dict(self._weights)

    def counters(self) -> dict[str, int]:
        """Return the number of updates, which decides how much the next one counts."""
        return {"updates": self._updates}

    def load(self, state: Mapping[str, Tensor], counters: Mapping[str, int]) -> None:
        """Take over a saved average and its counter.

        Raises:
            CheckpointError: it is of other parameters.
        """
        refuse_other_tensors(state, self._weights, "average")
        for name, tensor in state.items():
            self._weights[name].copy_(tensor)
        self._updates = counters["updates"]

    def averaged(self) -> dict[str, Tensor] | None:
        """Return the average by name."""
        return self._weights
