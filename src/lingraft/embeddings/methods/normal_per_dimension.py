"""Draws from a normal distribution of its own in each dimension."""

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method

__all__ = ["draw_per_dimension", "normal_per_dimension"]


@init_method("normal_per_dimension", reference="arXiv 2112.06598 (WECHSEL), arXiv 2305.14481 (FOCUS): their fallback")
def normal_per_dimension(context: InitContext) -> Float[Tensor, "new dim"]:
    """Return one draw from N(μ, diag σ²) per new token, μ and σ being mean and deviation of the old rows by dimension.

    Dimensions are taken to be independent, which they are not: rows drawn so lie where no old row lies, and in a head
    they can win over old ones. ``gaussian`` uses the whole covariance.
    """
    return draw_per_dimension(context.old, context.expansion.num_new, context.generator)


def draw_per_dimension(
    old: Float[Tensor, "old_vocab dim"], count: int, generator: torch.Generator
) -> Float[Tensor, "count dim"]:
    """Return ``count`` draws from N(μ, diag σ²) of the rows; σ divides by their number, as numpy and the papers do."""
    noise = torch.randn(count, old.shape[1], generator=generator, dtype=old.dtype)
    return old.mean(dim=0) + old.std(dim=0, correction=0) * noise
