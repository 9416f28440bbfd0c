"""Arms compared item by item: hand-made items whose differences are known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from lingraft.errors import MeasurementError
from lingraft.item_records import ItemRecord
from lingraft.measure.comparison import (
    Arm,
    ArmRun,
    Level,
    Quantity,
    change_from_base,
    level_of,
    match,
    matches,
    quantities_of,
    scores_of,
)

RECALL = Quantity("probe/recall", "exact_match")
EU, EN = Quantity("bits_per_byte", "bits", "eu"), Quantity("bits_per_byte", "bits", "en")
COPAIN = Quantity("probe/copain", "exact_match")


def bits(values: Sequence[float], language: str = "eu", stage: str = "last", size: float = 10.0) -> list[ItemRecord]:
    return [
        ItemRecord(stage, 5, "bits_per_byte", f"doc{n}", {"bits": value, "bytes": size}, language)
        for n, value in enumerate(values)
    ]


def answers(right: Sequence[float], task: str = "copain/min", stage: str = "last") -> list[ItemRecord]:
    return [ItemRecord(stage, 5, f"probe/{task}", str(n), {"exact_match": float(r)}) for n, r in enumerate(right)]


def arm(
    name: str, *runs: Sequence[ItemRecord], base: Sequence[ItemRecord] = (), conditions: Mapping | None = None
) -> Arm:
    made = tuple(ArmRun(n, scores_of(run, "last"), scores_of(base, "base")) for n, run in enumerate(runs))
    return Arm(name, made, conditions or {})


def test_what_stands_beside_a_number_is_not_compared() -> None:
    """Two of three right, whatever the item beside them is."""
    main = answers([1, 1, 0], "recall/k3")
    beside = [replace(record, beside=True) for record in answers([0, 0, 0], "recall/k1")]
    found = level_of(arm("a", main + beside, base=answers([1, 1, 1], "recall/k3", "base")), RECALL)
    assert (found.before, found.after) == (1.0, pytest.approx(2 / 3))


def test_scores_are_those_of_one_moment_and_of_one_kind_of_weights() -> None:
    early = [ItemRecord("last", 1, "task/x", "1", {"acc": 0.0}), ItemRecord("last", 5, "task/x", "1", {"acc": 1.0})]
    other = [
        ItemRecord("last", 5, "task/x", "1", {"acc": 0.5}, averaged=True),
        ItemRecord("base", 0, "task/x", "1", {}),
    ]
    assert scores_of([*early, *other], "last")["task/x", None]["1"].scores == {"acc": 1.0}
    assert scores_of([*early, *other], "last", tokens=1)["task/x", None]["1"].scores == {"acc": 0.0}
    assert scores_of([*early, *other], "last", averaged=True)["task/x", None]["1"].scores == {"acc": 0.5}
    assert scores_of([], "last") == {}


def test_quantities_are_bits_of_each_language_then_probes_then_tasks_by_their_headline_score() -> None:
    records = [
        ItemRecord("last", 5, "task/xnli_eu", "1", {"acc_norm": 1.0, "acc": 0.0}),
        ItemRecord("last", 5, "probe/random_copy", "1", {"nll_drop": 2.0}),
        *answers([1], "copain/min"),
        *answers([1], "copain/max"),
        ItemRecord("last", 5, "bits_per_byte/window", "1", {"bits": 2.0, "bytes": 1.0}, "eu"),
        *bits([1]),
        *bits([1], "en"),
    ]
    found = quantities_of([arm("a", records)])
    assert found == (
        EU,
        EN,
        Quantity("probe/random_copy", "nll_drop"),
        COPAIN,
        Quantity("task/xnli_eu", "acc"),
    )
    assert [quantity.label for quantity in found[:4:3]] == ["bits per byte, eu", "probe/copain, exact match"]


def test_bits_per_byte_differ_by_bits_over_bytes() -> None:
    first, second = arm("a", bits([20, 30, 40])), arm("b", bits([18, 27, 36]))
    found = match(first, second, EU)
    assert found.difference.value == pytest.approx(-9 / 30)
    assert found.is_better
    assert found.counts is None
    assert match(second, first, EU).difference.value == pytest.approx(9 / 30)


def test_right_and_wrong_answers_get_mcnemars_test_and_its_detectable_difference() -> None:
    found = match(arm("a", answers([0] * 6 + [1] * 4)), arm("b", answers([1] * 10)), COPAIN)
    assert found.difference.value == pytest.approx(0.6)
    assert (found.counts.gained, found.counts.lost, found.p) == (6, 0, pytest.approx(2 / 64))
    assert found.detectable == pytest.approx(2.8 * (0.6 / 10) ** 0.5)
    same = match(arm("a", answers([1, 0])), arm("b", answers([1, 0])), COPAIN)
    assert (same.p, same.difference.value, same.detectable) == (1.0, 0.0, 0.0)


def test_tasks_weigh_the_same_and_unequal_ones_are_not_counted_together() -> None:
    first = arm("a", answers([0] * 2, "copain/min") + answers([1] * 8, "copain/max"))
    second = arm("b", answers([1] * 2, "copain/min") + answers([1] * 8, "copain/max"))
    found = match(first, second, COPAIN)
    assert found.difference.value == pytest.approx(0.5)
    assert found.p == found.difference.p != found.counts.p


def test_what_could_be_found_over_unequal_tasks_is_that_of_the_macro_mean() -> None:
    """All 10 items of the small task differ, 5 each way, none of 90: the macro mean has an error of ½ √(1/10)."""
    half = [*answers([1] * 5 + [0] * 5, "copain/min"), *answers([1] * 90, "copain/max")]
    other = [*answers([0] * 5 + [1] * 5, "copain/min"), *answers([1] * 90, "copain/max")]
    found = match(arm("a", half), arm("b", other), COPAIN)
    assert found.detectable == pytest.approx(2.8 * 0.5 * (1 / 10) ** 0.5, rel=0.05)


def test_other_forms_of_a_probe_ask_the_same_questions_and_do_not_count_as_items() -> None:
    first, second = ([0] * 6 + [1] * 4, [1] * 10)
    plain = match(arm("a", answers(first)), arm("b", answers(second)), COPAIN)
    forms = [answers(right) + answers(right, "copain/5-shot-arrow/min") for right in (first, second)]
    assert match(arm("a", forms[0]), arm("b", forms[1]), COPAIN) == plain
    # A probe that has nothing but forms is judged by them.
    deep = [answers(right, "copain/5-shot-arrow/min") for right in (first, second)]
    assert match(arm("a", deep[0]), arm("b", deep[1]), COPAIN).difference.value == pytest.approx(0.6)


def test_several_runs_of_an_arm_are_drawn_apart_from_items() -> None:
    first, second = arm("a", bits([20, 20]), bits([30, 30])), arm("b", bits([19, 19]), bits([29, 29]))
    found = match(first, second, EU)
    assert (found.difference.value, found.difference.runs) == (pytest.approx(-0.1), 2)
    # Seeds 0 and 1 on both sides: matched, the difference is the same in both.
    assert found.difference.seed_sd == pytest.approx(0.0)
    assert match(arm("a", answers([0, 1]), answers([0, 1])), arm("b", answers([1, 1])), COPAIN).counts is None


def test_p_is_adjusted_over_all_that_is_compared_at_once() -> None:
    arms = [arm("a", answers([0] * 8)), arm("b", answers([1] * 8)), arm("c", answers([1] * 6 + [0] * 2))]
    made, refused = matches(arms, ["a"], [COPAIN])
    assert [(one.second, one.p) for one in made] == [("b", pytest.approx(2 / 256)), ("c", pytest.approx(2 / 64))]
    assert [one.adjusted for one in made] == pytest.approx([4 / 256, 2 / 64])
    assert refused == ()
    with pytest.raises(MeasurementError, match="no arm is named 'd'"):
        matches(arms, ["a", "d"], [COPAIN])


def test_two_references_are_held_against_each_other_once_and_p_is_adjusted_over_both() -> None:
    """p of 2/256, 2/64 and 1/2: times three, two and one."""
    arms = [arm("a", answers([0] * 8)), arm("b", answers([1] * 8)), arm("c", answers([1] * 6 + [0] * 2))]
    made, _ = matches(arms, ["a", "b"], [COPAIN])
    assert [(one.first, one.second) for one in made] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [one.adjusted for one in made] == pytest.approx([6 / 256, 4 / 64, 0.5])
    assert [one.difference.value for one in made] == pytest.approx([1.0, 0.75, -0.25])


def test_what_is_not_comparable_is_refused_by_name_and_reason() -> None:
    texts = {"bits_per_byte/eu": {"held-out text": "1a"}}, {"bits_per_byte/eu": {"held-out text": "2b"}}
    for first, second, quantity, reason in (
        (arm("a", bits([1]), conditions=texts[0]), arm("b", bits([1]), conditions=texts[1]), EU,
         r"other held-out text \(a: 1a, b: 2b\)"),
        (arm("a", bits([1, 2])), arm("b", bits([1])), EU, "other items: 2 here and 1 of b; 1 are on one side only"),
        (arm("a", bits([1])), arm("b", bits([1], size=11)), EU, "other texts: doc0 has another number of bytes in b"),
        (arm("a", answers([1])), arm("b", bits([1])), COPAIN, "b was not asked"),
    ):  # fmt: skip
        with pytest.raises(MeasurementError, match=reason):
            match(first, second, quantity)
        made, refused = matches([first, second], ["a"], [quantity])
        assert made == ()
        assert (refused[0].first, refused[0].second) == ("a", "b")


def test_levels_are_what_the_change_is_the_difference_of() -> None:
    base = [*bits([40, 20], stage="base"), *answers([1, 1, 0, 0], stage="base")]
    one = arm("a", [*bits([30, 10]), *answers([1, 0, 0, 0])], base=base)
    assert level_of(one, EU) == Level(before=60 / 20, after=40 / 20)
    assert level_of(one, COPAIN) == Level(before=0.5, after=0.25)
    with pytest.raises(MeasurementError, match="bits per byte, en: a or its base model was not asked"):
        level_of(one, EN)


def test_the_change_from_the_base_is_paired_with_it() -> None:
    base = [*bits([40, 20], stage="base"), *answers([1, 1, 0, 0], stage="base")]
    one = arm("a", [*bits([30, 10]), *answers([1, 0, 0, 0])], base=base)
    found = change_from_base(one, EU)
    assert (found.value, found.low, found.high) == (pytest.approx(-1), pytest.approx(-1), pytest.approx(-1))
    assert change_from_base(one, COPAIN).value == pytest.approx(-0.25)
    with pytest.raises(MeasurementError, match="the base model was not asked"):
        change_from_base(arm("a", bits([1])), EU)
    with pytest.raises(MeasurementError, match="other items: 1 here and 2 of a's base model"):
        change_from_base(arm("a", bits([1]), base=base), EU)
    with pytest.raises(MeasurementError, match="another run of a"):
        change_from_base(
            Arm("a", tuple(ArmRun(n, scores_of(bits(v), "last"), scores_of(bits(v, stage="base"), "base"))
                           for n, v in enumerate(([1], [1, 2])))), EU)  # fmt: skip
