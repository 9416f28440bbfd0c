"""Label perplexity by hand."""

import math

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.label_perplexity import Label, label_perplexity


def label(probability: float, tokens: int = 1, size: int = 2) -> Label:
    """A label whose tokens together have a probability."""
    return Label(math.log(probability), tokens, size)


def test_the_formula_by_hand() -> None:
    # Two tokens of probability 1/16 together: 4 each. One of 1/2: 2. The mean of 4 and 2 is 3.
    items = [([label(1 / 16, 2), label(1 / 8)], [0]), ([label(1 / 4), label(1 / 2)], [1])]
    found = label_perplexity(items)
    assert found.gold == pytest.approx(3.0)
    # All labels: (4 + 8) / 2 = 6 and (4 + 2) / 2 = 3.
    assert found.all == pytest.approx(4.5)
    assert found.gold_nats == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert found.all_nats == pytest.approx((math.log(4) + math.log(8) + math.log(4) + math.log(2)) / 4)
    # 4 bits and 1 bit over 4 bytes.
    assert found.gold_bits_per_byte == pytest.approx(5 / 4)
    assert found.items == 2
    assert found.gold_interval[0] <= found.gold <= found.gold_interval[1]
    assert found.all_interval[0] <= found.all <= found.all_interval[1]


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary_whatever_the_labels_are() -> None:
    items = [([label(400.0**-n, n) for n in (1, 2, 3)], [place]) for place in range(3)]
    found = label_perplexity(items)
    assert (found.gold, found.all) == (pytest.approx(400.0), pytest.approx(400.0))


def test_of_several_right_labels_the_likeliest_counts() -> None:
    assert label_perplexity([([label(1 / 8), label(1 / 2), label(1 / 4)], [0, 2])]).gold == pytest.approx(4.0)


def test_a_label_that_is_ruled_out_leaves_a_number() -> None:
    assert math.isfinite(label_perplexity([([Label(-1e6, 1, 1)], [0])]).gold)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "at least one item"),
        ([([], [0])], "0 labels"),
        ([([label(0.5)], [])], r"right ones at \[\]"),
        ([([label(0.5)], [1])], r"1 labels has its right ones at \[1\]"),
        ([([Label(-1.0, 0, 1)], [0])], "without a token"),
    ],
)
def test_what_has_no_perplexity_is_refused(items: list, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        label_perplexity(items)
