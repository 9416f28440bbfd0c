"""Downstream tasks in a run: asked on the base and where the recipe says, with rows, items and a record of how."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lingraft.item_records import ItemRecord
from lingraft.measure.label_perplexity import LabelPerplexity
from lingraft.measure.scoring import Scorer
from lingraft.measure.tasks.conditions import record_path
from lingraft.measurement import Measurement
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.task_plan import loaded_tasks, task_orders
from lingraft.recipe import Recipe
from lingraft.run import Run, write_file
from lingraft.vocabulary import TokenizerFile

__all__ = [
    "Answers",
    "Downstream",
    "ask_in_full",
    "label_rows",
    "seams_told",
    "task_items",
    "task_record",
    "task_rows",
]

_NAMED_ITEMS = 20


@dataclass(frozen=True)
class Answers:
    """What came out of asking tasks: rows, items, what was asked, and of each task its name, seams and items."""

    rows: list[Measurement]
    items: list[ItemRecord]
    records: list[dict[str, Any]]
    seams: list[tuple[str, Any, int]]


@dataclass
class Downstream:
    """The tasks of a run.

    Attributes:
        run: where the record of what was asked goes.
        recipe: which tasks.
        end_id: the token at which generation ends.
        progress: who is told of seams.
    """

    run: Run
    recipe: Recipe
    end_id: int
    progress: Progress

    @cached_property
    def tasks(self) -> list[Any]:
        """All tasks, with the prompts of all their items.

        Raises:
            MeasurementError: the data of one cannot be had.
        """
        return [task for order in task_orders(self.recipe) for task in loaded_tasks(order, self.recipe.seed)]

    def is_due(self, stage: str, *, at_stage_end: bool) -> bool:
        """Whether tasks are asked in full at a measuring point."""
        when = self.recipe.measure.tasks_at
        return when == "points" or (at_stage_end and (when == "stages" or stage == self.recipe.stages[-1].name))

    def measure(
        self,
        scorer: Scorer,
        tokenizer: TokenizerFile,
        stage: str,
        tokens: int,
        *,
        in_full: bool,
        averaged: bool = False,
    ) -> tuple[list[Measurement], list[ItemRecord]]:
        """Return rows and items of all tasks; not ``in_full``, the label perplexity on some items alone.

        Raises:
            MeasurementError: a task cannot be asked.
        """
        if not self.recipe.measure.tasks or not (in_full or self.recipe.measure.label_items):
            return [], []
        from lingraft.measure.tasks.adapter import ScorerLM

        lm = ScorerLM(scorer, tokenizer, end_id=self.end_id)
        if in_full:
            return self._ask_in_full(lm, stage, tokens, averaged=averaged)
        return list(self._ask_labels(lm, stage, tokens)), []

    def _ask_labels(self, lm: Any, stage: str, tokens: int) -> Iterator[Measurement]:
        from lingraft.measure.tasks.running import ask_labels

        for task in self.tasks:
            found = ask_labels(task, lm, self.recipe.measure.label_items)
            if found is not None:
                yield from label_rows(found, task.filed_as, stage, tokens, task.order.language)

    def _ask_in_full(
        self, lm: Any, stage: str, tokens: int, *, averaged: bool
    ) -> tuple[list[Measurement], list[ItemRecord]]:
        found = ask_in_full(
            self.tasks, lm, stage, tokens, label_items=self.recipe.measure.label_items, averaged=averaged
        )
        for name, seams, items in found.seams if stage == "base" else ():
            if seams.crossed:
                self.progress.note(f"task {name}: {seams_told(seams, items)}")
        path = record_path(self.run.folder, stage, tokens, averaged=averaged)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(found.records, ensure_ascii=False, indent=1))
        return found.rows, found.items


def seams_told(seams: Any, items: int) -> str:
    """Say how many items have a token across the seam, and what is done about it."""
    return (
        f"a token spans the seam between prompt and answer in {len(seams.crossed)} of {items} items, as in "
        f"{seams.example!r}; the prompt's end is scored with them"
    )


def ask_in_full(
    tasks: Sequence[Any],
    lm: Any,
    stage: str,
    tokens: int,
    *,
    label_items: int | None,
    checks: Sequence[Any] | None = None,
    averaged: bool = False,
) -> Answers:
    """Return everything that comes out of asking all items of some tasks.

    Args:
        tasks: loaded.
        lm: the adapter to ask.
        stage: what the rows are filed under.
        tokens: likewise.
        label_items: label perplexity is over so many items; None for all, 0 for none.
        checks: what was found in the seams of each task, where that has been looked at.
        averaged: whether the averaged weights are asked.

    Raises:
        MeasurementError: a task cannot be asked.
    """
    from lingraft.measure.tasks.running import run_tasks

    began = time.perf_counter()
    results = run_tasks(tasks, lm, label_items=label_items, checks=checks)
    rows = task_rows(results, stage, tokens)
    for result in results:
        if label_items != 0 and result.labels is not None:
            rows += label_rows(result.labels, result.loaded.filed_as, stage, tokens, result.loaded.order.language)
    rows.append(Measurement(stage, tokens, "seconds/tasks", time.perf_counter() - began))
    return Answers(
        rows,
        list(task_items(results, stage, tokens, averaged=averaged)),
        [task_record(result, stage, tokens, averaged=averaged) for result in results],
        [(result.loaded.filed_as, result.seams, len(result.items)) for result in results],
    )


def task_record(result: Any, stage: str, tokens: int, *, averaged: bool = False) -> dict[str, Any]:
    """Return what decides a result: versions, prompt, shots, what was asked, and what was found in its seams."""
    seams = result.seams
    return {
        "filed_as": result.loaded.filed_as,
        "stage": stage,
        "tokens": tokens,
        "averaged": averaged,
        **result.loaded.record,
        "seams_crossed": len(seams.crossed),
        "seams_crossed_items": list(seams.crossed[:_NAMED_ITEMS]),
        "seam_example": seams.example or None,
        "prompts_cut": len(seams.cut),
    }


def task_rows(results: Sequence[Any], stage: str, tokens: int) -> list[Measurement]:
    """Return ``task/NAME/METRIC`` of every task, and of a group the mean of its tasks' means besides.

    ``seams_crossed`` and ``prompts_cut`` are numbers of items.
    """
    rows: list[Measurement] = []
    for result in results:
        name, language = f"task/{result.loaded.filed_as}", result.loaded.order.language
        for metric, found in result.metrics.items():
            label = f"{name}/{metric}"
            rows.append(Measurement(stage, tokens, label, found.value, language, found.low, found.high, found.count))
        for kind, items in (("seams_crossed", result.seams.crossed), ("prompts_cut", result.seams.cut)):
            rows.append(Measurement(stage, tokens, f"{name}/{kind}", len(items), language, count=len(result.items)))
    return rows + list(_group_rows(results, stage, tokens))


def _group_rows(results: Sequence[Any], stage: str, tokens: int) -> Iterator[Measurement]:
    from lingraft.measure.tasks.running import mean_of

    groups: dict[str, list[Any]] = {}
    for result in results:
        if "/" in result.loaded.filed_as:
            groups.setdefault(result.loaded.order.filed_as, []).append(result)
    for name, members in groups.items():
        means = [{metric for metric, found in member.metrics.items() if found.low is not None} for member in members]
        for metric in sorted(set.intersection(*means)):
            items = [item for member in members for item in member.items if metric in item.scores]
            strata = [m.loaded.name for m in members for item in m.items if metric in item.scores]
            found, language = mean_of(items, metric, strata), members[0].loaded.order.language
            label = f"task/{name}/{metric}"
            yield Measurement(stage, tokens, label, found.value, language, found.low, found.high, found.count)


def label_rows(
    found: LabelPerplexity, name: str, stage: str, tokens: int, language: str | None
) -> Iterator[Measurement]:
    """Yield ``label_perplexity/NAME/…``: perplexity of the right label and of all, their nats, and bits per byte."""
    for kind, value, (low, high) in (
        ("gold", found.gold, found.gold_interval),
        ("all", found.all, found.all_interval),
        ("gold_nats", found.gold_nats, (None, None)),
        ("all_nats", found.all_nats, (None, None)),
        ("gold_bits_per_byte", found.gold_bits_per_byte, (None, None)),
    ):
        yield Measurement(stage, tokens, f"label_perplexity/{name}/{kind}", value, language, low, high, found.items)


def task_items(results: Iterable[Any], stage: str, tokens: int, *, averaged: bool = False) -> Iterator[ItemRecord]:
    """Yield the scores of every item, under ``task/NAME``, with the passage that it shares with others."""
    for result in results:
        name, language = f"task/{result.loaded.filed_as}", result.loaded.order.language
        for item in result.items:
            if item.scores:
                yield ItemRecord(stage, tokens, name, item.name, item.scores, language, item.cluster, averaged=averaged)
