"""A linear map from another model's rows, fitted on the tokens that both models have."""

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, Rows, fill_from_pieces, init_method
from lingraft.embeddings.donor import open_donor, share_tokens
from lingraft.errors import ModelError, RecipeError

__all__ = ["fit_linear_map", "linear_map"]

_ROWS_AT_ONCE = 4096


@init_method("linear_map", reference="arXiv 2407.12869, as the cards of jais-adapted state it", needs=("donor",))
def linear_map(context: InitContext, *, donor: str, ridge: float = 0.0) -> Rows:
    """Return, for each new token, the donor's row of it, mapped into the base model's space.

    row(t) = ē + W (d_t − d̄), with W = argmin Σᵢ ‖W (dᵢ − d̄) − (eᵢ − ē)‖² + λ ‖W‖² over the shared tokens i, whose
    rows are dᵢ in the donor and eᵢ in the base model and whose means are d̄ and ē. λ is ``ridge`` times the mean
    eigenvalue of Σᵢ (dᵢ − d̄)(dᵢ − d̄)ᵀ. The published method speaks of a map W · d_t; rows share a large mean, which
    the centred map carries over as it is and W need not learn. Tokens that the donor lacks get the mean of their
    pieces.

    Args:
        context: what every method sees.
        donor: a local model folder with tokenizer.json and safetensors weights.
        ridge: how much a smaller W is preferred; needed where fewer tokens are shared than the donor has dimensions.

    Raises:
        RecipeError: there is no such folder, or ``ridge`` is negative.
        ModelError: the donor's matrix cannot be read, or too few tokens are shared.
    """
    if ridge < 0:
        raise RecipeError(f"embeddings.{context.side}.ridge: must not be negative, is {ridge}")
    shared = share_tokens(context, open_donor(donor, f"embeddings.{context.side}.donor"))
    number, width = shared.donor_anchors.shape
    if number <= width and not ridge:
        raise ModelError(
            f"{donor}: a map from {width} dimensions cannot be fitted on {number} shared tokens alone; give it "
            f"embeddings.{context.side}.ridge, as in 0.1"
        )
    weight, offset = fit_linear_map(shared.donor_anchors, shared.old_anchors, ridge)
    rows = (shared.donor_new.double() @ weight + offset).to(context.old.dtype)
    return fill_from_pieces(context, rows, shared.places, shared.reasons)


def fit_linear_map(
    inputs: Float[Tensor, "anchors from_dim"], outputs: Float[Tensor, "anchors to_dim"], ridge: float
) -> tuple[Float[Tensor, "from_dim to_dim"], Float[Tensor, " to_dim"]]:
    """Return matrix and offset of the affine map that is nearest in the sum of squares, in fp64.

    Directions in which the inputs do not vary at all are mapped to nothing, which is the shortest of all solutions.
    """
    x_mean, y_mean = (matrix.mean(dim=0, dtype=torch.float64) for matrix in (inputs, outputs))
    gram, cross = x_mean.new_zeros(len(x_mean), len(x_mean)), x_mean.new_zeros(len(x_mean), len(y_mean))
    # In blocks: two large models share 100k tokens, whose rows in fp64 would be 3 GB each.
    for start in range(0, len(inputs), _ROWS_AT_ONCE):
        x = inputs[start : start + _ROWS_AT_ONCE].double() - x_mean
        gram += x.T @ x
        cross += x.T @ (outputs[start : start + _ROWS_AT_ONCE].double() - y_mean)
    values, vectors = torch.linalg.eigh(gram)
    smallest = values[-1] * max(inputs.shape) * torch.finfo(torch.float64).eps
    penalty = ridge * values.mean()
    inverse = torch.where(values > smallest, 1 / (values + penalty), 0.0)
    weight = vectors @ (inverse[:, None] * (vectors.T @ cross))
    return weight, y_mean - x_mean @ weight
