"""The mean of the rows that spelled the token before, with equal or with other weights."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method
from lingraft.embeddings.token_text import token_bytes
from lingraft.errors import RecipeError, nearest

__all__ = ["character_lengths", "subword_mean"]

_ADAPTIVOCAB_SLOPE = 2.0

_BY_PLACE: Mapping[str, Callable[[int], Tensor]] = {
    "first": lambda n: torch.eye(n)[0],
    "last": lambda n: torch.eye(n)[n - 1],
    "late": lambda n: torch.softmax(_ADAPTIVOCAB_SLOPE * torch.arange(n), dim=0),
    "early": lambda n: torch.softmax(-_ADAPTIVOCAB_SLOPE * torch.arange(n), dim=0),
}
_ALLOWED = ("uniform", "length", "first", "last", "late", "early")


@init_method(
    "subword_mean",
    reference="arXiv 2607.15232; FVT: https://aclanthology.org/2022.emnlp-industry.41; "
    "length: arXiv 2608.03494; late, early: AdaptiVocab, arXiv 2503.19693",
    choices={"weights": _ALLOWED},
)
def subword_mean(context: InitContext, *, weights: str = "uniform") -> Float[Tensor, "new dim"]:
    """Return, for each new token, the mean of the old rows of its pieces.

    row(t) = Σⱼ wⱼ · E[sⱼ], where s₁…sₙ are the old ids that spelled t, wⱼ ≥ 0 and Σ wⱼ = 1: a row lies among those of
    its pieces. For the output matrix this makes the logit of t the weighted mean logit of its pieces. By ``weights``,
    wⱼ is

    - ``uniform``: 1/n;
    - ``length``: in proportion to the characters of sⱼ, the space before a word being one of them;
    - ``first``, ``last``: 1 for that piece alone;
    - ``late`` (meant for input rows), ``early`` (for output rows): in proportion to exp(2j) and exp(−2j), as the code
    of
      token distillation has AdaptiVocab's weights; AdaptiVocab's own code halves them from place to place.

    Raises:
        RecipeError: ``weights`` is none of these.
    """
    pieces = [list(token.pieces) for token in context.expansion.new_tokens]
    if weights == "uniform":
        return torch.stack([context.old[ids].mean(dim=0) for ids in pieces])
    weigh = _weights_by_length(context) if weights == "length" else _weights_by_place(weights, context.side)
    return torch.stack([weigh(ids).to(context.old) @ context.old[ids] for ids in pieces])


def _weights_by_place(weights: str, side: str) -> Callable[[Sequence[int]], Tensor]:
    if weights not in _BY_PLACE:
        allowed = ", ".join(_ALLOWED)
        raise RecipeError(
            f"embeddings.{side}.weights: there are no weights {weights!r}{nearest(weights, _ALLOWED)} ({allowed})"
        )
    return lambda pieces: _BY_PLACE[weights](len(pieces))


def _weights_by_length(context: InitContext) -> Callable[[Sequence[int]], Tensor]:
    raw = token_bytes(context.expansion.old)

    def weigh(pieces: Sequence[int]) -> Tensor:
        lengths = torch.tensor(character_lengths([raw.get(piece) for piece in pieces]))
        return lengths / lengths.sum()

    return weigh


def character_lengths(pieces: Sequence[bytes | None]) -> list[float]:
    """Return how many characters each piece of a token holds; a byte of an n-byte character counts 1/n.

    A piece without bytes, such as one for an unknown character, counts 1. Where a token begins within a character, its
    first bytes are taken for the end of the shortest character that they can belong to.
    """
    shares = iter(_byte_shares(b"".join(piece or b"" for piece in pieces)))
    return [1.0 if piece is None else sum(next(shares) for _ in piece) for piece in pieces]


def _byte_shares(raw: bytes) -> list[float]:
    shares: list[float] = []
    while (start := len(shares)) < len(raw):
        end = start + 1
        while end < len(raw) and 0x80 <= raw[end] < 0xC0:
            end += 1
        lead = raw[start]
        if 0x80 <= lead < 0xC0:
            size = end - start + 1
        else:
            size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        shares += [1 / size] * (end - start)
    return shares
