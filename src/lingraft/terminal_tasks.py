"""Downstream tasks on a terminal: what was asked, what came out, and which there are to choose from."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from lingraft.errors import RecipeError
from lingraft.measure.tasks.files import yaml_names
from lingraft.measure.tasks.sets import SET_PREFIX, TASK_SETS, TASKS_TOLD
from lingraft.measurement import Measurement
from lingraft.quantities import format_duration
from lingraft.report.metrics import metric_of
from lingraft.report.rows import format_value, language_name
from lingraft.terminal import plain

if TYPE_CHECKING:
    from lingraft.pipeline.asking import PreparedTasks
    from lingraft.pipeline.downstream import Answers

__all__ = ["show_answers", "show_prepared", "show_task_sets"]

_WORDS = {
    "acc": "acc",
    "acc_norm": "acc_norm (per character)",
    "acc_bytes": "acc_bytes (per byte)",
    "gold": "label perplexity, right one",
    "all": "label perplexity, all",
    "gold_bits_per_byte": "bits per byte of right labels",
    "gold_nats": "nats per token of right labels",
    "all_nats": "nats per token of all labels",
    "seams_crossed": "items with a crossed seam",
    "prompts_cut": "items whose prompt was cut",
}


def show_prepared(prepared: "PreparedTasks", console: Console) -> None:
    """Print what will be asked, and what was found in the seams, before any weight is loaded."""
    from lingraft.pipeline.downstream import seams_told

    for task, check in zip(prepared.tasks, prepared.checks, strict=True):
        size = f"{len(task.items):,} items, {len(task.requests):,} answers to score"
        console.print(f"{plain(task.filed_as)}: {size}", highlight=False)
        if check.crossed:
            console.print(f"  {plain(seams_told(check, len(task.items)))}", highlight=False, soft_wrap=True)


def show_answers(answers: "Answers", console: Console) -> None:
    """Print a table for each task and group, each with how it was asked; then how long it took."""
    told = {record["filed_as"]: record for record in answers.records}
    tables: dict[str, list[Measurement]] = {}
    for row in answers.rows:
        kind, _, rest = row.name.partition("/")
        if kind in ("task", "label_perplexity"):
            tables.setdefault(rest.rpartition("/")[0], []).append(row)
    for name, rows in tables.items():
        record = told.get(name)
        heading = _asked(record) if record else "mean of the tasks of the group"
        console.print(f"[bold]{plain(name)}[/bold]: {plain(heading)}", highlight=False, soft_wrap=True)
        console.print(_table(rows))
    seconds = next(row.value for row in answers.rows if row.name == "seconds/tasks")
    console.print(f"asked in {format_duration(seconds)}", highlight=False)


def _asked(record: dict[str, Any]) -> str:
    language = record["prompt_language"]
    labels = f", labels {' '.join(map(str, record['labels']))}" if record["labels"] else ""
    chance = f", guessing gets {100 * record['chance']:.1f} %" if record.get("chance") else ""
    return (
        f"{record['items']:,} items, {record['shots']} demonstrations, prompt in {language or 'a language not stated'}"
        f"{labels}{chance}; lm-eval {record['lm_eval']}, task version {record['task_version']}"
    )


def _table(rows: Sequence[Measurement]) -> Table:
    table = Table()
    table.add_column("score")
    for header in ("value", "95 % interval", "items"):
        table.add_column(header, justify="right")
    for row in rows:
        metric = metric_of(row.name)
        last, unit = row.name.rpartition("/")[2], metric.unit if metric else "number"
        interval = (
            ""
            if row.low is None or row.high is None
            else " to ".join(format_value(end, unit) for end in (row.low, row.high))
        )
        count = "" if row.count is None else f"{row.count:,}"
        table.add_row(plain(_WORDS.get(last, last)), format_value(row.value, unit), interval, count)
    return table


def show_task_sets(folder: Path | None, console: Console) -> None:
    """Print the tasks that a language is judged by by default, and of a folder which of them and which others it has.

    Raises:
        RecipeError: there is no such folder.
    """
    if folder is not None and not folder.is_dir():
        raise RecipeError(f"--tasks-folder: there is no folder {folder}")
    there = yaml_names(folder) if folder is not None else {}
    for language, tasks in TASK_SETS.items():
        names = f"{SET_PREFIX}{language} ({language_name(language)})"
        table = Table(title=plain(names), title_justify="left")
        for header in ("task", "shots", "asks", "data on the hub", *(["in the folder"] if folder else [])):
            table.add_column(header, overflow="fold")
        for name, shots in tasks:
            own = (["yes" if name in there else "no"]) if folder else []
            table.add_row(name, str(shots), *TASKS_TOLD[name], *own)
        console.print(table)
    usual = {name for tasks in TASK_SETS.values() for name, _ in tasks}
    if folder is not None:
        others = ", ".join(sorted(set(there) - usual)) or "none"
        console.print(
            f"other tasks, groups and tags in {plain(str(folder))}: {plain(others)}", highlight=False, soft_wrap=True
        )
    console.print(
        "Every other task of lm-eval can be named too. They are asked with: lingraft eval MODEL --task set:eu; in a "
        "recipe: measure.tasks. Data come from the hub unless a folder is named (--tasks-folder, "
        "measure.tasks_folder).",
        highlight=False,
        soft_wrap=True,
    )
