"""Runs a recipe's probes: numbers as rows, items as records, and whether both tokenizers read the prompts alike."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingraft.corpus import source_fingerprint
from lingraft.errors import MeasurementError, RecipeError
from lingraft.item_records import ItemRecord
from lingraft.measure.comparison import Arm, ArmRun, Quantity, Scores, change_from_base, quantities_of, scores_of
from lingraft.measure.probes import ProbeContext, ProbeResult, probes, questions_of
from lingraft.measurement import Measurement, prompts_gate
from lingraft.recipe import Choice, Recipe
from lingraft.registry import Entry
from lingraft.run import Run
from lingraft.vocabulary import TokenizerFile, VocabularyExpansion

__all__ = [
    "BaseAnswers",
    "BoundProbe",
    "bind_probes",
    "comparability_rows",
    "difference_rows",
    "probe_files",
    "probe_texts",
    "run_probes",
]


@dataclass(frozen=True)
class BoundProbe:
    """A probe of a recipe: its name, whether it also runs during training, whether it asks in text, and itself."""

    name: str
    light: bool
    text: bool
    function: Callable[[ProbeContext], ProbeResult]


def bind_probes(recipe: Recipe) -> list[BoundProbe]:
    """Return the probes of a recipe with their options filled in.

    Raises:
        RecipeError: a name or an option is unknown, or an option has a value that means nothing.
    """
    bound = []
    for index, choice in enumerate(recipe.measure.probes):
        where = f"measure.probes.{index}"
        entry = probes.get(choice.name, where)
        light, text = bool(entry.marks.get("light", True)), bool(entry.marks.get("text", False))
        function = entry.bind(choice.options, where)
        _check(entry, choice, where)
        bound.append(BoundProbe(_label(choice), light, text, function))
    return bound


def _check(entry: Entry, choice: Choice, where: str) -> None:
    """Let a probe look at its options before any model is there."""
    check = entry.marks.get("check")
    if check is not None:
        defaults = {name: option.default for name, option in entry.options().items()}
        try:
            check(**(defaults | dict(choice.options)))
        except MeasurementError as error:
            raise RecipeError(f"{where}: {error}") from error


def probe_files(recipe: Recipe) -> dict[str, str]:
    """Return what the files hold that probes read, probe by probe: results depend on it."""
    found = {}
    for index, choice in enumerate(recipe.measure.probes):
        if folder := choice.options.get("original"):
            found[f"{index}"] = source_fingerprint(sorted(Path(str(folder)).glob("*/test.jsonl")))
    return found


def _label(choice: Choice) -> str:
    return choice.name.rpartition(":")[2]


def run_probes(
    bound: Sequence[BoundProbe], context: ProbeContext, stage: str, tokens: int, *, heavy: bool, averaged: bool = False
) -> tuple[list[Measurement], list[ItemRecord]]:
    """Return the rows ``probe/NAME/SCORE`` and the records of single items; heavy probes run if ``heavy``."""
    rows: list[Measurement] = []
    records: list[ItemRecord] = []
    for probe in bound:
        if probe.light or heavy:
            result = probe.function(context)
            for score in result.scores:
                name = f"probe/{probe.name}/{score.name}"
                rows.append(Measurement(stage, tokens, name, score.value, None, score.low, score.high, score.count))
            for item in result.items:
                name = f"probe/{probe.name}/{item.task}".rstrip("/")
                record = ItemRecord(stage, tokens, name, item.item, item.scores, averaged=averaged, beside=item.beside)
                records.append(record)
    return rows, records


@dataclass(frozen=True)
class BaseAnswers:
    """What the base model answered: score by score of the probes, and item by item.

    Attributes:
        scores: row's name → value.
        items: as :func:`lingraft.measure.comparison.scores_of` returns them.
    """

    scores: Mapping[str, float]
    items: Scores

    @classmethod
    def of(cls, run: Run) -> "BaseAnswers":
        """Return those on record in a run.

        Raises:
            MeasurementError: a record is damaged.
        """
        scores = {row.name: row.value for row in run.measurements() if row.stage == "base"}
        return cls(scores, scores_of(run.items(), "base"))


def difference_rows(
    rows: Sequence[Measurement], records: Sequence[ItemRecord], base: BaseAnswers, watched: str | None = None
) -> Iterator[Measurement]:
    """Yield ``probe/NAME/SCORE/difference``: a score minus the base's on the same items, with the paired interval.

    Of every probe its headline score, and the one that is ``watched`` (``NAME/SCORE``). None where the base was asked
    other items, or where the score is not the mean of its items'.

    Args:
        rows: of one moment, as :func:`run_probes` returns them.
        records: of the same moment.
        base: what the base answered.
        watched: what the alarm looks at.
    """
    if not rows or not records:
        return
    stage, averaged = records[0].stage, records[0].averaged
    arm = Arm("now", (ArmRun(0, scores_of(records, stage, averaged=averaged), base.items),))
    probe, _, score = (watched or "").rpartition("/")
    asked = dict.fromkeys((*quantities_of([arm]), *([Quantity(f"probe/{probe}", score)] if probe else [])))
    for quantity in asked:
        name = f"{quantity.name}/{quantity.score}"
        now = next((row for row in rows if row.name == name), None)
        if now is None or name not in base.scores:
            continue
        try:
            change = change_from_base(arm, quantity)
        except MeasurementError:
            continue
        if math.isclose(change.value, now.value - base.scores[name], abs_tol=1e-9):
            told = (change.value, None, change.low, change.high, change.items)
            yield Measurement(now.stage, now.tokens, f"{name}/difference", *told)


def probe_texts(bound: Sequence[BoundProbe]) -> list[str]:
    """Return every prompt of the text probes with its answer behind it, as a model reads it, each once.

    Raises:
        MeasurementError: a probe's options are wrong.
    """
    asked = (question for probe in bound if probe.text for question in questions_of(probe.function))
    return list(dict.fromkeys(f"{question.prompt}{question.answer}\n" for question in asked))


def comparability_rows(bound: Sequence[BoundProbe], expansion: VocabularyExpansion) -> Iterator[Measurement]:
    """Yield whether the probes' prompts are the same tokens to the base and to the expanded tokenizer.

    Where ``probe/NAME/prompts_tokenised_differently`` is above zero, the two models were not asked the same, and scores
    before and after must not be compared; the two rows beside it are how many tokens the prompts have.
    """
    for probe in bound:
        if not probe.text:
            continue
        texts = probe_texts([probe])
        before, after = (_spelled(tokenizer, texts) for tokenizer in (expansion.old, expansion.new))
        differing = sum(one != other for one, other in zip(before, after, strict=True))
        place = f"probe/{probe.name}/prompts"
        yield Measurement("expanded", 0, prompts_gate(probe.name), differing, count=len(texts))
        yield Measurement("expanded", 0, f"{place}_tokens_base", sum(map(len, before)), count=len(texts))
        yield Measurement("expanded", 0, f"{place}_tokens_adapted", sum(map(len, after)), count=len(texts))


def _spelled(tokenizer: TokenizerFile, texts: Sequence[str]) -> list[list[str]]:
    """Return texts as spelled tokens: an id may have moved, and its token is the same all the same."""
    spelling = {token_id: token for token, token_id in tokenizer.vocabulary.items()}
    return [[spelling[token_id] for token_id in ids] for ids in tokenizer.encode_batch(texts)]
