"""What the verbs of the command line share: options that several take, and how a recipe is read."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "ConditionOn",
    "ModelName",
    "Overrides",
    "RecipePath",
    "RunFolder",
    "cache",
    "new_console",
    "read_recipe",
    "say",
]

RecipePath = Annotated[Path, typer.Argument(help="the recipe file", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="put a value over the recipe's, as in stages.1.tokens=1M"),
]
RunFolder = Annotated[Path | None, typer.Option("--to", help="the run folder (runs/NAME by default)")]
ModelName = Annotated[
    str, typer.Argument(help="a hub id, a model folder, a .gguf file or package:name", show_default=False)
]
ConditionOn = Annotated[str | None, typer.Option(help="the token in front of every text (BOS, else EOS, by default)")]


def new_console() -> Any:
    """Return the console that tables and progress are shown on."""
    from rich.console import Console

    return Console(emoji=False)


def say(text: object) -> None:
    """Print what has a path or a name in it: control characters and bidi marks of it are made visible."""
    from lingraft.report.escaping import visible

    print(visible(str(text)))


def read_recipe(recipe: Path, overrides: list[str] | None) -> Any:
    """Return a recipe with the values of ``--set`` put over it."""
    from lingraft import recipe_file

    return recipe_file.load_recipe(recipe, overrides or ())


def cache() -> Path:
    """Return where GGUF files are converted to for the verbs that have no run folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "lingraft"
