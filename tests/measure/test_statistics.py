"""Intervals, by hand."""

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.statistics import bootstrap_ratio, macro_interval, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (1, 10, 0.0179, 0.4042),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
        (472.5, 1050, 0.4202, 0.4802),
    ],
)
def test_wilson_by_hand(successes: float, trials: int, low: float, high: float) -> None:
    """81 of 263 is Newcombe's (1998) example."""
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_an_interval_without_trials_is_refused() -> None:
    with pytest.raises(MeasurementError, match="at least one trial"):
        wilson_interval(0, 0)


def test_a_ratio_that_is_the_same_everywhere_is_certain() -> None:
    assert bootstrap_ratio([2, 4, 6], [1, 2, 3]) == (2, 2)


def test_the_bootstrap_draws_both_sums_together_and_is_seeded() -> None:
    numerators, denominators = [float(n % 3) for n in range(90)], [1.0] * 90
    low, high = bootstrap_ratio(numerators, denominators)
    assert (low, high) == bootstrap_ratio(numerators, denominators)
    # The standard error of the mean of 0, 1, 2 is √(2/3/90) = 0.0861.
    assert (low, high) == pytest.approx((1 - 1.96 * 0.0861, 1 + 1.96 * 0.0861), abs=0.02)


def test_one_document_has_no_interval() -> None:
    """Every draw of it is itself: an interval without width would say that nothing is uncertain."""
    assert bootstrap_ratio([3.0], [2.0]) == (None, None)


@pytest.mark.parametrize(("above", "below"), [([], []), ([1.0], [1.0, 2.0])])
def test_what_is_no_list_of_pairs_is_refused(above: list[float], below: list[float]) -> None:
    with pytest.raises(MeasurementError, match="a ratio needs pairs"):
        bootstrap_ratio(above, below)


def test_a_macro_interval_keeps_every_stratum() -> None:
    """Two strata without any spread leave none to their mean; a wider one has the spread of its mean, halved."""
    assert macro_interval([[1, 1], [0, 0, 0]]) == (0.5, 0.5)
    low, high = macro_interval([[0, 1] * 200, [1] * 7])
    assert (high - low) / 2 == pytest.approx(1.96 * 0.5 / 20 / 2, rel=0.05)
    assert (low + high) / 2 == pytest.approx(0.75, abs=0.005)
    assert macro_interval([[0, 1] * 200, [1] * 7]) == (low, high)


@pytest.mark.parametrize("strata", [[], [[1], []]])
def test_a_macro_interval_of_nothing_is_refused(strata: list) -> None:
    with pytest.raises(MeasurementError, match="at least one stratum"):
        macro_interval(strata)
