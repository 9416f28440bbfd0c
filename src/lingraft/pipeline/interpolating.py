"""The way back to the base: how source and target fare on the line between the base's weights and the trained ones."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingraft.measurement import Measurement
from lingraft.model.base import load_model
from lingraft.model.export import export_model
from lingraft.model.freeze import inserted_blocks
from lingraft.model.interpolate import interpolate
from lingraft.pipeline.measuring import Evaluator
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.training import choose_device, refuse_changed_weights
from lingraft.recipe import Interpolation, Recipe
from lingraft.report import model_card
from lingraft.run import Run

__all__ = ["best_weight", "interpolation_step"]


def best_weight(weights: Sequence[float], target: Sequence[float], source: Sequence[float], limit: float) -> float:
    """Return the λ with the fewest target bits per byte among those whose source bits per byte are at most ``limit``.

    If there is none, it is the λ with the fewest source bits per byte; of equals the smaller one, nearer to the base.
    """
    allowed = [n for n in range(len(weights)) if source[n] <= limit]
    ranked = sorted(allowed, key=lambda n: (target[n], weights[n])) if allowed else []
    return weights[ranked[0] if ranked else min(range(len(weights)), key=lambda n: (source[n], weights[n]))]


def interpolation_step(
    run: Run,
    recipe: Recipe,
    evaluator: Evaluator,
    spec: Interpolation,
    folders: tuple[Path, Path],
    progress: Progress,
) -> dict[str, Any]:
    """Measure the line from the expanded model to the last stage's, once for its inputs; return what was found.

    The record holds, for each λ, bits per byte of target and source, the base's of the source, and the best λ by
    :func:`best_weight`. With ``export`` the model at the best λ is published as ``model-interpolated``.

    Args:
        run: the run folder.
        recipe: its recipe.
        evaluator: measures.
        spec: which λ.
        folders: of the expanded model and of the trained one.
        progress: who is told.

    Raises:
        RunFolderError: weights are not those that an earlier step wrote.
    """
    makes = [run.path("model-interpolated", "config.json")] if spec.export else []

    def action() -> dict[str, Any]:
        progress.phase("interpolation back to the base")
        return _sweep(run, recipe, evaluator, spec, folders, progress)

    inputs = {
        "spec": spec.model_dump(mode="json"),
        "stage": _marker_of_last_stage(run, recipe),
        "base": run.finished("measure-base"),
        "expanded": run.finished("embeddings"),
    }
    return run.step("interpolate", inputs, action, makes)


def _marker_of_last_stage(run: Run, recipe: Recipe) -> dict[str, Any] | None:
    return run.finished(f"stage-{len(recipe.stages)}-{recipe.stages[-1].name}")


def _sweep(
    run: Run,
    recipe: Recipe,
    evaluator: Evaluator,
    spec: Interpolation,
    folders: tuple[Path, Path],
    progress: Progress,
) -> dict[str, Any]:
    model, new_ids = load_model(folders[1]), evaluator.expansion.new_ids
    written = ((_marker_of_last_stage(run, recipe) or {}).get("record") or {}).get("weights_sha256")
    refuse_changed_weights(model, written, folders[1])
    base, tuned = ({n: p.detach() for n, p in load_model(folder).named_parameters()} for folder in folders)
    languages = {"target": recipe.languages.target, "source": recipe.languages.source}
    found: dict[str, list[float]] = {side: [] for side in languages}
    device = choose_device(recipe)
    for weight in spec.weights:
        interpolate(model.cpu(), base, tuned, weight, new_ids)
        for side, code in languages.items():
            found[side].append(evaluator.bits_of(model.to(device), code, sys.maxsize))
        progress.note(
            f"λ = {weight:g}: target {found['target'][-1]:.4f}, source {found['source'][-1]:.4f} bits per byte"
        )
    before = float((run.finished("measure-base") or {"record": {}})["record"][languages["source"]])
    best = best_weight(spec.weights, found["target"], found["source"], before + spec.max_source_rise)
    run.forget_measurements_of("interpolated")
    run.measure(_rows(recipe, spec.weights, found, languages))
    if spec.export:
        interpolate(model.cpu(), base, tuned, best, new_ids)
        _export(run, evaluator, model, best)
    limit = before + spec.max_source_rise
    return {"weights": list(spec.weights), **found, "base_source": before, "limit": limit, "best": best}


def _rows(
    recipe: Recipe, weights: Sequence[float], found: dict[str, list[float]], languages: dict[str, str]
) -> list[Measurement]:
    return [
        Measurement("interpolated", recipe.total_tokens, f"interpolation/{weight:g}/bits_per_byte", value, code)
        for side, code in languages.items()
        for weight, value in zip(weights, found[side], strict=True)
    ]


def _export(run: Run, evaluator: Evaluator, model: Any, weight: float) -> None:
    expansion, base = evaluator.expansion, evaluator.base
    model.eval()
    export_model(
        model,
        run.path("model-interpolated"),
        tokenizer=expansion.new,
        base_folder=base.base_folder,
        blocks=inserted_blocks(run.path("embeddings", "model")),
        changed=expansion.num_new > 0,
        card=model_card(run.folder, interpolated=weight),
        samples=[],
    )
