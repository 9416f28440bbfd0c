"""The alarm's rules, one by one, by hand."""

import dataclasses

import pytest

from lingraft.measure.alarm import ForgettingLimits, judge_forgetting
from lingraft.measurement import Measurement

LIMITS = ForgettingLimits()


def row(name: str, value: float, language: str | None = None, low: float | None = None, high: float | None = None):
    return Measurement("any", 0, name, value, language, low, high)


COPY = "probe/random_copy/accuracy"
BASE = [row(COPY, 0.6, None, 0.55, 0.65), row("bits_per_byte", 1.0, "en"), row("bits_per_byte", 3.0, "eu")]


def rules(*now: Measurement, base=BASE, limits=LIMITS) -> dict[str, float]:
    return {f.rule: pytest.approx(f.value) for f in judge_forgetting(base, now, limits, "en")}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (row(COPY, 0.43, None, 0.38, 0.46), {}),
        (row(COPY, 0.30, None, 0.26, 0.34), {"icl": 0.5}),
        (row(COPY, 0.30, None, 0.10, 0.61), {}),
        (row(COPY, 0.30), {"icl": 0.5}),
        (row(COPY, 0.90), {}),
        (row("probe/copain/exact_match", 0.0), {}),
    ],
)
def test_a_probe_falls_by_more_than_its_limit_and_its_noise(now: Measurement, expected: dict[str, float]) -> None:
    assert rules(now) == expected


@pytest.mark.parametrize(
    ("rise", "low", "expected"),
    [
        (0.04, 0.01, {}),
        (0.06, 0.02, {"source": 0.06}),
        (0.06, -0.01, {}),
        (-0.3, -0.4, {}),
        (0.06, None, {"source": 0.06}),
    ],
)
def test_source_text_rises_clearly_by_its_paired_difference(
    rise: float, low: float | None, expected: dict[str, float]
) -> None:
    difference = row("bits_per_byte/difference", rise, "en", low, None if low is None else rise + 0.1)
    assert rules(row("bits_per_byte", 1 + rise, "en"), difference) == expected


def test_target_text_is_no_business_of_the_alarm() -> None:
    assert rules(row("bits_per_byte", 9.0, "eu")) == {}


@pytest.mark.parametrize(
    ("attention", "mlp", "expected"), [(0.05, 0.1, {}), (0.02, 0.11, {"shift": 0.11}), (0.3, 0.2, {"shift": 0.3})]
)
def test_the_body_moves_further_than_it_may(attention: float, mlp: float, expected: dict[str, float]) -> None:
    found = (row("shift/attention/relative_l2", attention), row("shift/mlp/relative_l2", mlp))
    assert rules(*found, row("shift/embeddings_new/relative_l2", 5.0)) == expected


def test_a_base_that_cannot_copy_has_nothing_to_lose() -> None:
    assert rules(row(COPY, 0.0), base=[row(COPY, 0.04)]) == {}


@pytest.mark.parametrize(("low", "high", "expected"), [(-0.3, -0.01, {"icl": 0.5}), (-0.6, 0.01, {})])
def test_a_paired_difference_decides_whether_a_fall_is_clear(low: float, high: float, expected) -> None:
    """However wide or narrow the score's own interval is: here once each, and each time against it."""
    own = {"icl": (0.10, 0.61)}.get(*expected or ("none",), (0.26, 0.34))
    now = (row(COPY, 0.30, None, *own), row(f"{COPY}/difference", -0.3, None, low, high))
    assert rules(*now) == expected


def test_a_probe_whose_prompts_became_other_tokens_is_not_judged() -> None:
    gate = "probe/random_copy/prompts_tokenised_differently"
    assert rules(row(COPY, 0.30), base=[*BASE, row(gate, 0.0)]) == {"icl": 0.5}
    assert rules(row(COPY, 0.30), base=[*BASE, row(gate, 2.0)]) == {}


def test_rules_that_are_left_out_or_have_nothing_to_judge_are_silent() -> None:
    none = ForgettingLimits(None, None, None, None)
    lost = (row(COPY, 0.0), row("bits_per_byte", 9.0, "en"), row("shift/mlp/relative_l2", 2.0))
    assert rules(*lost, limits=none) == {}
    assert rules() == {}
    assert rules(*lost, base=[]) == {"shift": 2.0}


def test_findings_say_it_in_numbers() -> None:
    found = judge_forgetting(BASE, [row(COPY, 0.3)], dataclasses.replace(LIMITS, probe_drop=0.25), "en")
    assert found[0].text == "in-context learning (random_copy/accuracy) fell from 0.600 to 0.300, by 50%"
    assert found[0].limit == 0.25
