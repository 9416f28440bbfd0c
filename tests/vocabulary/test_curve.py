"""The fertility curve, by hand."""

import json

import pytest

from lingraft.vocabulary.curve import PARALLEL, CurvePoint, FertilityCurve, TextSize, curve_sizes

SIZES = {"eu": TextSize(words=100, characters=600, bytes=620), "en": TextSize(0, 0, 0)}
# From 0 to 500: (400 − 300) / 400 · 2 = 0.5 a thousand; to 1000: (300 − 270) / 300 · 2 = 0.2; to 3000: 0.1 / 2 = 0.05.
CURVE = FertilityCurve(
    SIZES,
    (
        CurvePoint(0, {"eu": 400, "en": 0}),
        CurvePoint(500, {"eu": 300, "en": 0}),
        CurvePoint(1000, {"eu": 270, "en": 0}),
        CurvePoint(3000, {"eu": 243, "en": 0}),
    ),
)


@pytest.mark.parametrize(
    ("num_new", "sizes"),
    [
        (0, [0]),
        (1, [0, 1]),
        (8, [0, 8]),
        (9, [0, 8, 9]),
        (500, [0, 8, 16, 32, 64, 125, 250, 500]),
        (1000, [0, 8, 16, 32, 64, 125, 250, 500, 1000]),
        (2001, [0, 8, 16, 32, 64, 125, 250, 500, 1000, 2000, 2001]),
    ],
)
def test_sizes_double_to_500_then_go_by_thousands(num_new, sizes):
    assert curve_sizes(num_new) == sizes


def test_tokens_per_word():
    assert CURVE.per_word("eu") == [(0, 4.0), (500, 3.0), (1000, 2.7), (3000, 2.43)]
    assert CURVE.per_word("en") == [(0, 0.0), (500, 0.0), (1000, 0.0), (3000, 0.0)]


@pytest.mark.parametrize(
    ("min_saving", "size"),
    [(0.6, 0), (0.51, 0), (0.5, 500), (0.21, 500), (0.2, 1000), (0.051, 1000), (0.049, 3000), (0.0, 3000)],
)
def test_growth_ends_where_a_further_thousand_saves_too_little(min_saving, size):
    assert CURVE.choose(min_saving) == size


def test_first_poor_step_ends_it_even_if_a_later_one_would_be_better():
    tokens = [100, 99, 50]
    curve = FertilityCurve({"eu": SIZES["eu"]}, tuple(CurvePoint(1000 * n, {"eu": t}) for n, t in enumerate(tokens)))
    assert curve.choose(0.02) == 0


def test_languages_count_together_and_parallel_text_does_not():
    """Of 100 and 300 tokens 80 are saved at 1000, then 32 of 320: a fifth, a tenth. The parallel text saves all it has."""
    sizes = dict.fromkeys(("eu", "hi", PARALLEL), SIZES["en"])
    tokens = [(100, 300, 1000), (90, 230, 10), (88, 200, 0)]
    points = (CurvePoint(1000 * n, dict(zip(sizes, counts, strict=True))) for n, counts in enumerate(tokens))
    curve = FertilityCurve(sizes, tuple(points))
    assert [curve.choose(rule) for rule in (0.201, 0.199, 0.101, 0.099)] == [0, 1000, 1000, 2000]


def test_a_point_is_held_against_one_that_is_far_enough():
    """From 1000 to 1099 the saving is chance, to 2000 it is a fifth; the last point is taken where none is far."""
    tokens = {0: 100, 1000: 50, 1099: 50, 2000: 40}
    points = tuple(CurvePoint(size, {"eu": count}) for size, count in tokens.items())
    assert FertilityCurve({"eu": SIZES["eu"]}, points).choose(0.1) == 2000
    assert FertilityCurve({"eu": SIZES["eu"]}, points[:3]).choose(0.1) == 1000


@pytest.mark.parametrize("end", [9_500, 10_500, 24_000])
def test_growth_stops_where_the_curve_flattens_however_large_it_is(end):
    """Each thousand saves 2 % up to ``end`` and nothing after; points lie a thousand apart up to 32,000."""
    points = tuple(
        CurvePoint(size, {"eu": round(10**6 * 0.98 ** (min(size, end) / 1000))}) for size in curve_sizes(32_000)
    )
    assert end - 2600 <= FertilityCurve({"eu": SIZES["eu"]}, points).choose(0.01) <= end + 1000


def test_text_without_tokens_and_curve_without_points():
    empty = FertilityCurve({"en": SIZES["en"]}, (CurvePoint(0, {"en": 0}), CurvePoint(8, {"en": 0})))
    assert empty.choose(0.001) == 0
    assert FertilityCurve().choose(0.001) == 0


def test_part_of_a_curve():
    assert CURVE.until(1000).points == CURVE.points[:3]
    assert CURVE.until(999).points == CURVE.points[:2]
    assert CURVE.until(999).sizes == SIZES


def test_to_plain_values_and_back():
    assert FertilityCurve.from_dict(json.loads(json.dumps(CURVE.as_dict()))) == CURVE
    assert FertilityCurve.from_dict(FertilityCurve().as_dict()) == FertilityCurve()
