"""Two ways to make the same steps cheaper: compiling the body, and not keeping activations.

Neither changes what a step computes beyond the rounding of another order of operations, and with both off nothing here
touches a model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from lingraft.errors import TrainingError

__all__ = ["accelerate", "uncompiled"]


def accelerate(model: nn.Module, *, compile_body: bool = False, checkpoint_activations: bool = False) -> None:
    """Change how a model computes in training, in place; names and values of parameters stay.

    Args:
        model: a Hugging Face causal language model.
        compile_body: compile everything below the head, for each shape by itself (torch.compile,
            https://pytorch.org/docs/stable/generated/torch.compile.html), so that a resumed run meets the same code.
        checkpoint_activations: keep only the inputs of each layer and make the rest again in the backward pass
            (arXiv 1604.06174), with the same dropout.

    Raises:
        TrainingError: the architecture cannot make its activations again.
    """
    given: Any = model
    if checkpoint_activations:
        if not getattr(given, "supports_gradient_checkpointing", False):
            raise TrainingError(
                f"batch.checkpoint_activations: {type(model).__name__} cannot make its activations again; leave it out"
            )
        # transformers has renamed it on the way to version 6.
        newer = getattr(given, "activation_checkpointing_enable", None)
        (newer or given.gradient_checkpointing_enable)({"use_reentrant": False})
    if compile_body:
        given.base_model.compile(dynamic=False)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Let compiled models run as they are written inside: measuring has a new shape for every text."""
    with torch.compiler.set_stance("force_eager"):
        yield
