"""Looks at finished models, without a recipe: bits per byte, probes, shift, continuations."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.corpus import Reading, Rejects, find_files, read_files, source_fingerprint
from lingraft.errors import MeasurementError, ModelError, RecipeError
from lingraft.measure.bits_per_byte import BitsPerByte, choose_documents, measure_bits_per_byte, split_lossless
from lingraft.measure.probes import (
    ProbeContext,
    ProbeResult,
    ProbeScore,
    item_lines,
    items_manifest,
    probes,
    questions_of,
)
from lingraft.measure.scoring import Scorer
from lingraft.measure.shift import ParameterShift, measure_shift
from lingraft.model.base import convert_gguf, fetch_folder, load_model
from lingraft.model.generate import continue_text
from lingraft.model.locate import describe_base, locate_base
from lingraft.run import publish_folder, write_file
from lingraft.vocabulary import TokenizerFile

__all__ = [
    "FoundModel",
    "OpenedModel",
    "compare_continuations",
    "diagnose",
    "evaluate",
    "find_model",
    "open_model",
    "probe",
    "write_probe_items",
]


@dataclass(frozen=True)
class OpenedModel:
    """A model with its tokenizer, the folder it was read from, and its border tokens."""

    model: nn.Module
    tokenizer: TokenizerFile
    folder: Path
    condition_id: int
    end_id: int

    def scorer(self, window: int = 1024) -> Scorer:
        """Return a scorer in fp32."""
        return Scorer(self.model, num_ids=self.tokenizer.num_ids, condition_id=self.condition_id, window=window)


@dataclass(frozen=True)
class FoundModel:
    """A model that is known and not loaded: its tokenizer, its folder, border tokens, and the longest sequence."""

    reference: str
    tokenizer: TokenizerFile
    folder: Path
    condition_id: int
    end_id: int
    max_positions: int

    def load(self) -> OpenedModel:
        """Return it with its weights."""
        return OpenedModel(load_model(self.folder), self.tokenizer, self.folder, self.condition_id, self.end_id)


def open_model(reference: str, *, condition_on: str | None = None, cache: Path | None = None) -> OpenedModel:
    """Return a model with its weights; for arguments and errors see :func:`find_model`."""
    return find_model(reference, condition_on=condition_on, cache=cache).load()


def find_model(reference: str, *, condition_on: str | None = None, cache: Path | None = None) -> FoundModel:
    """Return a model by hub id, folder, ``.gguf`` file or ``package:name``; no weights are loaded.

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
    ending = condition if end is None else end
    return FoundModel(reference, tokenizer, folder, condition, ending, described.max_positions)


def evaluate(
    opened: OpenedModel, paths: Sequence[str], *, text_field: str = "text", max_bytes: int = 200_000
) -> BitsPerByte:
    """Return the bits per byte of a model on text files (see :mod:`lingraft.measure.bits_per_byte` for the rules).

    Raises:
        CorpusError: a file cannot be read, or none holds any text.
        MeasurementError: every document is changed by the tokenizer.
    """
    files = find_files(paths, "text")
    documents = read_files(files, Reading(text_field), corpus="text", rejects=Rejects(), where="text")
    chosen = choose_documents((document.text for document in documents), max_bytes)
    kept = split_lossless(chosen, [opened.tokenizer])
    if not kept.documents:
        why = f"the tokenizer changes all {kept.lossy} documents" if kept.lossy else "there is no text in them"
        raise MeasurementError(f"text: {', '.join(paths)}: {why}, so bits per byte cannot be measured")
    return replace(measure_bits_per_byte(opened.scorer(), opened.tokenizer, kept.documents), lossy=kept.lossy)


def probe(opened: OpenedModel, name: str, options: Mapping[str, Any]) -> list[ProbeScore]:
    """Return the scores of one probe; raises RecipeError for an unknown probe or option."""
    function = probes.get(name, "probe").bind(options, "probe")
    context = ProbeContext(opened.scorer(), opened.tokenizer, frozenset(opened.tokenizer.vocabulary.values()))
    result: ProbeResult = function(context)
    return result.scores


def write_probe_items(name: str, options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Write what a probe would ask any model, one item a line, and a manifest beside it; return the manifest.

    Two machines have the same items where the manifests are equal. That of all probes in their full form is
    ``docs/probe_items.json``.

    Raises:
        RecipeError: there is no such probe or option.
        MeasurementError: the probe does not ask in text, or an option means nothing.
    """
    entry = probes.get(name, "probe")
    questions = questions_of(entry.bind(options, "probe"))
    defaults = {option: parameter.default for option, parameter in entry.options().items()}
    manifest = items_manifest(name, defaults | dict(options), questions)
    write_file(path, "".join(item_lines(questions)))
    write_file(path.with_name(f"{path.name}.manifest.json"), json.dumps(manifest, indent=1) + "\n")
    return manifest


def diagnose(opened: OpenedModel, against: OpenedModel) -> tuple[ParameterShift, int]:
    """Return how far a model is from another of the same shape, and how many tokens it has that the other has not.

    Rows of the embedding matrices are held against each other by the spelling of their tokens, wherever they lie;
    rows of tokens that only one of the two has are left out.

    Raises:
        ModelError: the other model is of another shape, has more ids, or has no token in common.
    """
    shapes = [{n: p.shape[1:] for n, p in m.model.named_parameters()} for m in (opened, against)]
    if shapes[0] != shapes[1]:
        raise ModelError("the two models have other tensors; only the rows of embedding matrices may differ in number")
    old, new = against.tokenizer.num_ids, opened.tokenizer.num_ids
    if new < old:
        raise ModelError(f"the model has fewer tokens ({new}) than the one it is held against ({old}); swap them")
    theirs, ours = against.tokenizer.vocabulary, opened.tokenizer.vocabulary
    if not (common := theirs.keys() & ours.keys()):
        raise ModelError("the two models have no token in common, so their rows cannot be held against each other")
    lost = sorted(theirs[token] for token in theirs.keys() - common)
    moved = {theirs[token]: ours[token] for token in common if theirs[token] != ours[token]}
    shift = measure_shift(
        _as_rows_of(against.model, opened.model, moved, lost), against.folder, new_ids=lost, num_ids=old
    )
    for side in ("embeddings", "head"):
        # What the other model alone has is no distance: these rows were filled with its own.
        shift.kinds.pop(f"{side}_new", None)
    return shift, len(ours) - len(common)


def _as_rows_of(base: nn.Module, model: nn.Module, moved: Mapping[int, int], lost: Sequence[int]) -> nn.Module:
    """Return a model whose tables have the rows of another's, in its order; it shares everything else.

    Args:
        base: whose rows they become: as many as it has, cut or filled up with zeros.
        model: the model.
        moved: id in ``base`` → id in ``model``, where they differ.
        lost: ids of ``base`` whose tokens ``model`` has not; they get the rows of ``base``.
    """
    shared: Any = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    given: Any = base
    tables: dict[int, nn.Parameter] = {}
    for module, other in (
        (shared.get_input_embeddings(), given.get_input_embeddings()),
        (shared.get_output_embeddings(), given.get_output_embeddings()),
    ):
        weight, rows = module.weight.detach(), len(other.weight)
        table = nn.functional.pad(weight[:rows], (0, 0, 0, max(0, rows - len(weight))))
        if moved or lost:
            table = table.clone()
            table[list(moved)] = weight[list(moved.values())]
            table[lost] = other.weight.detach()[lost].to(table.dtype)
        module.weight = tables.setdefault(id(module.weight), nn.Parameter(table, requires_grad=False))
    aligned: nn.Module = shared
    return aligned


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
