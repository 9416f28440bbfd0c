"""Rungs of more and more demonstrations: what the probes of the in-context learning ladder have in common.

An item is a chain of demonstrations. Behind the first k of them, for each k, a query is asked; behind none, too. The
control asks the same with the answers of demonstrations exchanged: the prompt has the same inputs and the same answers,
and nothing to be learned from their pairing. What is won by the true pairs alone is the gain (cf. arXiv 2202.12837).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lingraft.measure.answering import Answered, Question
from lingraft.measure.items import ItemStream
from lingraft.measure.probes.options import whole_number, whole_numbers
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, ProbeScore
from lingraft.measure.probes.templates import TEMPLATES
from lingraft.measure.statistics import macro_interval, wilson_interval

__all__ = ["NUM_ITEMS", "SHOTS", "Chain", "Query", "check_ladder", "climb", "exchanged"]

NUM_ITEMS = 300
"""Items of the full form."""

SHOTS = (1, 3, 8, 16)
"""Its numbers of demonstrations."""

_SHARES = ("exact_match", "validity", "choice_accuracy", "token_accuracy")


@dataclass(frozen=True)
class Query:
    """What is asked behind some demonstrations: the input, its answer, and what may be answered."""

    asked: str
    answer: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Chain:
    """One item.

    Attributes:
        shown: the demonstrations, each an input and its answer.
        queries: number of demonstrations → what is asked behind so many.
        before: demonstrations that stand in front of all others and are never exchanged.
    """

    shown: tuple[tuple[str, str], ...]
    queries: Mapping[int, Query]
    before: tuple[tuple[str, str], ...] = ()


def check_ladder(*, num_items: Any, shots: Any, **_: Any) -> tuple[int, ...]:
    """Return the numbers of demonstrations, ascending.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations that is none.
    """
    whole_number(num_items, "num_items", 1)
    return whole_numbers(shots, "shots", 1)


def exchanged(
    stream: ItemStream, shown: Sequence[tuple[str, str]], shots: Sequence[int]
) -> tuple[tuple[str, str], ...]:
    """Return demonstrations whose answers went in a circle, no place keeping its own.

    Circles stay between two numbers of demonstrations, so that for each of them inputs and answers are what they were.
    A circle of one stays as it is.
    """
    answers = [answer for _, answer in shown]
    for first, end in pairwise([0, *sorted(shots)]):
        # Sattolo's way to one circle of all places.
        for place in range(end - 1, first, -1):
            other = first + stream.below(place - first)
            answers[place], answers[other] = answers[other], answers[place]
    return tuple((asked, answer) for (asked, _), answer in zip(shown, answers, strict=True))


def climb(
    context: ProbeContext,
    make: Callable[[ItemStream, int, tuple[int, ...]], Chain],
    *,
    key: str,
    num_items: int,
    shots: int | Sequence[int],
    score: str,
    control: bool,
    place: str = "",
) -> ProbeResult:
    """Ask a probe's items and return its scores.

    For each number of demonstrations k there are ``kN/exact_match``, ``kN/validity``, ``kN/choice_accuracy``,
    ``kN/token_accuracy``, ``kN/gold_log_probability`` and ``kN/chance`` (of choosing at random), and with ``control``
    ``shuffled/kN/…`` for ``score``. ``auc`` is the area under ``score`` over log₂ k, between 0 and 1;
    ``icl_gain`` the mean over k of ``score`` minus its value with exchanged answers, where there are two demonstrations
    at least to exchange. A k at which there is but one choice tells nothing of ``choice_accuracy`` and stays out of
    both, unless there is no other. Items that have no part in the area (no demonstrations, one choice, the control) are
    kept beside the others.

    Args:
        context: whom to ask.
        make: a function from a stream of choices, an item's number and the numbers of demonstrations to a chain.
        key: names the probe and the version of its items in the stream.
        num_items: how many items.
        shots: one or more k.
        score: the score that sums the probe up.
        control: whether to ask with exchanged answers too.
        place: stands before every name, as in ``copy/``.

    Raises:
        MeasurementError: there is no item, or a k that is no number of demonstrations.
    """
    counts = check_ladder(num_items=num_items, shots=shots)
    groups: list[list[Question]] = []
    for index in range(num_items):
        stream = ItemStream(key, context.seed, index)
        chain = make(stream, index, counts)
        groups.append(_questions(chain, chain.shown, f"{index}", place, (0, *counts)))
        if control:
            mixed = exchanged(ItemStream(key, context.seed, index, "exchanged"), chain.shown, counts)
            groups.append(_questions(chain, mixed, f"{index}", f"{place}shuffled/", counts))
    answered = context.ask(groups)
    by_task: dict[str, list[Answered]] = {}
    for one in answered:
        by_task.setdefault(one.question.task, []).append(one)
    scores = [s for task, of_task in by_task.items() for s in _rung(task, of_task, score)]
    sums = _sums(by_task, place, counts, score, control=control)
    tasks = {f"{place}k{count}" for count in _telling(by_task, place, counts, score)}
    return ProbeResult.of([*sums, *scores], answered, judged_by=score, tasks=tasks)


def _questions(
    chain: Chain, shown: Sequence[tuple[str, str]], item: str, place: str, counts: Sequence[int]
) -> list[Question]:
    questions = []
    for count in counts:
        if count not in chain.queries:
            continue
        query = chain.queries[count]
        prompt = TEMPLATES["arrow"]([*chain.before, *shown[:count]], query.asked)
        choices = tuple(f" {choice}" for choice in query.choices)
        questions.append(Question(f"{place}k{count}", item, prompt, choices, f" {query.answer}"))
    return questions


def _rung(task: str, answered: Sequence[Answered], score: str) -> list[ProbeScore]:
    names = (score,) if "shuffled/" in task else (*_SHARES, "gold_log_probability")
    count, found = len(answered), []
    for name in names:
        values = [one.scores[name] for one in answered]
        is_single = set(values) <= {0.0, 1.0}
        low, high = wilson_interval(sum(values), count) if is_single else macro_interval([values])
        found.append(ProbeScore(f"{task}/{name}", sum(values) / count, low, high, count))
    if "shuffled/" not in task:
        found.append(ProbeScore(f"{task}/chance", sum(1 / len(one.question.choices) for one in answered) / count))
    return found


def _sums(
    by_task: Mapping[str, Sequence[Answered]], place: str, counts: Sequence[int], score: str, *, control: bool
) -> list[ProbeScore]:
    """Return area and gain, each with the interval of its mean over items."""
    circles = [end for first, end in pairwise((0, *counts)) if end - first > 1]
    counts = _telling(by_task, place, counts, score)
    values = {task: [one.scores[score] for one in answered] for task, answered in by_task.items()}
    rungs = [values[f"{place}k{count}"] for count in counts]
    areas = [_area(counts, heights) for heights in zip(*rungs, strict=True)]
    sums = [_mean(f"{place}auc", areas)]
    wide = [count for count in counts if circles and count >= circles[0]]
    if control and wide:
        gains = [
            [true - mixed for true, mixed in zip(values[f"{place}k{k}"], values[f"{place}shuffled/k{k}"], strict=True)]
            for k in wide
        ]
        sums.append(_mean(f"{place}icl_gain", [sum(of_item) / len(wide) for of_item in zip(*gains, strict=True)]))
    return sums


def _telling(by_task: Mapping[str, Sequence[Answered]], place: str, counts: Sequence[int], score: str) -> Sequence[int]:
    """Return the numbers of demonstrations that sum the probe up: where choosing is judged, those with a choice."""
    if score != "choice_accuracy":
        return counts
    return [k for k in counts if any(len(one.question.choices) > 1 for one in by_task[f"{place}k{k}"])] or counts


def _mean(name: str, values: Sequence[float]) -> ProbeScore:
    mean = sum(values) / len(values)
    low, high = macro_interval([values])
    return ProbeScore(name, mean, min(low, mean), max(high, mean), len(values))


def _area(counts: Sequence[int], heights: Sequence[float]) -> float:
    """Return the mean height over log₂ of the counts, by trapezoids; of one count, its height."""
    if len(counts) == 1:
        return heights[0]
    places = [math.log2(count) for count in counts]
    steps = zip(pairwise(places), pairwise(heights), strict=True)
    area = sum((b - a) * (left + right) / 2 for (a, b), (left, right) in steps)
    return area / (places[-1] - places[0])
