"""Contextual pattern inference: a rule over a short list, to be inferred from demonstrations alone.

Seven tasks after the benchmark of arXiv 2506.00288 (its own items are the data set ``ahmedselhady/CoPain``). Its prompt
text is not published; lists, ranges, templates and balance here are ours, so results are *Copain-style (regenerated)*,
unless a copy of the original items is given (:mod:`lingraft.measure.probes.copain_original`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

from lingraft.errors import MeasurementError, nearest
from lingraft.measure.answering import Answered
from lingraft.measure.items import ItemStream
from lingraft.measure.probes.copain_original import original_items
from lingraft.measure.probes.list_item import ListItem, baselines
from lingraft.measure.probes.options import whole_number, whole_numbers
from lingraft.measure.probes.probe import ProbeContext, ProbeResult, ProbeScore, probe
from lingraft.measure.probes.templates import TEMPLATES
from lingraft.measure.statistics import macro_interval, wilson_interval

__all__ = ["TASKS", "check_copain", "copain", "make_item"]

_VERSION = 2
_NUMBERS = range(10, 100)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SCORES = ("exact_match", "validity", "choice_accuracy", "gold_log_probability")


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


def make_item(task: str, index: int, *, shots: int, seed: int) -> ListItem:
    """Return one item.

    The answer's place in the query goes through all places in turn; demonstrations show every place when there are
    enough of them; no demonstration has the query's list or its answer. Two or more demonstrations never follow another
    task's rule as well, if that would have another answer to the query.
    """
    kind = TASKS[task]
    stream = ItemStream("copain", _VERSION, seed, task, shots, index)
    query = _placed(kind, stream, index % kind.size)
    answer = kind.answer(query)
    while True:
        places = stream.shuffled([n % kind.size for n in range(shots)])
        shown: list[tuple[tuple[str, ...], str]] = []
        while len(shown) < shots:
            members = _placed(kind, stream, places[len(shown)])
            if sorted(members) != sorted(query) and kind.answer(members) != answer:
                shown.append((tuple(members), kind.answer(members)))
        item = ListItem(tuple(shown), tuple(query), answer)
        if shots < 2 or not _is_ambiguous(item):
            return item


def _is_ambiguous(item: ListItem) -> bool:
    """Whether the demonstrations follow a rule that has another answer to the query."""
    answers = [_by_every_rule(members) for members, _ in item.shown]
    return any(
        said not in (None, item.answer)
        and all(by_rule[rule] == answer for by_rule, (_, answer) in zip(answers, item.shown, strict=True))
        for rule, said in _by_every_rule(item.members).items()
    )


def _by_every_rule(members: Sequence[str]) -> dict[str, str | None]:
    """Return what each rule says of a list, whatever its task is; None where it says nothing."""
    ordered, middle = sorted(members), len(members) // 2
    odd = [member for member in members if member[-1] in "13579"]
    even = [member for member in members if member[-1] in "02468"]
    return {
        "least": ordered[0],
        "greatest": ordered[-1],
        "median": ordered[middle] if len(members) % 2 else None,
        "odd": odd[0] if len(odd) == 1 else None,
        "even": even[0] if len(even) == 1 else None,
    }


def _placed(kind: _Task, stream: ItemStream, place: int) -> list[str]:
    """Draw a list and put its answer at a place."""
    members = kind.draw(stream)
    here = members.index(kind.answer(members))
    members[here], members[place] = members[place], members[here]
    return members


def check_copain(*, num_items: Any, shots: Any, templates: Any, original: Any) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of demonstrations and the templates that options mean, in the order of the forms.

    Raises:
        MeasurementError: there is no item, a number or a template does not exist, or the original items cannot be read.
    """
    whole_number(num_items, "copain.num_items", 1)
    counts = whole_numbers(shots, "copain.shots", 0)
    names = [templates] if isinstance(templates, str) else list(templates)
    for name in names:
        if name not in TEMPLATES:
            known = ", ".join(TEMPLATES)
            raise MeasurementError(
                f"copain.templates: there is none named {name!r}{nearest(str(name), TEMPLATES)} (known: {known})"
            )
    if not names or len(set(names)) < len(names):
        raise MeasurementError(f"copain.templates: at least one is needed, and none twice, not {templates!r}")
    if original:
        original_items(str(original), shots=max(counts), seed=0)
    return counts, names


@probe(
    "copain",
    reference="arXiv 2506.00288; https://huggingface.co/datasets/ahmedselhady/CoPain",
    light=False,
    text=True,
    check=check_copain,
)
def copain(
    context: ProbeContext,
    *,
    num_items: int = 150,
    shots: int | Sequence[int] = (3, 5),
    templates: str | Sequence[str] = ("arrow", "input_output"),
    original: str = "",
) -> ProbeResult:
    """Return, per task and as a macro mean, how often the rule is inferred from the demonstrations.

    ``exact_match``: the greedy continuation is the answer and then the end of the line. ``validity``: it is any member
    of the list. ``choice_accuracy``: the answer has the highest log-probability among the members.
    ``gold_log_probability``: the answer's, in nats. ``element_picker`` is what copying a member at random would score;
    exact match below it means that the format is lost, not only the rule. ``baseline/…`` are other rules that infer
    nothing (:func:`lingraft.measure.probes.list_item.baselines`).

    The fewest ``shots`` in the first of ``templates`` (``arrow``, ``input_output``) has the plain names; every other
    pair stands below a name of its own, as in ``5-shot-arrow/exact_match``. Shares of a task have Wilson intervals,
    macro means a stratified bootstrap's. With ``original``, a folder, the benchmark's own items are asked instead.

    Raises:
        MeasurementError: there is no item, or a number of demonstrations or a template does not exist.
    """
    counts, names = check_copain(num_items=num_items, shots=shots, templates=templates, original=original)
    forms = list(product(counts, names))
    scores: list[ProbeScore] = []
    answered: list[Answered] = []
    for number, (count, template) in enumerate(forms):
        place = "" if number == 0 else f"{count}-shot-{template}/"
        items = (
            original_items(original, shots=count, seed=context.seed)
            if original
            else {
                task: [make_item(task, n, shots=count, seed=context.seed) for n in range(num_items)] for task in TASKS
            }
        )
        asked = [
            item.question(f"{place}{task}", f"{n}", template)
            for task, of_task in items.items()
            for n, item in enumerate(of_task)
        ]
        found = context.ask([[question] for question in asked])
        told = {task: [a for a in found if a.question.task == f"{place}{task}"] for task in items}
        rules = {task: [baselines(item) for item in of_task] for task, of_task in items.items()}
        scores += _form_scores(place, told, rules)
        answered += found
    return ProbeResult.of([*scores, ProbeScore("original_items", float(bool(original)))], answered)


def _form_scores(
    place: str, told: dict[str, list[Answered]], rules: dict[str, list[dict[str, float]]]
) -> list[ProbeScore]:
    """Return the scores of all tasks in one form: macro means first, then the baselines, then task by task."""
    values = {name: {t: [a.scores[name] for a in answered] for t, answered in told.items()} for name in _SCORES}
    count = sum(map(len, told.values()))
    macro = [ProbeScore(place + name, *_macro(list(tasks.values())), count) for name, tasks in values.items()]
    heuristics = [
        ProbeScore(place + _baseline(name), _macro([[rule[name] for rule in of_task] for of_task in rules.values()])[0])
        for name in next(iter(rules.values()))[0]
    ]
    scores = []
    for name, tasks in values.items():
        for task, single in tasks.items():
            is_share = name != "gold_log_probability"
            low, high = wilson_interval(sum(single), len(single)) if is_share else macro_interval([single])
            scores.append(ProbeScore(f"{place}{task}/{name}", sum(single) / len(single), low, high, len(single)))
    return [*macro, *heuristics, *scores]


def _baseline(name: str) -> str:
    return name if name == "element_picker" else f"baseline/{name}"


def _macro(by_task: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean of the tasks' means with its interval; where no item differs, that of the share of all items."""
    mean = sum(sum(task) / len(task) for task in by_task) / len(by_task)
    if mean in (0.0, 1.0):
        count = sum(map(len, by_task))
        return mean, *wilson_interval(mean * count, count)
    low, high = macro_interval(by_task)
    return mean, min(low, mean), max(high, mean)
