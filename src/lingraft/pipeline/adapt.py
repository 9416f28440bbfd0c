"""The method, from beginning to end. Read this first."""

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from lingraft.errors import RecipeError, RunFolderError, nearest
from lingraft.measure.generation import beginning
from lingraft.measure.tasks.conditions import record_path
from lingraft.model.base import load_model
from lingraft.model.export import export_model
from lingraft.model.freeze import inserted_blocks
from lingraft.model.generate import continue_text
from lingraft.model.locate import locate_tokenizer
from lingraft.model.preflight import refuse_untrained_rows
from lingraft.pipeline.bakeoff import choose_init
from lingraft.pipeline.data import prepare_corpora
from lingraft.pipeline.expanding import prepare_vocabulary
from lingraft.pipeline.following import follow
from lingraft.pipeline.initialising import prepare_embeddings
from lingraft.pipeline.interpolating import interpolation_step
from lingraft.pipeline.measuring import BASE_STATES, Evaluator
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.prepare import Prepared, prepare_base, prepare_stores, texts_of
from lingraft.pipeline.probing import bind_probes, probe_files
from lingraft.pipeline.progress import Progress, Silent
from lingraft.pipeline.ranks import Leader, refuse_undivided
from lingraft.pipeline.stopping import Stopper
from lingraft.pipeline.task_plan import tasks_digest
from lingraft.pipeline.tracking import tracked
from lingraft.pipeline.trainable_plan import refuse_untrainable_stages
from lingraft.pipeline.training import (
    StageRunner,
    choose_device,
    refuse_changed_weights,
    stage_folder,
)
from lingraft.recipe import Interpolation, Recipe
from lingraft.report import model_card, write_report
from lingraft.run import Run, write_file
from lingraft.training.acceleration import naming_memory
from lingraft.training.distributed import joined_ranks, world_size
from lingraft.vocabulary import VocabularyExpansion

__all__ = ["adapt", "expand_tokenizer", "interpolate_back", "step_names"]

_CHANGEABLE = ("mix", "data", "memory", "alarm")
_BEFORE = ("corpora", "base", "vocabulary", "tokens", "bakeoff", "embeddings", "measure-base", "measure-expanded")
_AFTER = ("export", "samples", "report")
_PROMPTS_PER_LANGUAGE = 2
_NOT_OF_THE_START = {"at", "samples", "sample_tokens", "alarm", "checkpoint_rule"}


def step_names(recipe: Recipe) -> tuple[str, ...]:
    """Return the steps of a run in their order: the names that ``--until`` takes."""
    interpolation = ("interpolate",) if recipe.interpolate else ()
    return (*_BEFORE, *(stage.name for stage in recipe.stages), *interpolation, *_AFTER)


def adapt(
    recipe: Recipe,
    folder: str | Path,
    *,
    until: str | None = None,
    accept_changed: Collection[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Adapt a model as a recipe says, and return the run; the same call again goes on where the last one stopped.

    A step whose inputs did not change is skipped. A stage that was killed goes on from its newest sound checkpoint and
    ends with the weights that it would have had.

    Started by torchrun, the processes train stages together; rank 0 does all else and alone writes into the folder.

    Args:
        recipe: what to do.
        folder: the run folder; it is made if it does not exist.
        until: stop after this step (see :func:`step_names`).
        accept_changed: some of ``mix``, ``data``, ``memory`` and ``alarm``: go on although the mix of a stage that is
            not done, or the files of corpora, or what decides memory alone (``batch.micro_batch``,
            ``batch.checkpoint_activations``, ``measure.batch_size``) are not what the run was begun with, or although
            the alarm on forgetting has stopped the run. What is done stays; every corpus is read on from where it
            stood; the change is written to ``changes.jsonl``.
        progress: who is told; nobody by default.

    Raises:
        LingraftError: any of its kinds. What was done before it stays done.
    """
    teller = progress or Silent()
    if until is not None and until not in step_names(recipe):
        known = step_names(recipe)
        raise RecipeError(f"--until: no step is named {until!r}{nearest(until, known)} (steps: {', '.join(known)})")
    for kind in accept_changed:
        if kind not in _CHANGEABLE:
            listed = ", ".join(_CHANGEABLE)
            raise RecipeError(f"--accept-changed: {kind!r} is not one of {listed}{nearest(kind, _CHANGEABLE)}")
    bind_probes(recipe)
    refuse_undivided(recipe, world_size())
    with joined_ranks(choose_device(recipe).type) as ranks:
        if not ranks.is_first:
            follow(recipe, ranks)
            return Run(folder)
        leader = Leader(ranks)
        with leader.dismissing():
            make_plan(recipe)
            with Run(folder) as run, Stopper() as stopper:
                run.adopt(recipe, accept_changed)
                elsewhere = naming_memory("before or after training", recipe.stages[0].batch.micro_batch)
                with tracked(run, recipe, teller.note), elsewhere:
                    for name in _steps(run, recipe, stopper, teller, leader):
                        stopper.check(f"step {name!r}")
                        if name == until:
                            break
    return run


def interpolate_back(folder: str | Path, spec: Interpolation, *, progress: Progress | None = None) -> dict[str, Any]:
    """Measure a trained run on the line back to its base and return what :func:`interpolation_step` records.

    Raises:
        RunFolderError: the folder is no run, or its last stage is not done.
        LingraftError: of any other kind.
    """
    teller = progress or Silent()
    with Run(folder) as run, Stopper():
        recipe = run.recipe
        last = len(recipe.stages) - 1
        final = stage_folder(run, last, recipe.stages[last]) / "model"
        if not (_last_stage(run, recipe) and final.is_dir()):
            raise RunFolderError(f"{folder}: its last stage is not done; finish it with: lingraft run")
        base = prepare_base(run, recipe, teller)
        expansion = prepare_vocabulary(run, recipe, base.tokenizer, teller)
        evaluator = Evaluator(run, recipe, base, expansion, teller)
        folders = (run.path("embeddings", "model"), final)
        record = interpolation_step(run, recipe, evaluator, spec, folders, teller)
        write_report([run.folder], run.path("report.html"))
    return record


def expand_tokenizer(recipe: Recipe, folder: str | Path, *, progress: Progress | None = None) -> Run:
    """Expand the tokenizer of a recipe's base model and nothing else, and return the run.

    ``base_model`` may be a folder that holds no more than a ``tokenizer.json``, or that file.

    Raises:
        LingraftError: of any of its kinds.
    """
    teller = progress or Silent()
    with Run(folder) as run, Stopper() as stopper:
        run.adopt(recipe)
        prepare_corpora(run, recipe, teller)
        stopper.check("step 'corpora'")
        prepare_vocabulary(run, recipe, locate_tokenizer(recipe.base_model, recipe.revision), teller)
    return run


def _steps(run: Run, recipe: Recipe, stopper: Stopper, progress: Progress, leader: Leader) -> Iterator[str]:
    """Do the steps one after another, naming each when it is done."""
    prepare_corpora(run, recipe, progress)
    yield "corpora"
    base = prepare_base(run, recipe, progress)
    refuse_untrainable_stages(recipe, base.base_folder)
    yield "base"
    expansion = prepare_vocabulary(run, recipe, base.tokenizer, progress)
    yield "vocabulary"
    stores = prepare_stores(run, recipe, base, expansion.new, progress)
    for note in refuse_untrained_rows(base.base_folder, stores, expansion.new, expansion.new_ids):
        progress.note(note)
    yield "tokens"
    evaluator = Evaluator(run, recipe, base, expansion, progress)
    pair = choose_init(run, recipe, base, expansion, stores, evaluator, stopper, progress)
    yield "bakeoff"
    expanded = prepare_embeddings(run, recipe, base, expansion, pair, progress)
    yield "embeddings"
    _measure_start(run, recipe, base, evaluator, progress, "measure-base", base.base_folder, evaluator.measure_base)
    yield "measure-base"
    _measure_start(run, recipe, base, evaluator, progress, "measure-expanded", expanded, evaluator.measure_expanded)
    yield "measure-expanded"
    runner = StageRunner(run, recipe, stores, evaluator, expanded, stopper, progress, leader)
    for index, stage in enumerate(recipe.stages):
        runner.train(index)
        yield stage.name
    final = stage_folder(run, len(recipe.stages) - 1, recipe.stages[-1]) / "model"
    if recipe.interpolate:
        interpolation_step(run, recipe, evaluator, recipe.interpolate, (expanded, final), progress)
        yield "interpolate"
    _export(run, recipe, base, expansion, final, progress)
    if (ema := recipe.stages[-1].ema) is not None and ema.is_beside:
        _export(run, recipe, base, expansion, final.with_name("model-averaged"), progress, averaged=True)
    yield "export"
    _sample(run, recipe, base, expansion, progress)
    yield "samples"
    progress.phase("report")
    write_report([run.folder], run.path("report.html"))
    yield "report"


def _measure_start(
    run: Run,
    recipe: Recipe,
    base: Prepared,
    evaluator: Evaluator,
    progress: Progress,
    name: str,
    folder: Path,
    measure: Callable[[nn.Module], dict[str, Any]],
) -> None:
    """Measure a model that no stage has touched, once for its inputs."""
    # What the new rows are filled with says nothing of the base: runs that differ in it measure the same.
    embeddings = None if name == "measure-base" else (run.finished("embeddings") or {}).get("inputs")
    inputs = {
        "weights": base.base_sha256,
        "embeddings": embeddings,
        "tokenizers": [evaluator.expansion.old.sha256, evaluator.expansion.new.sha256],
        "measure": recipe.measure.model_dump(mode="json", exclude=_NOT_OF_THE_START),
        "tasks": tasks_digest(recipe),
        "probe_files": probe_files(recipe),
        "precision": recipe.precision,
        "corpora": [(run.finished(f"corpus-{corpus}") or {}).get("inputs") for corpus in recipe.corpora],
    }

    def action() -> dict[str, Any]:
        progress.phase(name.replace("measure-", "measuring the ") + " model")
        return measure(load_model(folder).to(choose_device(recipe)))

    makes = ["base_bits.json", *([BASE_STATES] if recipe.measure.drift.tokens else ())]
    makes += [record_path(Path(), "base", 0).name] if recipe.measure.tasks else []
    run.step(name, inputs, action, makes=[run.path(made) for made in makes])


def _last_stage(run: Run, recipe: Recipe) -> dict[str, Any]:
    last = recipe.stages[-1]
    return run.finished(f"stage-{len(recipe.stages)}-{last.name}") or {}


def _export(
    run: Run,
    recipe: Recipe,
    base: Prepared,
    expansion: VocabularyExpansion,
    final: Path,
    progress: Progress,
    *,
    averaged: bool = False,
) -> None:
    """Publish the last stage's raw weights as ``model``, or its averaged ones as ``model-averaged``."""
    digest = "averaged_sha256" if averaged else "weights_sha256"

    def action() -> dict[str, Any]:
        progress.phase("export of the averaged weights" if averaged else "export")
        # Spelled out in a text, a control token is plain text to us and the control token itself to transformers.
        control = [entry["content"] for entry in expansion.new.raw.get("added_tokens") or ()]
        texts = [
            text[:500]
            for code in recipe.measured_languages()
            for text in _first(texts_of(run, recipe, code, "validation"), 4)
        ]
        model = load_model(final)
        refuse_changed_weights(model, (_last_stage(run, recipe).get("record") or {}).get(digest), final)
        return export_model(
            model,
            run.path(final.name),
            tokenizer=expansion.new,
            base_folder=base.base_folder,
            blocks=inserted_blocks(final),
            changed=expansion.num_new > 0,
            card=model_card(run.folder, averaged=averaged),
            samples=[text for text in texts if not any(token in text for token in control)],
            tokenizer_class=recipe.export.tokenizer_class,
        )

    name = "export-averaged" if averaged else "export"
    inputs = {
        "stage": _last_stage(run, recipe),
        "export": recipe.export.model_dump(mode="json"),
        "licenses": {corpus: spec.license for corpus, spec in recipe.corpora.items()},
    }
    run.step(name, inputs, action, makes=[run.path(final.name, "config.json")])


def _first(texts: Iterator[str], count: int) -> list[str]:
    return [text for text, _ in zip(texts, range(count), strict=False)]


def _prompts(run: Run, recipe: Recipe) -> list[tuple[str, str]]:
    """Return ``(language, prompt)``: the recipe's own, or the beginnings of held-out documents."""
    if recipe.measure.samples:
        return [(recipe.languages.target, prompt) for prompt in recipe.measure.samples]
    prompts = []
    for code in recipe.measured_languages():
        for text in _first(texts_of(run, recipe, code, "validation"), _PROMPTS_PER_LANGUAGE):
            prompts.append((code, beginning(text)))
    return prompts


def _sample(run: Run, recipe: Recipe, base: Prepared, expansion: VocabularyExpansion, progress: Progress) -> None:
    def action() -> dict[str, Any]:
        progress.phase("samples before and after")
        prompts = _prompts(run, recipe)
        settings = {"condition_id": base.documents.condition, "end_id": base.documents.end}
        told = {}
        for side, folder, tokenizer in (
            ("base", base.base_folder, expansion.old),
            ("adapted", run.path("model"), expansion.new),
        ):
            model = load_model(folder)
            tokens = recipe.measure.sample_tokens
            told[side] = [
                continue_text(model, tokenizer, prompt, max_tokens=tokens, **settings) for _, prompt in prompts
            ]
        lines = [
            json.dumps({"prompt": prompt, "language": code, "base": before, "adapted": after}, ensure_ascii=False)
            for (code, prompt), before, after in zip(prompts, told["base"], told["adapted"], strict=True)
        ]
        write_file(run.path("samples.jsonl"), "".join(line + "\n" for line in lines))
        return {"prompts": len(prompts)}

    inputs = {
        "stage": _last_stage(run, recipe),
        "samples": recipe.measure.samples,
        "tokens": recipe.measure.sample_tokens,
    }
    run.step("samples", inputs, action, makes=[run.path("samples.jsonl")])
