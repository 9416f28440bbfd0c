"""The bake-off: each init method gets the same short run, and what it has learned by then decides.

The loss right after filling the rows does not predict which method is best; a short run does (arXiv 2608.03494).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lingraft.corpus import TokenStore
from lingraft.corpus.loader import SequenceLoader
from lingraft.errors import InterruptedRunError, LingraftError, ModelError
from lingraft.measurement import Measurement
from lingraft.model.base import head_of
from lingraft.model.freeze import choose_trainable
from lingraft.pipeline.initialising import fingerprint_of_files, initialise
from lingraft.pipeline.measuring import Evaluator
from lingraft.pipeline.prepare import Prepared
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.settings import stage_mix
from lingraft.pipeline.stopping import Stopper
from lingraft.pipeline.training import choose_device, stage_plan
from lingraft.recipe import InitPair, Recipe
from lingraft.recipe_stage import SAVING
from lingraft.run import Run, fingerprint
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks
from lingraft.vocabulary import VocabularyExpansion

__all__ = ["Tasting", "choose_init", "tastings"]

_MEASURED_BYTES = 50_000
_POINTS = (0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Tasting:
    """What came of one candidate: bits per byte of target and source at each step that was measured.

    ``failure`` says why a candidate could not be tried, and then there are no figures.
    """

    label: str
    target: Mapping[int, float]
    source: Mapping[int, float]
    failure: str | None = None

    @property
    def last(self) -> float:
        """Target bits per byte after the last step; infinite for what failed."""
        return self.target[max(self.target)] if self.target else float("inf")


@dataclass(frozen=True)
class _Kitchen:
    """What every candidate shares."""

    run: Run
    recipe: Recipe
    base: Prepared
    expansion: VocabularyExpansion
    stores: Mapping[str, TokenStore]
    evaluator: Evaluator
    stopper: Stopper
    progress: Progress


def choose_init(
    run: Run,
    recipe: Recipe,
    base: Prepared,
    expansion: VocabularyExpansion,
    stores: Mapping[str, TokenStore],
    evaluator: Evaluator,
    stopper: Stopper,
    progress: Progress,
) -> InitPair:
    """Return the init methods of the recipe, or with ``embeddings.choose`` those that win the bake-off.

    A single candidate is not tried, since nothing can come of it.

    Raises:
        ModelError: no candidate could be tried.
        InterruptedRunError: a stop was asked for; the candidates that were tried are kept.
    """
    candidates = recipe.embeddings.candidates
    if not recipe.embeddings.choose or not expansion.num_new:
        return candidates[0]
    if len(candidates) == 1:
        progress.note(f"embeddings.choose names one candidate: {candidates[0].label} fills the rows, nothing is tried")
        return candidates[0]
    kitchen = _Kitchen(run, recipe, base, expansion, stores, evaluator, stopper, progress)
    found = [_tasted(kitchen, pair) for pair in candidates]
    if all(tasting.failure for tasting in found):
        reasons = "; ".join(f"{tasting.label}: {tasting.failure}" for tasting in found)
        raise ModelError(f"embeddings.choose: no candidate could be tried ({reasons})")
    order = sorted(range(len(found)), key=lambda n: found[n].last)
    best = order[0]
    run.forget_measurements_of("bakeoff")
    run.measure([row for tasting in found for row in _rows(recipe, tasting)])
    record = {"chosen": found[best].label, "tastings": [_as_dict(tasting) for tasting in found]}
    run.step("bakeoff", {"record": fingerprint(record)}, lambda: record)
    told = ", ".join(f"{found[n].label} {found[n].last:.4f}" for n in order if not found[n].failure)
    progress.note(f"bake-off, target bits per byte: {told}; {found[best].label} fills the rows")
    return candidates[best]


def tastings(record: Mapping[str, Any]) -> list[Tasting]:
    """Return the tastings that the record of the bake-off step holds."""
    return [_from_dict(stored) for stored in record["tastings"]]


def _tasted(kitchen: _Kitchen, pair: InitPair) -> Tasting:
    """Try one candidate, once for its inputs."""
    kitchen.stopper.check("the bake-off")
    recipe = kitchen.recipe
    name = f"bakeoff-{fingerprint(pair.model_dump(mode='json'))[:12]}"
    inputs = {
        "pair": pair.model_dump(mode="json"),
        "files": fingerprint_of_files(pair),
        "stage": recipe.stages[0].model_dump(mode="json", exclude=SAVING),
        "steps": recipe.embeddings.choose_steps,
        "calibrate": recipe.embeddings.calibrate,
        "blocks": recipe.blocks.model_dump(mode="json") if recipe.blocks else None,
        "seed": recipe.seed,
        "precision": recipe.precision,
        "weights": kitchen.base.base_sha256,
        "tokenizer": kitchen.expansion.new.sha256,
        "data": {corpus: store.manifest.corpus_sha256 for corpus, store in kitchen.stores.items()},
    }
    return _from_dict(kitchen.run.step(name, inputs, lambda: _as_dict(_tried(kitchen, pair))))


def _tried(kitchen: _Kitchen, pair: InitPair) -> Tasting:
    """Taste a candidate; one that cannot make rows, or that training tears apart, has failed and the others go on."""
    try:
        return _taste(kitchen, pair)
    except InterruptedRunError:
        raise
    except LingraftError as error:
        return Tasting(pair.label, {}, {}, str(error))


def _taste(kitchen: _Kitchen, pair: InitPair) -> Tasting:
    kitchen.progress.phase(f"bake-off: {pair.label}")
    recipe, expansion = kitchen.recipe, kitchen.expansion
    made = initialise(kitchen.run, recipe, kitchen.base, expansion, pair)
    model = made.model.to(choose_device(recipe))
    stage, steps = recipe.stages[0], recipe.embeddings.choose_steps
    target: dict[int, float] = {}
    source: dict[int, float] = {}

    def measure(step: int) -> None:
        for values, language in ((target, recipe.languages.target), (source, recipe.languages.source)):
            values[step] = kitchen.evaluator.bits_of(model, language, _MEASURED_BYTES)

    measure(0)
    plan = replace(
        stage_plan(recipe, 0),
        name=f"bakeoff/{pair.label}",
        num_steps=steps,
        warmup_steps=max(1, steps // 10),
        checkpoint_at=frozenset(),
        refuse_bad_start=False,
        measure_at=frozenset(max(1, round(point * steps)) for point in _POINTS),
    )
    mix = stage_mix(recipe, 0, {name: store.num_tokens for name, store in kitchen.stores.items()})
    batch = stage.batch
    loader = SequenceLoader(
        kitchen.stores, mix, sequences=batch.sequences, sequence_length=batch.sequence_length, seed=recipe.seed
    )
    trainable = choose_trainable(model, stage.trains, expansion.new_ids, expansion.new.num_ids, blocks=made.blocks)
    callbacks = StageCallbacks(
        on_step=lambda _report: None,
        measure=measure,
        should_stop=lambda: kitchen.stopper.requested,
        load_state=lambda _state: None,
        on_note=kitchen.progress.note,
    )
    with TemporaryDirectory() as folder:
        train_stage(model, head_of(model, expansion.new.num_ids), trainable, loader, plan, Path(folder), {}, callbacks)
    return Tasting(pair.label, target, source)


def _as_dict(tasting: Tasting) -> dict[str, Any]:
    return {
        "label": tasting.label,
        "target": {str(step): value for step, value in tasting.target.items()},
        "source": {str(step): value for step, value in tasting.source.items()},
        "failure": tasting.failure,
    }


def _from_dict(stored: Mapping[str, Any]) -> Tasting:
    target, source = ({int(step): value for step, value in stored[side].items()} for side in ("target", "source"))
    return Tasting(stored["label"], target, source, stored["failure"])


def _rows(recipe: Recipe, tasting: Tasting) -> Sequence[Measurement]:
    per_step = recipe.stages[0].batch.tokens
    return [
        Measurement("bakeoff", step * per_step, f"bits_per_byte/{tasting.label}", value, language)
        for values, language in ((tasting.target, recipe.languages.target), (tasting.source, recipe.languages.source))
        for step, value in values.items()
    ]
