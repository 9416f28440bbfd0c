"""The guards of a stage, held against the registry before anything is loaded."""

from lingraft.recipe import Stage

__all__ = ["guard_copies"]


def guard_copies(stage: Stage, index: int = 0) -> int:
    """Return how many fp32 copies of what learns a stage's guards hold at most.

    Raises:
        RecipeError: a name, an option or a value cannot be used.
    """
    if not stage.guards:
        # The guards import torch, which a plan can do without.
        return 0
    from lingraft.training.guards import bind_guard, guards

    copies = 0
    for number, choice in enumerate(stage.guards):
        where = f"stages.{index}.guards.{number}"
        bind_guard(choice.name, choice.options, where)
        copies += int(guards.get(choice.name, where).marks.get("copies", 0))
    return copies
