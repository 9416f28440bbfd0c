"""Draws from the normal distribution that the old rows look like."""

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method

__all__ = ["gaussian"]


@init_method("gaussian", reference="https://nlp.stanford.edu/~johnhew/vocab-expansion.html")
def gaussian(context: InitContext, *, scale: float = 1.0) -> Float[Tensor, "new dim"]:
    """Return one draw from N(μ, scale · Σ) per new token, μ and Σ being the mean and covariance of the old rows.

    The whole covariance is used: with E = V diag(λ) Vᵀ the eigendecomposition of Σ, a row is μ + √scale · V √λ z,
    z ~ N(0, I). (transformers' own resize scales Σ by 1e-9 and Hewitt by
    1e-5, which is the mean in all but name; with 1 the bound that ``mean`` has on the KL does not hold.)
    """
    old = context.old.double()
    centred = old - old.mean(dim=0)
    covariance = centred.T @ centred / max(1, len(old) - 1)
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0).sqrt()
    noise = torch.randn(context.expansion.num_new, old.shape[1], generator=context.generator, dtype=torch.float64)
    rows: Tensor = old.mean(dim=0) + scale**0.5 * noise @ root.T
    return rows.to(context.old.dtype)
