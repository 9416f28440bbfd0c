"""What an init method sees, what it must return, and the matrix that is built from it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lingraft.errors import LingraftError, ModelError
from lingraft.registry import Registry
from lingraft.vocabulary import VocabularyExpansion

__all__ = [
    "Embeddings",
    "InitContext",
    "Origin",
    "Rows",
    "fill_from_pieces",
    "fill_rows",
    "init_method",
    "init_methods",
]

InitMethod = Callable[..., "Tensor | Rows"]

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
class Rows:
    """The rows that a method made, and for which tokens it did something else than it says.

    Attributes:
        matrix: one row per new token, in their order.
        fallbacks: id of a new token → what was done instead, and why.
    """

    matrix: Float[Tensor, "new dim"]
    fallbacks: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a row came from: ``copied``, ``initialised`` (by a method), its ``fallback``, or ``padding``.

    Attributes:
        kind: which of these.
        method: the method that was asked for.
        pieces: the old ids that spelled the token before.
        why: for a fallback, what the method did instead, and why.
    """

    kind: Literal["copied", "initialised", "fallback", "padding"]
    method: str | None = None
    pieces: tuple[int, ...] = ()
    why: str | None = None


@dataclass(frozen=True)
class Embeddings:
    """A matrix ``(rows, dim)`` and the origin of each of its rows."""

    matrix: Float[Tensor, "rows dim"]
    origins: tuple[Origin, ...]

    def counts(self) -> dict[str, int]:
        """Return how many rows have each kind of origin."""
        return dict(Counter(origin.kind for origin in self.origins))


def fill_rows(
    context: InitContext, base: Float[Tensor, "base_rows dim"], method: InitMethod, name: str, num_rows: int
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
        ModelError: the matrix is too small for an id, the method returned another shape or a row that is not finite,
            or it fell back on something else for more than half of the new tokens.
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
        made = _checked(_made(method, context, name), (expansion.num_new, base.shape[1]), name, base.dtype)
        _refuse_fallbacks(made.fallbacks, expansion, name)
        ids = [token.id for token in expansion.new_tokens]
        matrix[torch.tensor(ids)] = made.matrix.to(base.dtype)
        for token in expansion.new_tokens:
            why = made.fallbacks.get(token.id)
            origins[token.id] = Origin("fallback" if why else "initialised", name, token.pieces, why)
    return Embeddings(matrix, tuple(origins))


def _made(method: InitMethod, context: InitContext, name: str) -> Any:
    """Return what a method makes; a fault of a user's own method is told with its name."""
    try:
        return method(context)
    except LingraftError:
        raise
    except Exception as error:
        raise ModelError(f"init method {name!r} failed: {type(error).__name__}: {error}") from error


def _checked(made: Any, shape: tuple[int, int], name: str, dtype: torch.dtype) -> Rows:
    rows = made.matrix if isinstance(made, Rows) else made
    if not isinstance(rows, Tensor) or tuple(rows.shape) != shape:
        got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ModelError(f"init method {name!r} must return a tensor of shape {shape}, it returned {got}")
    if not rows.is_floating_point() or rows.layout is not torch.strided or rows.is_meta:
        raise ModelError(
            f"init method {name!r} must return dense rows of floating-point numbers, not {rows.dtype} rows"
        )
    if not torch.isfinite(rows.to(dtype)).all():
        raise ModelError(f"init method {name!r} returned rows that are not finite")
    return made if isinstance(made, Rows) else Rows(rows)


def _refuse_fallbacks(fallbacks: Mapping[int, str], expansion: VocabularyExpansion, name: str) -> None:
    if unknown := set(fallbacks).difference(expansion.new_ids):
        raise ModelError(f"init method {name!r} reports a fallback for id {min(unknown)}, which is no new token")
    if "" in fallbacks.values():
        raise ModelError(f"init method {name!r} reports a fallback without saying why")
    if 2 * len(fallbacks) > expansion.num_new:
        why, count = Counter(fallbacks.values()).most_common(1)[0]
        raise ModelError(
            f"init method {name!r} could not be used for {len(fallbacks)} of {expansion.num_new} new tokens, and more "
            f"than half is too many ({count} times: {why})"
        )


def fill_from_pieces(
    context: InitContext, found: Float[Tensor, "found dim"], places: Sequence[int], reasons: Mapping[int, str]
) -> Rows:
    """Return the rows that a method found, and for all other tokens the mean of the old rows of their pieces.

    Args:
        context: what the method saw.
        found: the rows that it made.
        places: where among the new tokens each of them belongs.
        reasons: id of a new token → why it has none; every other token needs one.
    """
    tokens = context.expansion.new_tokens
    matrix = context.old.new_zeros(len(tokens), context.old.shape[1])
    matrix[torch.tensor(list(places), dtype=torch.long)] = found.to(matrix.dtype)
    fallbacks = {}
    for place in sorted(set(range(len(tokens))).difference(places)):
        token = tokens[place]
        matrix[place] = context.old[torch.tensor(token.pieces)].mean(dim=0)
        fallbacks[token.id] = f"mean of its pieces: {reasons[token.id]}"
    return Rows(matrix, fallbacks)
