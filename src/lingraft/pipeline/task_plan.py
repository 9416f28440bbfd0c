"""Downstream tasks of a recipe: in full, checked before anything is trained, and loaded once."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lingraft.errors import MissingExtraError, RecipeError, nearest
from lingraft.measure.tasks.files import folder_digest, yaml_names
from lingraft.measure.tasks.order import TaskOrder
from lingraft.measure.tasks.sets import SET_PREFIX, tasks_of_set
from lingraft.recipe import DownstreamTask, Recipe
from lingraft.vocabulary import TokenizerFile

__all__ = [
    "WINDOW",
    "loaded_tasks",
    "look_at_seams",
    "orders_of",
    "refuse_unaskable_tasks",
    "refuse_unknown_tasks",
    "refuse_unusable_tasks",
    "task_orders",
    "tasks_digest",
]

WINDOW = 2050
"""Longest sequence that a model is asked for, the start token included, unless its own limit is lower."""

_NAMES_SHOWN = 8


def task_orders(recipe: Recipe) -> list[TaskOrder]:
    """Return the tasks of a recipe, sets taken apart.

    Raises:
        RecipeError: there is no such set, or two entries are filed under one name.
    """
    stated = {f"measure.tasks.{index}": task for index, task in enumerate(recipe.measure.tasks)}
    return orders_of(stated, recipe.measure.tasks_folder, code=recipe.measure.tasks_code)


def orders_of(stated: Mapping[str, DownstreamTask], folder: str | None, *, code: bool = False) -> list[TaskOrder]:
    """Return the orders of tasks, sets taken apart.

    Args:
        stated: where a task is stated → the task.
        folder: where tasks lie that name none of their own.
        code: whether Python functions that files of folders name may be run.

    Raises:
        RecipeError: there is no such set, or two entries are filed under one name.
    """
    orders: list[TaskOrder] = []
    for where, task in stated.items():
        for order in _orders_of(task, folder, where, code):
            if order.filed_as in [other.filed_as for other in orders]:
                raise RecipeError(f"{where}: {order.filed_as!r} is there already; give one of the two a label")
            orders.append(order)
    return orders


def _orders_of(task: DownstreamTask, common: str | None, where: str, code: bool) -> Iterator[TaskOrder]:
    chosen = task.folder or common
    folder = Path(chosen) if chosen else None
    if task.name.startswith(SET_PREFIX):
        language = task.name.removeprefix(SET_PREFIX)
        for name, shots in tasks_of_set(task.name, where):
            yield TaskOrder(name, folder=folder, shots=shots, language=language, items=task.items, code=code)
        return
    yield TaskOrder(
        name=task.name,
        label=task.label or "",
        folder=folder,
        shots=task.shots,
        language=task.language,
        prompt_language=task.prompt_language,
        labels=task.labels,
        prompt=task.prompt,
        description=task.description,
        items=task.items,
        cluster=task.cluster,
        code=code,
    )


def refuse_unusable_tasks(recipe: Recipe) -> None:
    """Refuse tasks that the run could not ask: everything of folders is read, of others the name is looked up.

    Whether a hub can be reached is only known when the base model is measured, which is before any training.

    Raises:
        RecipeError: a name or folder is unknown.
        MissingExtraError: lm-eval is not installed.
        MeasurementError: a task of a folder cannot be read, or what is asked for does not fit it.
    """
    orders = task_orders(recipe)
    refuse_unknown_tasks(orders, "measure.tasks")
    for order in orders:
        if order.folder is not None:
            loaded_tasks(order, recipe.seed)


def refuse_unaskable_tasks(recipe: Recipe, tokenizer: TokenizerFile, max_positions: int) -> None:
    """Refuse tasks of folders with an item that the base model could not be asked: all their prompts are looked at.

    Raises:
        MeasurementError: an answer does not fit the model's window, or a task samples its answers.
    """
    for order in task_orders(recipe):
        if order.folder is not None:
            look_at_seams(loaded_tasks(order, recipe.seed), tokenizer, max_positions)


def look_at_seams(tasks: Sequence[Any], tokenizer: TokenizerFile, max_positions: int) -> list[Any]:
    """Return what :func:`lingraft.measure.tasks.running.check_seams` finds in each task; no model is asked.

    Raises:
        MeasurementError: an answer is empty or does not fit the window, or a task samples its answers.
    """
    from lingraft.measure.tasks.adapter import prompt_room
    from lingraft.measure.tasks.running import check_seams

    room = prompt_room(min(WINDOW, max_positions))
    return [check_seams(task, tokenizer, room) for task in tasks]


def refuse_unknown_tasks(orders: Sequence[TaskOrder], where: str) -> None:
    """Refuse tasks whose name or folder is unknown; no data are looked at.

    Raises:
        RecipeError: a name or folder is unknown; the message begins with ``where``.
        MissingExtraError: lm-eval is not installed.
    """
    if orders and importlib.util.find_spec("lm_eval") is None:
        raise MissingExtraError(f"{where}: running downstream tasks", "eval")
    for order in orders:
        _refuse_unknown(order, where)


def _refuse_unknown(order: TaskOrder, where: str) -> None:
    if order.folder is None:
        from lingraft.measure.tasks.loading import known_tasks

        known: Any = known_tasks(None)
        if order.name not in known:
            raise RecipeError(
                f"{where}: lm-eval has no task, group or tag {order.name!r}{nearest(order.name, known)}; one of "
                "your own needs a folder"
            )
        return
    if not order.folder.is_dir():
        raise RecipeError(f"{where}: {order.name!r}: there is no folder {order.folder}")
    known = yaml_names(order.folder)
    if order.name not in known:
        listed = ", ".join(sorted(known)[:_NAMES_SHOWN]) or "none"
        raise RecipeError(
            f"{where}: no YAML file in {order.folder} states a task {order.name!r}{nearest(order.name, known)} "
            f"(there are: {listed}{', …' if len(known) > _NAMES_SHOWN else ''})"
        )


def tasks_digest(recipe: Recipe) -> dict[str, str]:
    """Return folder → hash of its files, of all folders that tasks are taken from."""
    folders = {order.folder for order in task_orders(recipe) if order.folder is not None}
    return {str(folder): folder_digest(folder) for folder in sorted(folders)}


def loaded_tasks(order: TaskOrder, seed: int) -> list[Any]:
    """Return what an order names, ready to be asked; the same order over the same files is read once."""
    return _loaded(order, folder_digest(order.folder) if order.folder is not None else "", seed)


@lru_cache(maxsize=256)
def _loaded(order: TaskOrder, digest: str, seed: int) -> list[Any]:  # noqa: ARG001 - the digest tells changed files
    from lingraft.measure.tasks.loading import load_tasks

    return load_tasks(order, seed=seed)
