"""What trains in a stage, and the proof that nothing else moved."""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lingraft.errors import FrozenMovedError, ModelError, TrainingError, nearest
from lingraft.model.locate import read_json_object
from lingraft.model.shards import held, held_rows, is_split

__all__ = [
    "BLOCKS_RECORD",
    "ModelParts",
    "Trainable",
    "choose_trainable",
    "chosen_names",
    "frozen_digests",
    "inserted_blocks",
    "kind_of",
    "other_rows",
    "parts_of",
    "prove_frozen",
    "row_digests",
    "row_index",
    "weights_digest",
]

BLOCKS_RECORD = "lingraft_blocks.json"


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
        new_rows: the only rows that may move of the matrices in ``partial``, ascending; empty when there are none.
        num_ids: where ``new_rows`` are given, the ids that the tokenizer owns; rows from here on are padding.
        partial: embedding matrices of which only ``new_rows`` may move.
    """

    names: tuple[str, ...]
    tables: tuple[str, ...]
    new_rows: tuple[int, ...] = ()
    num_ids: int = 0
    partial: tuple[str, ...] = ()

    @cached_property
    def new_index(self) -> slice | Tensor:
        """What picks the new rows out of a matrix."""
        return row_index(self.new_rows)

    @property
    def output_rows(self) -> slice:
        """The rows of the output matrix that can learn, where they lie side by side; all of them otherwise."""
        index = self.new_index
        is_partial = self.tables[-1:] and self.tables[-1] in self.partial
        return index if is_partial and isinstance(index, slice) else slice(None)

    @cached_property
    def _old_runs(self) -> list[tuple[int, int]]:
        """``(begin, end)`` of each stretch of ids between new rows: slices, so that a digest copies no matrix."""
        borders = [-1, *self.new_rows, self.num_ids]
        return [(before + 1, after) for before, after in pairwise(borders) if after > before + 1]

    def mask_gradients(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Zero the gradients of rows that must not move.

        What may move is set aside and put back, so the cost is that of one pass over the matrix wherever the new rows
        lie, and the memory that of the new rows.
        """
        for name in self.partial:
            if (gradient := parameters[name].grad) is not None:
                self.keep_new_rows(name, gradient)

    def keep_new_rows(self, name: str, tensor: Tensor) -> None:
        """Zero the rows of a tensor that belong to rows of parameter ``name`` that must not move."""
        if name in self.partial:
            part, index = held(tensor), self._index_within(*held_rows(tensor)) if is_split(tensor) else self.new_index
            kept = part[index].clone()
            part.zero_()
            part[index] = kept

    def _index_within(self, begin: int, end: int) -> slice | Tensor:
        """Return what picks the new rows out of those from ``begin`` to ``end``, which one process holds."""
        if (begin, end) not in self._indexes:
            self._indexes[begin, end] = row_index([row - begin for row in self.new_rows if begin <= row < end])
        return self._indexes[begin, end]

    @cached_property
    def _indexes(self) -> dict[tuple[int, int], slice | Tensor]:
        return {}

    def describe(self) -> dict[str, Any]:
        """Return what trains as plain values: a checkpoint is of the same trainable set or of another stage."""
        return {"names": list(self.names), "partial": list(self.partial), "new_rows": list(self.new_rows)}


@dataclass(frozen=True)
class ModelParts:
    """The names of a model's parameters, and which of them have a role of their own.

    Attributes:
        names: all parameters, in the model's order.
        input_table: the input matrix.
        output_table: the output matrix; the same name where the two are tied.
        blocks: module names of inserted blocks, as ``model.layers.4``.
    """

    names: tuple[str, ...]
    input_table: str
    output_table: str
    blocks: tuple[str, ...] = ()

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The embedding matrices, one name where they are tied."""
        return tuple(dict.fromkeys((self.input_table, self.output_table)))

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The module names of the layers, bottom first: the longest list of numbered modules there is."""
        found: dict[str, set[int]] = {}
        for name in self.names:
            if match := re.match(r"(.*?)\.(\d+)\.", name):
                found.setdefault(match[1], set()).add(int(match[2]))
        if not found:
            return ()
        prefix = max(found, key=lambda name: len(found[name]))
        return tuple(f"{prefix}.{number}" for number in sorted(found[prefix]))


def parts_of(model: nn.Module, blocks: Sequence[str] = ()) -> ModelParts:
    """Return the parts of a causal language model; ``blocks`` are the module names of inserted blocks."""
    given: Any = model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    read, spoken = names[id(given.get_input_embeddings().weight)], names[id(given.get_output_embeddings().weight)]
    return ModelParts(tuple(names.values()), read, spoken, tuple(blocks))


def inserted_blocks(folder: Path) -> tuple[str, ...]:
    """Return the module names of the blocks that were inserted into the model in a folder, by the record beside it.

    The record is ``lingraft_blocks.json``, ``{"inserted": ["model.layers.4", …]}``; without one there are none.

    Raises:
        ModelError: the record cannot be read.
    """
    path = folder / BLOCKS_RECORD
    if not path.exists():
        return ()
    found = read_json_object(path).get("inserted")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ModelError(f"{path}: 'inserted' must be a list of module names, not {found!r}")
    return tuple(found)


def chosen_names(parts: ModelParts, train: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the parameters that some words and patterns choose, and those of them of which only new rows may move.

    A matrix that one word chooses whole and another by its new rows trains whole.

    Args:
        parts: of the model.
        train: words that :class:`lingraft.recipe.Stage` explains, ``top_layers:N``, ``bottom_layers:N``, and patterns.

    Raises:
        TrainingError: a pattern matches nothing, there are no inserted blocks, or fewer layers than are asked for.
    """
    whole: set[str] = set()
    rows: set[str] = set()
    for word in [train] if isinstance(train, str) else train:
        if word in _ROWS_OF:
            rows.update(_ROWS_OF[word](parts))
        else:
            whole.update(_whole_names(parts, word))
    names = tuple(name for name in parts.names if name in whole or name in rows)
    return names, tuple(name for name in parts.tables if name in rows and name not in whole)


_ROWS_OF: Mapping[str, Callable[[ModelParts], tuple[str, ...]]] = {
    "new_embeddings": lambda parts: parts.tables,
    "new_input_embeddings": lambda parts: (parts.input_table,),
    "new_output_embeddings": lambda parts: (parts.output_table,),
}
_WHOLE: Mapping[str, Callable[[ModelParts], tuple[str, ...]]] = {
    "all": lambda parts: parts.names,
    "body": lambda parts: tuple(name for name in parts.names if name not in parts.tables),
    "embeddings": lambda parts: parts.tables,
    "input_embeddings": lambda parts: (parts.input_table,),
    "output_embeddings": lambda parts: (parts.output_table,),
}


def _whole_names(parts: ModelParts, word: str) -> tuple[str, ...]:
    if word in _WHOLE:
        return _WHOLE[word](parts)
    if word == "blocks":
        if not parts.blocks:
            raise TrainingError("blocks has nothing to train: no blocks were inserted into this model")
        return _inside(parts, parts.blocks)
    side, _, count = word.partition(":")
    if side in ("top_layers", "bottom_layers"):
        number = int(count)
        if number > len(parts.layers):
            raise TrainingError(f"{side}: {number} layers are asked for, the model has {len(parts.layers)}")
        return _inside(
            parts, parts.layers[len(parts.layers) - number :] if side == "top_layers" else parts.layers[:number]
        )
    matched = tuple(name for name in parts.names if fnmatch.fnmatchcase(name, word))
    if not matched:
        raise TrainingError(f"the pattern {word!r} matches no parameter{nearest(word, parts.names)}")
    return matched


def _inside(parts: ModelParts, modules: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in parts.names if any(name.startswith(f"{module}.") for module in modules))


def choose_trainable(
    model: nn.Module,
    train: str | Sequence[str],
    new_ids: Sequence[int],
    num_ids: int,
    *,
    blocks: Sequence[str] = (),
) -> Trainable:
    """Mark what trains (``requires_grad``) and return it.

    Args:
        model: the expanded model.
        train: words and patterns, see :func:`chosen_names`.
        new_ids: ids of the new tokens, ascending; they may lie anywhere among the old ones.
        num_ids: ids of the expanded tokenizer; rows from here on are padding.
        blocks: module names of inserted blocks, for the word ``blocks``.

    Raises:
        TrainingError: nothing would train: no new rows, or a pattern that matches no parameter; ``new_ids`` are not
            ascending ids below ``num_ids``; or single rows are to be frozen of a matrix that is split over processes
            already: :func:`lingraft.training.distributed.shard` comes after the choice.
    """
    parts, parameters = parts_of(model, blocks), dict(model.named_parameters())
    names, partial = chosen_names(parts, train)
    if partial:
        _refuse_unusable_rows(new_ids, num_ids)
        _refuse_split_tables(parameters, partial)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in names)
    if partial:
        return Trainable(names, parts.tables, tuple(new_ids), num_ids, partial)
    return Trainable(names, parts.tables)


def _refuse_unusable_rows(new_ids: Sequence[int], num_ids: int) -> None:
    if not new_ids:
        raise TrainingError("new_embeddings has nothing to train: the vocabulary has no new rows")
    wrong = next((after for before, after in pairwise([-1, *new_ids, num_ids]) if after <= before), None)
    if wrong is not None:
        raise TrainingError(
            f"new_embeddings: the new ids must be ascending and below {num_ids}, the number of ids; they run from "
            f"{new_ids[0]} to {new_ids[-1]} and break at {wrong}"
        )


def _refuse_split_tables(parameters: Mapping[str, nn.Parameter], tables: Sequence[str]) -> None:
    """Refuse to freeze single rows of a matrix that something else has split over processes.

    The mask counts rows from the first row of the matrix; where the part that one process holds begins is known of our
    own division alone, and elsewhere the wrong rows would be frozen
    (https://github.com/hiyouga/LlamaFactory/pull/10563).
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


def frozen_digests(model: nn.Module, trainable: Trainable, between: Callable[[], None] | None = None) -> dict[str, str]:
    """Return the SHA-256 of everything that must not move: whole parameters, and the old and padding rows of tables.

    Of what is divided among processes, each looks at the rows that it holds. ``between`` is called before every
    parameter.
    """
    digests = {}
    for name, parameter in model.named_parameters():
        if between is not None:
            between()
        if name not in trainable.names:
            digests[name] = row_digests(held(parameter))
        elif name in trainable.partial:
            part, bounds = held(parameter), held_rows(parameter)
            padding = [(trainable.num_ids, len(parameter))]
            digests[f"{name}[old rows]"] = row_digests(part, _runs_within(trainable._old_runs, *bounds))
            digests[f"{name}[padding rows]"] = row_digests(part, _runs_within(padding, *bounds))
    return digests


def _runs_within(runs: Sequence[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Return stretches of rows as they lie in the rows from ``begin`` to ``end``."""
    clipped = [(max(first, begin) - begin, min(last, end) - begin) for first, last in runs]
    return [(first, last) for first, last in clipped if last > first]


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


def weights_digest(model: nn.Module, between: Callable[[], None] | None = None) -> str:
    """Return one SHA-256 over the names and bytes of all parameters: equal weights, equal digest.

    ``between`` is called before every parameter.
    """
    whole = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if between is not None:
            between()
        whole.update(f"{name} {row_digests(parameter)}\n".encode())
    return whole.hexdigest()
