"""Ways to make the same steps cheaper: compiling the body, not keeping activations, and keeping freed memory.

None changes what a step computes beyond the rounding of another order of operations, and with the first two off
nothing here touches a model.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from lingraft.errors import TrainingError

__all__ = ["accelerate", "keep_freed_memory", "naming_memory", "uncompiled"]

# From glibc's malloc.h: where the C library keeps what it may give back to the system.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The most that glibc takes: what is larger still comes fresh, since kept pieces of that size would not fit together.
_KEPT_BYTES = 2**25


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


@contextmanager
def naming_memory(where: str, micro_batch: int) -> Iterator[None]:
    """Say what can be changed where a device runs out of memory inside.

    Args:
        where: what is being done, as in ``stage 'all'``.
        micro_batch: what the stage that trains, or is tried out, says.

    Raises:
        TrainingError: a device ran out of memory inside; it names the options, and how a run goes on with them.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"{where}: the device has run out of memory ({str(error).splitlines()[0][:200]}); what was saved is sound, "
            f"and the run goes on from it with a smaller batch.micro_batch (now {micro_batch}), with "
            "batch.checkpoint_activations or with a smaller measure.batch_size, and --accept-changed memory"
        ) from error


def keep_freed_memory() -> bool:
    """Let this process keep the memory that tensors on the CPU free, up to 32 MiB each; whether it could be done.

    Every step frees and takes the same gigabytes. Given back in between, each page of them must be mapped and cleared
    again at its first touch, which can cost as much as the arithmetic. Only glibc has this switch
    (https://man7.org/linux/man-pages/man3/mallopt.3.html); elsewhere, and for memory of a GPU, nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES) == 1 and mallopt(_M_TRIM_THRESHOLD, -1) == 1)
