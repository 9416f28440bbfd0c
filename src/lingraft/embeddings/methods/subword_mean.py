"""The mean of the rows that spelled the token before."""

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method

__all__ = ["subword_mean"]


@init_method("subword_mean", reference="arXiv 2607.15232; FVT: https://aclanthology.org/2022.emnlp-industry.41")
def subword_mean(context: InitContext) -> Float[Tensor, "new dim"]:
    """Return, for each new token, the mean of the old rows of its pieces.

    row(t) = 1/n · Σⱼ E[sⱼ], where s₁…sₙ are the old ids that spelled t. For the output matrix this makes the logit of t
    the mean logit of its pieces.
    """
    pieces = [torch.tensor(token.pieces) for token in context.expansion.new_tokens]
    return torch.stack([context.old[ids].mean(dim=0) for ids in pieces])
