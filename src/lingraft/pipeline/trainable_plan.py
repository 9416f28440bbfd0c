"""Whether a base model has what stages are to train, from its configuration alone. Loads torch only where it must."""

from pathlib import Path

from lingraft.errors import RecipeError, TrainingError
from lingraft.recipe import TRAIN_WORDS, Recipe

__all__ = ["refuse_untrainable_stages"]

_ALWAYS_THERE = tuple(word for word in TRAIN_WORDS if word != "blocks")


def refuse_untrainable_stages(recipe: Recipe, base_folder: Path) -> None:
    """Raise a RecipeError when a stage trains what the base model does not have; no weight is loaded."""
    if not any(word not in _ALWAYS_THERE for stage in recipe.stages for word in stage.trains):
        return
    # A second or two; most recipes name only what every model has.
    from lingraft.model.base import model_without_weights
    from lingraft.model.blocks import block_names, deeper_without_weights
    from lingraft.model.freeze import chosen_names, inserted_blocks, parts_of

    if recipe.blocks:
        deeper = deeper_without_weights(base_folder, recipe.blocks.where)
        parts = parts_of(deeper, block_names(deeper, recipe.blocks.where))
    else:
        parts = parts_of(model_without_weights(base_folder), inserted_blocks(base_folder))
    for index, stage in enumerate(recipe.stages):
        for number, word in enumerate(stage.trains):
            where = f"stages.{index}.train" + (f".{number}" if isinstance(stage.train, tuple) else "")
            try:
                chosen_names(parts, [word])
            except TrainingError as error:
                raise RecipeError(f"{where}: {error}") from error
