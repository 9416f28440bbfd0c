"""How far a model has come from its base, as rows: weights at every measuring point, spectra and function at ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.measure.cka import LEAST_TOKENS, linear_cka, ordinary_tokens
from lingraft.measure.function_drift import (
    States,
    kept_sequences,
    mean_divergence,
    read_states,
    states_of,
    write_states,
)
from lingraft.measure.items import ItemStream
from lingraft.measure.shift import measure_shift, stored_tensors
from lingraft.measure.spectra import evenly_spaced, measure_spectra
from lingraft.measure.statistics import bootstrap_ratio
from lingraft.measurement import Measurement
from lingraft.model.base import Head, head_of
from lingraft.model.freeze import inserted_blocks, other_rows, parts_of
from lingraft.recipe import Drift
from lingraft.vocabulary import VocabularyExpansion

__all__ = ["DriftWatch", "shift_rows"]

_VERSION = 1
_LENGTH = 128


def shift_rows(
    model: nn.Module, stage: str, tokens: int, start: Path, expansion: VocabularyExpansion
) -> list[Measurement]:
    """Return how far the weights moved: by kind, by layer, and of embedding rows one by one."""
    shift = measure_shift(model, start, new_ids=expansion.new_ids, num_ids=expansion.new.num_ids)
    found = {"mean_l2": shift.mean_l2, "mean_relative_l2": shift.mean_relative_l2}
    for kind, sums in shift.kinds.items():
        found |= {f"{kind}/relative_l2": sums.relative_l2, f"{kind}/cosine": sums.cosine}
        if sums.row_cosines is not None:
            found[f"{kind}/row_cosine"] = sums.row_cosines.mean().item()
            found[f"{kind}/row_cosine_low"] = sums.row_cosines.quantile(0.05).item()
    for (layer, kind), sums in sorted(shift.layers.items()):
        found[f"layer/{layer}/{kind}/relative_l2"] = sums.relative_l2
    return [Measurement(stage, tokens, f"shift/{name}", value) for name, value in found.items()]


def _length(model: nn.Module) -> int:
    """Return how long the sequences are that a model is asked about: some have fewer positions than we would take."""
    given: Any = model
    longest = getattr(given.config.get_text_config(), "max_position_embeddings", None) or _LENGTH + 1
    return min(_LENGTH, (longest - 1) // 2 * 2)


@dataclass(frozen=True)
class DriftWatch:
    """Asks the base model once, and every later one on the same tokens.

    Attributes:
        spec: how much is asked.
        path: where the base's states are kept.
        expansion: both tokenizers.
        condition_id: the token in front of every text.
        batch_size: sequences per forward pass.
        source: the source language.
    """

    spec: Drift
    path: Path
    expansion: VocabularyExpansion
    condition_id: int
    batch_size: int
    source: str

    def keep_base(self, base: nn.Module, documents: Sequence[str]) -> None:
        """Write the base's states of source text, in its own tokens, and of random copies; nothing if none are wanted.

        Args:
            base: the untouched base model.
            documents: held-out source text.
        """
        if not self.spec.tokens:
            return
        length = _length(base)
        texts = {"source": self._source_pieces(documents, length), "copy": self._copies(length)}
        write_states(self.path, {name: self._states(base, pieces) for name, pieces in texts.items() if pieces})

    def _states(self, model: nn.Module, pieces: Sequence[Sequence[int]], skip: Sequence[int] = ()) -> States:
        return states_of(model, pieces, condition_id=self.condition_id, batch_size=self.batch_size, skip=skip)

    def _shared(self) -> tuple[int, ...]:
        return other_rows(self.expansion.new_ids, self.expansion.num_old)

    def _source_pieces(self, documents: Sequence[str], length: int) -> list[list[int]]:
        """Return pieces of source text in the base's ids; short documents share one. Ids that have been replaced go."""
        shared = frozenset(self._shared())
        encoded = self.expansion.old.encode_batch(list(documents))
        text = [i for ids in encoded for i in (*ids, self.condition_id) if i in shared]
        pieces = [text[at : at + length] for at in range(0, len(text), length)]
        return kept_sequences(pieces, length, self.spec.tokens)

    def _copies(self, length: int) -> list[list[int]]:
        """Return sequences of random ids that are each written twice."""
        special = self.expansion.old.special_ids
        allowed = [i for i in self._shared() if i not in special]
        found = []
        for index in range(max(1, self.spec.tokens // length)):
            stream = ItemStream("drift", _VERSION, 0, length, index)
            found.append([allowed[stream.below(len(allowed))] for _ in range(length // 2)] * 2)
        return found

    def rows(self, model: nn.Module, stage: str, tokens: int, start: Path) -> Iterator[Measurement]:
        """Yield what is looked at where a stage ends; ``start`` is the folder of the expanded model."""
        yield from self._spectral_rows(model, stage, tokens, start)
        if not self.spec.tokens:
            return
        prefixes = parts_of(model).layers
        skip = [prefixes.index(name) for name in inserted_blocks(start)]
        for name in ("source", "copy"):
            before = read_states(self.path, name)
            after = self._states(model, before.ids[:, 1:].tolist(), skip)
            if name == "source":
                yield self._divergence(model, before, after, stage, tokens, start)
            yield from _cka_rows(before, after, stage, tokens, f"drift/cka/{name}")

    def _spectral_rows(self, model: nn.Module, stage: str, tokens: int, start: Path) -> Iterator[Measurement]:
        layers = evenly_spaced(len(parts_of(model).layers), self.spec.spectral_layers)
        spectra = measure_spectra(model, start, layers=layers) if layers else {}
        for (layer, matrix), found in spectra.items():
            where = f"drift/layer/{layer}/{matrix}"
            yield Measurement(stage, tokens, f"{where}/stable_rank", found.stable_rank)
            yield Measurement(stage, tokens, f"{where}/spectral_ratio", found.ratio)
            yield Measurement(stage, tokens, f"{where}/intruders", found.intruders, count=found.top)
        if spectra:
            moved = [found.stable_rank for found in spectra.values() if found.stable_rank] or [0.0]
            looked_at = sum(found.top for found in spectra.values())
            intruders = sum(found.intruders for found in spectra.values())
            yield Measurement(stage, tokens, "drift/stable_rank", sum(moved) / len(moved), count=len(moved))
            yield Measurement(stage, tokens, "drift/spectral_ratio", max(found.ratio for found in spectra.values()))
            yield Measurement(stage, tokens, "drift/intruder_share", intruders / max(1, looked_at), count=looked_at)

    def _divergence(
        self, model: nn.Module, before: States, after: States, stage: str, tokens: int, start: Path
    ) -> Measurement:
        """Return the mean KL(base ‖ model) on source text, with an interval over its sequences."""
        head = head_of(model, self.expansion.new.num_ids)
        heads = (_head_in(start, model, head), head)
        shared = torch.tensor(self._shared())
        divergences = mean_divergence(before.last, after.last, heads, shared).double()
        sums = divergences.view(len(before.ids), -1).sum(dim=1).tolist()
        sizes = [before.ids.shape[1] - 1] * len(sums)
        low, high = bootstrap_ratio(sums, sizes)
        count = len(divergences)
        return Measurement(stage, tokens, "drift/kl", divergences.mean().item(), self.source, low, high, count)


def _head_in(folder: Path, model: nn.Module, head: Head) -> Head:
    """Return the head of the model in a folder, which has the shape of another one's; nothing else of it is read."""
    given: Any = model
    output = given.get_output_embeddings()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    wanted = {
        names[id(part)]: role for role, part in (("weight", output.weight), ("bias", head.bias)) if part is not None
    }
    found = {wanted[name]: tensor for name, tensor in stored_tensors(folder, wanted.keys()) if name in wanted}
    device = output.weight.device
    bias = found["bias"].float().to(device) if "bias" in found else None
    return Head(found["weight"].float().to(device), bias, head.softcap, head.num_ids)


def _cka_rows(before: States, after: States, stage: str, tokens: int, name: str) -> Iterator[Measurement]:
    """Yield the CKA behind each layer that both models have, and the mean; nothing on fewer than 64 tokens.

    Tokens with outlying states are left out, layer by layer; each row's count is of those that remain.
    """
    pairs = [*zip(before.layers, after.layers, strict=False), (before.last, after.last)]
    known: list[float] = []
    for number, (one, other) in enumerate(pairs):
        kept = ordinary_tokens(one, other)
        count = int(kept.sum())
        value = linear_cka(one[kept], other[kept]) if count >= LEAST_TOKENS else None
        if value is not None:
            known.append(value)
            yield Measurement(stage, tokens, f"{name}/layer/{number}", value, count=count)
    if known:
        yield Measurement(stage, tokens, name, sum(known) / len(known), count=len(before.last))
