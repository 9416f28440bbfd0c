"""What trains in a stage, and the proof that nothing else moved."""

import fnmatch
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import FrozenMovedError, TrainingError, nearest

__all__ = [
    "Trainable",
    "choose_trainable",
    "frozen_digests",
    "kind_of",
    "prove_frozen",
    "row_digests",
    "weights_digest",
]


@dataclass(frozen=True)
class Trainable:
    """What a stage trains.

    Attributes:
        names: parameters that receive gradients.
        first_new_row: for embedding matrices, the first row that may move; 0 when every row may.
        tables: names of the embedding matrices (input, and output if untied).
    """

    names: tuple[str, ...]
    tables: tuple[str, ...]
    first_new_row: int = 0
    last_new_row: int | None = None

    def mask_gradients(self, parameters: dict[str, nn.Parameter]) -> None:
        """Zero the gradients of rows that must not move."""
        if self.first_new_row:
            for name in self.tables:
                if (gradient := parameters[name].grad) is not None:
                    gradient[: self.first_new_row] = 0
                    gradient[self.last_new_row :] = 0


def choose_trainable(model: nn.Module, train: str | Sequence[str], num_old: int, num_ids: int) -> Trainable:
    """Mark what trains (``requires_grad``) and return it.

    Args:
        model: the expanded model.
        train: ``all``, ``embeddings``, ``new_embeddings``, or patterns (``*.layers.0.*``) over parameter names.
        num_old: ids of the base tokenizer; rows from here on are new.
        num_ids: ids of the expanded tokenizer; rows from here on are padding.

    Raises:
        TrainingError: nothing would train: no new rows, or a pattern that matches no parameter.
    """
    parameters = dict(model.named_parameters())
    tables = _tables(model, parameters)
    if train == "new_embeddings" and num_ids <= num_old:
        raise TrainingError("new_embeddings has nothing to train: the vocabulary has no new rows")
    if train == "all":
        names = tuple(parameters)
    elif train in ("embeddings", "new_embeddings"):
        names = tables
    else:
        names = _matching(parameters, [train] if isinstance(train, str) else train)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in names)
    if train == "new_embeddings":
        return Trainable(names, tables, num_old, num_ids)
    return Trainable(names, tables)


def _tables(model: Any, parameters: dict[str, nn.Parameter]) -> tuple[str, ...]:
    held = [module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings())]
    return tuple(name for name, parameter in parameters.items() if any(parameter is weight for weight in held))


def _matching(parameters: dict[str, nn.Parameter], patterns: Sequence[str]) -> tuple[str, ...]:
    for pattern in patterns:
        if not fnmatch.filter(parameters, pattern):
            raise TrainingError(f"the pattern {pattern!r} matches no parameter{nearest(pattern, parameters)}")
    return tuple(name for name in parameters if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))


def frozen_digests(model: nn.Module, trainable: Trainable) -> dict[str, str]:
    """Return the SHA-256 of everything that must not move: whole parameters, and the old and padding rows of tables."""
    digests = {}
    for name, parameter in model.named_parameters():
        if name not in trainable.names:
            digests[name] = row_digests(parameter)
        elif name in trainable.tables and trainable.first_new_row:
            digests[f"{name}[old rows]"] = row_digests(parameter[: trainable.first_new_row])
            digests[f"{name}[padding rows]"] = row_digests(parameter[trainable.last_new_row :])
    return digests


def prove_frozen(model: nn.Module, trainable: Trainable, before: dict[str, str]) -> int:
    """Return how many frozen pieces were compared; each must have the same bits as before.

    Raises:
        FrozenMovedError: one moved; the message names it.
    """
    after = frozen_digests(model, trainable)
    moved = [name for name in before if after.get(name) != before[name]]
    if moved or after.keys() != before.keys():
        raise FrozenMovedError(
            f"{len(moved)} frozen pieces moved, the first is {moved[:1] or sorted(after.keys() ^ before.keys())[:1]}"
        )
    return len(before)


def row_digests(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    flat = (
        tensor.detach().contiguous().cpu().view(torch.uint8).flatten()
        if tensor.numel()
        else torch.zeros(0, dtype=torch.uint8)
    )
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def kind_of(name: str, model: nn.Module) -> str:
    """Return what a parameter is: ``embeddings``, ``head``, ``attention``, ``mlp``, ``norm`` or ``other``.

    A tied matrix is ``embeddings``. Decided by the parameter's own path, in the words that transformers' models use.
    """
    given: Any = model
    parameter = dict(model.named_parameters())[name]
    if parameter is given.get_input_embeddings().weight:
        return "embeddings"
    if parameter is given.get_output_embeddings().weight:
        return "head"
    words = name.lower()
    kinds = {"norm": ("norm", "ln_"), "attention": ("attn", "attention"), "mlp": ("mlp", "feed_forward", "ffn")}
    return next((kind for kind, marks in kinds.items() if any(mark in words for mark in marks)), "other")


def weights_digest(model: nn.Module) -> str:
    """Return one SHA-256 over the names and bytes of all parameters: equal weights, equal digest."""
    whole = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        whole.update(f"{name} {row_digests(parameter)}\n".encode())
    return whole.hexdigest()
