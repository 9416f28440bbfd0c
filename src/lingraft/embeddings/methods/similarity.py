"""A weighted mean of the old tokens that mean nearly the same, as a model from outside sees it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.batching import batches_of
from lingraft.embeddings.context import InitContext, Rows, fill_from_pieces, init_method
from lingraft.embeddings.token_text import token_texts
from lingraft.embeddings.vectors import Vectors, combine_rows, cosine_neighbours, read_vectors
from lingraft.errors import ModelError, RecipeError, nearest
from lingraft.registry import Registry

__all__ = ["similarity"]

_WEIGHTS = ("softmax", "cosine")
_TEXTS_AT_ONCE = 1024
_UNLIKE = "no old token is like it"

# Encoders are always the user's own: the registry is there for its way of finding ``module:function``.
_encoders: Registry[Callable[[list[str]], Any]] = Registry("encoder")


@init_method(
    "similarity",
    reference="arXiv 2407.12869",
    needs=("vectors", "encoder"),
    one_of=("vectors", "encoder"),
    choices={"weights": _WEIGHTS},
)
def similarity(
    context: InitContext,
    *,
    vectors: str | None = None,
    encoder: str | None = None,
    k: int = 10,
    temperature: float = 0.1,
    weights: str = "softmax",
) -> Rows:
    """Return, for each new token, a weighted mean of the old rows of the ``k`` tokens whose text is nearest in meaning.

    row(t) = Σⱼ wⱼ · E[sⱼ], where s₁…s_k are the old tokens with the largest cosines cⱼ = cos(v(t), v(sⱼ)), v is an
    embedding from outside of a token's text without the white space around it, and w = softmax(c / temperature), or
    wⱼ ∝ max(cⱼ, 0) with ``weights: cosine``. (The paper's own k and weights were not found by us.)

    Old tokens that are no clean text (control tokens, parts of characters, white space) take no part. With word
    vectors, a text is looked up as it is, then in lower case; old tokens without a vector take no part. New tokens that
    are no clean text, have no vector, or resemble no old token get the mean of their pieces: a piece of a word has no
    meaning that a list of words could know.

    Args:
        context: what every method sees.
        vectors: a file of word vectors: the text form of word2vec and fastText (also .gz), or .npz.
        encoder: ``my_package.module:function``, which gets a list of texts and returns one vector for each.
        k: how many old tokens a row is made of.
        temperature: the smaller, the more the nearest of them counts.
        weights: ``softmax`` or ``cosine``.

    Raises:
        RecipeError: not exactly one of ``vectors`` and ``encoder`` is given, or an option has no possible value.
        ModelError: the encoder returns something else than vectors, or no old token has one.
    """
    where = f"embeddings.{context.side}"
    _refuse_options(where, vectors, encoder, k, temperature, weights)
    old, new = _stripped(token_texts(context.expansion.old)), _stripped(token_texts(context.expansion.new))
    texts = sorted({*old.values(), *(new[t.id] for t in context.expansion.new_tokens if t.id in new)})
    known = _encode(encoder, texts, where) if encoder else _look_up(str(vectors), texts, where)
    old_ids = [token_id for token_id, text in old.items() if text in known.words]
    if not old_ids:
        raise ModelError(f"{where}: no old token has a vector in {vectors or encoder!r}")
    places, reasons = _places(context, new, known)
    wanted = [known.words[new[context.expansion.new_tokens[place].id]] for place in places]
    keys = known.matrix[[known.words[old[token_id]] for token_id in old_ids]]
    values, indices = cosine_neighbours(known.matrix[wanted], keys, k)
    is_like = values[:, 0] > 0
    reasons |= {context.expansion.new_tokens[places[row]].id: _UNLIKE for row in (~is_like).nonzero()[:, 0].tolist()}
    shares = _shares(values[is_like], temperature, weights)
    rows = combine_rows(context.old, torch.tensor(old_ids)[indices[is_like]], shares)
    return fill_from_pieces(context, rows, [places[row] for row in is_like.nonzero()[:, 0].tolist()], reasons)


def _refuse_options(
    where: str, vectors: str | None, encoder: str | None, k: int, temperature: float, weights: str
) -> None:
    if (vectors is None) == (encoder is None):
        given = "neither" if vectors is None else "both"
        raise RecipeError(
            f"{where}: similarity needs one of vectors (a file) and encoder (module:function), not {given}"
        )
    if k < 1:
        raise RecipeError(f"{where}.k: at least 1 old token is needed for a row, not {k}")
    if temperature <= 0:
        raise RecipeError(f"{where}.temperature: must be over 0, is {temperature}")
    if weights not in _WEIGHTS:
        allowed = ", ".join(_WEIGHTS)
        raise RecipeError(f"{where}.weights: there are no weights {weights!r}{nearest(weights, _WEIGHTS)} ({allowed})")


def _stripped(texts: dict[int, str]) -> dict[int, str]:
    return {token_id: short for token_id, text in texts.items() if (short := text.strip())}


def _places(context: InitContext, new: dict[int, str], known: Vectors) -> tuple[list[int], dict[int, str]]:
    """Return where the new tokens stand that have a vector, and for the others why they have none."""
    places, reasons = [], {}
    for place, token in enumerate(context.expansion.new_tokens):
        if new.get(token.id) in known.words:
            places.append(place)
        else:
            reasons[token.id] = "there is no vector for its text" if token.id in new else "it is no clean text"
    return places, reasons


def _shares(cosines: Float[Tensor, "new k"], temperature: float, weights: str) -> Float[Tensor, "new k"]:
    if weights == "softmax":
        return torch.softmax(cosines / temperature, dim=1)
    positive = cosines.clamp_min(0)
    return positive / positive.sum(dim=1, keepdim=True)


def _look_up(path: str, texts: Sequence[str], where: str) -> Vectors:
    """Return the vectors of the texts that a file has, as they are or in lower case."""
    found = read_vectors(path, f"{where}.vectors", {*texts, *(text.lower() for text in texts)})
    rows = {text: found.words.get(text, found.words.get(text.lower())) for text in texts}
    return Vectors({text: row for text, row in rows.items() if row is not None}, found.matrix)


def _encode(name: str, texts: Sequence[str], where: str) -> Vectors:
    """Return the vectors that the user's own encoder gives the texts."""
    encode = _encoders.get(name, f"{where}.encoder").function
    parts = []
    for batch in batches_of(texts, _TEXTS_AT_ONCE):
        part = torch.as_tensor(np.asarray(encode(batch)))
        if part.ndim != 2 or len(part) != len(batch) or not part.is_floating_point():
            raise ModelError(
                f"{where}.encoder: {name!r} must return one vector of floating-point numbers for each of {len(batch)} "
                f"texts, it returned shape {tuple(part.shape)} of {part.dtype}"
            )
        parts.append(part.float())
    matrix = torch.cat(parts)
    if not torch.isfinite(matrix).all():
        raise ModelError(f"{where}.encoder: {name!r} returned vectors that are not finite")
    return Vectors(dict(zip(texts, range(len(texts)), strict=True)), matrix)
