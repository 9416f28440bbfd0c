"""What an init method sees, what it must return, and the matrix that is built from it."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lingraft.errors import ModelError
from lingraft.registry import Registry
from lingraft.vocabulary import VocabularyExpansion

__all__ = ["Embeddings", "InitContext", "Origin", "fill_rows", "init_method", "init_methods"]

InitMethod = Callable[..., Tensor]

init_methods: Registry[InitMethod] = Registry("init method")
init_method = init_methods.register


@dataclass(frozen=True)
class InitContext:
    """Everything that an init method may look at.

    Attributes:
        expansion: the new tokens and the old ids that each is made of.
        old: the base model's matrix, one row per old id, in fp32; rows past the old tokenizer's ids are left out.
        side: which matrix this is; tied models have only ``input``.
        generator: the only source of chance.
        texts: gives the target text, as often as it is asked for; the methods that train vectors on it use this.
        base_model: loads the base model, old rows and all; only methods that run it use this.
    """

    expansion: VocabularyExpansion
    old: Float[Tensor, "old_vocab dim"]
    side: Literal["input", "output"]
    generator: torch.Generator
    texts: Callable[[], Iterable[str]] = tuple
    base_model: Callable[[], nn.Module] | None = None


@dataclass(frozen=True)
class Origin:
    """Where a row came from: ``copied``, ``initialised`` (by a method), or ``padding``."""

    kind: Literal["copied", "initialised", "padding"]
    method: str | None = None
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Embeddings:
    """A matrix ``(rows, dim)`` and the origin of each of its rows."""

    matrix: Float[Tensor, "rows dim"]
    origins: tuple[Origin, ...]

    def counts(self) -> dict[str, int]:
        """Return how many rows have each kind of origin."""
        return dict(Counter(origin.kind for origin in self.origins))


def fill_rows(
    context: InitContext, base: Float[Tensor, "base_rows dim"], method: Callable[..., Tensor], name: str, num_rows: int
) -> Embeddings:
    """Return the new matrix: old rows bit for bit, new rows by the method at their own ids, padding apart.

    Rows that no token owns are the mean of the old rows, whose logit stays far from the top; a zero row would have
    logit 0, which wins wherever all others are negative (https://nlp.stanford.edu/~johnhew/vocab-expansion.html). They
    are masked in every loss, probe and score of ours.

    Args:
        context: what the method sees.
        base: the whole base matrix in its own type, padding rows included.
        method: the bound init method.
        name: what to record as the method.
        num_rows: rows of the new matrix.

    Raises:
        ModelError: the matrix is too small for an id, the method returned another shape, or a row that is not finite.
    """
    expansion = context.expansion
    if num_rows < max(expansion.new.num_ids, base.shape[0]) or base.shape[0] < expansion.num_old:
        raise ModelError(
            f"{num_rows} rows over a base of {base.shape[0]} cannot hold {expansion.new.num_ids} ids "
            f"({expansion.num_old} of them old)"
        )
    padding = context.old.mean(dim=0).to(base.dtype)
    matrix = padding.repeat(num_rows, 1)
    matrix[: base.shape[0]] = base
    owned = max(expansion.new.num_ids, expansion.num_old)
    origins = [Origin("copied")] * owned + [Origin("padding")] * (num_rows - owned)
    if expansion.num_new:
        rows = _checked(method(context), (expansion.num_new, base.shape[1]), name)
        ids = [token.id for token in expansion.new_tokens]
        matrix[torch.tensor(ids)] = rows.to(base.dtype)
        for token in expansion.new_tokens:
            origins[token.id] = Origin("initialised", name, token.pieces)
    return Embeddings(matrix, tuple(origins))


def _checked(rows: Any, shape: tuple[int, int], name: str) -> Tensor:
    if not isinstance(rows, Tensor) or tuple(rows.shape) != shape:
        got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ModelError(f"init method {name!r} must return a tensor of shape {shape}, it returned {got}")
    if not torch.isfinite(rows).all():
        raise ModelError(f"init method {name!r} returned rows that are not finite")
    return rows
