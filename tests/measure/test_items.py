"""Choices that are the same everywhere."""

from collections import Counter

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.items import ItemStream


def test_choices_never_change() -> None:
    stream = ItemStream("pinned", 1)
    assert [stream.below(100) for _ in range(6)] == [37, 77, 20, 98, 10, 31]


def test_equal_keys_give_equal_choices_and_others_others() -> None:
    draws = [[ItemStream(*key).below(10**9) for _ in range(2)] for key in (("a", 1), ("a", 1), ("a", 2), ("b", 1))]
    assert draws[0] == draws[1]
    assert len({tuple(d) for d in draws}) == 3


def test_every_choice_is_equally_likely() -> None:
    stream = ItemStream("uniform")
    counts = Counter(stream.below(3) for _ in range(6000))
    assert counts.keys() == {0, 1, 2}
    assert max(abs(n - 2000) for n in counts.values()) < 150


def test_samples_are_different_members_and_shuffles_all_of_them() -> None:
    stream = ItemStream("sample")
    for _ in range(50):
        assert len(set(stream.sample(range(10), 4))) == 4
        assert sorted(stream.shuffled("abc")) == ["a", "b", "c"]


def test_every_order_comes_up() -> None:
    stream = ItemStream("orders")
    counts = Counter("".join(stream.shuffled("abc")) for _ in range(1200))
    assert len(counts) == 6
    assert min(counts.values()) > 140


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(MeasurementError, match=r"range\(0\)"):
        ItemStream("x").below(0)
    with pytest.raises(MeasurementError, match="4 different members of 3"):
        ItemStream("x").sample("abc", 4)
