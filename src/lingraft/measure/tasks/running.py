"""Asks tasks: looks at every seam first, then asks the model, then scores each item.

Scores of a multiple-choice item, by the log-probability of its answers:

    acc         the right answer has the highest sum
    acc_norm    … the highest per character of the answer (lm-eval's, which calls it normalised by length)
    acc_bytes   … the highest per UTF-8 byte of the answer (what papers mean by it)

For Arabic or Devanagari with Latin letters or digits among the answers the last two differ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lingraft.errors import MeasurementError
from lingraft.measure.label_perplexity import Label, LabelPerplexity, label_perplexity
from lingraft.measure.paired import arm_mean
from lingraft.measure.statistics import wilson_interval
from lingraft.measure.tasks.adapter import ScorerLM, joined_requests, quiet_harness, refuse_sampling
from lingraft.measure.tasks.loading import AskedItem, LoadedTask, gold_places
from lingraft.vocabulary import TokenizerFile

__all__ = ["Aggregate", "ItemScores", "SeamCheck", "TaskResult", "ask_labels", "check_seams", "mean_of", "run_tasks"]

_RESAMPLES = 1000
_CHOICE = "multiple_choice"


@dataclass(frozen=True)
class SeamCheck:
    """What the look at all prompts of a task found, before any model was asked.

    Attributes:
        crossed: names of items with an answer whose seam is crossed by a token.
        cut: names of items whose prompt loses its beginning.
        example: the text around one crossed seam, with ``|`` at it; empty if there is none.
    """

    crossed: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    example: str = ""


@dataclass(frozen=True)
class ItemScores:
    """The scores of one item."""

    name: str
    cluster: str | None
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Aggregate:
    """A metric over all items; the interval is there where it is a mean over them."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int | None = None


@dataclass(frozen=True)
class TaskResult:
    """What came out of one task.

    Attributes:
        loaded: the task.
        metrics: metric → number.
        items: the scores of each item.
        seams: what was found before.
        labels: the label perplexity, of a multiple-choice task asked through our own scorer.
    """

    loaded: LoadedTask
    metrics: Mapping[str, Aggregate]
    items: tuple[ItemScores, ...]
    seams: SeamCheck
    labels: LabelPerplexity | None = None


def check_seams(loaded: LoadedTask, tokenizer: TokenizerFile, room: int) -> SeamCheck:
    """Return which items' seams are crossed and which prompts are too long; no model is asked.

    Args:
        loaded: the task.
        tokenizer: of the model.
        room: tokens that a prompt with its answer may have (:func:`lingraft.measure.tasks.adapter.prompt_room`).

    Raises:
        MeasurementError: an answer is empty or does not fit the room, or a task samples its answers.
    """
    crossed: dict[str, str] = {}
    cut: dict[str, None] = {}
    for item in loaded.items:
        if item.requests[0].request_type == "generate_until":
            refuse_sampling(item.requests[0].args[1], loaded.name)
        if item.requests[0].request_type != "loglikelihood":
            continue
        try:
            joined = joined_requests(item.requests, tokenizer, room)
        except MeasurementError as error:
            raise MeasurementError(f"task {loaded.filed_as!r}, item {item.name}: {error}") from error
        for request, one in zip(item.requests, joined, strict=True):
            if one.is_crossed:
                crossed.setdefault(item.name, f"{request.args[0][-24:]}|{request.args[1][:24]}")
            if one.cut:
                cut[item.name] = None
    return SeamCheck(tuple(crossed), tuple(cut), next(iter(crossed.values()), ""))


def run_tasks(
    tasks: Sequence[LoadedTask],
    lm: Any,
    *,
    label_items: int | None = None,
    checks: Sequence[SeamCheck] | None = None,
) -> list[TaskResult]:
    """Return the results of tasks; the prompts of all are looked at before the model is asked the first question.

    Args:
        tasks: loaded.
        lm: our adapter, or any of lm-eval's models; only ours tells of seams and label perplexity.
        label_items: label perplexity is over so many items, as :func:`ask_labels` chooses them; None for all.
        checks: of each task what :func:`check_seams` found, where that has been done.

    Raises:
        MeasurementError: a prompt cannot be asked, or the scores of an item cannot be had.
    """
    if checks is None:
        ours = lm if isinstance(lm, ScorerLM) else None
        checks = [check_seams(loaded, ours.tokenizer, ours.room) if ours else SeamCheck() for loaded in tasks]
    with quiet_harness():
        return [_run(loaded, lm, check, label_items) for loaded, check in zip(tasks, checks, strict=True)]


def ask_labels(loaded: LoadedTask, lm: ScorerLM, max_items: int) -> LabelPerplexity | None:
    """Return the label perplexity over the first ``max_items`` of a task in the order of their names, or None.

    Names are hashes, so these are always the same and no selection; None where the task is not multiple-choice.
    """
    if loaded.task.OUTPUT_TYPE != _CHOICE:
        return None
    chosen = _first_by_name(loaded, max_items)
    lm.loglikelihood([request for item in chosen for request in item.requests])
    return _labels(loaded, chosen, lm)


def _first_by_name(loaded: LoadedTask, max_items: int | None) -> list[AskedItem]:
    return sorted(loaded.items, key=lambda item: item.name)[:max_items]


def _run(loaded: LoadedTask, lm: Any, check: SeamCheck, label_items: int | None) -> TaskResult:
    requests = [request for request in loaded.requests for _ in range(max(1, request.repeats or 1))]
    for request in requests:
        request.resps.clear()
        request.filtered_resps.clear()
    for kind in dict.fromkeys(request.request_type for request in requests):
        asked = [request for request in requests if request.request_type == kind]
        for request, response in zip(asked, getattr(lm, kind)(asked), strict=True):
            request.resps.append(response)
    loaded.task._instances = loaded.requests
    loaded.task.apply_filters()
    values = [_scores_of(loaded, item) for item in loaded.items]
    scored = tuple(
        ItemScores(item.name, item.cluster, _plain(one) | _choice_scores(loaded, item) | _gold(loaded, item, lm))
        for item, one in zip(loaded.items, values, strict=True)
    )
    labels = None
    if isinstance(lm, ScorerLM) and loaded.task.OUTPUT_TYPE == _CHOICE:
        labels = _labels(loaded, _first_by_name(loaded, label_items), lm)
    return TaskResult(loaded, _metrics(loaded, values, scored), scored, check, labels)


def _scores_of(loaded: LoadedTask, item: AskedItem) -> dict[str, Any]:
    """Return lm-eval's scores of an item; those of a named filter have its name behind theirs."""
    found: dict[str, Any] = {}
    for name in item.requests[0].filtered_resps:
        responses = [request.filtered_resps[name] for request in item.requests]
        try:
            made = loaded.task.process_results(item.doc, responses)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, ZeroDivisionError) as error:
            raise MeasurementError(
                f"task {loaded.filed_as!r}, item {item.name} cannot be scored: {type(error).__name__}: {error}"
            ) from error
        found |= {metric if name == "none" else f"{metric}-{name}": value for metric, value in made.items()}
    return found


def _plain(values: Mapping[str, Any]) -> dict[str, float]:
    return {metric: float(v) for metric, v in values.items() if _is_number(v)}


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.number) and math.isfinite(float(value))


def _choice_scores(loaded: LoadedTask, item: AskedItem) -> dict[str, float]:
    """Return acc, acc_norm and acc_bytes of a multiple-choice item, also where the task asks for fewer of them."""
    if loaded.task.OUTPUT_TYPE != _CHOICE or callable(loaded.task.config.process_results):
        return {}
    choices = loaded.task.doc_to_choice(item.doc)
    # Tasks that ask for mutual information have the answers without a prompt behind them.
    told = [float(request.resps[0][0]) for request in item.requests[: len(choices)]]
    gold = gold_places(loaded.task, item.doc)
    sizes = {
        "acc": [1] * len(choices),
        "acc_norm": [max(1, len(choice)) for choice in choices],
        "acc_bytes": [max(1, len(choice.encode())) for choice in choices],
    }
    return {name: float(int(np.argmax(np.array(told) / np.array(size))) in gold) for name, size in sizes.items()}


def _gold(loaded: LoadedTask, item: AskedItem, lm: Any) -> dict[str, float]:
    """Return the right answer's log-probability and the number of its tokens, where our own scorer was asked."""
    labels = _item_labels(loaded, item, lm) if isinstance(lm, ScorerLM) else None
    if not labels:
        return {}
    gold = max((labels[0][place] for place in labels[1]), key=lambda label: label.log_probability)
    return {"gold_log_probability": gold.log_probability, "gold_tokens": float(gold.tokens)}


def _item_labels(loaded: LoadedTask, item: AskedItem, lm: ScorerLM) -> tuple[list[Label], list[int]] | None:
    if loaded.task.OUTPUT_TYPE != _CHOICE or not (gold := gold_places(loaded.task, item.doc)):
        return None
    requests = item.requests[: len(loaded.task.doc_to_choice(item.doc))]
    scores = [lm.scores[id(request)] for request in requests]
    sizes = [len(request.args[1].encode()) for request in requests]
    return [Label(s.log_probability, s.tokens, size) for s, size in zip(scores, sizes, strict=True)], gold


def _labels(loaded: LoadedTask, items: Sequence[AskedItem], lm: ScorerLM) -> LabelPerplexity | None:
    found = [labels for item in items if (labels := _item_labels(loaded, item, lm)) is not None]
    return label_perplexity(found) if found else None


def _metrics(
    loaded: LoadedTask, values: Sequence[Mapping[str, Any]], items: Sequence[ItemScores]
) -> dict[str, Aggregate]:
    """Return every metric: means with their interval, anything else as lm-eval aggregates it."""
    aggregation = loaded.task.aggregation()
    found: dict[str, Aggregate] = {}
    for metric in dict.fromkeys(name for one in values for name in one):
        numbers = [one[metric] for one in values if metric in one]
        if all(map(_is_number, numbers)) and _is_mean(aggregation.get(metric.partition("-")[0]), numbers):
            found[metric] = mean_of(items, metric)
        elif metric.partition("-")[0] in aggregation:
            value = _aggregated(loaded, metric, aggregation[metric.partition("-")[0]], numbers)
            if _is_number(value):
                found[metric] = Aggregate(float(value), count=len(numbers))
    for metric in ("acc", "acc_norm", "acc_bytes"):
        if items and metric in items[0].scores:
            found[metric] = mean_of(items, metric)
    return found


def _aggregated(loaded: LoadedTask, metric: str, aggregate: Any, numbers: Sequence[Any]) -> Any:
    try:
        return aggregate(numbers)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise MeasurementError(
            f"task {loaded.filed_as!r}: {metric} of its items cannot be had: {type(error).__name__}: {error}"
        ) from error


def _is_mean(aggregate: Any, numbers: Sequence[float]) -> bool:
    if aggregate is None:
        return True
    value = aggregate(list(numbers))
    return _is_number(value) and math.isclose(float(value), sum(map(float, numbers)) / len(numbers), abs_tol=1e-9)


def mean_of(items: Sequence[ItemScores], metric: str, strata: Sequence[str] | None = None) -> Aggregate:
    """Return the mean of a score with its 95 % interval: Wilson's where items are right or wrong and stand alone.

    Items that share a passage are drawn together; over several tasks it is the mean of the tasks' means.
    """
    scores = [item.scores[metric] for item in items if metric in item.scores]
    clusters = [item.cluster for item in items if metric in item.scores]
    if strata is None and not any(clusters) and set(scores) <= {0.0, 1.0}:
        low, high = wilson_interval(sum(scores), len(scores))
        return Aggregate(sum(scores) / len(scores), low, high, len(scores))
    made = arm_mean([scores], [1.0] * len(scores), strata=strata, clusters=clusters, resamples=_RESAMPLES)
    return Aggregate(made.value, made.low, made.high, len(scores))
