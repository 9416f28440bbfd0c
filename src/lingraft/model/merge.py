"""Averages models, also where one has an expanded vocabulary and another has not: rows meet by token, not by number.

Row 32,000 of one model and row 32,000 of another need not be the same token, and one of them may not have it at all.
Averaging by number gives garbled text or an error of shapes (https://github.com/arcee-ai/mergekit/issues/47).
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from lingraft.errors import ModelError
from lingraft.model.base import load_model
from lingraft.model.export import export_model
from lingraft.model.locate import weight_types
from lingraft.polling import poll
from lingraft.vocabulary import TokenizerFile

__all__ = ["MergedModel", "RowSource", "align_rows", "merge_models", "merge_rows"]

_TOLERANCE = 1e-6
_SHOWN = 8
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Settings that may differ: sizes and ids of the vocabulary, which the result takes from the largest tokenizer's model,
# and what does not change what is computed.
_FREE_SETTINGS = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype",
    "transformers_version", "use_cache", "vocab_size",
})  # fmt: skip


@dataclass(frozen=True)
class RowSource:
    """What one model gives to a merged matrix: its row ``here[n]`` goes to row ``there[n]`` of the result.

    Attributes:
        here: ``(pairs,)``, rows of the model, each at most once.
        there: ``(pairs,)``, rows of the result, each at most once.
    """

    here: Int[Tensor, "pairs"]
    there: Int[Tensor, "pairs"]


@dataclass(frozen=True)
class MergedModel:
    """What came of a merge.

    Attributes:
        folder: where the model is.
        dtype: the type of its weights: the first model's.
        averaged: tokens that more than one model has; their rows are weighted means.
        copied: for each model, tokens that it alone has; their rows are its own, bit for bit.
    """

    folder: Path
    dtype: torch.dtype
    averaged: int
    copied: tuple[int, ...]


def merge_models(
    folders: Sequence[Path], weights: Sequence[float], to: Path, *, names: Sequence[str] = ()
) -> MergedModel:
    """Publish the weighted mean of models as a model folder, and return what came of it.

    θ = Σ wₖ θₖ, summed in fp32 and rounded once, to the first model's type (linear averaging: arXiv 2203.05482). Rows
    of embedding matrices are aligned by the spelling of their tokens; see :func:`merge_rows`. Tokenizer, configuration
    and number of rows are those of the model whose tokenizer has the most tokens, of several the first.
    All models are held in memory at once, each in its own type. The folder is checked as every exported one is.

    Args:
        folders: two or more model folders.
        weights: one for each model, above 0, with the sum 1.
        to: the folder to make; it must not exist.
        names: what to call the models in the card; the folders' names by default.

    Raises:
        ModelError: fewer than two models; weights that are no shares; a folder to make that exists; a model folder that
            is missing or whose weights are damaged; a token that the largest tokenizer does not have; a tensor that one
            model lacks or has in another shape; or settings, beyond those of the vocabulary, in which they differ.
    """
    _refuse_unusable_weights(folders, weights)
    if to.exists():
        raise ModelError(f"{to} is there already; nothing was written")
    dtypes = [_stored_dtype(folder) for folder in folders]
    tokenizers = [TokenizerFile.open(folder) for folder in folders]
    largest = max(range(len(folders)), key=lambda k: len(tokenizers[k].vocabulary))
    _refuse_other_tokenizers(folders, tokenizers, largest)
    models = [load_model(folder, dtype) for folder, dtype in zip(folders, dtypes, strict=True)]
    _refuse_other_models(folders, models)
    dtype = _dtype_of(models[0])
    result: Any = models[largest]
    rows = len(result.get_input_embeddings().weight)
    sources = [
        align_rows(own, tokenizers[largest], _num_rows(model), rows)
        for own, model in zip(tokenizers, models, strict=True)
    ]
    _merge_into(result, models, weights, sources, dtype)
    export_model(
        result,
        to,
        tokenizer=tokenizers[largest],
        base_folder=folders[largest],
        changed=False,
        card=_card(names or [folder.name for folder in folders], weights),
        samples=[],
    )
    averaged, copied = _counts(tokenizers)
    return MergedModel(to, dtype, averaged, copied)


def align_rows(tokenizer: TokenizerFile, target: TokenizerFile, num_rows: int, target_rows: int) -> RowSource:
    """Return which rows of a model go to which rows of the merged matrix, in the order of the latter.

    A token's row goes to the id that its spelling has in ``target``. A row that no token owns in either of the two goes
    to its own place.

    Args:
        tokenizer: the model's.
        target: the result's.
        num_rows: rows of the model's matrices.
        target_rows: rows of the result's.

    Raises:
        ModelError: the model's matrix has no row for one of its tokens, or ``target`` lacks a token.
    """
    if tokenizer.num_ids > num_rows:
        raise ModelError(f"{tokenizer.source} has {tokenizer.num_ids} ids, the matrix of its model {num_rows} rows")
    if lacking := tokenizer.vocabulary.keys() - target.vocabulary.keys():
        raise ModelError(f"{target.source} lacks {_listed(lacking)} of {tokenizer.source}")
    pairs = {target.vocabulary[token]: i for token, i in tokenizer.vocabulary.items()}
    owned = {*target.vocabulary.values(), *tokenizer.vocabulary.values()}
    pairs |= {i: i for i in range(min(num_rows, target_rows)) if i not in owned}
    there = sorted(pairs)
    return RowSource(torch.tensor([pairs[i] for i in there]), torch.tensor(there))


def merge_rows(
    tables: Sequence[Shaped[Tensor, "_ *dim"]],
    weights: Sequence[float],
    sources: Sequence[RowSource],
    num_rows: int,
) -> Float[Tensor, "merged *dim"]:
    """Return the merged matrix ``(num_rows, dim)`` (or vector, of a bias) in fp32.

    A row that all models give is Σ wₖ rₖ. One that only some give is Σ wₖ rₖ / Σ wₖ over these. One that a single model
    gives is copied, bit for bit. One that none gives is zero.

    Args:
        tables: one for each model, ``(rows of the model, dim)``; floating point of any width.
        weights: one for each model.
        sources: what each gives, and where to.
        num_rows: rows of the result.
    """
    merged = torch.zeros(num_rows, *tables[0].shape[1:])
    share, owners = torch.zeros(num_rows, dtype=torch.float64), torch.zeros(num_rows, dtype=torch.long)
    for table, weight, source in zip(tables, weights, sources, strict=True):
        merged[source.there] += weight * table.detach()[source.here].float()
        share[source.there] += weight
        owners[source.there] += 1
    some = (owners > 1) & (owners < len(tables))
    merged[some] /= share[some].float().view(-1, *[1] * (merged.ndim - 1))
    for table, source in zip(tables, sources, strict=True):
        alone = owners[source.there] == 1
        merged[source.there[alone]] = table.detach()[source.here[alone]].float()
    return merged


@torch.no_grad()
def _merge_into(
    result: Any, models: Sequence[nn.Module], weights: Sequence[float], sources: Sequence[RowSource], dtype: torch.dtype
) -> None:
    """Put the mean of all models into one of them, tensor by tensor; each is read before it is written."""
    parameters, tables = [dict(model.named_parameters()) for model in models], _vocabulary_tensors(models[0])
    rows = len(result.get_input_embeddings().weight)
    for name, parameter in result.named_parameters():
        poll()
        given = [own[name] for own in parameters]
        if name in tables:
            merged = merge_rows(given, weights, sources, rows)
        else:
            merged = torch.zeros(parameter.shape)
            for weight, tensor in zip(weights, given, strict=True):
                merged += weight * tensor.float()
        parameter.data = merged.to(dtype)


def _vocabulary_tensors(model: nn.Module) -> set[str]:
    """Return the names of the parameters that have one row for each token: matrices, and the output side's bias."""
    given: Any = model
    output = given.get_output_embeddings()
    held = [given.get_input_embeddings().weight, output.weight, getattr(output, "bias", None)]
    return {name for name, parameter in model.named_parameters() if any(parameter is one for one in held)}


def _num_rows(model: nn.Module) -> int:
    given: Any = model
    return len(given.get_input_embeddings().weight)


def _dtype_of(model: nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def _stored_dtype(folder: Path) -> torch.dtype:
    """Return the narrowest type that holds every weight of a folder as it is."""
    if not folder.is_dir():
        raise ModelError(f"merge: there is no model folder {str(folder)!r}")
    stored = weight_types(folder)
    if not stored <= _DTYPES.keys():
        raise ModelError(f"{folder}: the weights are {sorted(stored)}; {', '.join(_DTYPES)} are merged")
    return functools.reduce(torch.promote_types, (_DTYPES[name] for name in sorted(stored)))


def _refuse_unusable_weights(folders: Sequence[Path], weights: Sequence[float]) -> None:
    if len(folders) < 2:
        raise ModelError(f"a merge needs two models or more, not {len(folders)}")
    if len(weights) != len(folders):
        raise ModelError(f"weights: {len(folders)} models need as many weights, not {len(weights)}")
    if not all(math.isfinite(weight) and weight > 0 for weight in weights) or abs(sum(weights) - 1) > _TOLERANCE:
        said = ", ".join(f"{weight:g}" for weight in weights)
        raise ModelError(f"weights: {said} must all be above 0 and have the sum 1, not {sum(weights):g}")


def _refuse_other_tokenizers(folders: Sequence[Path], tokenizers: Sequence[TokenizerFile], largest: int) -> None:
    """Raise a ModelError where a model has tokens of its own, or cuts the same text otherwise than the largest does."""
    whole = tokenizers[largest]
    for folder, own in zip(folders, tokenizers, strict=True):
        if foreign := own.vocabulary.keys() - whole.vocabulary.keys():
            raise ModelError(
                f"{folder} has {len(foreign)} tokens that {folders[largest]}, whose tokenizer is the largest, lacks: "
                f"{_listed(foreign)}; only models of which one has all tokens can be merged"
            )
        merges = whole.merges[: len(own.merges)]
        if own.raw.get("normalizer") != whole.raw.get("normalizer") or own.merges != merges:
            raise ModelError(
                f"{folder}: its tokenizer has another normaliser, or merges that are not the beginning of those in "
                f"{folders[largest]}: the same text has other tokens there, and rows of one name do not belong together"
            )


def _listed(tokens: set[str]) -> str:
    more = f" and {len(tokens) - _SHOWN} more" if len(tokens) > _SHOWN else ""
    return ", ".join(repr(token) for token in sorted(tokens)[:_SHOWN]) + more


def _refuse_other_models(folders: Sequence[Path], models: Sequence[Any]) -> None:
    """Raise a ModelError where tensors do not fit, or fit and mean something else (another base of the rotations)."""
    for k, name, first, other in _differences([_comparable_shapes(model) for model in models]):
        raise ModelError(
            f"{name} is {_shape(first)} in {folders[0]} and {_shape(other)} in {folders[k]}; only the number of "
            "rows of embedding matrices may differ"
        )
    for k, key, first, other in _differences([_settings(model.config.to_dict()) for model in models]):
        raise ModelError(
            f"config.json: {key} is {first!r} in {folders[0]} and {other!r} in {folders[k]}; models that compute "
            "in other ways cannot be averaged"
        )


def _differences(facts: Sequence[Mapping[Any, Any]]) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield where the facts of a model are not the first's: which model, what, there, and here."""
    for k, own in enumerate(facts[1:], start=1):
        for key in sorted(own.keys() | facts[0].keys()):
            if own.get(key) != facts[0].get(key):
                yield k, key, facts[0].get(key), own.get(key)


def _comparable_shapes(model: nn.Module) -> dict[str, tuple[int | str, ...]]:
    tables = _vocabulary_tensors(model)
    return {n: ("rows", *p.shape[1:]) if n in tables else tuple(p.shape) for n, p in model.named_parameters()}


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "missing" if shape is None else f"({', '.join(map(str, shape))})"


def _settings(config: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a configuration without what may differ, nested parts included."""
    return {
        key: _settings(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in _FREE_SETTINGS
    }


def _counts(tokenizers: Sequence[TokenizerFile]) -> tuple[int, tuple[int, ...]]:
    """Return how many tokens more than one model has, and how many each has alone."""
    owners: dict[str, list[int]] = {}
    for k, tokenizer in enumerate(tokenizers):
        for token in tokenizer.vocabulary:
            owners.setdefault(token, []).append(k)
    alone = [own[0] for own in owners.values() if len(own) == 1]
    return len(owners) - len(alone), tuple(alone.count(k) for k in range(len(tokenizers)))


def _card(names: Sequence[str], weights: Sequence[float]) -> str:
    lines = "".join(f"- {name}: {weight:g}\n" for name, weight in zip(names, weights, strict=True))
    return (
        "# Merged model\n\nThe weighted mean of these models, made with lingraft:\n\n"
        f"{lines}\nRows of the embedding matrices were aligned by token; one that a single model has was copied.\n"
    )
