"""Puts new matrices into a model, and keeps every statement of their size true."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lingraft.embeddings import Embeddings
from lingraft.errors import ModelError
from lingraft.model.base import is_tied

__all__ = ["padded_rows", "replace_embeddings", "sizes_in_config"]


def padded_rows(num_ids: int, base_rows: int, multiple: int) -> int:
    """Return how many rows the new matrix has: never fewer than before, rounded up to a multiple.

    Spare rows of a padded base are used first: nothing grows while the ids fit.
    """
    if num_ids <= base_rows:
        return base_rows
    return -(-num_ids // multiple) * multiple


def replace_embeddings(model: nn.Module, input_rows: Embeddings, output_rows: Embeddings | None) -> None:
    """Give a model its new matrices, in place, and check that they are there.

    Args:
        model: a causal language model.
        input_rows: the new input matrix; for a tied model it is the output matrix too.
        output_rows: the new output matrix of an untied model.

    Raises:
        ModelError: an output matrix was given for a tied model or missing for an untied one, or the model did not take
            the rows, bit for bit.
    """
    given: Any = model
    tied = is_tied(model)
    if tied == (output_rows is not None):
        raise ModelError("a tied model has one matrix for both sides" if tied else "an untied model needs output rows")
    before = given.get_input_embeddings().weight.shape[0]
    if sizes_in_config(given.config) != {before}:
        raise ModelError(
            f"config.json states the vocabulary sizes {sorted(sizes_in_config(given.config))}, the input matrix has "
            f"{before} rows; which of them belongs to this vocabulary cannot be told"
        )
    given.set_input_embeddings(_embedding_like(given.get_input_embeddings(), input_rows.matrix))
    head = given.get_output_embeddings()
    if output_rows is not None or not tied:
        assert output_rows is not None
        given.set_output_embeddings(_head_like(head, output_rows.matrix))
    else:
        tied_head = _head_like(head, input_rows.matrix)
        tied_head.weight = given.get_input_embeddings().weight
        given.set_output_embeddings(tied_head)
    _write_size(given.config, input_rows.matrix.shape[0])
    if hasattr(given, "vocab_size"):
        given.vocab_size = input_rows.matrix.shape[0]
    _check(given, input_rows, output_rows, tied)


def _embedding_like(old: nn.Module, matrix: Float[Tensor, "rows dim"]) -> nn.Module:
    """Return the old module with another table: scaled and other special embeddings keep their behaviour."""
    given: Any = old
    given.weight = _parameter(matrix, given.weight)
    given.num_embeddings = matrix.shape[0]
    return old


def _head_like(old: nn.Module, matrix: Float[Tensor, "rows dim"]) -> nn.Linear:
    given: Any = old
    head = nn.Linear(
        matrix.shape[1],
        matrix.shape[0],
        bias=given.bias is not None,
        device=given.weight.device,
        dtype=given.weight.dtype,
    )
    head.weight = _parameter(matrix, given.weight)
    if given.bias is not None:
        with torch.no_grad():
            head.bias.fill_(given.bias.mean())
            head.bias[: given.bias.shape[0]] = given.bias
        _mark_initialised(head.bias)
    _mark_initialised(head)
    return head


def _parameter(matrix: Tensor, like: Tensor) -> nn.Parameter:
    parameter = nn.Parameter(matrix.detach().clone().to(like.device, like.dtype), requires_grad=like.requires_grad)
    _mark_initialised(parameter)
    return parameter


def _mark_initialised(thing: Any) -> None:
    # transformers re-randomises what lacks this mark when it initialises a model again (transformers#45079).
    thing._is_hf_initialized = True


def _write_size(config: Any, rows: int) -> None:
    for part in _parts_with_size(config):
        part.vocab_size = rows


def _parts_with_size(config: Any) -> list[Any]:
    parts = [config, *(value for value in vars(config).values() if hasattr(value, "to_dict"))]
    text = config.get_text_config()
    parts += [text] if all(text is not part for part in parts) else []
    return [part for part in parts if isinstance(getattr(part, "vocab_size", None), int)]


def sizes_in_config(config: Any) -> set[int]:
    """Return every vocabulary size that a configuration states, nested parts included; one is as it should be."""
    return {part.vocab_size for part in _parts_with_size(config)}


def _check(model: Any, input_rows: Embeddings, output_rows: Embeddings | None, tied: bool) -> None:
    wanted = {"input": input_rows.matrix, "output": (output_rows or input_rows).matrix}
    held = {"input": model.get_input_embeddings().weight, "output": model.get_output_embeddings().weight}
    for side, matrix in wanted.items():
        if not torch.equal(held[side].detach().to(matrix.dtype), matrix):
            raise ModelError(f"the {side} matrix of {type(model).__name__} is not what was put into it")
    if is_tied(model) != tied or sizes_in_config(model.config) != {input_rows.matrix.shape[0]}:
        raise ModelError(f"{type(model).__name__} lost its tie, or its configuration another size than the matrix")
