"""What runs beside a stage's optimiser: averages of the weights, and guards against forgetting.

The loop calls every companion at the same places of every step and asks nothing about its kind:

    gradients complete, rows that must not move masked
      before_update(step)     may add to gradients or scale them
    gradients clipped, the optimiser steps
      after_update(step)      may change weights, or look at them
    measurement               averaged() is measured beside the raw weights
    checkpoint                state() and counters() are saved, in a file of the companion's own

Companions work by parameter name, elementwise, without hooks and without copies of modules: they do to a shard of the
parameters what they would do to that part of the whole.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lingraft.errors import CheckpointError
from lingraft.model.base import Head

__all__ = ["Companion", "MakeCompanion", "StageStart", "exchanged", "refuse_other_tensors"]


@dataclass(frozen=True)
class StageStart:
    """What a companion may look at when it is made: the stage's start, before any checkpoint is gone back to.

    Attributes:
        model: with the starting weights.
        head: of the model.
        parameters: name → what trains.
        num_steps: optimiser steps of the stage.
    """

    model: nn.Module
    head: Head
    parameters: Mapping[str, nn.Parameter]
    num_steps: int


class Companion:
    """Runs beside the optimiser; every method does nothing until it is overridden. Steps count from 1.

    Attributes:
        group: the name of its file in a checkpoint; no two companions of a stage share one.
    """

    group: ClassVar[str] = "companion"

    def before_update(self, step: int) -> None:
        """Look at or change gradients: they are complete and masked, and not yet clipped."""

    def after_update(self, step: int) -> None:
        """Look at or change weights: the optimiser has made step ``step``."""

    def state(self) -> dict[str, Tensor]:
        """Return what cannot be made again from the stage's start, by name, for a checkpoint."""
        return {}

    def counters(self) -> dict[str, int]:
        """Return the numbers that belong to :meth:`state`."""
        return {}

    def load(self, state: Mapping[str, Tensor], counters: Mapping[str, int]) -> None:
        """Take over what was saved.

        Raises:
            CheckpointError: it is of other parameters.
        """

    def averaged(self) -> dict[str, Tensor] | None:
        """Return the weights to measure and export beside the raw ones, by name, or None if there are none.

        They are the companion's own tensors: :func:`exchanged` puts raw weights into them for a while.
        """
        return None


MakeCompanion = Callable[[StageStart], Companion]


def refuse_other_tensors(saved: Mapping[str, Any], own: Mapping[str, Any], what: str) -> None:
    """Raise a CheckpointError where what was saved is not of the parameters that a stage has."""
    if saved.keys() != own.keys():
        strange = sorted(saved.keys() ^ own.keys())[:3]
        raise CheckpointError(
            f"the saved {what} has {len(saved)} tensors, this stage has {len(own)}; they begin to differ at {strange}"
        )


@contextlib.contextmanager
def exchanged(parameters: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Put other weights into parameters inside, and the raw ones back behind, bit for bit, whatever happens there.

    The two sides change places one tensor at a time, so that no second copy of the model is made. Only where the types
    differ a raw tensor is set aside, for an fp32 average would not come back from bf16.
    """
    done: list[str] = []
    aside: dict[str, Tensor] = {}
    try:
        for name, weight in weights.items():
            if parameters[name].dtype == weight.dtype:
                _exchange(parameters[name], weight)
            else:
                aside[name] = parameters[name].detach().clone()
                _put(parameters[name], weight)
            done.append(name)
        yield
    finally:
        for name in done:
            if name in aside:
                _put(parameters[name], aside[name])
            else:
                _exchange(parameters[name], weights[name])


@torch.no_grad()
def _exchange(one: Tensor, other: Tensor) -> None:
    kept = one.detach().clone()
    one.copy_(other)
    other.copy_(kept)


@torch.no_grad()
def _put(parameter: Tensor, weight: Tensor) -> None:
    parameter.copy_(weight)
