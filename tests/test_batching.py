"""Batches of an iterable."""

import pytest

from lingraft.batching import batches_of


@pytest.mark.parametrize(
    ("count", "size", "batches"),
    [(5, 2, [[0, 1], [2, 3], [4]]), (4, 2, [[0, 1], [2, 3]]), (0, 2, []), (2, 5, [[0, 1]]), (2, 1, [[0], [1]])],
)
def test_batches_keep_the_order_and_the_last_may_be_short(count: int, size: int, batches: list[list[int]]) -> None:
    assert list(batches_of(range(count), size)) == batches


def test_batches_are_made_as_they_are_asked_for() -> None:
    taken: list[int] = []
    source = (taken.append(n) or n for n in range(10))
    next(batches_of(source, 3))
    assert taken == [0, 1, 2]
