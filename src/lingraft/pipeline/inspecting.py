"""Looks at finished models, without a recipe: bits per byte, probes, shift, continuations."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.corpus import Rejects, find_files, read_files, source_fingerprint
from lingraft.errors import ModelError, RecipeError
from lingraft.measure.bits_per_byte import BitsPerByte, choose_documents, measure_bits_per_byte, split_lossless
from lingraft.measure.probes import ProbeContext, ProbeScore, probes
from lingraft.measure.scoring import Scorer
from lingraft.measure.shift import ParameterShift, measure_shift
from lingraft.model.base import convert_gguf, fetch_folder, load_model
from lingraft.model.generate import continue_text
from lingraft.model.locate import describe_base, locate_base
from lingraft.run import publish_folder
from lingraft.vocabulary import TokenizerFile

__all__ = ["OpenedModel", "compare_continuations", "diagnose", "evaluate", "open_model", "probe"]


@dataclass(frozen=True)
class OpenedModel:
    """A model with its tokenizer, the folder it was read from, and its border tokens."""

    model: nn.Module
    tokenizer: TokenizerFile
    folder: Path
    condition_id: int
    end_id: int

    def scorer(self) -> Scorer:
        """Return a scorer in fp32."""
        return Scorer(self.model, num_ids=self.tokenizer.num_ids, condition_id=self.condition_id)


def open_model(reference: str, *, condition_on: str | None = None, cache: Path | None = None) -> OpenedModel:
    """Return a model by hub id, folder, ``.gguf`` file or ``package:name``.

    Args:
        reference: which model.
        condition_on: the token put in front of every text; BOS, or EOS where there is none, by default.
        cache: where a GGUF file is converted to; needed for one.

    Raises:
        RecipeError: there is no such model or token.
    """
    location = locate_base(reference, where="model")
    described = describe_base(location)
    if location.kind == "gguf":
        if cache is None or location.path is None:
            raise ModelError(f"{reference}: a GGUF file must be converted to be looked at; name a folder for it")
        path = location.path
        # Two files may have the same name, and one may be replaced by another.
        folder = cache / f"{path.stem}-{source_fingerprint([path])[:16]}"
        if not folder.exists():
            publish_folder(folder, lambda to: convert_gguf(path, to))
    else:
        folder = fetch_folder(location)
    tokenizer = TokenizerFile.open(folder)
    ends = [token for token in (described.eos, described.bos) if token]
    chosen = condition_on or described.bos or described.eos
    condition = tokenizer.id_of(chosen) if chosen else None
    if condition is None:
        raise RecipeError(f"{reference}: there is no token {chosen!r} to condition on; name one that the tokenizer has")
    end = tokenizer.id_of(ends[0]) if ends else condition
    return OpenedModel(load_model(folder), tokenizer, folder, condition, condition if end is None else end)


def evaluate(
    opened: OpenedModel, paths: Sequence[str], *, text_field: str = "text", max_bytes: int = 200_000
) -> BitsPerByte:
    """Return the bits per byte of a model on text files (see :mod:`lingraft.measure.bits_per_byte` for the rules)."""
    files = find_files(paths, "text")
    documents = read_files(
        files,
        corpus="text",
        text_field=text_field,
        bad_lines="error",
        max_bad_fraction=0.0,
        rejects=Rejects(),
        where="text",
    )
    chosen = choose_documents((document.text for document in documents), max_bytes)
    return measure_bits_per_byte(
        opened.scorer(), opened.tokenizer, split_lossless(chosen, [opened.tokenizer]).documents
    )


def probe(opened: OpenedModel, name: str, options: Mapping[str, Any]) -> list[ProbeScore]:
    """Return the scores of one probe; raises RecipeError for an unknown probe or option."""
    function = probes.get(name, "probe").bind(options, "probe")
    context = ProbeContext(opened.scorer(), opened.tokenizer, opened.tokenizer.num_ids)
    scores: list[ProbeScore] = function(context)
    return scores


def diagnose(opened: OpenedModel, against: OpenedModel) -> tuple[ParameterShift, int]:
    """Return how far a model is from another of the same shape, and how many tokens it has more.

    The first rows of the embedding matrices are compared where the vocabulary has grown.

    Raises:
        ModelError: the other model is of another shape.
    """
    shapes = [{n: p.shape[1:] for n, p in m.model.named_parameters()} for m in (opened, against)]
    if shapes[0] != shapes[1]:
        raise ModelError("the two models have other tensors; only the rows of embedding matrices may differ in number")
    old, new = against.tokenizer.num_ids, opened.tokenizer.num_ids
    if new < old:
        raise ModelError(f"the model has fewer tokens ({new}) than the one it is held against ({old}); swap them")
    given: Any = against.model
    model = _with_rows(opened.model, len(given.get_input_embeddings().weight))
    return measure_shift(model, against.folder, num_old=old, num_ids=old), new - old


def _with_rows(model: nn.Module, rows: int) -> nn.Module:
    """Return a model with its tables cut, or filled up with zeros, to some number of rows; it shares the rest."""
    shared: Any = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    tables: dict[int, nn.Parameter] = {}
    for module in (shared.get_input_embeddings(), shared.get_output_embeddings()):
        weight = module.weight.detach()
        cut = nn.functional.pad(weight[:rows], (0, 0, 0, max(0, rows - len(weight))))
        module.weight = tables.setdefault(id(module.weight), nn.Parameter(cut, requires_grad=False))
    resized: nn.Module = shared
    return resized


def compare_continuations(models: Sequence[OpenedModel], prompts: Sequence[str], *, max_tokens: int) -> list[list[str]]:
    """Return, for each prompt, the greedy continuation by each model."""
    torch.manual_seed(0)
    return [
        [
            continue_text(
                m.model, m.tokenizer, prompt, condition_id=m.condition_id, end_id=m.end_id, max_tokens=max_tokens
            )
            for m in models
        ]
        for prompt in prompts
    ]
