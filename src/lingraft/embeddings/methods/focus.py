"""Sparse mixtures of old rows, by how alike tokens are used in the user's own text."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, Rows, fill_from_pieces, init_method
from lingraft.embeddings.methods.normal_per_dimension import draw_per_dimension
from lingraft.embeddings.own_vectors import ENGINES, VectorOptions, train_vectors
from lingraft.embeddings.vectors import Vectors
from lingraft.errors import ModelError, RecipeError, nearest

__all__ = ["FALLBACKS", "fill_others", "focus", "focus_rows", "rows_from_vectors", "sparsemax"]

FALLBACKS = ("normal", "subword_mean")

_ROWS_AT_ONCE = 512


@init_method(
    "focus",
    reference="arXiv 2305.14481",
    needs_text=True,
    choices={"engine": ENGINES, "fallback": FALLBACKS},
    extra_when={"engine": {"fasttext": "fasttext"}},
)
def focus(
    context: InitContext,
    *,
    dim: int = 100,
    engine: str = "svd",
    window: int = 5,
    min_count: int = 2,
    epochs: int = 3,
    fallback: str = "normal",
) -> Rows:
    """Return, for each new token, a sparse convex mixture of the old rows of tokens that are used alike.

    Vectors v are trained on the target text as the new tokenizer cuts it. With O the old tokens that have a vector,
    w = sparsemax over o ∈ O of cos(v_t, v_o), and row(t) = Σ w_o E[o] (FOCUS, arXiv 2305.14481, sec. 3). A new token
    without a vector (too rare, or always part of a longer new token) is on record as a fallback: as in the paper it is
    drawn from N(μ, σ) per dimension of the old rows, or with ``fallback`` ``subword_mean`` it is the mean of its
    pieces. No row but those of new tokens is made; the published package overwrites old rows whose spelling it maps to
    another token's.

    ``engine``, ``window``, ``min_count`` and ``epochs`` are those of ``VectorOptions``. The paper trains fastText (300
    dimensions; its package 100 by default, and leaves out tokens that occur less than 10 times); ``svd`` is ours. O
    holds every old token that the text has, where the package may restrict it to a tokenizer of the target.

    Raises:
        RecipeError: an option has no meaning.
        ModelError: no old token occurs ``min_count`` times in the target text.
        MissingExtraError: the engine is not installed.
    """
    options = VectorOptions(engine=engine, window=window, min_count=min_count, epochs=epochs)
    vectors = train_vectors(context.expansion.new, context.texts(), dim, context.generator, options)
    return rows_from_vectors(context, vectors, fallback)


def rows_from_vectors(context: InitContext, vectors: Vectors, fallback: str = "normal") -> Rows:
    """Return FOCUS's rows for vectors that are there already, by the spelling of tokens in the new tokenizer's file."""
    by_id = _vectors_by_id(context, vectors)
    new_ids = [token.id for token in context.expansion.new_tokens]
    taken = set(new_ids)
    shared = [token_id for token_id in by_id if token_id < context.expansion.num_old and token_id not in taken]
    if not shared:
        raise ModelError("none of the old tokens has a vector, so there is nothing to mix new rows from")
    found = [place for place, token_id in enumerate(new_ids) if token_id in by_id]
    rows = context.old[:0]
    if found:
        keys = torch.stack([by_id[token_id] for token_id in shared])
        queries = torch.stack([by_id[new_ids[place]] for place in found])
        rows = focus_rows(queries, keys, context.old[shared])
    return fill_others(context, rows, found, "the text holds it too rarely for a vector", fallback)


def fill_others(
    context: InitContext, found: Float[Tensor, "found dim"], places: Sequence[int], why: str, fallback: str
) -> Rows:
    """Return the rows that a method found, and for all other tokens a draw like the old rows, or their pieces' mean.

    Args:
        context: what the method saw.
        found: the rows that it made.
        places: where among the new tokens each of them belongs.
        why: the others have none.
        fallback: ``normal`` or ``subword_mean``.

    Raises:
        RecipeError: there is no such fallback.
    """
    tokens = context.expansion.new_tokens
    if fallback not in FALLBACKS:
        known = ", ".join(FALLBACKS)
        raise RecipeError(f"fallback {fallback!r} is not known{nearest(fallback, FALLBACKS)} (known: {known})")
    if fallback == "subword_mean":
        return fill_from_pieces(context, found, places, {token.id: why for token in tokens})
    rows = draw_per_dimension(context.old, len(tokens), context.generator)
    rows[list(places)] = found
    missing = set(range(len(tokens))).difference(places)
    return Rows(rows, {tokens[place].id: f"a draw from N(μ, σ): {why}" for place in sorted(missing)})


def _vectors_by_id(context: InitContext, vectors: Vectors) -> dict[int, Tensor]:
    """Return id → vector; a vector of zeros says nothing, so it counts as none."""
    ids = context.expansion.new.vocabulary
    is_said = vectors.matrix.any(dim=1).tolist()
    return {ids[word]: vectors.matrix[row] for word, row in vectors.words.items() if word in ids and is_said[row]}


def focus_rows(
    queries: Float[Tensor, "new width"], keys: Float[Tensor, "shared width"], old: Float[Tensor, "shared dim"]
) -> Float[Tensor, "new dim"]:
    """Return sparsemax(cos(queries, keys)) @ old: what FOCUS makes of given vectors."""
    unit = torch.nn.functional.normalize(keys, dim=1).T
    blocks = torch.split(torch.nn.functional.normalize(queries, dim=1), _ROWS_AT_ONCE)
    return torch.cat([sparsemax(block @ unit) @ old for block in blocks])


def sparsemax(scores: Float[Tensor, "rows choices"]) -> Float[Tensor, "rows choices"]:
    """Return the point of the probability simplex that is nearest to each row of scores.

    p_i = max(0, z_i − τ), with z sorted downwards, k the largest number for which 1 + k z_k > Σ_{j≤k} z_j, and
    τ = (Σ_{j≤k} z_j − 1) / k (Martins and Astudillo, arXiv 1602.02068, alg. 1).
    """
    ordered = scores.sort(dim=1, descending=True).values
    sums = ordered.cumsum(dim=1)
    ranks = torch.arange(1, scores.shape[1] + 1, dtype=scores.dtype, device=scores.device)
    supporting: Bool[Tensor, "rows choices"] = 1 + ranks * ordered > sums
    k = supporting.sum(dim=1, keepdim=True)
    threshold = (sums.gather(1, k - 1) - 1) / k
    return (scores - threshold).clamp_min(0)
