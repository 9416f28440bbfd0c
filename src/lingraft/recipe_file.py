"""Recipes as files: read with every fault named by its line, and written out whole."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lingraft.errors import RecipeError
from lingraft.recipe import Recipe
from lingraft.strict_yaml import LinedValue, dump_yaml, parse_value, parse_yaml, set_path

__all__ = [
    "describe_faults",
    "differing_paths",
    "dump_recipe",
    "load_recipe",
    "parse_recipe",
    "read_document",
    "recipe_of",
]


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe in a YAML file, with ``path=value`` overrides put over it.

    Relative paths in it are relative to the file's own folder.

    Raises:
        RecipeError: the file is missing, is not strict YAML, or says something that cannot be used; all
            faults are listed, each with file, line, recipe path, value and what is allowed.
    """
    document = read_document(path)
    for override in overrides:
        dotted, separator, text = override.partition("=")
        if not separator or not dotted:
            raise RecipeError(f"--set {override}: write path=value, as in stages.1.mix.en=0.2")
        set_path(document.value, dotted, parse_value(text))
    return recipe_of(document)


def read_document(path: str | Path) -> LinedValue:
    """Return what a recipe's file says, before it is checked, with paths in it made absolute.

    Raises:
        RecipeError: the file is missing, is not strict YAML, or is no mapping.
    """
    path = Path(path)
    if not path.is_file():
        raise RecipeError(f"{path}: no such recipe file")
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: byte {error.start} is not UTF-8") from error
    if not isinstance(document.value, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of keys to values, not {type(document.value).__name__}")
    _make_paths_absolute(document.value, path.parent)
    return document


def parse_recipe(text: str, source: str) -> Recipe:
    """Return the recipe in a YAML text, its paths as they stand; raises as :func:`load_recipe` does."""
    return recipe_of(parse_yaml(text, source))


def _make_paths_absolute(raw: dict[str, Any], folder: Path) -> None:
    """Read relative paths from the recipe's own folder; hub names, and words that are no file there, are left alone."""
    folder = folder.resolve()
    corpora = raw.get("corpora")
    for corpus in corpora.values() if isinstance(corpora, dict) else ():
        if isinstance(corpus, dict):
            _make_corpus_absolute(corpus, folder)
    _make_list_absolute(raw.get("measure"), "benchmark_files", folder)
    measure = raw.get("measure")
    _make_absolute(measure, "tasks_folder", folder)
    tasks = measure.get("tasks") if isinstance(measure, dict) else None
    for task in tasks if isinstance(tasks, list) else ():
        _make_absolute(task, "folder", folder)
    _make_absolute(raw, "base_model", folder)
    _make_absolute(raw.get("vocabulary"), "second_tokenizer", folder)
    for options in _init_options(raw.get("embeddings")):
        for name in options.keys() - {"name"}:
            _make_absolute(options, name, folder)


def _make_corpus_absolute(corpus: dict[str, Any], folder: Path) -> None:
    """With ``split``, a name that is no folder here is one on the hub."""
    _make_absolute(corpus.get("language_id"), "model", folder)
    if "split" in corpus:
        _make_absolute(corpus, "path", folder)
    elif isinstance(corpus.get("path"), str):
        corpus["path"] = str(folder / corpus["path"])
    else:
        _make_list_absolute(corpus, "path", folder)


def _make_list_absolute(part: Any, name: str, folder: Path) -> None:
    given = part.get(name) if isinstance(part, dict) else None
    if isinstance(given, list):
        part[name] = [str(folder / item) if isinstance(item, str) else item for item in given]


def _make_absolute(part: Any, name: str, folder: Path) -> None:
    value = part.get(name) if isinstance(part, dict) else None
    if isinstance(value, str) and value and (value.startswith(".") or (folder / value).exists()):
        part[name] = str(folder / value)


def _init_options(embeddings: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping of options of an init method: files that methods read are named there."""
    if not isinstance(embeddings, dict):
        return
    candidates = embeddings.get("choose")
    for pair in (embeddings, *(candidates if isinstance(candidates, list) else ())):
        if isinstance(pair, dict):
            for side in (pair.get("input"), pair.get("output"), pair):
                if isinstance(side, dict) and "name" in side:
                    yield side


def recipe_of(document: LinedValue) -> Recipe:
    """Return the recipe that a document states.

    Raises:
        RecipeError: it says something that cannot be used; see :func:`load_recipe`.
    """
    try:
        return Recipe.model_validate(document.value)
    except ValidationError as error:
        raise RecipeError(describe_faults(document, error)) from error


def describe_faults(document: LinedValue, error: ValidationError) -> str:
    """Return every fault that pydantic found in a document, a line for each, with file, line and path."""
    # A list with faulty items is also called too short, because pydantic counts the sound ones.
    details = [detail for detail in error.errors() if detail["type"] != "too_short" or not detail["input"]]
    return "\n".join(_describe(document, detail) for detail in details)


def _describe(document: LinedValue, detail: Any) -> str:
    path = _path_in(document.value, detail["loc"], is_missing=detail["type"] == "missing")
    tail = detail.get("ctx", {}).get("tail", ())
    path += tail if isinstance(tail, tuple) else (tail,)
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] not in ("unknown_key", "inconsistent", "value_error", "missing"):
        message += f" (given: {detail['input']!r})"
    return f"{document.where(path)}: {message}"


def _path_in(value: Any, location: Sequence[str | int], *, is_missing: bool) -> tuple[str | int, ...]:
    """Return the parts of pydantic's location that the document has; it also names branches of unions and options."""
    path: list[str | int] = []
    for part in location:
        has_key = isinstance(value, dict) and part in value
        has_index = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if has_key or has_index:
            path.append(part)
            value = value[part]
    return (*path, location[-1]) if is_missing else tuple(path)


def dump_recipe(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML: every option, defaults included; reading it gives an equal recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


def differing_paths(one: Recipe, other: Recipe) -> list[str]:
    """Return ``path: a → b`` for every value in which two recipes differ."""
    left, right = dict(_flatten(one.model_dump(mode="json"))), dict(_flatten(other.model_dump(mode="json")))
    paths = sorted(left.keys() | right.keys())
    return [f"{p}: {left.get(p)!r} → {right.get(p)!r}" for p in paths if left.get(p) != right.get(p)]


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            yield from _flatten(child, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
