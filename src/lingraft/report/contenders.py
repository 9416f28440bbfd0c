"""Run folders read as the arms of one experiment: runs that differ in their seed alone are one arm.

What must be the same wherever two arms are compared is read here too: the held-out text by its hash, the rules of
measuring, the options of probes and tasks. What is not a finished run is left out, by name and with the reason.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.errors import MeasurementError, RunFolderError
from lingraft.item_records import ItemRecord
from lingraft.limits import Limits
from lingraft.measure.comparison import Arm, ArmRun, scores_of
from lingraft.measure.tasks.conditions import read_task_records, record_path, task_conditions
from lingraft.recipe import Recipe
from lingraft.recipe_file import differing_paths
from lingraft.report.probing import prompts_looked_at
from lingraft.report.reading import RunRecord, distinct_names, read_record
from lingraft.run import Run, fingerprint, hash_file

__all__ = ["Contender", "Experiment", "read_experiment"]

_SEED = re.compile(r"[_.-]?seed[-_=]?\d+")
_NOT_THE_ARM = {"name", "seed", "track"}
_AVERAGED = ", averaged weights"


@dataclass(frozen=True)
class Contender:
    """One finished run.

    Attributes:
        name: what its folder is called, with folders above it where two are called the same.
        folder: where it lies.
        recipe: what was run.
        record: what the report reads of it.
        items: scores of single items.
        tokenizer: hash of the tokenizer that it was adapted with.
    """

    name: str
    folder: Path
    recipe: Recipe
    record: RunRecord
    items: tuple[ItemRecord, ...]
    tokenizer: str


@dataclass(frozen=True)
class Experiment:
    """Arms to compare.

    Attributes:
        source: the source language of all.
        target: the target language of all.
        arms: in the order in which their first runs were given; which weights of a run are arms says its recipe's
            ``measure.checkpoint_rule``.
        runs: arm → its runs.
        settings: recipe path → recipe, by the name of its arm of raw weights → its value, for what they do not share.
        left_out: run → why it takes no part.
        notes: what a reader must know of the runs before comparing them.
    """

    source: str
    target: str
    arms: tuple[Arm, ...]
    runs: Mapping[str, tuple[Contender, ...]]
    settings: Mapping[str, Mapping[str, str]]
    left_out: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def rules(self) -> dict[str, str]:
        """Arm → the rule, stated in its recipe, by which its weights take part."""
        return {arm.name: self.runs[arm.name][0].recipe.measure.checkpoint_rule for arm in self.arms}

    @property
    def limits(self) -> Limits:
        """What may be lost: as the recipes state it (``measure.alarm``), the strictest of each where they differ."""
        return Limits.strictest(run.recipe.measure.alarm.limits for runs in self.runs.values() for run in runs)

    def own_settings(self, arm: str) -> dict[str, str]:
        """Return recipe path → an arm's own value, for what the arms do not share."""
        recipe = arm.removesuffix(_AVERAGED)
        return {path: values[recipe] for path, values in self.settings.items()}

    @property
    def has_one_seed(self) -> bool:
        """Whether every arm is a single training run."""
        return all(len(arm.runs) == 1 for arm in self.arms)


def read_experiment(folders: Sequence[Path]) -> Experiment:
    """Return the arms that run folders make up.

    Raises:
        RunFolderError: a folder is no run folder, or is given twice; or fewer than two are finished runs.
        MeasurementError: the runs are not of the same two languages.
    """
    names = _names(folders)
    left_out: dict[str, str] = {}
    contenders = []
    for name, folder in zip(names, folders, strict=True):
        try:
            contenders.append(_read(name, folder))
        except _UnfinishedError as error:
            left_out[name] = str(error)
    if len(contenders) < 2:
        why = "".join(f"\n  {name}: {reason}" for name, reason in left_out.items())
        raise RunFolderError(f"a comparison needs two finished runs, and {len(contenders)} of these are{why}")
    _refuse_other_languages(contenders)
    grouped = _grouped(contenders)
    runs = {name: tuple(group) for name, group in grouped.items()}
    arms, whose = [], {}
    for name, group in runs.items():
        rule = group[0].recipe.measure.checkpoint_rule
        if rule != "averaged":
            arms.append(_arm(name, group, averaged=False))
            whose[name] = group
        if rule != "last" and all(any(item.averaged for item in run.items) for run in group):
            averaged = _arm(f"{name}{_AVERAGED}", group, averaged=True)
            arms.append(averaged)
            whose[averaged.name] = group
    spoken = contenders[0].recipe.languages
    notes = tuple(_notes(contenders))
    return Experiment(spoken.source, spoken.target, tuple(arms), whose, _settings(runs), left_out, notes)


class _UnfinishedError(Exception):
    """A run folder that takes no part."""


def _names(folders: Sequence[Path]) -> list[str]:
    resolved = [folder.resolve() for folder in folders]
    if again := next((folder for folder in resolved if resolved.count(folder) > 1), None):
        raise RunFolderError(f"{again} is given twice")
    return distinct_names(folders)


def _read(name: str, folder: Path) -> Contender:
    run = Run(folder)
    recipe = run.recipe
    last = recipe.stages[-1]
    if run.finished(f"stage-{len(recipe.stages)}-{last.name}") is None:
        raise _UnfinishedError(f"its last stage, {last.name}, is not done; finish it with: lingraft run")
    try:
        items = tuple(run.items())
    except MeasurementError as error:
        raise _UnfinishedError(f"its items cannot be read: {error}") from error
    if recipe.measure.checkpoint_rule == "averaged" and not any(item.averaged for item in items):
        raise _UnfinishedError("measure.checkpoint_rule is averaged, and no averaged weights were measured")
    if not items:
        path = run.path("items.jsonl")
        if path.is_file() and path.stat().st_size:
            raise _UnfinishedError("its items.jsonl holds no whole record: it is damaged")
        raise _UnfinishedError("it has no items.jsonl: it was run before items were kept, and must be run anew")
    path = run.path("vocabulary", "tokenizer.json")
    return Contender(name, folder, recipe, read_record(folder), items, hash_file(path) if path.is_file() else "")


def _refuse_other_languages(contenders: Sequence[Contender]) -> None:
    first = contenders[0].recipe.languages
    for one in contenders[1:]:
        if one.recipe.languages != first:
            spoken = one.recipe.languages
            raise MeasurementError(
                f"{one.name} goes from {spoken.source} to {spoken.target}, {contenders[0].name} from {first.source} "
                f"to {first.target}: they cannot be compared"
            )


def _grouped(contenders: Sequence[Contender]) -> dict[str, list[Contender]]:
    found: dict[str, list[Contender]] = {}
    for one in contenders:
        found.setdefault(fingerprint(one.recipe.model_dump(mode="json", exclude=_NOT_THE_ARM)), []).append(one)
    named: dict[str, list[Contender]] = {}
    for group in found.values():
        group.sort(key=lambda one: one.recipe.seed)
        seeds = [one.recipe.seed for one in group]
        if len(set(seeds)) < len(seeds):
            # The same recipe twice: not another draw of the seed, so each stands for itself.
            named |= {one.name: [one] for one in group}
        else:
            name = _SEED.sub("", group[0].name).strip("_.-") if len(group) > 1 else group[0].name
            named[name if name and name not in named else group[0].name] = group
    return named


def _arm(name: str, group: Sequence[Contender], *, averaged: bool) -> Arm:
    runs = []
    for one in group:
        final = scores_of(one.items, one.recipe.stages[-1].name, averaged=averaged)
        runs.append(ArmRun(one.recipe.seed, final, scores_of(one.items, "base")))
    changed = (f"probe/{probe}" for one in group for probe, row in prompts_looked_at(one.record) if row.value)
    return Arm(name, tuple(runs), _conditions(group[0]), frozenset(changed))


def _conditions(one: Contender) -> dict[str, dict[str, Any]]:
    """Return what must be the same: of bits per byte the text and the rules, of probes and tasks the options."""
    recipe, run = one.recipe, Run(one.folder)
    told = recipe.measure.model_dump(mode="json")
    found: dict[str, dict[str, Any]] = {}
    for language in recipe.measured_languages():
        names = [name for name in recipe.corpora if recipe.language_of(name) == language]
        markers = [run.finished(f"corpus-{name}") or {"record": {}} for name in names]
        text = fingerprint([marker["record"].get("validation_sha256") for marker in markers])
        rules = fingerprint([told["validation_bytes"], told["segment_bytes"], told.get("windows")])
        found[f"bits_per_byte/{language}"] = {
            "held-out text": text[:8],
            "rules of measuring (measure.validation_bytes, segment_bytes, windows)": rules[:8],
            "precision": recipe.precision,
        }
    changed = {probe for probe, row in prompts_looked_at(one.record) if row.value}
    for choice in recipe.measure.probes:
        label = choice.name.rpartition(":")[2]
        cut = f"as tokenizer {one.tokenizer[:8]} cuts them" if label in changed else "as the base's"
        found[f"probe/{label}"] = {
            "options of the probe": choice.label,
            "tokens of the prompts": cut,
            "precision": recipe.precision,
        }
    last = recipe.stages[-1].name
    moment = max((item.tokens for item in one.items if item.stage == last), default=0)
    return found | task_conditions(read_task_records(record_path(one.folder, last, moment)))


def _settings(runs: Mapping[str, Sequence[Contender]]) -> dict[str, dict[str, str]]:
    """Return path → arm → value for every option in which an arm's recipe is not the first arm's."""
    firsts = {name: group[0].recipe for name, group in runs.items()}
    model = next(iter(firsts.values()))
    paths = dict.fromkeys(
        line.split(": ", 1)[0] for recipe in firsts.values() for line in differing_paths(model, recipe)
    )
    told = {name: _flat(recipe.model_dump(mode="json")) for name, recipe in firsts.items()}
    return {
        # A constant mix is an option of its schedule, which nobody writes.
        path.replace(".mix.options.mix", ".mix"): {name: told[name].get(path, "–") for name in firsts}
        for path in paths
        if path.split(".")[0] not in _NOT_THE_ARM
    }


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        flat: dict[str, str] = {}
        for key, child in items:
            flat |= _flat(child, f"{path}.{key}" if path else str(key))
        return flat
    return {path: "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)}


def _notes(contenders: Sequence[Contender]) -> list[str]:
    notes = []
    for what, told in (
        ("base model", {one.name: one.recipe.base_model for one in contenders}),
        ("precision", {one.name: one.recipe.precision for one in contenders}),
        ("tokenizer", {one.name: one.tokenizer[:8] or "unknown" for one in contenders}),
        (
            "the rule of which weights are compared (measure.checkpoint_rule)",
            {one.name: one.recipe.measure.checkpoint_rule for one in contenders},
        ),
        (
            "what may be lost, of which the strictest counts here (measure.alarm.source_rise and probe_drop)",
            {one.name: _limits_in_words(one.recipe.measure.alarm.limits) for one in contenders},
        ),
        ("training tokens", {one.name: f"{one.recipe.total_tokens:,}" for one in contenders}),
    ):
        if len(set(told.values())) > 1:
            listed = ", ".join(f"{name} {_last_part(value)}" for name, value in told.items())
            notes.append(f"The runs differ in {what}: {listed}.")
    return [*notes, *_other_prompts(contenders)]


def _limits_in_words(limits: Limits) -> str:
    return f"{limits.source_rise:g} and {limits.probe_drop:g}"


def _other_prompts(contenders: Sequence[Contender]) -> Iterator[str]:
    """Say which probes' prompts the new tokenizer cuts otherwise than the base's: before and after are not the same."""
    for one in contenders:
        for probe, row in prompts_looked_at(one.record):
            if row.value:
                of = f" of {row.count:,}" if row.count else ""
                yield (
                    f"Not comparable with the base model: {one.name}'s tokenizer cuts {row.value:,.0f}{of} prompts of "
                    f"the probe {probe} otherwise than the base's."
                )


def _last_part(value: str) -> str:
    return value.rstrip("/").rsplit("/", 1)[-1]
