"""Draws from one normal distribution around zero, as a model's own initialiser has it."""

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.embeddings.context import InitContext, init_method
from lingraft.errors import RecipeError

__all__ = ["random_normal"]


@init_method(
    "random_normal", reference="https://huggingface.co/docs/transformers/main_classes/model (mean_resizing=False)"
)
def random_normal(context: InitContext, *, std: float = 0.02) -> Float[Tensor, "new dim"]:
    """Return one draw from N(0, std² · I) per new token.

    This is what transformers does without ``mean_resizing``: 0.02 is the usual ``initializer_range``.

    Raises:
        RecipeError: ``std`` is negative.
    """
    if std < 0:
        raise RecipeError(f"embeddings.{context.side}.std: a standard deviation is not negative, {std} is")
    shape = context.expansion.num_new, context.old.shape[1]
    return std * torch.randn(shape, generator=context.generator, dtype=context.old.dtype)
