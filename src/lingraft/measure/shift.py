"""How far the weights moved: by kind of tensor, by layer, and row by row in the embedding matrices."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lingraft.errors import MeasurementError
from lingraft.model.base import load_model
from lingraft.model.freeze import kind_of, other_rows, parts_of, row_index
from lingraft.polling import poll

__all__ = ["KindShift", "ParameterShift", "layer_of", "measure_shift", "row_cosines", "stored_tensors"]

# Sums are taken in fp64 over so many weights at a time, so that no whole matrix is held in it.
_BLOCK = 2**22


@dataclass
class KindShift:
    """Sums over the tensors of one kind: ‖θ − θ₀‖², ‖θ₀‖², ‖θ‖², ⟨θ, θ₀⟩; of matrices of rows, each row's cosine."""

    difference: float = 0.0
    before: float = 0.0
    after: float = 0.0
    product: float = 0.0
    row_cosines: Float[Tensor, "rows"] | None = None

    def add(self, then: Tensor, now: Tensor) -> float:
        """Take in one tensor; return ‖θ − θ₀‖."""
        sums = [0.0] * 4
        flat = now.detach().to(then.device).flatten()
        for old, new in zip(torch.split(then.flatten(), _BLOCK), torch.split(flat, _BLOCK), strict=True):
            old, new = old.double(), new.double()
            parts = ((new - old).square().sum(), old.square().sum(), new.square().sum(), torch.dot(old, new))
            sums = [total + part.item() for total, part in zip(sums, parts, strict=True)]
        self.difference += sums[0]
        self.before += sums[1]
        self.after += sums[2]
        self.product += sums[3]
        return float(sums[0] ** 0.5)

    @property
    def relative_l2(self) -> float:
        """‖θ − θ₀‖ / ‖θ₀‖ over all tensors of the kind; 0 where ‖θ₀‖ is 0, for want of a length to hold it against."""
        return float((self.difference / self.before) ** 0.5) if self.before else 0.0

    @property
    def cosine(self) -> float:
        """⟨θ, θ₀⟩ / (‖θ‖ ‖θ₀‖); 1 where all weights are and stay 0, 0 where only one of the two is 0."""
        if not self.before or not self.after:
            return float(self.before == self.after)
        return float(self.product / (self.before**0.5 * self.after**0.5))


@dataclass
class ParameterShift:
    """The shift from a starting point.

    Attributes:
        mean_l2: the paper's measure (arXiv 2506.00288, fig. 4): the mean over named tensors of ‖θ − θ₀‖₂.
        kinds: kind → its sums; rows of new tokens are kept apart as ``embeddings_new`` and ``head_new``.
        layers: (number of the layer, counted from 0, kind) → its sums.
        mean_relative_l2: the mean over named tensors of ‖θ − θ₀‖₂ / ‖θ₀‖₂, in which no tensor weighs more for its size;
            those with θ₀ = 0, as the outputs of inserted layers, have no such ratio and take no part.
    """

    mean_l2: float = 0.0
    kinds: dict[str, KindShift] = field(default_factory=lambda: defaultdict(KindShift))
    layers: dict[tuple[int, str], KindShift] = field(default_factory=lambda: defaultdict(KindShift))
    mean_relative_l2: float = 0.0


@torch.no_grad()
def measure_shift(model: nn.Module, start: Path, *, new_ids: Sequence[int], num_ids: int) -> ParameterShift:
    """Return how far a model is from the weights in a folder, read tensor by tensor, the sums in fp64.

    θ₀ is the model after vocabulary expansion. Its rows of old tokens are the base model's, bit for bit, so that for
    them it is the base model too. Among kinds the rows of new tokens are reported apart, or they would swamp the rest;
    the two means are over whole tensors, new rows included. Padding rows take no part.

    Args:
        model: the model now.
        start: a folder with the safetensors weights of the start.
        new_ids: ids of the new tokens, ascending; all others below ``num_ids`` are old.
        num_ids: ids of the expanded tokenizer; rows from here on are padding.

    Raises:
        MeasurementError: a tensor of the model is not in the folder, or has another shape there; or a file is damaged.
    """
    shift = ParameterShift()
    old, new = row_index(other_rows(new_ids, num_ids)), row_index(new_ids)
    now, prefixes = dict(model.named_parameters()), parts_of(model).layers
    seen: dict[str, KindShift] = {}
    for name, then in stored_tensors(start, now.keys()):
        poll()
        if name not in now:
            continue
        kind, parameter = kind_of(name, model), now[name].to(then.device)
        if parameter.shape != then.shape:
            raise MeasurementError(
                f"{start}: {name} is {tuple(then.shape)}, in the model it is {tuple(parameter.shape)}"
            )
        tensor = KindShift()
        if kind in ("embeddings", "head"):
            tensor.add(then[:num_ids], parameter[:num_ids])
            for side, rows in ((f"{kind}_old", old), (f"{kind}_new", new)):
                if side.endswith("_old") or new_ids:
                    shift.kinds[side].add(then[rows], parameter[rows])
                    shift.kinds[side].row_cosines = row_cosines(then[rows], parameter[rows])
        else:
            tensor.add(then, parameter)
            _take_in(shift.kinds[kind], tensor)
            if (layer := layer_of(name, prefixes)) is not None:
                _take_in(shift.layers[layer, kind], tensor)
        seen[name] = tensor
    if missing := sorted(now.keys() - seen.keys()):
        raise MeasurementError(f"{start}: no tensor {missing[0]!r} to compare with ({len(missing)} missing)")
    ratios = [tensor.relative_l2 for tensor in seen.values() if tensor.before]
    shift.mean_l2 = sum(tensor.difference**0.5 for tensor in seen.values()) / len(seen)
    shift.mean_relative_l2 = sum(ratios) / max(1, len(ratios))
    return shift


def _take_in(sums: KindShift, one: KindShift) -> None:
    sums.difference += one.difference
    sums.before += one.before
    sums.after += one.after
    sums.product += one.product


def row_cosines(then: Float[Tensor, "rows dim"], now: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows"]:
    """Return the cosine of each row with what it was; 1 where a row is and stays 0, 0 where only one of the two is."""
    found = []
    per_block = max(1, _BLOCK // max(1, then.shape[1]))
    moved = now.detach().to(then.device)
    for old, new in zip(torch.split(then, per_block), torch.split(moved, per_block), strict=True):
        old, new = old.double(), new.double()
        sizes = old.norm(dim=1) * new.norm(dim=1)
        cosines = (old * new).sum(dim=1) / sizes.clamp_min(torch.finfo(torch.float64).tiny)
        both_zero = (old.abs().sum(dim=1) == 0) & (new.abs().sum(dim=1) == 0)
        found.append(torch.where(both_zero, 1.0, cosines))
    return torch.cat(found)


def layer_of(name: str, prefixes: Sequence[str]) -> int | None:
    """Return the number of the layer that a parameter lies in, counted from 0; None where it lies in none.

    Args:
        name: of the parameter, as in ``model.layers.3.mlp.up_proj.weight``.
        prefixes: the module names of the layers, bottom first.
    """
    match = re.match(r"(.*?\.\d+)\.", name)
    return prefixes.index(match[1]) if match and match[1] in prefixes else None


def stored_tensors(folder: Path, wanted: Set[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a folder's safetensors files one by one, so that no second model is held whole.

    Only of a model that is saved under other names than its parameters have, all come at once.

    Args:
        folder: with the files.
        wanted: the names of parameters; where all are stored, others are passed over.

    Raises:
        MeasurementError: a file is damaged.
    """
    files = sorted(folder.glob("*.safetensors"))
    stored: set[str] = set()
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                stored |= set(file.keys())
        except (OSError, SafetensorError) as error:
            raise MeasurementError(f"{path}: the weights to compare with cannot be read: {error}") from error
    if not wanted <= stored:
        for name, parameter in load_model(folder).named_parameters():
            yield name, parameter.detach()
        return
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                if name in wanted:
                    yield name, file.get_tensor(name)
