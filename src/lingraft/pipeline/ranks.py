"""A run by several processes, from the side of rank 0: it does every step, and calls the others to each stage."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.errors import RecipeError
from lingraft.model.base import load_model
from lingraft.model.shards import whole
from lingraft.recipe import Recipe
from lingraft.training.distributed import Ranks
from lingraft.training.guards import guards
from lingraft.training.optimizer import optimizers
from lingraft.training.stage_plan import SINGLE_PROCESS

__all__ = ["Leader", "refuse_undivided", "whole_model"]


class Leader:
    """Rank 0's word to the others, which listen whenever no stage runs.

    Attributes:
        ranks: all of them.
        is_heard: whether the others listen.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.is_heard = ranks.count > 1

    @contextmanager
    def calling(self, order: dict[str, Any]) -> Iterator[Ranks]:
        """Have the others do a stage inside; behind it they listen again, unless it failed: then they have ended."""
        if self.is_heard:
            self.ranks.tell(order)
            self.is_heard = False
        yield self.ranks
        self.is_heard = self.ranks.count > 1

    @contextmanager
    def dismissing(self) -> Iterator[None]:
        """Send the others home behind, with what failed, if anything did."""
        try:
            yield
        except BaseException as error:
            self._dismiss([type(error).__name__, str(error)])
            raise
        self._dismiss(None)

    def _dismiss(self, failure: list[str] | None) -> None:
        if self.is_heard:
            self.ranks.tell({"end": failure})
            self.is_heard = False


def whole_model(model: nn.Module, names: tuple[str, ...], start: Path, ranks: Ranks) -> nn.Module | None:
    """Return, on rank 0, a model as the ranks together hold it, in evaluation mode; None on the others.

    Alone it is the model itself. Otherwise every rank must call this: what trains is gathered tensor by tensor into the
    model that the stage began with, on rank 0's device, so that only there a whole model is held.

    Args:
        model: divided.
        names: of the parameters that train.
        start: the folder with the stage's starting weights.
        ranks: all of them.
    """
    if ranks.count == 1:
        return model
    made = ranks.together(lambda: load_model(start).to(ranks.device) if ranks.is_first else None)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name in names:
            gathered = whole(own[name].detach())
            if made is not None:
                made.get_parameter(name).copy_(gathered)
    return made


def refuse_undivided(recipe: Recipe, count: int) -> None:
    """Raise a RecipeError where a stage has what ``count`` processes cannot do together."""
    for index, stage in enumerate(recipe.stages if count > 1 else ()):
        where, only = f"stages.{index}", f"works in one process only, and there are {count} (WORLD_SIZE)"
        if stage.batch.sequences % count:
            raise RecipeError(
                f"{where}.batch: {stage.batch.sequences} sequences a step cannot be divided among {count} processes"
            )
        if stage.slices:
            raise RecipeError(f"{where}.slices: {only}")
        for name in SINGLE_PROCESS:
            is_of_stage = name in type(stage).model_fields
            if getattr(stage if is_of_stage else recipe, name):
                raise RecipeError(f"{f'{where}.' if is_of_stage else ''}{name}: {only}")
        if not optimizers.get(stage.optimizer.name, f"{where}.optimizer.name").marks.get("divides", True):
            raise RecipeError(f"{where}.optimizer.name: {stage.optimizer.name} {only}")
        for number, choice in enumerate(stage.guards):
            if not guards.get(choice.name, f"{where}.guards.{number}").marks.get("divides", True):
                raise RecipeError(f"{where}.guards.{number}: {choice.name} {only}")
