"""Runs the stages of a recipe, each from the weights that the one before left."""

import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lingraft.corpus import TokenStore
from lingraft.corpus.loader import SequenceLoader
from lingraft.errors import RecipeError, RunFolderError
from lingraft.measurement import Measurement
from lingraft.model.base import head_of, load_model
from lingraft.model.export import save_model
from lingraft.model.freeze import choose_trainable, inserted_blocks, weights_digest
from lingraft.pipeline.alarming import ForgettingWatch, share_of
from lingraft.pipeline.companions import SourceReader, average_makers, guard_makers
from lingraft.pipeline.drawn_tokens import drawn_stores
from lingraft.pipeline.measuring import Evaluator
from lingraft.pipeline.outline import peak_resident
from lingraft.pipeline.parallel import language_shares
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.ranks import Leader, whole_model
from lingraft.pipeline.rates import optimizer_options, stage_rates
from lingraft.pipeline.settings import checkpoint_steps, measure_steps, stage_mix, watch_steps
from lingraft.pipeline.slicing import SlicedTraining
from lingraft.pipeline.stopping import Stopper
from lingraft.polling import poll
from lingraft.recipe import Recipe, Stage
from lingraft.recipe_stage import MEMORY, SAVING
from lingraft.run import Run, fingerprint, hash_file, publish_file, publish_folder
from lingraft.training.acceleration import naming_memory
from lingraft.training.distributed import ALONE, write_tensors
from lingraft.training.spikes import AlarmRules
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan
from lingraft.training.step_report import StepReport

__all__ = [
    "StageRunner",
    "choose_device",
    "refuse_changed_weights",
    "stage_folder",
    "stage_plan",
]

_CARRIED = "optimizer.safetensors"
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def choose_device(recipe: Recipe) -> torch.device:
    """Return the device that a recipe asks for; ``auto`` is a GPU where there is one.

    Raises:
        RecipeError: ``cuda`` is asked for and there is none.
    """
    has_gpu = torch.cuda.is_available()
    if recipe.device == "cuda" and not has_gpu:
        raise RecipeError("device: cuda is asked for and torch sees no GPU (auto takes one where there is one)")
    return torch.device("cuda" if has_gpu and recipe.device != "cpu" else "cpu")


def stage_folder(run: Run, index: int, stage: Stage) -> Path:
    """Return the folder of a stage, as in ``stages/1-embeddings-only``."""
    return run.path("stages", f"{index + 1}-{stage.name}")


@dataclass
class StageRunner:
    """What the stages of one run share.

    Attributes:
        run: the run folder.
        recipe: its recipe.
        stores: corpus → tokens.
        evaluator: measures.
        expanded: the folder of the expanded model: where the first stage starts and what the shift is counted from.
        stopper: asked after every step.
        progress: who is told.
        leader: calls other ranks to each stage, if there are any.
    """

    run: Run
    recipe: Recipe
    stores: dict[str, TokenStore]
    evaluator: Evaluator
    expanded: Path
    stopper: Stopper
    progress: Progress
    leader: Leader = field(default_factory=lambda: Leader(ALONE))

    @cached_property
    def language_shares(self) -> dict[str, dict[str, float]]:
        """Corpus → language → share of its tokens."""
        return language_shares(self.run, self.recipe, self.evaluator.expansion.new)

    def train(self, index: int) -> dict[str, Any]:
        """Run a stage to its end, or skip it if it is done; return its record.

        Raises:
            InterruptedRunError: a stop was asked for; a checkpoint was made.
        """
        stage = self.recipe.stages[index]
        inputs = self._fingerprints(index)
        folders = ["model", "model-averaged"] if stage.ema and stage.ema.is_beside else ["model"]
        makes = [stage_folder(self.run, index, stage) / folder / "config.json" for folder in folders]
        return self.run.step(f"stage-{index + 1}-{stage.name}", inputs, lambda: self._watched(index), makes)

    @cached_property
    def _watch(self) -> ForgettingWatch:
        return ForgettingWatch(self.run, self.recipe, self.progress)

    def _watched(self, index: int) -> dict[str, Any]:
        stage = self.recipe.stages[index]
        with self._watch.during(), naming_memory(f"stage {stage.name!r}", stage.batch.micro_batch):
            return self._train(index)

    def _start(self, index: int) -> Path:
        return (
            self.expanded if index == 0 else stage_folder(self.run, index - 1, self.recipe.stages[index - 1]) / "model"
        )

    def _record_before(self, index: int) -> dict[str, Any]:
        """Return what the step recorded whose weights a stage starts from."""
        name = "embeddings" if index == 0 else f"stage-{index}-{self.recipe.stages[index - 1].name}"
        return dict((self.run.finished(name) or {"record": {}})["record"])

    def _start_digest(self, index: int) -> Any:
        return self._record_before(index).get("weights_sha256")

    def _carries(self, index: int) -> bool:
        """Whether a stage goes on from the moments of the one before; the stage behind the last does not."""
        return index < len(self.recipe.stages) and self.recipe.stages[index].optimizer.start == "carry"

    def _carried(self, index: int) -> dict[str, torch.Tensor]:
        """Return the moments that the stage before left for this one.

        Raises:
            RunFolderError: they are not what was written.
        """
        if not self._carries(index):
            return {}
        folder = stage_folder(self.run, index - 1, self.recipe.stages[index - 1])
        path = folder / _CARRIED
        if not path.exists() or hash_file(path, poll) != self._record_before(index).get("optimizer_sha256"):
            raise RunFolderError(
                f"{path}: the moments are not those that were written there; delete {folder}, and the same command "
                "makes them again"
            )
        return load_file(path)

    def _keep_optimizer(self, index: int, state: dict[str, torch.Tensor]) -> None:
        """Write what the next stage goes on from, if it does."""
        path = stage_folder(self.run, index, self.recipe.stages[index]) / _CARRIED
        if self._carries(index + 1):
            alone = self.leader.ranks.count == 1
            whole = {name: tensor.contiguous() for name, tensor in state.items()} if alone else {}
            publish_file(path, lambda to: save_file(whole, to) if alone else write_tensors(to, state))

    def _fingerprints(self, index: int) -> dict[str, str]:
        stage, recipe = self.recipe.stages[index], self.recipe
        rates = asdict(stage_rates(recipe, index))
        settings = [
            stage.model_dump(mode="json", exclude={"mix", "batch", *SAVING}),
            stage.batch.model_dump(mode="json", exclude=MEMORY),
            rates,
            recipe.seed,
            recipe.precision,
            recipe.compile,
            recipe.measure.at,
        ]
        read = stage.mix.corpora()
        if stage.guards:
            read |= {name for name in self.stores if recipe.language_of(name) == recipe.languages.source}
        data = {name: store.manifest.corpus_sha256 for name, store in self.stores.items() if name in read}
        return {
            "recipe": fingerprint(settings),
            "mix": fingerprint(stage.mix.model_dump(mode="json")),
            "memory": fingerprint(stage.batch.model_dump(mode="json", include=MEMORY)),
            "tokenizer": self.evaluator.expansion.new.sha256,
            "start": str(self._start_digest(index)),
            "carried": str(self._record_before(index).get("optimizer_sha256")) if self._carries(index) else "",
            "data": fingerprint([data, self.evaluator.base.documents.start, self.evaluator.base.documents.end]),
        }

    @property
    def _accepted(self) -> frozenset[str]:
        """What a checkpoint may differ in: another mix may take in corpora that no stage had read."""
        return self.run.accepted | ({"data"} if "mix" in self.run.accepted else frozenset())

    def _stores(self, index: int) -> dict[str, TokenStore]:
        """Return the tokens that a stage reads: the plain ones, or with merges left out."""
        if (dropout := self.recipe.stages[index].bpe_dropout) is None:
            return self.stores
        base, expansion = self.evaluator.base, self.evaluator.expansion
        return drawn_stores(self.run, self.recipe, base, expansion, self.stores, dropout, self.progress)

    def _loader(self, index: int) -> SequenceLoader:
        """Return a stage's batches: each corpus goes on where the stages before have stopped reading."""
        return self._loader_and_read(index)[0]

    @property
    def _sizes(self) -> dict[str, int]:
        return {name: store.num_tokens for name, store in self.stores.items()}

    def _loader_and_read(self, index: int) -> tuple[SequenceLoader, dict[str, int]]:
        """Return a stage's batches, and corpus → tokens that the stages before it have read."""
        consumed: dict[str, int] = {}
        before: dict[str, int] = {}
        loader = None
        for number, stage in enumerate(self.recipe.stages[: index + 1]):
            before = dict(consumed)
            loader = SequenceLoader(
                self._stores(number),
                stage_mix(self.recipe, number, self._sizes),
                sequences=stage.batch.sequences,
                sequence_length=stage.batch.sequence_length,
                seed=self.recipe.seed,
                consumed=consumed,
            )
            marker = self.run.finished(f"stage-{number + 1}-{stage.name}") or {"record": {}}
            # Where the mix or the data changed within a stage, only its record knows how far each corpus was read.
            consumed |= marker["record"].get("cursors") or loader.consumed(stage.num_steps)
        assert loader is not None
        return loader, before

    def _order(self, index: int) -> dict[str, Any]:
        """Return what other ranks need to know to train a stage along, as plain values."""
        new, carries = self.evaluator.expansion.new, self._carries(index)
        before = stage_folder(self.run, index - 1, self.recipe.stages[index - 1]) if carries else None
        stores = {
            name: [str(store.folder.resolve()), store.manifest.tokenizer_sha256, store.manifest.corpus_sha256]
            for name, store in self._stores(index).items()
        }
        return {
            "recipe": fingerprint(self.recipe.model_dump(mode="json")),
            "index": index,
            "start": str(self._start(index).resolve()),
            "digest": self._start_digest(index),
            "new_ids": list(self.evaluator.expansion.new_ids),
            "num_ids": new.num_ids,
            "blocks": list(inserted_blocks(self.expanded)),
            "stores": stores,
            "sizes": self._sizes,
            "consumed": self._loader_and_read(index)[1],
            "checkpoints": str((stage_folder(self.run, index, self.recipe.stages[index]) / "checkpoints").resolve()),
            "fingerprints": self._fingerprints(index),
            "accept": sorted(self._accepted),
            "carried": str((before / _CARRIED).resolve()) if before else None,
            "keeps_moments": self._carries(index + 1),
        }

    def _train(self, index: int) -> dict[str, Any]:
        stage, run = self.recipe.stages[index], self.run
        expansion = self.evaluator.expansion
        self.progress.phase(f"stage {stage.name}")
        began = time.perf_counter()
        model = load_model(self._start(index))
        refuse_changed_weights(model, self._start_digest(index), self._start(index))
        ranks, device = self.leader.ranks, choose_device(self.recipe)
        # Where it is divided, each part goes to its device by itself.
        model = model.to(device) if ranks.count == 1 else model
        blocks, num_ids = inserted_blocks(self.expanded), expansion.new.num_ids
        trainable = choose_trainable(model, stage.trains, expansion.new_ids, num_ids, blocks=blocks)
        folder = stage_folder(run, index, stage)
        if not any((folder / "checkpoints").glob("step-*")) and not any((folder / "checkpoints").glob("slice-*")):
            run.forget_measurements_of(stage.name)
        averaged: dict[str, str] = {}

        def current() -> nn.Module:
            made = whole_model(model, trainable.names, self._start(index), ranks)
            assert made is not None
            return made

        def finish_averaged() -> None:
            made = current()
            self._keep(made, folder / "model-averaged")
            averaged["averaged_sha256"] = weights_digest(made)

        callbacks = self._callbacks(index, current)
        callbacks.finish_averaged = finish_averaged
        loader, head = self._loader(index), head_of(model, num_ids)
        if stage.slices:
            still = SlicedTraining(
                spec=stage.slices,
                model=model,
                head=head,
                trainable=trainable,
                loader=loader,
                plan_of=lambda turn: self._plan(index, folder, device, turn),
                folder=folder / "checkpoints",
                fingerprints=self._fingerprints(index),
                callbacks=callbacks,
                forget_after=lambda step: self._forget_after(index, step),
                accept=self._accepted & {"memory"},
            ).run()
            trained = model
        else:
            plan, prints, carried = self._plan(index, folder, device), self._fingerprints(index), self._carried(index)
            with self.leader.calling(self._order(index) if self.leader.is_heard else {}):
                # The others have come as far as this: model, data and options are there.
                ranks.together(lambda: None)
                still = train_stage(
                    model,
                    head,
                    trainable,
                    loader,
                    plan,
                    folder / "checkpoints",
                    prints,
                    callbacks,
                    carried=carried,
                    accept=self._accepted,
                    ranks=ranks,
                )
                trained = current()

        self._keep(trained, folder / "model")
        for name in ("checkpoints", "guards"):
            shutil.rmtree(folder / name, ignore_errors=True)
        seconds = time.perf_counter() - began
        tokens = self._tokens_before(index + 1)
        run.measure(
            [
                Measurement(stage.name, tokens, "seconds/stage", seconds),
                Measurement(stage.name, tokens, "peak_memory_bytes", peak_resident()),
            ]
        )
        record = {"weights_sha256": weights_digest(trained), "frozen_pieces": still, "seconds": round(seconds, 1)}
        if self._carries(index + 1):
            record["optimizer_sha256"] = hash_file(folder / _CARRIED)
        return record | averaged | {"cursors": loader.consumed(stage.num_steps)}

    def _forget_after(self, index: int, step: int) -> None:
        stage = self.recipe.stages[index]
        self.run.forget_measurements_after(stage.name, self._tokens_before(index) + step * stage.batch.tokens)

    def _plan(self, index: int, folder: Path, device: torch.device, turn: int = 0) -> StagePlan:
        """Return the numbers of a stage with its guards before its average: an average is of what they let happen."""
        recipe, stage = self.recipe, self.recipe.stages[index]
        plan = stage_plan(recipe, index)
        spoken = {n: store for n, store in self.stores.items() if recipe.language_of(n) == recipe.languages.source}
        key = fingerprint([{what: of for what, of in self._fingerprints(index).items() if what != "memory"}, turn])
        source = SourceReader(spoken, stage.batch.sequence_length, folder / "guards", key, device).text()
        return replace(plan, companions=(*guard_makers(recipe, index, source), *plan.companions))

    def _keep(self, model: torch.nn.Module, folder: Path) -> None:
        expansion, base_folder = self.evaluator.expansion, self.evaluator.base.base_folder

        def fill(to: Path) -> None:
            changed, blocks = expansion.num_new > 0, inserted_blocks(self.expanded)
            save_model(model, to, tokenizer=expansion.new, base_folder=base_folder, changed=changed, blocks=blocks)

        publish_folder(folder, fill)

    def _tokens_before(self, index: int) -> int:
        return sum(stage.num_steps * stage.batch.tokens for stage in self.recipe.stages[:index])

    def _callbacks(self, index: int, current: Callable[[], nn.Module]) -> StageCallbacks:
        stage, run = self.recipe.stages[index], self.run
        before, per_step = self._tokens_before(index), stage.batch.tokens
        clock = _Clock()
        self.progress.stage(stage.name, stage.num_steps, per_step, 0)

        def on_step(report: StepReport) -> None:
            seconds = clock.lap()
            run.measure(self._step_rows(stage, before + report.step * per_step, report, seconds))
            self.progress.step(report.step, dict(report.losses), report.learning_rate, report.tokens / seconds)

        def measure(step: int) -> None:
            self._measure(current(), index, step)
            clock.lap()

        def measure_averaged(step: int) -> None:
            self._measure(current(), index, step, averaged=True)
            clock.lap()

        def load_state(state: Any) -> None:
            run.forget_measurements_after(stage.name, before + int(state["step"]) * per_step)
            self._watch.open()
            self.progress.stage(stage.name, stage.num_steps, per_step, int(state["step"]))
            self.progress.note(f"stage {stage.name} goes on after step {state['step']} of {stage.num_steps}")

        return StageCallbacks(
            on_step=on_step,
            measure=measure,
            measure_averaged=measure_averaged,
            should_stop=lambda: self.stopper.requested or self._watch.due is not None,
            load_state=load_state,
            finish_optimizer=lambda state: self._keep_optimizer(index, state),
            on_note=self.progress.note,
        )

    def _measure(self, model: torch.nn.Module, index: int, step: int, *, averaged: bool = False) -> None:
        stage = self.recipe.stages[index]
        tokens, heavy = self._tokens_before(index) + step * stage.batch.tokens, step == stage.num_steps
        if step in watch_steps(self.recipe, stage):
            rows = [] if averaged else self.evaluator.watch_stage(model, stage.name, tokens, self.expanded)
        else:
            measure = self.evaluator.measure_stage
            rows = measure(model, stage.name, tokens, self.expanded, heavy=heavy, averaged=averaged)
        if not averaged:
            read = stage_mix(self.recipe, index, self._sizes).totals
            self._watch.judge(rows, index, share_of(self.recipe.languages.source, read, self.language_shares))

    def _step_rows(self, stage: Stage, tokens: int, report: StepReport, seconds: float) -> list[Measurement]:
        rows = [
            Measurement(stage.name, tokens, "learning_rate", report.learning_rate),
            Measurement(stage.name, tokens, "tokens_per_second", report.tokens / seconds),
            Measurement(stage.name, tokens, "labels", float(sum(report.counts.values()))),
        ]
        if math.isfinite(report.gradient_norm):
            rows.append(Measurement(stage.name, tokens, "gradient_norm", report.gradient_norm))
        if report.alarm:
            rows.append(Measurement(stage.name, tokens, f"alarm/{report.alarm.kind}", 1.0))
        for corpus, loss in report.losses.items():
            rows.append(
                Measurement(
                    stage.name, tokens, "loss", loss, self.recipe.language_of(corpus), count=report.counts[corpus]
                )
            )
        for corpus, read in report.read.items():
            rows.append(Measurement(stage.name, tokens, "share", read / report.tokens, corpus))
        rows += [
            Measurement(stage.name, tokens, "language_share", share, language)
            for language, share in _by_language(report, self.language_shares).items()
        ]
        return rows


def _by_language(report: StepReport, shares: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return language → share of a step's tokens, where some of them are of parallel text; else the corpora tell it."""
    found: dict[str, float] = {}
    for corpus, read in report.read.items() if any(len(parts) > 1 for parts in shares.values()) else ():
        for language, part in shares[corpus].items():
            found[language] = found.get(language, 0.0) + part * read / report.tokens
    return found


def stage_plan(recipe: Recipe, index: int) -> StagePlan:
    """Return the numbers of a stage, as the training room takes them."""
    stage, rates = recipe.stages[index], stage_rates(recipe, index)
    chosen = stage.optimizer
    return StagePlan(
        name=stage.name,
        seed=recipe.seed,
        num_steps=stage.num_steps,
        micro_batch=stage.batch.micro_batch,
        dtype=_DTYPES[recipe.precision],
        peak_rate=rates.peak,
        warmup_steps=rates.warmup_steps,
        floor=rates.floor,
        schedule=rates.schedule,
        schedule_options=rates.options,
        table_factor=rates.table_factor,
        optimizer=chosen.name,
        optimizer_options=optimizer_options(stage),
        weight_decay=chosen.weight_decay,
        clip=chosen.clip,
        isolate=stage.batch.isolate,
        compile=recipe.compile,
        checkpoint_activations=stage.batch.checkpoint_activations,
        z_loss=stage.z_loss,
        extra_heads=stage.extra_heads,
        alarms=AlarmRules(**stage.alarms.model_dump()),
        companions=average_makers(stage),
        checkpoint_at=checkpoint_steps(stage),
        saves_beside=stage.saves_beside,
        measure_at=measure_steps(recipe, stage) | watch_steps(recipe, stage),
    )


def refuse_changed_weights(model: torch.nn.Module, recorded: str | None, folder: Path) -> None:
    """Raise a RunFolderError when weights that an earlier step wrote are not what it recorded."""
    if recorded and weights_digest(model, poll) != recorded:
        raise RunFolderError(
            f"{folder}: the weights are not those that were written there; delete the folder, and the same command "
            "makes them again"
        )


class _Clock:
    """Seconds since the last lap."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return max(passed, 1e-9)
