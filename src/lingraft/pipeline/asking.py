"""Asks a finished model downstream tasks, without a recipe, by the code that a run asks them with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lingraft.errors import MeasurementError, RecipeError
from lingraft.pipeline.downstream import Answers, ask_in_full
from lingraft.pipeline.inspecting import FoundModel, OpenedModel
from lingraft.pipeline.task_plan import WINDOW, loaded_tasks, look_at_seams, orders_of, refuse_unknown_tasks
from lingraft.recipe import DownstreamTask
from lingraft.run import write_file
from lingraft.version import __version__

__all__ = ["PreparedTasks", "ask_tasks", "prepare_tasks", "refuse_unwritable", "stated_tasks", "write_answers"]

_STAGE = "model"


@dataclass(frozen=True)
class PreparedTasks:
    """Tasks with their prompts, and what was found in their seams; no model has been asked.

    Attributes:
        tasks: what :func:`lingraft.measure.tasks.loading.load_tasks` returns, of all of them.
        checks: of each task a :class:`lingraft.measure.tasks.running.SeamCheck`.
    """

    tasks: list[Any]
    checks: list[Any]


def stated_tasks(names: Sequence[str], options: Mapping[str, Any]) -> dict[str, DownstreamTask]:
    """Return tasks as a recipe would state them: where each is stated → the task.

    Args:
        names: as a recipe's ``name``; a name may be several with commas between.
        options: fields of a recipe's task, the same for all; those that are None or empty are not said.

    Raises:
        RecipeError: there is no name, or an option has a value that means nothing.
    """
    single = [one.strip() for name in names for one in name.split(",") if one.strip()]
    if not single:
        raise RecipeError(f"--task {','.join(names)}: name a task or set, as in set:eu; see: lingraft list tasks")
    said = {key: value for key, value in options.items() if value not in (None, ())}
    found = {}
    for name in single:
        try:
            found[f"--task {name}"] = DownstreamTask(name=name, **said)
        except ValidationError as error:
            faults = "; ".join(
                ".".join(map(str, fault["loc"]))
                + ": " * bool(fault["loc"])
                + fault["msg"].removeprefix("Value error, ")
                for fault in error.errors()
            )
            raise RecipeError(f"--task {name}: {faults}") from error
    return found


def prepare_tasks(
    model: FoundModel,
    stated: Mapping[str, DownstreamTask],
    *,
    folder: str | None = None,
    code: bool = False,
    seed: int = 0,
) -> PreparedTasks:
    """Return the tasks with the prompts of all items, every seam looked at; no weights are loaded.

    Raises:
        RecipeError: a name or folder is unknown.
        MissingExtraError: lm-eval is not installed.
        MeasurementError: data cannot be had, or a prompt cannot be asked.
    """
    orders = orders_of(stated, folder, code=code)
    refuse_unknown_tasks(orders, "--task")
    tasks = [task for order in orders for task in loaded_tasks(order, seed)]
    return PreparedTasks(tasks, look_at_seams(tasks, model.tokenizer, model.max_positions))


def ask_tasks(opened: OpenedModel, prepared: PreparedTasks, *, label_items: int | None = None) -> Answers:
    """Return rows, items and records of tasks, as a run makes them; their stage is ``model``.

    Args:
        opened: the model.
        prepared: for its tokenizer.
        label_items: label perplexity is over so many items of each task; None for all, 0 for none.

    Raises:
        MeasurementError: a task cannot be asked.
    """
    from lingraft.measure.tasks.adapter import ScorerLM

    lm = ScorerLM(opened.scorer(WINDOW), opened.tokenizer, end_id=opened.end_id)
    return ask_in_full(prepared.tasks, lm, _STAGE, 0, label_items=label_items, checks=prepared.checks)


def refuse_unwritable(path: Path) -> None:
    """Refuse a file to write that is there already, before anything is measured.

    Raises:
        MeasurementError: something is there.
    """
    if path.exists():
        raise MeasurementError(f"--json: {path} is there already; nothing was measured, and nothing is overwritten")


def write_answers(path: Path, model: FoundModel, answers: Answers) -> None:
    """Write all rows, what was asked, and the scores of every item as one JSON file.

    Raises:
        MeasurementError: the file is there already.
    """
    refuse_unwritable(path)
    made = {
        "model": model.reference,
        "tokenizer_sha256": model.tokenizer.sha256,
        "lingraft": __version__,
        "precision": "fp32",
        "tasks": answers.records,
        "measurements": [_said(asdict(row)) for row in answers.rows],
        "items": [_said(asdict(item)) for item in answers.items],
    }
    write_file(path, json.dumps(made, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
