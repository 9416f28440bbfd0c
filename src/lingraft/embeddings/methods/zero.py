"""Zero rows: the baseline that knows nothing."""

from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method

__all__ = ["zero"]


@init_method("zero", reference="arXiv 2506.06607")
def zero(context: InitContext) -> Float[Tensor, "new dim"]:
    """Return zero for every new token.

    A head row of zeros has logit 0, which wins wherever all other logits are negative; see ``mean`` for the safe draw
    that knows as little.
    """
    return context.old.new_zeros(context.expansion.num_new, context.old.shape[1])
