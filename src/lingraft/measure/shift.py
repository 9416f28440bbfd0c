"""How far the weights moved, per kind of tensor."""

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from lingraft.errors import MeasurementError
from lingraft.model.base import load_model
from lingraft.model.freeze import kind_of, other_rows, row_index

__all__ = ["KindShift", "ParameterShift", "measure_shift"]


@dataclass
class KindShift:
    """Sums over the tensors of one kind: ‖θ − θ₀‖², ‖θ₀‖², ‖θ‖², ⟨θ, θ₀⟩."""

    difference: float = 0.0
    before: float = 0.0
    after: float = 0.0
    product: float = 0.0

    def add(self, then: Tensor, now: Tensor) -> float:
        """Take in one tensor; return ‖θ − θ₀‖."""
        old, new = then.double().flatten(), now.detach().to(then.device).double().flatten()
        distance = float(torch.linalg.vector_norm(new - old))
        self.difference += distance**2
        self.before += torch.dot(old, old).item()
        self.after += torch.dot(new, new).item()
        self.product += torch.dot(old, new).item()
        return distance

    @property
    def relative_l2(self) -> float:
        """‖θ − θ₀‖ / ‖θ₀‖ over all tensors of the kind; 0 where all weights are and stay 0."""
        return float((self.difference / self.before) ** 0.5) if self.before else 0.0

    @property
    def cosine(self) -> float:
        """⟨θ, θ₀⟩ / (‖θ‖ ‖θ₀‖); 1 where all weights are and stay 0."""
        size = (self.before * self.after) ** 0.5
        return self.product / size if size else 1.0


@dataclass
class ParameterShift:
    """The shift from a starting point.

    Attributes:
        mean_l2: the paper's measure (arXiv 2506.00288, fig. 4): the mean over named tensors of ‖θ − θ₀‖₂.
        kinds: kind → its sums; rows of new tokens are kept apart as ``embeddings_new`` and ``head_new``.
    """

    mean_l2: float = 0.0
    kinds: dict[str, KindShift] = field(default_factory=lambda: defaultdict(KindShift))


@torch.no_grad()
def measure_shift(model: nn.Module, start: Path, *, new_ids: Sequence[int], num_ids: int) -> ParameterShift:
    """Return how far a model is from the weights in a folder, read tensor by tensor in fp64.

    θ₀ is the model after vocabulary expansion. The rows of new tokens are reported apart, or they would swamp the rest;
    padding rows take no part.

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
    now = dict(model.named_parameters())
    distances = []
    seen = set()
    for name, then in _tensors(start, now.keys()):
        if name not in now:
            continue
        seen.add(name)
        kind, parameter = kind_of(name, model), now[name].to(then.device)
        if parameter.shape != then.shape:
            raise MeasurementError(
                f"{start}: {name} is {tuple(then.shape)}, in the model it is {tuple(parameter.shape)}"
            )
        if kind in ("embeddings", "head"):
            distances.append(torch.linalg.vector_norm(parameter[:num_ids].double() - then[:num_ids].double()).item())
            shift.kinds[f"{kind}_old"].add(then[old], parameter[old])
            if new_ids:
                shift.kinds[f"{kind}_new"].add(then[new], parameter[new])
        else:
            distances.append(shift.kinds[kind].add(then, parameter))
    if missing := sorted(now.keys() - seen):
        raise MeasurementError(f"{start}: no tensor {missing[0]!r} to compare with ({len(missing)} missing)")
    shift.mean_l2 = sum(distances) / len(distances)
    return shift


def _tensors(folder: Path, wanted: Set[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a folder one by one; of a model that is saved under other names, all at once."""
    files = sorted(folder.glob("*.safetensors"))
    stored: set[str] = set()
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                stored |= set(file.keys())
        except (OSError, SafetensorError) as error:
            raise MeasurementError(f"{path}: the weights to compare with cannot be read: {error}") from error
    if not wanted <= stored:
        yield from dict(load_model(folder).named_parameters()).items()
        return
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                yield name, file.get_tensor(name)
