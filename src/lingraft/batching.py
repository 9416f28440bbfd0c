"""Batches of an iterable, and of texts by size; between two of them a run can be stopped."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from lingraft.polling import poll

__all__ = ["batches_of", "first_bytes"]

T = TypeVar("T")


def batches_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items in order, the last one possibly shorter."""
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            poll()
            yield batch
            batch = []
    if batch:
        yield batch


def first_bytes(texts: Iterable[str], limit: int) -> Iterator[str]:
    """Yield texts in order until they come to ``limit`` UTF-8 bytes; the last one is whole."""
    size = 0
    for text in texts:
        poll()
        yield text
        size += len(text.encode())
        if size >= limit:
            return
