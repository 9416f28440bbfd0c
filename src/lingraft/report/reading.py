"""A run folder, read for the page: whatever is there, and a list of what is missing or damaged.

A run that was stopped half-way, or is still running, must give a page too; so nothing here raises because
a file is absent or broken, and every such case is written down in :attr:`RunRecord.missing`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError, MeasurementError
from lingraft.measurement import Measurement, read_measurements
from lingraft.recipe import Recipe
from lingraft.report.lenient import mapping_of, mappings_of
from lingraft.report.rows import UNTRAINED, Rows
from lingraft.run import Run, hash_file

__all__ = ["RunRecord", "distinct_names", "is_run_folder", "read_record"]

_PARTS = {
    "environment.json": "versions and machine",
    "vocabulary/expansion.json": "the new tokens",
    "vocabulary/gates.json": "the vocabulary's checks",
    "samples.jsonl": "samples before and after",
}
_STEPS = ("base", "embeddings", "bakeoff", "interpolate", "export", "export-averaged")


@dataclass(frozen=True)
class RunRecord:
    """What one run folder tells.

    Attributes:
        name: the recipe's name, else the folder's.
        recipe: the resolved recipe; None where it is missing or cannot be read.
        recipe_text: the recipe's YAML as it stands.
        rows: every measurement, in the order made.
        environment: versions and machine.
        expansion: ``vocabulary/expansion.json``.
        gates: the vocabulary's checks.
        samples: the same prompts before and after.
        corpora: the data report of each corpus, by its name.
        missing: what is not there, in words.
        steps: what some steps recorded, by their names.
        config: the configuration of the expanded model, where that was made.
        pattern: what the grown tokenizer cuts text with, where the base's pattern was changed.
        tokenizer: hash of the tokenizer that the model has after expansion; None where it is not there.
        overlap: what training text has in common with held-out text and benchmark items.
        folder: where it lies.
    """

    name: str
    recipe: Recipe | None
    recipe_text: str
    rows: tuple[Measurement, ...]
    environment: Mapping[str, Any]
    expansion: Mapping[str, Any]
    gates: tuple[Mapping[str, Any], ...]
    samples: tuple[Mapping[str, Any], ...]
    corpora: Mapping[str, Mapping[str, Any]]
    missing: tuple[str, ...]
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    pattern: str | None = None
    tokenizer: str | None = None
    overlap: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def growth(self) -> Mapping[str, Any]:
        """How the vocabulary came about: ``record`` of ``expansion.json``."""
        return mapping_of(self.expansion.get("record"))

    @property
    def is_patched(self) -> bool:
        """Whether the base's pattern was changed."""
        return mapping_of(self.growth.get("pre_tokenizer")).get("patched") is True

    @property
    def embeddings(self) -> Mapping[str, Any]:
        """What the embeddings step recorded: rows by origin, methods, whether the head is tied."""
        return self.steps.get("embeddings", {})

    @property
    def bakeoff(self) -> Mapping[str, Any]:
        """What the bake-off recorded: ``chosen`` and ``tastings``; nothing where there was none."""
        return self.steps.get("bakeoff", {})

    @property
    def init_methods(self) -> str | None:
        """The init methods that filled the new rows; None where that is not recorded."""
        label = self.embeddings.get("methods")
        return label if isinstance(label, str) and label else None

    @property
    def source(self) -> str | None:
        """The language that must not be forgotten, where the recipe could be read."""
        return self.recipe.languages.source if self.recipe else None

    @property
    def target(self) -> str | None:
        """The language that was to be learned, where the recipe could be read."""
        return self.recipe.languages.target if self.recipe else None

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages with bits per byte: target, source, then others in the order measured."""
        known = [code for code in (self.target, self.source) if code]
        measured = [r.language for r in self.rows if r.name == "bits_per_byte" and r.language]
        return tuple(code for code in dict.fromkeys(known + measured) if code in measured)

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the training stages: the recipe's, else those seen in the measurements."""
        if self.recipe:
            return tuple(stage.name for stage in self.recipe.stages)
        return tuple(dict.fromkeys(row.stage for row in self.rows if row.stage not in UNTRAINED))


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return what runs are called beside each other: their folders' names, with folders above where two are alike."""
    resolved = [folder.resolve() for folder in folders]
    names = [folder.name for folder in resolved]
    for depth in range(2, max((len(folder.parts) for folder in resolved), default=0) + 1):
        names = [
            name if names.count(name) == 1 else "/".join(folder.parts[-depth:]).replace("//", "/")
            for name, folder in zip(names, resolved, strict=True)
        ]
    return names


def is_run_folder(folder: Path) -> bool:
    """Return whether a run was begun there."""
    return any((folder / name).is_file() for name in ("recipe.yaml", "measurements.jsonl"))


def read_record(folder: Path) -> RunRecord:
    """Return what a run folder tells; absent and damaged files are listed in ``missing``, never raised."""
    missing: list[str] = []
    recipe, text = _read_recipe(folder, missing)
    rows = Rows(_read_rows(folder / "measurements.jsonl", missing))
    environment, expansion, gates, samples = (_read_part(folder, part, missing) for part in _PARTS)
    corpora = _read_corpora(folder / "corpora", missing)
    steps = {name: mapping_of(_read_optional(folder, f"steps/{name}.json", missing).get("record")) for name in _STEPS}
    record = RunRecord(
        name=recipe.name if recipe else folder.resolve().name,
        recipe=recipe,
        recipe_text=text,
        rows=rows,
        environment=mapping_of(environment),
        expansion=mapping_of(expansion),
        gates=mappings_of(gates),
        samples=mappings_of(samples),
        corpora=corpora,
        missing=(),
        steps=steps,
        config=_read_optional(folder, "embeddings/model/config.json", missing),
        overlap=_read_optional(folder, "corpora/overlap.json", missing),
        folder=folder,
    )
    # The tokenizer is a large file, and only a changed pattern needs to be told.
    pattern = _pattern_of(_read_optional(folder, "vocabulary/tokenizer.json", missing)) if record.is_patched else None
    return replace(
        record, missing=tuple(missing), pattern=pattern, tokenizer=_hash_of(folder / "vocabulary/tokenizer.json")
    )


def _hash_of(path: Path) -> str | None:
    return hash_file(path) if path.is_file() else None


def _read_recipe(folder: Path, missing: list[str]) -> tuple[Recipe | None, str]:
    path = folder / "recipe.yaml"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    try:
        return Run(folder).recipe, text
    except (LingraftError, UnicodeDecodeError) as error:
        # A page may be shown to anybody: not where the run lies on this machine.
        reason = (
            str(error).splitlines()[0].replace(f"{path}:", "line ", 1).replace(f"{path}", "it") if text else "not there"
        )
        missing.append(f"recipe.yaml: {reason}. Which language is the target is not known without it.")
        return None, text


def _read_rows(path: Path, missing: list[str]) -> tuple[Measurement, ...]:
    """Keep every row up to the first damaged line; rows without a finite number are left out and counted."""
    rows: list[Measurement] = []
    if not path.is_file():
        missing.append("measurements.jsonl: not there. Nothing has been measured yet.")
        return ()
    try:
        for row in read_measurements(path):
            rows.append(row)
    except MeasurementError:
        missing.append(f"measurements.jsonl: damaged after {len(rows)} rows; the rows before are shown.")
    sound = tuple(row for row in rows if _is_sound(row))
    if len(sound) < len(rows):
        missing.append(f"measurements.jsonl: {len(rows) - len(sound)} rows hold no finite number and are left out.")
    return sound


def _is_sound(row: Measurement) -> bool:
    numbers = (row.value, row.tokens, *(n for n in (row.low, row.high) if n is not None))
    return all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)


def _read_part(folder: Path, part: str, missing: list[str]) -> Any:
    path = folder / part
    if not path.is_file():
        missing.append(f"{part} ({_PARTS[part]}): not there.")
        return None
    return _read_json(path, part, missing)


def _read_json(path: Path, part: str, missing: list[str]) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        # Not splitlines(): samples may hold U+2028 and its kin.
        return [json.loads(line) for line in text.split("\n") if line] if path.suffix == ".jsonl" else json.loads(text)
    except (ValueError, RecursionError, OSError) as error:
        missing.append(f"{part}: damaged ({type(error).__name__}).")
        return None


def _read_optional(folder: Path, part: str, missing: list[str]) -> Mapping[str, Any]:
    """Read what not every run has: its absence is nothing to report, damage is."""
    path = folder / part
    return mapping_of(_read_json(path, part, missing)) if path.is_file() else {}


def _pattern_of(tokenizer: Mapping[str, Any]) -> str | None:
    """Return the regular expressions of a pre-tokenizer, in order; None where it has none."""
    waiting, found = [mapping_of(tokenizer.get("pre_tokenizer"))], []
    while waiting:
        part = waiting.pop()
        waiting += reversed(mappings_of(part.get("pretokenizers")))
        expression = mapping_of(part.get("pattern")).get("Regex")
        found += [expression] if isinstance(expression, str) else []
    return " then ".join(found) or None


def _read_corpora(folder: Path, missing: list[str]) -> dict[str, Mapping[str, Any]]:
    reports = sorted(folder.glob("*/report.json"))
    if not reports:
        missing.append("corpora/*/report.json (data reports): not there.")
    return {path.parent.name: mapping_of(_read_json(path, f"corpora/{path.parent.name}", missing)) for path in reports}
