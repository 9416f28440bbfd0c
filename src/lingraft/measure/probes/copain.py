"""Contextual pattern inference: a rule over a short list, to be inferred from demonstrations alone.

Seven tasks after the benchmark of arXiv 2506.00288 (its own items are the data set ``ahmedselhady/CoPain``). Its prompt
text is not published; lists, ranges, template and balance here are ours, so results are *Copain-style (regenerated)*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from lingraft.errors import MeasurementError
from lingraft.measure.items import ItemStream
from lingraft.measure.probes.probe import ProbeContext, ProbeScore, probe
from lingraft.measure.scoring import Scored
from lingraft.measure.statistics import bootstrap_ratio, wilson_interval

__all__ = ["TASKS", "CopainItem", "copain", "make_item"]

_VERSION = 1
_NUMBERS = range(10, 100)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class CopainItem:
    """A prompt that ends where the answer begins, the list it asks about, and the answer."""

    prompt: str
    members: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class _Task:
    """How many members a list has, how one is drawn, and which member is the answer."""

    size: int
    draw: Callable[[ItemStream], list[str]]
    answer: Callable[[Sequence[str]], str]


def _draw_numbers(stream: ItemStream) -> list[str]:
    return [str(number) for number in stream.sample(_NUMBERS, 3)]


def _draw_letters(stream: ItemStream) -> list[str]:
    return stream.sample(_LETTERS, 3)


def _draw_odd_one_out(parity: int) -> Callable[[ItemStream], list[str]]:
    """Return a drawer of three numbers of the other parity and one of this."""

    def draw(stream: ItemStream) -> list[str]:
        alone = stream.sample([n for n in _NUMBERS if n % 2 == parity], 1)
        others = stream.sample([n for n in _NUMBERS if n % 2 != parity], 3)
        return [str(number) for number in stream.shuffled(alone + others)]

    return draw


def _of_parity(parity: int) -> Callable[[Sequence[str]], str]:
    return lambda members: next(member for member in members if int(member) % 2 == parity)


TASKS: dict[str, _Task] = {
    "min": _Task(3, _draw_numbers, lambda m: str(min(map(int, m)))),
    "max": _Task(3, _draw_numbers, lambda m: str(max(map(int, m)))),
    "median": _Task(3, _draw_numbers, lambda m: str(median(map(int, m)))),
    "odd_in_even": _Task(4, _draw_odd_one_out(1), _of_parity(1)),
    "even_in_odd": _Task(4, _draw_odd_one_out(0), _of_parity(0)),
    "first_letter": _Task(3, _draw_letters, min),
    "last_letter": _Task(3, _draw_letters, max),
}


def make_item(task: str, index: int, *, shots: int, seed: int) -> CopainItem:
    """Return one item: ``a, b, c -> x`` per demonstration, then the query up to its arrow.

    The answer's place in the query goes through all places in turn; demonstrations show every place when there are
    enough of them; no demonstration has the query's list or its answer.
    """
    kind = TASKS[task]
    stream = ItemStream("copain", _VERSION, seed, task, shots, index)
    query = _placed(kind, stream, index % kind.size)
    answer = kind.answer(query)
    places = stream.shuffled([n % kind.size for n in range(shots)])
    lines: list[str] = []
    while len(lines) < shots:
        shown = _placed(kind, stream, places[len(lines)])
        if sorted(shown) != sorted(query) and kind.answer(shown) != answer:
            lines.append(f"{', '.join(shown)} -> {kind.answer(shown)}\n")
    return CopainItem(f"{''.join(lines)}{', '.join(query)} ->", tuple(query), answer)


def _placed(kind: _Task, stream: ItemStream, place: int) -> list[str]:
    """Draw a list and put its answer at a place."""
    members = kind.draw(stream)
    here = members.index(kind.answer(members))
    members[here], members[place] = members[place], members[here]
    return members


@probe("copain", reference="arXiv 2506.00288; https://huggingface.co/datasets/ahmedselhady/CoPain", light=False)
def copain(context: ProbeContext, *, num_items: int = 50, shots: int = 3) -> list[ProbeScore]:
    """Return, per task and as a macro mean, how often the rule is inferred from the demonstrations.

    ``exact_match``: the greedy continuation is the answer and then the end of the line. ``validity``: it is any member
    of the list. ``choice_accuracy``: the answer has the highest log-probability among the members. ``element_picker``
    is what copying a member at random would score; exact match below it means that the format is lost, not only the
    rule.

    Raises:
        MeasurementError: there is no item.
    """
    if num_items < 1:
        raise MeasurementError(f"copain needs at least one item a task, not {num_items}")
    if shots < 0:
        raise MeasurementError(f"copain takes zero or more demonstrations, not {shots}")
    scores: list[ProbeScore] = []
    columns: dict[str, list[list[bool]]] = {"exact_match": [], "validity": [], "choice_accuracy": []}
    for task in TASKS:
        items = [make_item(task, index, shots=shots, seed=context.seed) for index in range(num_items)]
        for name, outcomes in zip(columns, zip(*_judge(context, items), strict=True), strict=True):
            columns[name].append(list(outcomes))
            low, high = wilson_interval(sum(outcomes), num_items)
            scores.append(ProbeScore(f"{task}/{name}", sum(outcomes) / num_items, low, high, num_items))
    macro = [ProbeScore(name, *_macro(by_task), num_items * len(TASKS)) for name, by_task in columns.items()]
    picker = sum(1 / task.size for task in TASKS.values()) / len(TASKS)
    return [*macro, ProbeScore("element_picker", picker), *scores]


def _macro(by_task: Sequence[Sequence[bool]]) -> tuple[float, float, float]:
    """Return the mean over tasks of equal size, with an interval over items."""
    flat = [float(outcome) for outcomes in by_task for outcome in outcomes]
    mean = sum(flat) / len(flat)
    low, high = bootstrap_ratio(flat, [1.0] * len(flat)) if 0 < mean < 1 else wilson_interval(sum(flat), len(flat))
    return mean, low, high


def _judge(context: ProbeContext, items: Sequence[CopainItem]) -> list[tuple[bool, bool, bool]]:
    """Return (exact match, validity, choice accuracy) of each item.

    Each member is scored behind the prompt, with one line end after it. A member is the greedy continuation when every
    one of its tokens is the first choice and the first choice after it begins a new line: no sampling loop is needed.
    """
    rows, spans = [], []
    for item in items:
        encoded = context.tokenizer.encode_batch([f"{item.prompt} {member}\n" for member in item.members])
        # Members are told apart from the first token in which they differ; what they share is prompt to all of them.
        start = _shared_length(encoded)
        rows += encoded
        spans += [(start, len(ids) - 1) for ids in encoded]
    verdicts = iter(
        _said(context, row, span, scored)
        for row, span, scored in zip(rows, spans, context.scorer.score(rows), strict=True)
    )
    judged = []
    for item in items:
        by_member = {member: next(verdicts) for member in item.members}
        likeliest = max(item.members, key=lambda member: by_member[member][1])
        greedy = [member for member in item.members if by_member[member][0]]
        judged.append((item.answer in greedy, bool(greedy), likeliest == item.answer))
    return judged


def _shared_length(rows: Sequence[Sequence[int]]) -> int:
    return next(n for n, ids in enumerate(zip(*rows, strict=False)) if len(set(ids)) > 1)


def _said(context: ProbeContext, row: Sequence[int], span: tuple[int, int], scored: Scored) -> tuple[bool, float]:
    """Return whether a member is the greedy continuation, and its summed log-probability."""
    start, end = span
    member = slice(start, end)
    follows = torch.equal(scored.greedy[member], torch.tensor(row[start:end]))
    ends = context.tokenizer.decode([int(scored.greedy[end])]).lstrip(" ").startswith("\n") if follows else False
    return follows and ends, scored.log_probabilities[member].double().sum().item()
