"""How alike two models see the same tokens: linear centred kernel alignment of their hidden states."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lingraft.errors import MeasurementError

__all__ = ["LEAST_TOKENS", "linear_cka", "ordinary_tokens"]

LEAST_TOKENS = 64
"""Fewer tokens are refused; a number to be relied on takes a thousand (few make the debiased one scatter, not lean)."""

_OUTLYING = 10.0


def ordinary_tokens(
    one: Float[Tensor, "tokens dim"], other: Float[Tensor, "tokens other_dim"]
) -> Bool[Tensor, "tokens"]:
    """Return which tokens have a state of ordinary length in both models: at most ten times the median length.

    In many models a few tokens, as the first full stop, have states a hundred times as long as all others
    (massive activations, arXiv 2402.17762). CKA weighs tokens by the square of their length, so that it would tell of
    the length of those few and of nothing else.
    """
    lengths = [states.float().norm(dim=1) for states in (one, other)]
    found: Tensor = torch.stack([length <= _OUTLYING * length.median() for length in lengths]).all(dim=0)
    return found


def linear_cka(one: Float[Tensor, "tokens dim"], other: Float[Tensor, "other_tokens other_dim"]) -> float | None:
    """Return the debiased linear CKA of two sets of states of the same tokens: 1 for equal up to rotation and scale.

    CKA = HSIC₁(K, L) / √(HSIC₁(K, K) · HSIC₁(L, L)) with K = XXᵀ, L = YYᵀ (arXiv 1905.00414, sec. 3) and the unbiased
    HSIC₁ (arXiv 2010.15327, eq. 3), which is near 0 for unrelated states also where there are fewer tokens than
    dimensions; the plain estimator is near 1 there. It may be a little below 0. None where states do not vary.

    With centred states the sums over K and L are sums over their diagonals, so no matrix of tokens by tokens is made
    where there are more tokens than dimensions.

    Raises:
        MeasurementError: the tokens differ in number, or are fewer than 64.
    """
    if len(one) != len(other) or len(one) < LEAST_TOKENS:
        raise MeasurementError(
            f"CKA compares states of the same tokens, at least {LEAST_TOKENS}, not {len(one)} and {len(other)}"
        )
    x, y = one.double(), other.double()
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    own, others = _hsic(x, x), _hsic(y, y)
    if own <= 0 or others <= 0:
        return None
    return float(_hsic(x, y) / (own * others) ** 0.5)


def _hsic(x: Float[Tensor, "tokens dim"], y: Float[Tensor, "tokens other_dim"]) -> float:
    """Return the unbiased HSIC₁ of centred states."""
    n = len(x)
    k, m = x.square().sum(dim=1), y.square().sum(dim=1)
    cross = (x.T @ y).square().sum() if max(x.shape[1], y.shape[1]) <= n else ((x @ x.T) * (y @ y.T)).sum()
    diagonal = torch.dot(k, m)
    total = cross - diagonal + k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * diagonal
    return float(total / (n * (n - 3)))
