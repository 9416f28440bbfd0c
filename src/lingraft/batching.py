"""Batches of an iterable, and of texts by size."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["batches_of"]

T = TypeVar("T")


def batches_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items in order, the last one possibly shorter."""
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
