"""Measures one model at one moment: the same texts, items and rules for the base model and for every later one."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.batching import first_bytes
from lingraft.embeddings import ids_in_scripts, norm_report
from lingraft.errors import MeasurementError, ModelError
from lingraft.item_records import ItemRecord
from lingraft.measure.bits_per_byte import (
    BitsPerByte,
    EvaluationText,
    choose_documents,
    measure_bits_per_byte,
    segments,
    split_lossless,
)
from lingraft.measure.mass import probability_mass
from lingraft.measure.probes import ProbeContext
from lingraft.measure.scoring import Scorer
from lingraft.measure.statistics import bootstrap_ratio
from lingraft.measurement import Measurement
from lingraft.model.base import is_tied
from lingraft.model.freeze import other_rows, row_index
from lingraft.pipeline.downstream import Downstream
from lingraft.pipeline.drifting import DriftWatch, shift_rows
from lingraft.pipeline.generating import GenerationCheck
from lingraft.pipeline.prepare import Prepared, texts_of
from lingraft.pipeline.probing import BaseAnswers, bind_probes, comparability_rows, difference_rows, run_probes
from lingraft.pipeline.progress import Progress, Silent
from lingraft.pipeline.task_plan import WINDOW
from lingraft.pipeline.text_rows import bits_items, bits_rows, dead_mass_rows, full_window_row, secondary_rows
from lingraft.recipe import Recipe
from lingraft.run import Run, read_own, write_file
from lingraft.vocabulary import TokenizerFile, VocabularyExpansion, dominant_scripts

__all__ = ["BASE_STATES", "Evaluator"]

BASE_STATES = "base_states.safetensors"

_MASS_SEGMENTS = 8
# An untrained model is a little above chance; one whose matrix and tokenizer do not fit is far above.
_WORSE_THAN_CHANCE = 1.1


@dataclass
class Evaluator:
    """Everything that a run's measurements share.

    Attributes:
        run: where rows go.
        recipe: what to measure.
        base: the base model's tokens.
        expansion: both tokenizers.
        progress: who is told.
    """

    run: Run
    recipe: Recipe
    base: Prepared
    expansion: VocabularyExpansion
    progress: Progress

    def __post_init__(self) -> None:
        self._probes = bind_probes(self.recipe)
        self._texts = {code: self._held_out(code) for code in self.recipe.measured_languages()}
        self._answers: BaseAnswers | None = None
        self._downstream = Downstream(self.run, self.recipe, self.base.documents.end, self.progress)

    def _held_out(self, language: str) -> EvaluationText:
        texts = choose_documents(
            texts_of(self.run, self.recipe, language, "validation"), self.recipe.measure.validation_bytes
        )
        kept = split_lossless(texts, [self.expansion.old, self.expansion.new])
        if not kept.documents:
            raise MeasurementError(
                f"none of {len(texts)} held-out documents in {language!r} comes back from the tokenizer as it was "
                f"({kept.lossy} are changed by it, {kept.empty} are empty), so bits per byte cannot be measured"
            )
        return kept

    def _scorer(self, model: nn.Module, tokenizer: TokenizerFile) -> Scorer:
        return Scorer(
            model,
            num_ids=tokenizer.num_ids,
            condition_id=self.base.documents.condition,
            window=WINDOW,
            batch_size=self.recipe.measure.batch_size,
            dtype=torch.bfloat16 if self.recipe.precision == "bf16" else torch.float32,
        )

    def _write(self, rows: list[Measurement], items: Iterable[ItemRecord] = ()) -> None:
        self.run.record_items(items)
        self.run.measure(rows)
        self.progress.measured(rows)

    def measure_base(self, model: nn.Module) -> dict[str, Any]:
        """Measure the untouched base model; the bits of each document are kept, for paired differences later."""
        self.run.forget_measurements_of("base")
        self._answers = None
        scorer = self._scorer(model, self.expansion.old)
        self.progress.part("bits per byte")
        bits = {code: self._bits(scorer, self.expansion.old, code) for code in self._texts}
        self._drift().keep_base(model, self._texts[self.recipe.languages.source].documents)
        write_file(self.run.path("base_bits.json"), json.dumps({code: b.document_bits for code, b in bits.items()}))
        rows = [row for code, b in bits.items() for row in bits_rows("base", 0, code, b, self._texts[code])]
        rows += self._text_rows(scorer, self.expansion.old, "base", 0, bits)
        self.progress.part("probes")
        rows += self._probe_rows(scorer, self.expansion.old, "base", 0, heavy=True)
        self.progress.part("what the model writes")
        rows += self._generation().rows(model, self.expansion.old, (), "base", 0)
        asked, items = self._downstream.measure(scorer, self.expansion.old, "base", 0, in_full=True)
        self._write([*rows, *asked], [*self._text_items("base", 0, bits), *items])
        return {code: b.value for code, b in bits.items()}

    def measure_expanded(self, model: nn.Module) -> dict[str, Any]:
        """Measure the expanded model before training.

        Raises:
            ModelError: the source language has become worse than ``embeddings.max_source_rise`` allows, new ids get
            more
                than ``embeddings.max_source_mass`` of it, or a language is predicted worse than by chance.
        """
        self.run.forget_measurements_of("expanded")
        scorer = self._scorer(model, self.expansion.new)
        self.progress.part("bits per byte, light probes, new rows")
        bits = self._all_bits(scorer)
        rows = self._bits_rows("expanded", 0, bits)
        rows += self._probe_rows(scorer, self.expansion.new, "expanded", 0, heavy=False)
        rows += comparability_rows(self._probes, self.expansion)
        rows += self._new_row_rows(model)
        rows += self._dead_rows(scorer, self.expansion.new, "expanded", 0)
        rows += self._downstream.measure(scorer, self.expansion.new, "expanded", 0, in_full=False)[0]
        self._write(rows, self._text_items("expanded", 0, bits))
        self._refuse_spoiled_source(rows)
        self._refuse_worse_than_chance(rows)
        return {f"{row.name} {row.language or ''}".strip(): row.value for row in rows}

    def measure_stage(
        self, model: nn.Module, stage: str, tokens: int, start: Path, *, heavy: bool, averaged: bool = False
    ) -> list[Measurement]:
        """Measure a model during or at the end of a stage; the shift is counted from the weights in ``start``.

        Rows about averaged weights, which the model holds for the moment, are named ``averaged/…``.
        """
        began = time.perf_counter()
        scorer = self._scorer(model, self.expansion.new)
        # In the middle of a stage a measurement is short, and its result says that it was made.
        tell = self.progress.part if heavy else Silent().part
        tell("bits per byte of the averaged weights" if averaged else "bits per byte")
        bits = self._all_bits(scorer)
        rows = self._bits_rows(stage, tokens, bits)
        if heavy:
            rows += self._text_rows(scorer, self.expansion.new, stage, tokens, bits)
        tell("probes")
        rows += self._probe_rows(scorer, self.expansion.new, stage, tokens, heavy=heavy, averaged=averaged)
        if self.recipe.measure.parameter_shift:
            rows += shift_rows(model, stage, tokens, start, self.expansion)
        if heavy:
            tell("drift from the base model")
            rows += self._drift().rows(model, stage, tokens, start)
            tell("what the model writes")
            rows += self._generation().rows(model, self.expansion.new, self.expansion.new_ids, stage, tokens)
        in_full = self._downstream.is_due(stage, at_stage_end=heavy)
        asked, items = self._downstream.measure(
            scorer, self.expansion.new, stage, tokens, in_full=in_full, averaged=averaged
        )
        rows += asked
        rows.append(Measurement(stage, tokens, "seconds/measuring", time.perf_counter() - began))
        rows = [replace(row, name=f"averaged/{row.name}") for row in rows] if averaged else rows
        self._write(rows, [*self._text_items(stage, tokens, bits, averaged=averaged), *items])
        return rows

    def watch_stage(self, model: nn.Module, stage: str, tokens: int, start: Path) -> list[Measurement]:
        """Measure no more than the alarm on forgetting asks for: light probes, source text, and the shift."""
        began = time.perf_counter()
        scorer, source = self._scorer(model, self.expansion.new), self.recipe.languages.source
        bits = {source: self._bits(scorer, self.expansion.new, source)}
        rows = self._bits_rows(stage, tokens, bits)
        rows += self._probe_rows(scorer, self.expansion.new, stage, tokens, heavy=False)
        if self.recipe.measure.parameter_shift:
            rows += shift_rows(model, stage, tokens, start, self.expansion)
        rows.append(Measurement(stage, tokens, "seconds/measuring", time.perf_counter() - began))
        self._write(rows, self._text_items(stage, tokens, bits))
        return rows

    def bits_of(self, model: nn.Module, language: str, max_bytes: int) -> float:
        """Return a model's bits per byte of the first held-out documents of a language, with the expanded tokenizer."""
        documents = list(first_bytes(self._texts[language].documents, max_bytes))
        model.eval()
        return self._bits(self._scorer(model, self.expansion.new), self.expansion.new, language, documents).value

    def _bits(
        self,
        scorer: Scorer,
        tokenizer: TokenizerFile,
        language: str,
        documents: Sequence[str] | None = None,
        *,
        whole: bool = False,
    ) -> BitsPerByte:
        """Return bits per byte of documents, by default all, cut alike for both tokenizers or not cut at all."""
        windows = self.recipe.measure.windows
        return measure_bits_per_byte(
            scorer,
            tokenizer,
            self._texts[language].documents if documents is None else documents,
            segment_bytes=None if whole else self.recipe.measure.segment_bytes,
            others=[self.expansion.old, self.expansion.new],
            stride=max(1, round(windows.stride * (scorer.window - 1))),
            disjoint=windows.mode == "disjoint",
            end_id=self.base.documents.end if windows.with_end else None,
            watched=self.expansion.new_ids if tokenizer is self.expansion.new else (),
        )

    def _all_bits(self, scorer: Scorer) -> dict[str, BitsPerByte]:
        return {code: self._bits(scorer, self.expansion.new, code) for code in self._texts}

    def _bits_rows(self, stage: str, tokens: int, bits: dict[str, BitsPerByte]) -> list[Measurement]:
        """Return the rows of every language, with the change since the base."""
        before = read_own(self.run.path("base_bits.json"))
        rows: list[Measurement] = []
        for code, found in bits.items():
            rows += bits_rows(stage, tokens, code, found, self._texts[code])
            rows.append(self._difference(stage, tokens, code, found, before[code]))
        return rows

    def _text_rows(
        self, scorer: Scorer, tokenizer: TokenizerFile, stage: str, tokens: int, bits: dict[str, BitsPerByte]
    ) -> Iterator[Measurement]:
        """Yield what is told beside bits per byte where there is time for it: at the base and at stage ends."""
        for code, found in bits.items():
            yield from secondary_rows(stage, tokens, code, found, self.expansion.old, self.expansion.new)
            if self.recipe.measure.windows.full:
                yield full_window_row(stage, tokens, code, self._bits(scorer, tokenizer, code, whole=True))
        yield from self._dead_rows(scorer, tokenizer, stage, tokens)

    def _dead_rows(self, scorer: Scorer, tokenizer: TokenizerFile, stage: str, tokens: int) -> Iterator[Measurement]:
        source = self.recipe.languages.source
        return dead_mass_rows(scorer, tokenizer, stage, tokens, source, self._texts[source].documents)

    def _text_items(
        self, stage: str, tokens: int, bits: dict[str, BitsPerByte], *, averaged: bool = False
    ) -> Iterator[ItemRecord]:
        for code, found in bits.items():
            yield from bits_items(stage, tokens, code, found, self._texts[code].documents, averaged=averaged)

    def _difference(
        self, stage: str, tokens: int, language: str, bits: BitsPerByte, before: list[float]
    ) -> Measurement:
        """Return after minus base, with the interval of the paired difference over documents."""
        sizes = [len(text.encode()) for text in self._texts[language].documents]
        changes = [after - then for after, then in zip(bits.document_bits, before, strict=True)]
        low, high = bootstrap_ratio(changes, sizes)
        name, value = "bits_per_byte/difference", sum(changes) / sum(sizes)
        return Measurement(stage, tokens, name, value, language, low, high, len(sizes))

    def _probe_rows(
        self,
        scorer: Scorer,
        tokenizer: TokenizerFile,
        stage: str,
        tokens: int,
        *,
        heavy: bool,
        averaged: bool = False,
    ) -> list[Measurement]:
        """Return the rows of the probes; what they say of single items is recorded at once."""
        context = ProbeContext(scorer, tokenizer, frozenset(self._shared_ids()))
        rows, records = run_probes(self._probes, context, stage, tokens, heavy=heavy, averaged=averaged)
        if stage != "base":
            rows += list(difference_rows(rows, records, self._base_answers(), self.recipe.measure.alarm.probe))
        self.run.record_items(records)
        return rows

    def _base_answers(self) -> BaseAnswers:
        """Return what the base answered to the probes, read once; nothing where records are damaged, which is said."""
        if self._answers is None:
            try:
                self._answers = BaseAnswers.of(self.run)
            except MeasurementError as error:
                self._answers = BaseAnswers({}, {})
                self.progress.note(f"probes are not held against the base item by item: {error}")
        return self._answers

    def _shared_ids(self) -> tuple[int, ...]:
        """Return the ids of the old tokenizer that no new token took, ascending."""
        return other_rows(self.expansion.new_ids, self.expansion.num_old)

    def _drift(self) -> DriftWatch:
        """Return what asks the base model and every later one on the same tokens."""
        return DriftWatch(
            self.recipe.measure.drift,
            self.run.path(BASE_STATES),
            self.expansion,
            self.base.documents.condition,
            self.recipe.measure.batch_size,
            self.recipe.languages.source,
        )

    def _generation(self) -> GenerationCheck:
        """Return what asks every model for the same continuations."""
        measure, languages = self.recipe.measure, self.recipe.languages
        texts = self._texts[languages.target].documents
        return GenerationCheck(measure.generation, languages, self.base.documents, texts, measure.batch_size)

    def _new_row_rows(self, model: nn.Module) -> list[Measurement]:
        """Return what the new rows do to source text before training, and how long they are beside the old ones."""
        new_ids, num_ids = self.expansion.new_ids, self.expansion.new.num_ids
        if not new_ids:
            return []
        source = self.recipe.languages.source
        pieces = [p for text in self._texts[source].documents for p in segments(text, 512)][:_MASS_SEGMENTS]
        sequences = self.expansion.new.encode_batch(pieces)
        condition = self.base.documents.condition
        mass = probability_mass(model, sequences, condition_id=condition, ids=new_ids, num_ids=num_ids)
        measured = [Measurement("expanded", 0, "new_token_mass", mass, source)]
        return measured + list(self._norm_rows(model))

    def _norm_rows(self, model: nn.Module) -> Iterator[Measurement]:
        """Yield the median lengths of old rows, of those of the target's scripts, and of new rows, of each matrix."""
        given: Any = model
        expansion = self.expansion
        scripts = dominant_scripts(token.text(expansion.new) for token in expansion.new_tokens)
        shared = self._shared_ids()
        own = set(ids_in_scripts(expansion.old, scripts))
        places = [place for place, token_id in enumerate(shared) if token_id in own]
        sides = {"input": given.get_input_embeddings().weight}
        if not is_tied(model):
            sides["output"] = given.get_output_embeddings().weight
        for side, weight in sides.items():
            matrix = weight.detach().float().cpu()
            report = norm_report(matrix[row_index(shared)], matrix[row_index(expansion.new_ids)], places)
            for kind, norms in (("old", report.old), ("script", report.script), ("new", report.new)):
                if norms is not None:
                    yield Measurement("expanded", 0, f"norm/{side}/{kind}", norms.median, count=norms.count)

    def _refuse_spoiled_source(self, rows: list[Measurement]) -> None:
        source, limit = self.recipe.languages.source, self.recipe.embeddings.max_source_rise
        for row in rows:
            if row.name == "bits_per_byte/difference" and row.language == source and row.value > limit:
                raise ModelError(
                    f"embeddings.input: right after filling the new rows {source} text costs {row.value:+.3f} bits per "
                    f"byte more than with the base model; at most {limit:+.3f} is allowed (embeddings.max_source_rise)."
                    " New rows that are too long take probability everywhere: try subword_mean"
                )
        mass = next((row.value for row in rows if row.name == "new_token_mass"), 0.0)
        if mass > (limit := self.recipe.embeddings.max_source_mass):
            raise ModelError(
                f"embeddings.input: right after filling the new rows they get {mass:.1%} of the probability on "
                f"{source} text; at most {limit:.1%} is allowed (embeddings.max_source_mass). New rows that are "
                "too long, or a head that favours them, speak everywhere: try subword_mean"
            )

    def _refuse_worse_than_chance(self, rows: list[Measurement]) -> None:
        """Raise where the model predicts a language worse than one that gives every token the same probability."""
        chance = math.log(self.expansion.new.num_ids)
        when, or_else = "before any training", ""
        if self.expansion.num_new:
            when, or_else = "right after filling the new rows", ", or the new rows are far too long (embeddings.input)"
        for row in rows:
            if row.name == "nats_per_token" and row.value > _WORSE_THAN_CHANCE * chance:
                raise ModelError(
                    f"{when} {row.language} text costs {row.value:.2f} nats per token, more than ln(vocabulary) = "
                    f"{chance:.2f}, which guessing among all tokens costs: weights and tokenizer do not belong "
                    f"together{or_else}"
                )
