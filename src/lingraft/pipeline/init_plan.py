"""The init methods of a recipe, held against the base model and against what is there for them to read."""

from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from lingraft.errors import RecipeError, nearest
from lingraft.recipe import EmbeddingInit, InitPair, Recipe
from lingraft.registry import Entry

__all__ = ["init_needs"]


def init_needs(recipe: Recipe, *, is_tied: bool) -> list[str]:
    """Return what the chosen init methods need beside the base model, in words.

    Args:
        recipe: with the methods.
        is_tied: whether the base has one matrix for both sides.

    Raises:
        RecipeError: a method or an option is unknown, a file or an extra that it needs is not there, two methods are
        given
            for one matrix, or tied rows are to be calibrated.
    """
    chosen = recipe.embeddings
    if chosen.input == EmbeddingInit().input and not (chosen.output or chosen.choose or chosen.calibrate):
        # The registry's functions import torch, which a plan can do without.
        return []
    from lingraft.embeddings import init_methods, refuse_calibration

    needs = []
    for index, pair in enumerate(chosen.candidates):
        where = f"embeddings.choose.{index}" if chosen.choose else "embeddings"
        if is_tied:
            _refuse_two_methods(pair, where)
        for side, choice in (("input", pair.input), ("output", pair.output)):
            if choice is not None:
                entry = init_methods.get(choice.name, f"{where}.{side}")
                entry.bind(choice.options, f"{where}.{side}")
                needs += list(_needs_of(entry, choice.options, f"{where}.{side}"))
    if chosen.calibrate:
        refuse_calibration(tied=is_tied, side="input")
    return list(dict.fromkeys(needs))


def _refuse_two_methods(pair: InitPair, where: str) -> None:
    if pair.output not in (None, pair.input):
        raise RecipeError(
            f"{where}.output: {pair.output.name!r} differs from {where}.input {pair.input.name!r}, but the base model "
            "has one matrix for both sides"
        )


def _extras(entry: Entry, options: Mapping[str, Any]) -> list[str]:
    """Return the extras that a method needs: always, or for the value that an option has."""
    always = [entry.marks["extra"]] if "extra" in entry.marks else []
    chosen = (values.get(options.get(name)) for name, values in entry.marks.get("extra_when", {}).items())
    return always + [extra for extra in chosen if extra]


def _refuse_other_values(entry: Entry, options: Mapping[str, Any], where: str) -> None:
    for name, allowed in entry.marks.get("choices", {}).items():
        if name in options and options[name] not in allowed:
            hint = nearest(str(options[name]), allowed)
            raise RecipeError(f"{where}.{name}: {options[name]!r} is none of {', '.join(allowed)}{hint}")
    group = entry.marks.get("one_of", ())
    if group and sum(options.get(name) is not None for name in group) != 1:
        raise RecipeError(f"{where}: {entry.name!r} needs exactly one of {', '.join(group)}")


def _is_installed(package: str) -> bool:
    """Ask for the package, not the module: two packages of different use install a module named ``fasttext``."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _needs_of(entry: Entry, options: Mapping[str, Any], where: str) -> Iterator[str]:
    _refuse_other_values(entry, options, where)
    for name in entry.marks.get("needs", ()):
        value = options.get(name)
        if value is not None:
            if ":" not in str(value) and not Path(str(value)).exists():
                raise RecipeError(f"{where}.{name}: there is no {value!r}, which {entry.name!r} reads")
            yield f"{entry.name} reads {value} ({name})"
    for extra in _extras(entry, options):
        if not _is_installed(extra):
            raise RecipeError(f"{where}: {entry.name!r} needs the package {extra!r} (pip install 'lingraft[{extra}]')")
        yield f"{entry.name} needs the extra {extra}"
    if entry.marks.get("runs_base"):
        yield f"{entry.name} runs the base model on target text, which takes a while"
