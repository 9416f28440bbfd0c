"""Paired statistics: by hand, by laws, and against slow obvious versions."""

import itertools
import math
import random

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.paired import arm_mean, holm, macro_mean, mcnemar, paired_difference, smallest_detectable

FEW = 2000


def _coins(gained: int, lost: int, both: int = 3) -> tuple[list[int], list[int]]:
    return [0] * gained + [1] * lost + [1] * both, [1] * gained + [0] * lost + [1] * both


# McNemar --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 0.0625),  # 2 · 1/32
        (6, 0, 0.03125),
        (9, 1, 22 / 1024),  # 2 · (1 + 10)/1024
        (3, 3, 1.0),
        (2, 8, 112 / 1024),  # 2 · (1 + 10 + 45)/1024
    ],
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    found = mcnemar(*_coins(gained, lost))
    assert (found.gained, found.lost, found.count) == (gained, lost, gained + lost + 3)
    assert found.p == pytest.approx(p, rel=1e-12)
    assert found.discordance == pytest.approx((gained + lost) / (gained + lost + 3))


@pytest.mark.parametrize(("gained", "lost"), [*itertools.product(range(5), repeat=2)])
def test_mcnemar_is_every_throw_of_the_coins_counted(gained: int, lost: int) -> None:
    thrown = gained + lost
    as_uneven = [
        faces for faces in itertools.product((0, 1), repeat=thrown)
        if abs(2 * sum(faces) - thrown) >= abs(gained - lost)
    ]  # fmt: skip
    assert mcnemar(*_coins(gained, lost)).p == pytest.approx(len(as_uneven) / 2**thrown)


def test_mcnemar_is_the_same_from_both_sides() -> None:
    first, second = _coins(7, 2)
    one, other = mcnemar(first, second), mcnemar(second, first)
    assert (one.gained, one.lost, one.p) == (other.lost, other.gained, other.p)


def test_mcnemar_of_more_items_than_a_float_has_powers_of_two() -> None:
    assert mcnemar(*_coins(1200, 1200)).p == 1.0
    assert 0 <= mcnemar(*_coins(2000, 100)).p < 1e-300


def test_mcnemar_refuses_shares_and_unpaired_items() -> None:
    with pytest.raises(MeasurementError, match=r"right, 1, or wrong, 0; one has 0\.5"):
        mcnemar([0, 1], [0.5, 1])
    with pytest.raises(MeasurementError, match="got 2 and 1"):
        mcnemar([0, 1], [1])
    with pytest.raises(MeasurementError, match="got 0 and 0"):
        mcnemar([], [])


# Holm -----------------------------------------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    """0.005 · 4, 0.01 · 3, 0.03 · 2, and 0.04 · 1, which is lifted to what the third has."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == ()
    assert holm([0.7, 0.6]) == (1.0, 1.0)


def test_holm_keeps_the_order_never_lowers_and_is_at_most_bonferroni() -> None:
    chooser = random.Random(3)
    for size in range(1, 8):
        given = [chooser.random() ** 3 for _ in range(size)]
        adjusted = holm(given)
        by_size = [adjusted[index] for index in sorted(range(size), key=given.__getitem__)]
        assert by_size == sorted(by_size)
        assert all(p <= a <= min(1.0, size * p) + 1e-15 for p, a in zip(given, adjusted, strict=True))


def test_holm_rejects_what_the_step_down_rule_rejects() -> None:
    chooser = random.Random(4)
    for _ in range(50):
        given = [chooser.random() ** 4 for _ in range(6)]
        rejected = set()
        for rank, index in enumerate(sorted(range(6), key=given.__getitem__)):
            if given[index] > 0.05 / (6 - rank):
                break
            rejected.add(index)
        assert {index for index, p in enumerate(holm(given)) if p <= 0.05} == rejected


def test_holm_refuses_what_is_no_p() -> None:
    with pytest.raises(MeasurementError, match=r"not 1\.2"):
        holm([0.1, 1.2])


# The smallest detectable difference -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "discordance", "points"),
    [
        (150, 0.1, 7.2), (150, 0.2, 10.2), (150, 0.4, 14.5),
        (300, 0.1, 5.1), (300, 0.2, 7.2), (300, 0.4, 10.2),
        (1050, 0.1, 2.7), (1050, 0.2, 3.9), (1050, 0.4, 5.5),
        (3150, 0.1, 1.6), (3150, 0.2, 2.2), (3150, 0.4, 3.2),
    ],
)  # fmt: skip
def test_the_smallest_detectable_difference(items: int, discordance: float, points: float) -> None:
    assert 100 * smallest_detectable(discordance, items) == pytest.approx(points, abs=0.06)


def test_the_smallest_detectable_difference_is_found_in_eight_of_ten_tries() -> None:
    """Items of which 30 % differ, the second model being better by just that much: simulated, not by the formula."""
    chooser, items, discordance = random.Random(0), 200, 0.3
    better = smallest_detectable(discordance, items)
    found = 0
    for _ in range(600):
        gained = lost = 0
        for _ in range(items):
            draw = chooser.random()
            gained += draw < (discordance + better) / 2
            lost += (discordance + better) / 2 <= draw < discordance
        # The normal approximation, as the formula is of it; the exact test is a little more careful.
        found += (gained - lost) / math.sqrt(max(1, gained + lost)) > 1.96
    assert found / 600 == pytest.approx(0.8, abs=0.05)


def test_no_items_detect_nothing() -> None:
    with pytest.raises(MeasurementError, match="no discordance"):
        smallest_detectable(0.1, 0)


# Resampling -----------------------------------------------------------------------------------------------------------


def test_a_difference_that_is_the_same_on_every_item_is_certain() -> None:
    found = paired_difference([[1, 2, 3]], [[3, 4, 5]], [1, 1, 1], resamples=FEW)
    assert (found.value, found.low, found.high, found.error) == pytest.approx((2, 2, 2, 0))
    assert found.items == 3
    assert found.is_told
    assert found.seed_sd is None


def test_two_equal_models_differ_by_nothing() -> None:
    found = paired_difference([[0, 1, 1]], [[0, 1, 1]], [1, 1, 1], resamples=FEW)
    assert (found.value, found.p, found.is_told) == (0, 1.0, False)


def test_the_interval_of_a_mean_is_that_of_its_standard_error() -> None:
    """The standard error of the mean of 0, 1, 2 thirty times each is √(2/3/90) = 0.0861."""
    found = arm_mean([[n % 3 for n in range(90)]], [1] * 90)
    assert found.value == pytest.approx(1)
    assert found.error == pytest.approx(0.0861, abs=0.002)
    assert (found.low, found.high) == pytest.approx((1 - 1.96 * 0.0861, 1 + 1.96 * 0.0861), abs=0.01)
    assert found.detectable == pytest.approx(2.8 * found.error)


def test_both_sides_and_directions_agree_and_draws_are_seeded() -> None:
    first, second = [[float(n % 3) for n in range(60)]], [[float(n % 4) for n in range(60)]]
    one = paired_difference(first, second, [1] * 60, resamples=FEW)
    assert one == paired_difference(first, second, [1] * 60, resamples=FEW)
    assert one != paired_difference(first, second, [1] * 60, resamples=FEW, seed=1)
    other = paired_difference(second, first, [1] * 60, resamples=FEW)
    assert (other.value, other.low, other.high) == pytest.approx((-one.value, -one.high, -one.low), abs=1e-12)


def test_the_macro_mean_by_hand_is_what_the_interval_is_around() -> None:
    """Stratum a: 1 / 1; b: 3 / 6, of two runs 3 / 6 and 6 / 6."""
    runs, sizes, strata = [[1, 1, 2], [1, 2, 4]], [1, 2, 4], ["a", "b", "b"]
    assert macro_mean(runs[:1], sizes, strata=strata) == pytest.approx((1 + 3 / 6) / 2)
    assert macro_mean(runs, sizes, strata=strata) == pytest.approx((1.5 / 2 + 2 / 2) / 2)
    assert macro_mean(runs, sizes, strata=strata) == arm_mean(runs, sizes, strata=strata, resamples=FEW).value
    with pytest.raises(MeasurementError, match="pairs need two scores"):
        macro_mean([[]], [])


@pytest.mark.parametrize(("second", "is_nothing"), [([1, 0, 1], True), ([1, 1, 0], False), ([1, 1, 1], False)])
def test_a_difference_of_nothing_is_one_of_no_item(second: list[int], is_nothing: bool) -> None:
    assert paired_difference([[1, 0, 1]], [second], [1] * 3, resamples=FEW).is_nothing is is_nothing


def test_every_stratum_weighs_the_same_and_is_drawn_by_itself() -> None:
    """A stratum of 1 item at 1 and one of 9 at 0: the macro mean is ½ in every resample, the plain mean never."""
    found = arm_mean([[1] + [0] * 9], [1] * 10, strata=["a"] + ["b"] * 9, resamples=FEW)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert arm_mean([[1] + [0] * 9], [1] * 10, resamples=FEW).value == pytest.approx(0.1)


def test_numerator_and_denominator_are_drawn_together() -> None:
    """Bits over bytes, where each document has 2 bits a byte: certain, however long the documents are."""
    found = arm_mean([[2, 40, 600]], [1, 20, 300], resamples=FEW)
    assert (found.value, found.low, found.high) == (2, 2, 2)
    found = paired_difference([[2, 40]], [[3, 40]], [1, 20], resamples=FEW)
    assert found.value == pytest.approx(1 / 21)


def test_items_of_a_cluster_are_drawn_together() -> None:
    """Forty items in ten passages of four equal answers carry the information of ten items."""
    answers = [n // 4 % 2 for n in range(40)]
    alone = arm_mean([answers], [1] * 40)
    together = arm_mean([answers], [1] * 40, clusters=[n // 4 for n in range(40)])
    assert together.value == alone.value == 0.5
    assert together.error == pytest.approx(2 * alone.error, rel=0.05)
    unclustered = arm_mean([answers], [1] * 40, clusters=[None] * 40)
    assert unclustered == alone


def test_resampling_agrees_with_a_slow_obvious_version() -> None:
    scores, strata = [0, 1, 1, 0, 1, 0, 0, 1, 1, 1], ["a"] * 4 + ["b"] * 6
    chooser, means = random.Random(5), []
    for _ in range(4000):
        parts = []
        for stratum in ("a", "b"):
            own = [score for score, where in zip(scores, strata, strict=True) if where == stratum]
            drawn = chooser.choices(own, k=len(own))
            parts.append(sum(drawn) / len(drawn))
        means.append(sum(parts) / 2)
    middle = sum(means) / len(means)
    slow = math.sqrt(sum((mean - middle) ** 2 for mean in means) / len(means))
    assert arm_mean([scores], [1] * 10, strata=strata).error == pytest.approx(slow, rel=0.05)


def test_a_p_and_its_interval_tell_the_same() -> None:
    chooser = random.Random(6)
    for lift in (0.0, 0.1, 0.2, 0.4):
        first = [float(chooser.random() < 0.4) for _ in range(80)]
        second = [max(a, float(chooser.random() < lift)) for a in first]
        found = paired_difference([first], [second], [1] * 80, resamples=FEW)
        assert found.is_told == (found.p < 0.05)


# Seeds ----------------------------------------------------------------------------------------------------------------


def test_seeds_that_agree_add_nothing_and_seeds_that_differ_widen() -> None:
    items = [float(n % 2) for n in range(100)]
    one = arm_mean([items], [1] * 100)
    same = arm_mean([items] * 3, [1] * 100)
    assert (same.value, same.runs, same.seed_sd) == (one.value, 3, 0.0)
    assert same.error == pytest.approx(one.error)
    apart = arm_mean([[x + shift for x in items] for shift in (-1, 0, 1)], [1] * 100)
    assert apart.seed_sd == pytest.approx(1.0)
    assert apart.value == pytest.approx(0.5)
    # Variance over seeds 1/3, over items 0.25/100.
    assert apart.error == pytest.approx(math.sqrt(1 / 3 + 0.0025), rel=0.03)


def test_matched_seeds_share_what_the_seed_does() -> None:
    """Both sides move with the seed by the same: matched, their difference is certain; unmatched, it is not."""
    first = [[shift] * 20 for shift in (-1.0, 0.0, 1.0)]
    second = [[shift + 0.5] * 20 for shift in (-1.0, 0.0, 1.0)]
    matched = paired_difference(first, second, [1] * 20, seeds_match=True, resamples=FEW)
    assert (matched.value, matched.seed_sd) == (0.5, 0.0)
    assert (matched.low, matched.high) == pytest.approx((0.5, 0.5))
    apart = paired_difference(first, second, [1] * 20, resamples=FEW)
    assert apart.value == pytest.approx(0.5)
    assert apart.seed_sd == pytest.approx(math.sqrt(2))
    assert not apart.is_told


def test_sides_with_different_numbers_of_seeds_are_compared_but_not_matched() -> None:
    found = paired_difference([[0, 1]], [[1, 1], [0, 1]], [1, 1], resamples=FEW)
    assert (found.value, found.runs) == (0.25, 1)
    with pytest.raises(MeasurementError, match="1 runs cannot be matched with 2"):
        paired_difference([[0, 1]], [[1, 1], [0, 1]], [1, 1], seeds_match=True)


@pytest.mark.parametrize(
    ("runs", "denominators"), [([], [1]), ([[]], []), ([[1, 2]], [1]), ([[1], [1, 2]], [1])]
)  # fmt: skip
def test_what_is_not_paired_is_refused(runs: list[list[int]], denominators: list[int]) -> None:
    with pytest.raises(MeasurementError):
        arm_mean(runs, denominators)
    with pytest.raises(MeasurementError):
        paired_difference(runs, runs, denominators)


def test_a_difference_needs_a_run_on_either_side() -> None:
    with pytest.raises(MeasurementError, match="on either side"):
        paired_difference([[1.0]], [], [1])
