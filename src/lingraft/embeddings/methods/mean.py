"""The mean of all old rows."""

from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method

__all__ = ["mean"]


@init_method("mean", reference="https://nlp.stanford.edu/~johnhew/vocab-expansion.html")
def mean(context: InitContext) -> Float[Tensor, "new dim"]:
    """Return the mean old row for every new token.

    μ = 1/V · Σ Eᵢ. All new rows are equal, so a head row's logit is the mean logit; with a plain linear head and a
    vocabulary that was only appended to, the KL between old and new model is at most log(1 + N/V).
    """
    return context.old.mean(dim=0).repeat(context.expansion.num_new, 1)
