"""Arms of an experiment side by side, item by item: what each changed from the base, and how two of them differ.

An arm is what one recipe gives, by one training run or by several that differ in their seed alone. Two arms are
compared in what both were asked under the same conditions; where that does not hold, the comparison is refused with its
reason.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lingraft.errors import MeasurementError
from lingraft.item_records import ItemRecord
from lingraft.measure.paired import (
    Estimate,
    McNemar,
    arm_mean,
    holm,
    macro_mean,
    mcnemar,
    paired_difference,
    smallest_detectable,
)

__all__ = [
    "BITS",
    "Arm",
    "ArmRun",
    "Level",
    "Match",
    "Quantity",
    "Refused",
    "Scores",
    "change_from_base",
    "level_of",
    "match",
    "matches",
    "quantities_of",
    "refuse_incomparable",
    "scores_of",
]

BITS = "bits_per_byte"
# A probe is judged by the first of its items' scores that is one of these; a task by the first of these that it has.
_HEADLINES = ("exact_match", "choice_accuracy", "accuracy", "acc", "acc_norm")

_DEPTH = 2

Scores = Mapping[tuple[str, str | None], Mapping[str, ItemRecord]]


@dataclass(frozen=True)
class Quantity:
    """What is compared: the bits per byte of a language, or the macro mean of a probe's or task's score.

    Attributes:
        name: ``bits_per_byte``, or the first two parts of the records' names, as ``probe/copain`` or ``task/xnli_eu``.
        score: which score of the items.
        language: the language it is about, if it is about one.
    """

    name: str
    score: str
    language: str | None = None

    @property
    def is_bits(self) -> bool:
        """Whether it is bits per byte: bits over bytes, and fewer are better."""
        return self.name == BITS

    @property
    def is_probe(self) -> bool:
        """Whether it is a probe of in-context learning."""
        return self.name.startswith("probe/")

    @property
    def label(self) -> str:
        """The quantity in a few words: ``bits per byte, eu`` or ``probe/copain, exact match``."""
        score = "" if self.is_bits else f", {self.score.replace('_', ' ')}"
        language = f", {self.language}" if self.language else ""
        return f"{self.name.replace('_', ' ') if self.is_bits else self.name}{score}{language}"


@dataclass(frozen=True)
class ArmRun:
    """The items of one training run: at its end, and of the base model that it began with."""

    seed: int
    final: Scores
    base: Scores


@dataclass(frozen=True)
class Arm:
    """One recipe's runs.

    Attributes:
        name: how it is called.
        runs: its training runs, in the order of their seeds.
        conditions: quantity (its name, and its language where there is one, with a slash between) → what must be the
            same wherever it is compared → its value here, as ``{"bits_per_byte/eu": {"held-out text": "9f86d0…"}}``.
        other_prompts: probes, as ``probe/copain``, whose prompts are other tokens to it than to its base, so that
            before and after are not the same question.
    """

    name: str
    runs: tuple[ArmRun, ...]
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    other_prompts: frozenset[str] = frozenset()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.seed for run in self.runs)


@dataclass(frozen=True)
class Level:
    """A quantity itself: of the base model, and of an arm at its end (the mean over its runs)."""

    before: float
    after: float


@dataclass(frozen=True)
class Match:
    """How one arm differs from another in one quantity, on the same items.

    Attributes:
        quantity: in what.
        first: the arm that is subtracted.
        second: the arm it is subtracted from.
        difference: second minus first.
        counts: McNemar's test, where an arm is one run and items are right or wrong.
        p: two-sided p: McNemar's where there is one and all tasks have as many items, else that of the resampling.
        adjusted: p by Holm over everything of its kind that was compared at once: what a choice rests on, or all else.
        detectable: the smallest true difference that the test behind ``p`` would have found in 8 of 10 tries.
        is_decisive: whether a choice among arms rests on it.
    """

    quantity: Quantity
    first: str
    second: str
    difference: Estimate
    counts: McNemar | None
    p: float
    adjusted: float
    detectable: float
    is_decisive: bool = False

    @property
    def pair(self) -> tuple[Quantity, frozenset[str]]:
        """What is compared in what, whichever arm is subtracted."""
        return self.quantity, frozenset((self.first, self.second))

    @property
    def is_told(self) -> bool:
        """Whether the data tell the two apart: at 5 %, all comparisons made at once taken together."""
        return self.adjusted < 0.05

    @property
    def is_better(self) -> bool:
        """Whether the second has the better number, told apart or not."""
        return self.difference.value < 0 if self.quantity.is_bits else self.difference.value > 0


@dataclass(frozen=True)
class Refused:
    """A comparison that is not made, and why."""

    quantity: Quantity
    first: str
    second: str
    reason: str


def scores_of(
    records: Iterable[ItemRecord], stage: str, *, tokens: int | None = None, averaged: bool = False
) -> Scores:
    """Return name and language → item → record, of one moment; without those that stand beside a number.

    Args:
        records: of a run.
        stage: whose records.
        tokens: at which moment; the stage's last by default.
        averaged: the averaged weights' instead of the raw ones'.
    """
    chosen = [record for record in records if record.stage == stage and record.averaged == averaged]
    moment = max((record.tokens for record in chosen), default=0) if tokens is None else tokens
    found: dict[tuple[str, str | None], dict[str, ItemRecord]] = {}
    for record in chosen:
        if record.tokens == moment and not record.beside:
            found.setdefault((record.name, record.language), {})[record.item] = record
    return found


def quantities_of(arms: Sequence[Arm]) -> tuple[Quantity, ...]:
    """Return what any arm was asked: bits per byte first, of every probe or task its headline score."""
    found: dict[tuple[str, str | None], Quantity] = {}
    asked = [item for arm in arms for run in arm.runs for item in run.final.items() if item[1]]
    for (name, language), items in asked:
        group = _group_of(name)
        score = "bits" if group == BITS else _headline(next(iter(items.values())))
        # Bits per byte by another rule are told beside it, not compared.
        if score and not group.startswith(f"{BITS}/"):
            found.setdefault((group, language), Quantity(group, score, language))
    return tuple(sorted(found.values(), key=lambda one: (not one.is_bits, not one.is_probe)))


def _group_of(name: str) -> str:
    return "/".join(name.split("/")[:2])


def _headline(record: ItemRecord) -> str:
    known = [score for score in record.scores if score in _HEADLINES]
    if not record.name.startswith("probe/"):
        known.sort(key=_HEADLINES.index)
    return next(iter(known or record.scores), "")


@dataclass(frozen=True)
class _Column:
    """One run's numbers of a quantity; two columns can be subtracted where ``items`` and ``denominators`` agree."""

    items: tuple[tuple[str, str], ...]
    numerators: tuple[float, ...]
    denominators: tuple[float, ...]
    clusters: tuple[str | None, ...]

    @property
    def strata(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.items)


def _column(scores: Scores, quantity: Quantity) -> _Column:
    records = [
        record
        for (name, language), items in scores.items()
        if _group_of(name) == quantity.name and language == quantity.language
        for record in items.values()
        if quantity.score in record.scores
    ]
    # A probe's other forms (more demonstrations, another template) ask the same questions again: they are no new items.
    records = [record for record in records if record.name.count("/") <= _DEPTH] or records
    records.sort(key=lambda record: (record.name, record.item))
    return _Column(
        items=tuple((record.name, record.item) for record in records),
        numerators=tuple(record.scores[quantity.score] for record in records),
        denominators=tuple(record.scores["bytes"] if quantity.is_bits else 1.0 for record in records),
        clusters=tuple(record.cluster for record in records),
    )


def change_from_base(arm: Arm, quantity: Quantity) -> Estimate:
    """Return what an arm changed: itself minus the base model that it began with, on the same items.

    Raises:
        MeasurementError: the base was not asked, or was asked other items.
    """
    changes, columns = [], []
    for run in arm.runs:
        after, before = _column(run.final, quantity), _column(run.base, quantity)
        if not before.items:
            raise MeasurementError(f"{quantity.label}: the base model was not asked")
        _refuse_other_items(after, before, f"{arm.name}'s base model")
        changes.append([a - b for a, b in zip(after.numerators, before.numerators, strict=True)])
        columns.append(after)
    for other in columns[1:]:
        _refuse_other_items(columns[0], other, f"another run of {arm.name}")
    first = columns[0]
    return arm_mean(changes, first.denominators, strata=first.strata, clusters=first.clusters)


def level_of(arm: Arm, quantity: Quantity) -> Level:
    """Return a quantity of the base model and of an arm: what :func:`change_from_base` is the difference of.

    Raises:
        MeasurementError: one of them was not asked.
    """
    means = []
    for side in ([run.base for run in arm.runs], [run.final for run in arm.runs]):
        columns = [_column(scores, quantity) for scores in side]
        if not all(one.items for one in columns):
            raise MeasurementError(f"{quantity.label}: {arm.name} or its base model was not asked")
        first = columns[0]
        means.append(macro_mean([one.numerators for one in columns], first.denominators, strata=first.strata))
    return Level(*means)


def refuse_incomparable(first: Arm, second: Arm, quantity: Quantity) -> None:
    """Raise a MeasurementError with the reason where two arms cannot be compared in a quantity."""
    _sides(first, second, quantity)


def _sides(first: Arm, second: Arm, quantity: Quantity) -> list[list[_Column]]:
    _refuse_other_conditions(first, second, quantity)
    sides = [[_column(run.final, quantity) for run in arm.runs] for arm in (first, second)]
    for arm, side in zip((first, second), sides, strict=True):
        if not all(column.items for column in side):
            raise MeasurementError(f"{arm.name} was not asked")
    for arm, side in zip((first, second), sides, strict=True):
        for column in side:
            _refuse_other_items(sides[0][0], column, arm.name)
    return sides


def match(first: Arm, second: Arm, quantity: Quantity) -> Match:
    """Return how two arms differ in a quantity; its p stands alone (:func:`matches` adjusts several).

    Raises:
        MeasurementError: they cannot be compared in it: it was measured under other conditions, or on other items.
    """
    sides = _sides(first, second, quantity)
    model = sides[0][0]
    numerators = [[column.numerators for column in side] for side in sides]
    difference = paired_difference(
        numerators[0],
        numerators[1],
        model.denominators,
        strata=model.strata,
        clusters=model.clusters,
        seeds_match=first.seeds == second.seeds,
    )
    counts = _counts(numerators, quantity) if not any(model.clusters) else None
    p, detectable = difference.p, difference.detectable
    # Over tasks of different sizes, items counted together are not the macro mean.
    if counts and len(set(Counter(model.strata).values())) == 1:
        p = counts.p
        if counts.gained + counts.lost:
            detectable = smallest_detectable(counts.discordance, counts.count)
    return Match(quantity, first.name, second.name, difference, counts, p, p, detectable)


def _counts(numerators: Sequence[Sequence[Sequence[float]]], quantity: Quantity) -> McNemar | None:
    """Return McNemar's test where either side is one run and every item is right or wrong."""
    if quantity.is_bits or any(len(side) > 1 for side in numerators):
        return None
    first, second = numerators[0][0], numerators[1][0]
    return mcnemar(first, second) if {*first, *second} <= {0, 1} else None


def _refuse_other_conditions(first: Arm, second: Arm, quantity: Quantity) -> None:
    key = quantity.name if quantity.language is None else f"{quantity.name}/{quantity.language}"
    one, other = first.conditions.get(key, {}), second.conditions.get(key, {})
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            raise MeasurementError(f"other {name} ({first.name}: {one.get(name)}, {second.name}: {other.get(name)})")


def _refuse_other_items(one: _Column, other: _Column, name: str) -> None:
    if one.items != other.items:
        alone = len(set(one.items) ^ set(other.items))
        raise MeasurementError(
            f"other items: {len(one.items)} here and {len(other.items)} of {name}; {alone} are on one side only"
        )
    if one.denominators != other.denominators:
        sizes = zip(one.items, one.denominators, other.denominators, strict=True)
        item = next(item for (_, item), size, its in sizes if size != its)
        raise MeasurementError(f"other texts: {item} has another number of bytes in {name}")


def matches(
    arms: Sequence[Arm],
    references: Sequence[str],
    quantities: Sequence[Quantity],
    *,
    decisive: Collection[Match] = (),
) -> tuple[tuple[Match, ...], tuple[Refused, ...]]:
    """Return every other arm minus each reference in each quantity, and what is refused.

    p is adjusted over all of them that are not ``decisive``. Two references are held against each other once, under
    the first.

    Args:
        arms: all of them.
        references: names of the arms that are subtracted.
        quantities: in what arms are compared.
        decisive: what a choice rests on. The same differences keep the p that was adjusted there, so that nothing is
            called told apart in one place and not in another.

    Raises:
        MeasurementError: no arm has the name of a reference.
    """
    named = {arm.name: arm for arm in arms}
    if unknown := [name for name in references if name not in named]:
        raise MeasurementError(f"no arm is named {unknown[0]!r} (arms: {', '.join(named)})")
    made: list[Match] = []
    refused: list[Refused] = []
    for first, second, quantity in _pairs(arms, [named[name] for name in references], quantities):
        try:
            made.append(match(first, second, quantity))
        except MeasurementError as error:
            refused.append(Refused(quantity, first.name, second.name, str(error)))
    settled = {one.pair: one.adjusted for one in decisive}
    others = [one for one in made if one.pair not in settled]
    adjusted = settled | {one.pair: p for one, p in zip(others, holm([one.p for one in others]), strict=True)}
    found = (replace(one, adjusted=adjusted[one.pair], is_decisive=one.pair in settled) for one in made)
    return tuple(found), tuple(refused)


def _pairs(
    arms: Sequence[Arm], references: Sequence[Arm], quantities: Sequence[Quantity]
) -> Iterator[tuple[Arm, Arm, Quantity]]:
    for number, first in enumerate(references):
        others = [arm for arm in arms if arm is not first and arm not in references[:number]]
        yield from ((first, second, quantity) for quantity in quantities for second in others)
