"""What trains in a stage, and the proof that nothing else moved."""

import fnmatch
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lingraft.errors import FrozenMovedError, TrainingError, nearest

__all__ = [
    "Trainable",
    "choose_trainable",
    "frozen_digests",
    "kind_of",
    "other_rows",
    "prove_frozen",
    "row_digests",
    "row_index",
    "weights_digest",
]


def row_index(ids: Sequence[int]) -> slice | Int[Tensor, "rows"]:
    """Return what picks the rows of some ascending ids out of a matrix.

    Ids without a gap give a slice, which copies nothing; others give their list as a tensor, which is a gather.
    """
    if not ids:
        return slice(0, 0)
    if ids[-1] - ids[0] + 1 == len(ids):
        return slice(ids[0], ids[-1] + 1)
    return torch.tensor(list(ids))


def other_rows(ids: Iterable[int], num_ids: int) -> tuple[int, ...]:
    """Return the ids below ``num_ids`` that are not among ``ids``, ascending: given the new, the old."""
    taken = frozenset(ids)
    return tuple(i for i in range(num_ids) if i not in taken)


@dataclass(frozen=True)
class Trainable:
    """What a stage trains.

    Attributes:
        names: parameters that receive gradients.
        tables: names of the embedding matrices (input, and output if untied).
        new_rows: for embedding matrices, the only rows that may move, ascending; empty when every row may.
        num_ids: where ``new_rows`` are given, the ids that the tokenizer owns; rows from here on are padding.
    """

    names: tuple[str, ...]
    tables: tuple[str, ...]
    new_rows: tuple[int, ...] = ()
    num_ids: int = 0

    @cached_property
    def _new(self) -> slice | Tensor:
        return row_index(self.new_rows)

    @cached_property
    def _old_runs(self) -> list[tuple[int, int]]:
        """``(begin, end)`` of each stretch of ids between new rows: slices, so that a digest copies no matrix."""
        borders = [-1, *self.new_rows, self.num_ids]
        return [(before + 1, after) for before, after in pairwise(borders) if after > before + 1]

    def mask_gradients(self, parameters: dict[str, nn.Parameter]) -> None:
        """Zero the gradients of rows that must not move.

        What may move is set aside and put back, so the cost is that of one pass over the matrix wherever the new rows
        lie, and the memory that of the new rows.
        """
        for name in self.tables if self.new_rows else ():
            if (gradient := parameters[name].grad) is not None:
                kept = gradient[self._new].clone()
                gradient.zero_()
                gradient[self._new] = kept


def choose_trainable(model: nn.Module, train: str | Sequence[str], new_ids: Sequence[int], num_ids: int) -> Trainable:
    """Mark what trains (``requires_grad``) and return it.

    Args:
        model: the expanded model.
        train: ``all``, ``embeddings``, ``new_embeddings``, or patterns (``*.layers.0.*``) over parameter names.
        new_ids: ids of the new tokens, ascending; they may lie anywhere among the old ones.
        num_ids: ids of the expanded tokenizer; rows from here on are padding.

    Raises:
        TrainingError: nothing would train: no new rows, or a pattern that matches no parameter; ``new_ids`` are not
            ascending ids below ``num_ids``; or single rows are to be frozen of a matrix that is split over processes.
    """
    parameters = dict(model.named_parameters())
    tables = _tables(model, parameters)
    if train == "new_embeddings":
        _refuse_unusable_rows(new_ids, num_ids)
        _refuse_split_tables(parameters, tables)
    if train == "all":
        names = tuple(parameters)
    elif train in ("embeddings", "new_embeddings"):
        names = tables
    else:
        names = _matching(parameters, [train] if isinstance(train, str) else train)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in names)
    if train == "new_embeddings":
        return Trainable(names, tables, tuple(new_ids), num_ids)
    return Trainable(names, tables)


def _refuse_unusable_rows(new_ids: Sequence[int], num_ids: int) -> None:
    if not new_ids:
        raise TrainingError("new_embeddings has nothing to train: the vocabulary has no new rows")
    wrong = next((after for before, after in pairwise([-1, *new_ids, num_ids]) if after <= before), None)
    if wrong is not None:
        raise TrainingError(
            f"new_embeddings: the new ids must be ascending and below {num_ids}, the number of ids; they run from "
            f"{new_ids[0]} to {new_ids[-1]} and break at {wrong}"
        )


def _refuse_split_tables(parameters: dict[str, nn.Parameter], tables: Sequence[str]) -> None:
    """Refuse to freeze single rows where a matrix, or the training, is split over processes.

    The mask counts rows from the first row of the matrix; the part that one process holds begins elsewhere, so the mask
    would freeze the wrong rows (https://github.com/hiyouga/LlamaFactory/pull/10563).
    """
    # A DTensor (FSDP2, tensor parallelism) has a device mesh, a ZeRO-3 parameter a shape beside its own, and FSDP1
    # keeps flat ones.
    for name in tables:
        parameter = parameters[name]
        if hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_shape") or parameter.ndim != 2:
            raise TrainingError(
                f"new_embeddings freezes single rows, which cannot be done to {name}: it is split over processes "
                f"({type(parameter).__name__}); train in one process, or choose embeddings or all"
            )
    world = os.environ.get("WORLD_SIZE", "1")
    if world.strip() not in ("", "1"):
        raise TrainingError(
            f"new_embeddings freezes single rows of {', '.join(tables)}, which works in one process only, and "
            f"WORLD_SIZE is {world}; start one process, or choose embeddings or all"
        )


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
        elif name in trainable.tables and trainable.new_rows:
            digests[f"{name}[old rows]"] = row_digests(parameter, trainable._old_runs)
            digests[f"{name}[padding rows]"] = row_digests(parameter, [(trainable.num_ids, len(parameter))])
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


def row_digests(tensor: Tensor, runs: Sequence[tuple[int, int]] | None = None) -> str:
    """Return the SHA-256 of a tensor's bytes, or of the rows in ``runs``, each ``(begin, end)``, one after another."""
    whole, content = tensor.detach().contiguous().cpu(), hashlib.sha256()
    for part in [whole] if runs is None else [whole[begin:end] for begin, end in runs]:
        if part.numel():
            content.update(part.view(torch.uint8).flatten().numpy().data)
    return content.hexdigest()


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
