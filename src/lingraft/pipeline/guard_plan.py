"""Guards and inserted blocks, held against the registry and the base before anything is loaded."""

from dataclasses import replace

from lingraft.errors import RecipeError
from lingraft.model.locate import BaseDescription
from lingraft.recipe import Recipe, Stage

__all__ = ["deeper_base", "guard_copies"]


def guard_copies(stage: Stage, index: int = 0) -> int:
    """Return how many fp32 copies of what learns a stage's guards hold at most.

    Raises:
        RecipeError: a name, an option or a value cannot be used, or a guard has nothing to do in the stage.
    """
    if not stage.guards:
        # The guards import torch, which a plan can do without.
        return 0
    from lingraft.training.guards import bind_guard, guards

    copies = 0
    for number, choice in enumerate(stage.guards):
        where = f"stages.{index}.guards.{number}"
        bind_guard(choice.name, choice.options, where)
        if guards.get(choice.name, where).marks.get("of_body") and all("embeddings" in word for word in stage.trains):
            raise RecipeError(
                f"{where}: {choice.name} is about matrices of the body, and stages.{index}.train is "
                f"{', '.join(stage.trains)}; leave it out there"
            )
        copies += int(guards.get(choice.name, where).marks.get("copies", 0))
    return copies


def deeper_base(recipe: Recipe, base: BaseDescription) -> tuple[BaseDescription, int]:
    """Return a base as it is once blocks are inserted, and how many weights these have.

    Raises:
        ModelError: the blocks are not the base's.
    """
    if recipe.blocks is None:
        return base, 0
    from lingraft.model.blocks import inserted_positions

    number = len(inserted_positions(base.num_layers, recipe.blocks.where))
    tables = base.num_rows * base.hidden_size * (1 if base.is_tied else 2)
    weights = number * ((base.num_parameters - tables) // base.num_layers)
    return replace(base, num_layers=base.num_layers + number, num_parameters=base.num_parameters + weights), weights
