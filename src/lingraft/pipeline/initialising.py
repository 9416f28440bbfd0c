"""The embeddings step: which init methods, the rows they make, and the folder of the expanded model."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.corpus import source_fingerprint
from lingraft.embeddings import (
    Embeddings,
    InitContext,
    Rows,
    calibrate,
    fill_rows,
    ids_in_scripts,
    init_methods,
    refuse_calibration,
    target_norm,
)
from lingraft.errors import RunFolderError
from lingraft.model.auto_tokenizer import refuse_changed_template
from lingraft.model.base import is_tied, load_model
from lingraft.model.blocks import block_names, expand_blocks
from lingraft.model.export import check_folder, save_model
from lingraft.model.freeze import inserted_blocks, weights_digest
from lingraft.model.resize import padded_rows, replace_embeddings
from lingraft.pipeline.prepare import Prepared, texts_of
from lingraft.pipeline.progress import Progress
from lingraft.polling import poll
from lingraft.recipe import Choice, InitPair, Recipe
from lingraft.run import Run, publish_folder
from lingraft.vocabulary import VocabularyExpansion, dominant_scripts

__all__ = ["Initialised", "bind_init_methods", "fingerprint_of_files", "initialise", "prepare_embeddings"]


@dataclass(frozen=True)
class Initialised:
    """A model with its new matrices, where each of their rows came from, and the module names of inserted blocks."""

    model: Any
    filled: Mapping[str, Embeddings]
    blocks: tuple[str, ...] = ()

    def counts(self) -> dict[str, dict[str, int]]:
        """Return, for each side, how many rows have each kind of origin."""
        return {side: embeddings.counts() for side, embeddings in self.filled.items()}


def prepare_embeddings(
    run: Run, recipe: Recipe, base: Prepared, expansion: VocabularyExpansion, pair: InitPair, progress: Progress
) -> Path:
    """Return the folder of the expanded model: old rows bit for bit, new rows by the chosen methods.

    Raises:
        RunFolderError: its weights are not those that were written there. The first stage starts from them, and every
            later one measures how far it has moved away from them.
    """
    progress.phase("initial embeddings")
    files = fingerprint_of_files(pair)
    if files:
        run.step("init-files", files, lambda: files, source="a file that the init methods of embeddings read")
    inputs = {
        "methods": pair.model_dump(mode="json"),
        "files": files,
        "calibrate": recipe.embeddings.calibrate,
        "row_multiple": recipe.vocabulary.row_multiple,
        "tokenizer": expansion.new.sha256,
        "weights": base.base_sha256,
        "seed": recipe.seed,
    }
    if recipe.blocks:
        inputs["blocks"] = recipe.blocks.model_dump(mode="json")
    folder = run.path("embeddings", "model")
    makes = [folder / "config.json", folder / "tokenizer.json"]
    record = run.step("embeddings", inputs, lambda: _initialise_and_save(run, recipe, base, expansion, pair), makes)
    if record.get("files_sha256") not in (None, _digest_of_weights(folder)):
        raise RunFolderError(
            f"{folder}: the weights are not those that were written there; delete the folder, and the same command "
            "makes them again"
        )
    return folder


def _digest_of_weights(folder: Path) -> str:
    return source_fingerprint(sorted(folder.glob("*.safetensors")))


def bind_init_methods(pair: InitPair, where: str = "embeddings") -> dict[str, Callable[..., Any]]:
    """Return side → its bound init method; raises RecipeError on an unknown name or option."""
    choices = {"input": pair.input, "output": pair.output or pair.input}
    bound = {}
    for side, choice in choices.items():
        at = f"{where}.{side if getattr(pair, side) is not None else 'input'}"
        bound[side] = init_methods.get(choice.name, at).bind(choice.options, at)
    return bound


def fingerprint_of_files(pair: InitPair) -> dict[str, str]:
    """Return option → a hash of the file or folder that it names, for every option that names one."""
    found = {}
    for side, choice in (("input", pair.input), ("output", pair.output)):
        for name, value in (choice.options if choice else {}).items():
            path = Path(value) if isinstance(value, str) and value else None
            if path is not None and path.exists():
                files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
                found[f"{side}.{name}"] = source_fingerprint(files)
    return found


def initialise(run: Run, recipe: Recipe, base: Prepared, expansion: VocabularyExpansion, pair: InitPair) -> Initialised:
    """Return the base model with its matrices grown and the new rows filled, and with blocks inserted if asked for.

    Raises:
        ModelError: a method could not make its rows.
    """
    model: Any = load_model(base.base_folder)
    choices = {"input": pair.input} | ({} if is_tied(model) else {"output": pair.output or pair.input})
    bound = bind_init_methods(pair)
    filled = {
        side: _filled(run, recipe, base, expansion, model, side, choice, bound[side])
        for side, choice in choices.items()
    }
    replace_embeddings(model, filled["input"], filled.get("output"))
    if recipe.blocks is None:
        return Initialised(model, filled, inserted_blocks(base.base_folder))
    deeper = expand_blocks(model, recipe.blocks.where)
    return Initialised(deeper, filled, block_names(deeper, recipe.blocks.where))


def _filled(
    run: Run,
    recipe: Recipe,
    base: Prepared,
    expansion: VocabularyExpansion,
    model: Any,
    side: Any,
    choice: Choice,
    method: Callable[..., Any],
) -> Embeddings:
    matrix = (model.get_input_embeddings() if side == "input" else model.get_output_embeddings()).weight.detach()
    seed = int.from_bytes(hashlib.sha256(f"{recipe.seed}/{side}".encode()).digest()[:7], "little")
    context = InitContext(
        expansion,
        matrix[: expansion.num_old].float(),
        side,
        torch.Generator().manual_seed(seed),
        texts=partial(texts_of, run, recipe, recipe.languages.target, "train"),
        base_model=partial(load_model, base.base_folder),
    )
    rows = padded_rows(expansion.new.num_ids, len(matrix), recipe.vocabulary.row_multiple)
    if recipe.embeddings.calibrate and side == "input":
        refuse_calibration(tied=is_tied(model), side=side)
        method = partial(_calibrated, method)
    return fill_rows(context, matrix, method, choice.name, rows)


def _calibrated(method: Callable[..., Any], context: InitContext) -> Rows:
    """Return what a method makes, each row brought to the length of old rows of the target's scripts."""
    made = method(context)
    rows = made if isinstance(made, Rows) else Rows(made)
    expansion = context.expansion
    scripts = dominant_scripts(token.text(expansion.new) for token in expansion.new_tokens)
    norm = target_norm(context.old, ids_in_scripts(expansion.old, scripts))
    return Rows(calibrate(rows.matrix, norm), rows.fallbacks)


def _initialise_and_save(
    run: Run, recipe: Recipe, base: Prepared, expansion: VocabularyExpansion, pair: InitPair
) -> dict[str, Any]:
    made = initialise(run, recipe, base, expansion, pair)
    changed = expansion.num_new > 0

    def fill(folder: Path) -> None:
        (folder / "model").mkdir()
        base_folder = base.base_folder
        save_model(
            made.model,
            folder / "model",
            tokenizer=expansion.new,
            base_folder=base_folder,
            changed=changed,
            blocks=made.blocks,
        )
        check_folder(folder / "model")
        refuse_changed_template(base.base_folder, folder / "model")
        for side, embeddings in made.filled.items():
            lines = (
                json.dumps([i, o.kind, o.method, list(o.pieces), o.why], ensure_ascii=False)
                for i, o in enumerate(embeddings.origins)
                if o.kind != "copied"
            )
            (folder / f"origins-{side}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    publish_folder(run.path("embeddings"), fill)
    model: nn.Module = made.model
    return made.counts() | {
        "methods": pair.label,
        "weights_sha256": weights_digest(model, poll),
        "files_sha256": _digest_of_weights(run.path("embeddings", "model")),
        "tied": is_tied(model),
        "rows": len(made.filled["input"].matrix),
        "inserted_blocks": list(made.blocks),
    }
