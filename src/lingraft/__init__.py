"""lingraft: teach an existing language model a new language, and prove that it has not forgotten the old one.

The names below are the public API; they are the same functions that the command line calls. They are imported when
first used, so that ``import lingraft`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from lingraft.version import __version__

if TYPE_CHECKING:
    from lingraft.measurement import Measurement
    from lingraft.pipeline.adapt import adapt
    from lingraft.pipeline.plan import Plan
    from lingraft.pipeline.plan import make_plan as plan
    from lingraft.recipe import Recipe
    from lingraft.recipe_file import load_recipe
    from lingraft.report import model_card, write_report
    from lingraft.run import Run

__all__ = [
    "Measurement",
    "Plan",
    "Recipe",
    "Run",
    "__version__",
    "adapt",
    "load_recipe",
    "model_card",
    "plan",
    "write_report",
]

_HOMES = {
    "Measurement": ("lingraft.measurement", "Measurement"),
    "Plan": ("lingraft.pipeline.plan", "Plan"),
    "Recipe": ("lingraft.recipe", "Recipe"),
    "Run": ("lingraft.run", "Run"),
    "adapt": ("lingraft.pipeline.adapt", "adapt"),
    "load_recipe": ("lingraft.recipe_file", "load_recipe"),
    "model_card": ("lingraft.report", "model_card"),
    "plan": ("lingraft.pipeline.plan", "make_plan"),
    "write_report": ("lingraft.report", "write_report"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lingraft' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return list(__all__)
