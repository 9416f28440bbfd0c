"""Which arm to ship: cases small enough to be decided by hand."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lingraft.errors import MeasurementError
from lingraft.item_records import ItemRecord
from lingraft.limits import Limits
from lingraft.measure.comparison import Arm, ArmRun, scores_of
from lingraft.measure.verdict import bits_of, judge

DOCUMENTS = 40


def _records(
    stage: str, eu: float, en: float, copying: float, noise: int, extra: Sequence[float] = ()
) -> list[ItemRecord]:
    """Documents of 100 bytes whose bits per byte scatter a little around the ones given, each model in its own way."""
    chooser = random.Random(noise)
    made = []
    for code, mean in (("eu", eu), ("en", en)):
        for n in range(DOCUMENTS):
            value = mean + chooser.gauss(0, 0.02) + (extra[n] if extra and code == "eu" else 0)
            scores = {"bits": 100 * value, "bytes": 100.0}
            made.append(ItemRecord(stage, 5, "bits_per_byte", str(n), scores, code))
    right = round(copying * 50)
    return made + [ItemRecord(stage, 5, "probe/copying", str(n), {"exact_match": float(n < right)}) for n in range(50)]


BASE = _records("base", 2.0, 1.0, 0.8, 0)


def _arm(name: str, eu: float, en: float, copying: float = 0.8, noise: int = 1, extra: Sequence[float] = ()) -> Arm:
    run = ArmRun(0, scores_of(_records("last", eu, en, copying, noise, extra), "last"), scores_of(BASE, "base"))
    return Arm(name, (run,))


def test_the_arm_that_gains_most_within_what_the_source_may_cost() -> None:
    arms = [_arm("greedy", 1.4, 1.2), _arm("fine", 1.5, 1.02, noise=2), _arm("timid", 1.8, 1.0, noise=3)]
    found = judge(arms, target="eu", source="en")
    assert (found.chosen, found.best, found.tied, found.eligible) == ("fine", "fine", (), ("fine", "timid"))
    assert [standing.excluded for standing in found.standings] == ["source", None, None]
    assert found.standing("fine").gain.value == pytest.approx(0.5, abs=0.02)
    assert found.standing("fine").loss.value == pytest.approx(0.02, abs=0.02)
    assert found.dominated_by("timid") is None
    assert judge(arms, target="eu", source="en", limits=Limits(source_rise=0.5)).chosen == "greedy"


def test_arms_that_the_data_do_not_tell_apart_are_tied_and_the_one_that_costs_less_is_taken() -> None:
    # Every second document is 0.2 dearer in one arm, the others 0.19 in the other: no telling them apart.
    halves = [0.2 * (n % 2) for n in range(DOCUMENTS)], [0.21 * (1 - n % 2) for n in range(DOCUMENTS)]
    arms = [
        _arm("dear", 1.4, 1.045, extra=halves[0]),
        _arm("cheap", 1.4, 1.0, noise=1, extra=halves[1]),
        _arm("worse", 1.8, 0.98, noise=3),
    ]
    found = judge(arms, target="eu", source="en")
    assert (found.chosen, found.best, found.tied) == ("cheap", "dear", ("cheap",))
    assert (found.losses[0].first, found.losses[0].second, found.losses[0].is_told) == ("dear", "cheap", True)


def test_no_arm_is_chosen_where_all_cost_too_much() -> None:
    found = judge([_arm("a", 1.4, 1.2), _arm("b", 1.5, 1.3)], target="eu", source="en")
    assert (found.chosen, found.best, found.eligible, found.gains) == (None, None, (), ())


def test_an_arm_that_has_clearly_lost_in_context_learning_is_not_shipped() -> None:
    arms = [_arm("lost", 1.4, 1.0, copying=0.3), _arm("kept", 1.5, 1.0, copying=0.78, noise=2)]
    found = judge(arms, target="eu", source="en")
    assert (found.chosen, found.standing("lost").excluded, found.standing("kept").excluded) == ("kept", "icl", None)
    (fall,) = found.standing("lost").falls.values()
    assert fall.value == pytest.approx(0.5)


def test_a_fall_is_held_against_its_share_of_the_base() -> None:
    """From 0.8 to 0.6 is a quarter; certain in both cases."""
    arms = [_arm("lost", 1.4, 1.0, copying=0.6), _arm("kept", 1.5, 1.0, copying=0.8, noise=2)]
    assert judge(arms, target="eu", source="en").chosen == "lost"
    assert judge(arms, target="eu", source="en", limits=Limits(probe_drop=0.2)).chosen == "kept"


def test_a_probe_whose_prompts_became_other_tokens_excludes_nobody() -> None:
    arms = [replace(_arm("lost", 1.4, 1.0, copying=0.3), other_prompts=frozenset({"probe/copying"}))]
    found = judge(arms, target="eu", source="en").standing("lost")
    assert (found.excluded, found.falls) == (None, {})


def test_what_is_allowed_is_a_share_of_each_arms_own_base() -> None:
    found = judge([_arm("a", 1.5, 1.0)], target="eu", source="en", limits=Limits(source_rise=0.1))
    before = found.standing("a").levels[bits_of("en")].before
    assert found.allowed == found.allowed_of(found.standing("a")) == 0.1 * before
    empty = judge([Arm("empty", (ArmRun(0, {}, {}),))], target="eu", source="en")
    assert empty.allowed is None


def test_arms_of_one_and_of_three_runs_have_the_same_base() -> None:
    """(b + b + b) / 3 is not b for every b."""
    base = [ItemRecord("base", 0, "bits_per_byte", "1", {"bits": 9.0, "bytes": 100.0}, code) for code in ("eu", "en")]
    last = [replace(record, stage="last") for record in base]
    runs = [ArmRun(seed, scores_of(last, "last"), scores_of(base, "base")) for seed in range(3)]
    found = judge([Arm("one", tuple(runs[:1])), Arm("three", tuple(runs))], target="eu", source="en")
    limits = [found.allowed_of(standing) for standing in found.standings]
    assert limits[0] != limits[1]
    assert found.allowed == limits[0] == pytest.approx(0.05 * 0.09)


def test_an_arm_that_is_better_in_both_dominates() -> None:
    found = judge(
        [_arm("a", 1.5, 1.04), _arm("b", 1.6, 1.0, noise=2), _arm("c", 1.7, 1.03, noise=3)], target="eu", source="en"
    )
    assert [found.dominated_by(name) for name in "abc"] == [None, None, "b"]


def test_an_arm_measured_on_other_text_is_not_judged_and_the_reason_is_kept() -> None:
    other = Arm("other", _arm("other", 1.0, 1.0).runs, {"bits_per_byte/eu": {"held-out text": "2b"}})
    arms = [Arm("a", _arm("a", 1.5, 1.0).runs, {"bits_per_byte/eu": {"held-out text": "1a"}}), other]
    found = judge(arms, target="eu", source="en")
    assert found.chosen == "a"
    assert "other held-out text" in found.standing("other").excluded
    assert not found.standing("other").is_judged


def test_arms_without_items_are_not_judged() -> None:
    empty = Arm("empty", (ArmRun(0, {}, {}),))
    found = judge([empty, _arm("a", 1.5, 1.0)], target="eu", source="en")
    assert found.chosen == "a"
    assert "was not asked" in found.standing("empty").excluded
    with pytest.raises(MeasurementError, match="no arm"):
        judge([], target="eu", source="en")
