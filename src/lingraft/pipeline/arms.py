"""The arms of a sweep: recipes made from one, each with some values of its own.

A grid varies values against each other (``stages.1.mix.en=0,0.1,0.2`` times ``seed=0,1,2``); a named arm sets several
at once. With both, every named arm is run with every point of the grid.

A share of a mix is set so that the mix still sums to 1: the shares that the arm does not set itself keep their
proportions to each other. ``stages.1.mix.en=0.1`` makes ``{eu: 0.6, fr: 0.2, en: 0.2}`` into
``{eu: 0.675, fr: 0.225, en: 0.1}``.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from lingraft.errors import RecipeError
from lingraft.recipe import Recipe
from lingraft.recipe_file import describe_faults, differing_paths, read_document, recipe_of
from lingraft.recipe_part import Name, Part
from lingraft.strict_yaml import LinedValue, parse_value, parse_yaml, set_path

__all__ = ["Sweep", "SweepArm", "read_sweep", "set_values", "split_at_commas"]

Settings = Mapping[str, Any]
_MIX = re.compile(r"(stages\.\d+\.mix(?:\.[^.]+)*)\.([^.]+)")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_MOST_ARMS = 1000
_LONGEST_NAME = 60


class _SweepFile(Part):
    """A file that states a sweep: ``recipe`` is a path beside it, all else as on the command line."""

    name: Name
    recipe: str
    set: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    vary: dict[str, list[Any]] = {}  # noqa: RUF012
    arms: dict[Name, dict[str, Any]] = Field(default_factory=dict)


@dataclass(frozen=True)
class SweepArm:
    """One recipe of a sweep.

    Attributes:
        name: what its run folder is called.
        settings: path → value, what it says otherwise than the others.
        recipe: what is run.
    """

    name: str
    settings: Settings
    recipe: Recipe

    @property
    def label(self) -> str:
        """Its settings in a few words: ``stages.1.mix.en=0.1, seed=2``."""
        return ", ".join(f"{path}={_in_words(value)}" for path, value in self.settings.items())


@dataclass(frozen=True)
class Sweep:
    """A name and the arms, in the order in which they are run."""

    name: str
    arms: tuple[SweepArm, ...]

    def arm(self, index: int) -> SweepArm:
        """Return an arm by its number, from 0; raises RecipeError where there is none."""
        if not 0 <= index < len(self.arms):
            raise RecipeError(f"--arm-index {index}: there are {len(self.arms)} arms, from 0 to {len(self.arms) - 1}")
        return self.arms[index]


def read_sweep(
    path: str | Path, *, overrides: Sequence[str] = (), vary: Sequence[str] = (), arms: Sequence[str] = ()
) -> Sweep:
    """Return the sweep that a recipe or a sweep file and the command line state, every arm's recipe checked.

    Args:
        path: a recipe, or a file with ``recipe:``, which is a sweep's.
        overrides: ``path=value``, for all arms.
        vary: ``path=value,value,…``; several are crossed.
        arms: ``NAME:path=value,path=value``.

    Raises:
        RecipeError: something cannot be read or used; the message names the arm. Two arms are the same; or there is
            but one.
    """
    stated, document = _read(Path(path))
    common = stated.set | dict(map(_setting, overrides))
    grid = stated.vary | dict(map(_varied, vary))
    named = stated.arms | dict(map(_named, arms))
    made = [_made(document, common, name, values) for name, values in _combinations(named, grid)]
    if len(made) < 2:
        raise RecipeError("a sweep needs two arms or more: --vary PATH=VALUE,VALUE or --arm NAME:PATH=VALUE, twice")
    _refuse_equal(made)
    name = stated.name or made[0].recipe.name.removesuffix(f"-{made[0].name}")
    return Sweep(name, tuple(made))


@dataclass(frozen=True)
class _Stated:
    name: str
    set: dict[str, Any]
    vary: dict[str, list[Any]]
    arms: dict[str, dict[str, Any]]


def _read(path: Path) -> tuple[_Stated, LinedValue]:
    """Return what a sweep file states, and the recipe's document; of a recipe alone, nothing and itself."""
    if not path.is_file():
        raise RecipeError(f"{path}: no such recipe or sweep file")
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: byte {error.start} is not UTF-8") from error
    if not (isinstance(document.value, dict) and "recipe" in document.value):
        return _Stated("", {}, {}, {}), read_document(path)
    try:
        stated = _SweepFile.model_validate(document.value)
    except ValidationError as error:
        raise RecipeError(describe_faults(document, error)) from error
    for at, values in stated.vary.items():
        if not values:
            raise RecipeError(f"{document.where(('vary', at))}: no values")
    found = _Stated(stated.name, dict(stated.set), dict(stated.vary), {k: dict(v) for k, v in stated.arms.items()})
    return found, read_document(path.parent / stated.recipe)


def _setting(text: str, option: str = "--set") -> tuple[str, Any]:
    path, separator, value = text.partition("=")
    if not (path and separator):
        raise RecipeError(f"{option} {text}: write path=value, as in stages.1.mix.en=0.2")
    return path, parse_value(value)


def _varied(text: str) -> tuple[str, list[Any]]:
    path, separator, values = text.partition("=")
    if not (path and separator and values):
        raise RecipeError(f"--vary {text}: write path=value,value,…, as in stages.1.mix.en=0,0.1,0.2")
    return path, [parse_value(value) for value in split_at_commas(values)]


def _named(text: str) -> tuple[str, dict[str, Any]]:
    name, separator, settings = text.partition(":")
    if not (separator and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)):
        raise RecipeError(f"--arm {text}: write NAME:path=value,path=value, the name of letters, digits, '.', '_', '-'")
    return name, dict(_setting(part, "--arm") for part in split_at_commas(settings)) if settings else {}


def split_at_commas(text: str) -> list[str]:
    """Return the parts of a text between commas that stand outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _combinations(named: Mapping[str, Settings], grid: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Settings]]:
    """Yield name and settings of every arm: each named one with each point of the grid, the last path fastest."""
    if len(named or [1]) * _size(grid) > _MOST_ARMS:
        raise RecipeError(f"this sweep has {len(named or [1]) * _size(grid):,} arms; at most {_MOST_ARMS:,} are run")
    short = _short_names(grid)
    for name, settings in (named or {"": {}}).items():
        for values in product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            if both := sorted(settings.keys() & point.keys()):
                raise RecipeError(f"arm {name!r}: {both[0]} is set by the arm and varied as well")
            parts = [name] if name else []
            parts += [f"{short[path]}-{_slug(value, grid[path])}" for path, value in point.items()]
            yield "_".join(parts)[:_LONGEST_NAME] or "arm", dict(settings) | point


def _size(grid: Mapping[str, Sequence[Any]]) -> int:
    size = 1
    for values in grid.values():
        size *= len(values)
    return size


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path as much of its end as tells it from the others."""
    paths = list(paths)
    found = {}
    for path in paths:
        parts = path.split(".")
        tails = (".".join(parts[-n:]) for n in range(1, len(parts) + 1))
        found[path] = next(
            (t for t in tails if sum(other == t or other.endswith(f".{t}") for other in paths) == 1), path
        )
    return {path: re.sub(r"[^A-Za-z0-9._-]+", "-", name) for path, name in found.items()}


def _slug(value: Any, among: Sequence[Any]) -> str:
    """Return a value as part of a name; one that is long, or whose slug is another's too, by its number."""
    slugs = [re.sub(r"[^A-Za-z0-9._-]+", "-", _in_words(each)).strip("-") for each in among]
    own = slugs[among.index(value)]
    return own if own and len(own) <= 24 and slugs.count(own) == 1 else str(among.index(value) + 1)


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_in_words(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_in_words, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _made(document: LinedValue, common: Settings, name: str, settings: Settings) -> SweepArm:
    own = LinedValue(copy.deepcopy(document.value), document.source, document.lines)
    try:
        set_values(own.value, common)
        set_values(own.value, settings)
        if isinstance(own.value.get("name"), str):
            own.value["name"] = f"{own.value['name']}-{name}"
        return SweepArm(name, settings, recipe_of(own))
    except RecipeError as error:
        raise RecipeError(f"arm {name!r}: {error}") from error


def set_values(root: dict[str, Any], settings: Settings) -> None:
    """Put values at their dotted paths; shares of a mix that are not among them keep their proportions.

    Raises:
        RecipeError: a path leads nowhere; a share is none; a mix has no other share to fill it up with, or has a
            schedule, and the path does not say which of its mixtures is meant.
    """
    shares: dict[str, dict[str, float]] = {}
    for path, value in settings.items():
        mixture = _mixture_at(root, path)
        if mixture is None:
            set_path(root, path, copy.deepcopy(value))
        else:
            shares.setdefault(mixture, {})[path.rpartition(".")[2]] = _share(path, value)
    for mixture, fixed in shares.items():
        set_path(root, mixture, _filled_up(mixture, _at(root, mixture), fixed))


def _mixture_at(root: dict[str, Any], path: str) -> str | None:
    """Return the path of the mixture that a path names a share of; None where it names something else."""
    found = _MIX.fullmatch(path)
    mixture = _at(root, found[1]) if found else None
    if found is None or not isinstance(mixture, dict):
        return None
    if "schedule" in mixture and found[2] in (root.get("corpora") or ()):
        inner = [key for key, value in mixture.items() if isinstance(value, dict)]
        listed = ", ".join(f"{found[1]}.{key}.{found[2]}" for key in inner) or f"{found[1]}={{…}}"
        raise RecipeError(
            f"{path}: {found[1]} has the schedule {mixture['schedule']!r}, so a share is one of a mixture in it; "
            f"write {listed}"
        )
    return found[1] if all(isinstance(share, int | float) for share in mixture.values()) else None


def _at(root: Any, path: str) -> Any:
    """Return what stands at a path, or None where nothing does."""
    for part in path.split("."):
        if isinstance(root, list) and part.isdecimal() and int(part) < len(root):
            root = root[int(part)]
        elif isinstance(root, dict):
            root = root.get(part)
        else:
            return None
    return root


def _share(path: str, value: Any) -> float:
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        value = float(percent[1]) / 100
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RecipeError(f"{path}: a share lies between 0 and 1, not {value!r}")
    return float(value)


def _filled_up(path: str, mixture: Mapping[str, float], fixed: Mapping[str, float]) -> dict[str, float]:
    """Return a mixture with the fixed shares, the others scaled to what they leave; a share of 0 is left out."""
    left, others = 1 - sum(fixed.values()), {k: v for k, v in mixture.items() if k not in fixed}
    if left < -1e-9:
        raise RecipeError(f"{path}: the shares that are set sum to {sum(fixed.values()):g}, more than 1")
    total = sum(others.values())
    if total <= 0 < round(left, 9):
        raise RecipeError(f"{path}: no other corpus has a share that could be scaled to the {left:g} that are left")
    scaled = {key: round(share * max(0.0, left) / total, 12) if total else 0.0 for key, share in others.items()}
    merged = {key: fixed.get(key, scaled.get(key, 0.0)) for key in dict.fromkeys([*mixture, *fixed])}
    return {key: share for key, share in merged.items() if share > 0}


def _refuse_equal(arms: Sequence[SweepArm]) -> None:
    for number, arm in enumerate(arms):
        for other in arms[:number]:
            if arm.name == other.name:
                raise RecipeError(f"two arms would both be called {arm.name!r}; give them names (--arm)")
            if not [line for line in differing_paths(arm.recipe, other.recipe) if not line.startswith("name:")]:
                raise RecipeError(f"arms {other.name!r} and {arm.name!r} are the same recipe")
