"""Tensors whose rows are divided among processes, and what this process holds of them.

A DTensor that FSDP2 has made is divided by rows: with n rows and w processes each holds ⌈n / w⌉ of them, the last ones
fewer or none (https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html). A plain tensor is held whole.
Only :func:`whole` speaks to other processes.
"""

from typing import Any

from torch import Tensor

__all__ = ["held", "held_rows", "is_split", "part_like", "rows_of", "whole"]


def is_split(tensor: Tensor) -> bool:
    """Whether a tensor is divided among processes."""
    return hasattr(tensor, "device_mesh")


def held(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor, sharing its memory."""
    given: Any = tensor
    part: Tensor = given.to_local() if is_split(tensor) else tensor
    return part


def rows_of(rank: int, count: int, num_rows: int) -> tuple[int, int]:
    """Return the first row that a rank holds of ``num_rows``, and the first that it does not: ⌈n / w⌉ rows each."""
    size = -(-num_rows // count)
    return min(rank * size, num_rows), min((rank + 1) * size, num_rows)


def held_rows(tensor: Tensor) -> tuple[int, int]:
    """Return ``(begin, end)`` of the rows that this process holds."""
    given: Any = tensor
    if not is_split(tensor):
        return 0, len(tensor)
    return rows_of(given.device_mesh.get_local_rank(), given.device_mesh.size(), len(tensor))


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the rows of all processes; every process must ask for it, in the same order."""
    given: Any = tensor
    full: Tensor = given.full_tensor() if is_split(tensor) else tensor
    return full


def part_like(rows: Tensor, parameter: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor divided as a parameter is.

    Args:
        rows: those rows that this process holds of the parameter.
        parameter: a divided one.
        shape: of the whole tensor; told, because a process that holds fewer rows than another cannot guess it.
    """
    from torch import empty
    from torch.distributed.tensor import DTensor

    given: Any = parameter
    stride = empty(shape, device="meta").stride()
    on_device = rows.to(held(parameter).device).contiguous()
    made: Tensor = DTensor.from_local(
        on_device, given.device_mesh, given.placements, run_check=False, shape=empty(shape, device="meta").shape,
        stride=stride,
    )  # fmt: skip
    return made
