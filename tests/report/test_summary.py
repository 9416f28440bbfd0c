"""Verdicts computed by hand: what the intervals allow, and nothing beyond."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lingraft.limits import Limits
from lingraft.measurement import Measurement
from lingraft.report.changes import Change, change_of
from lingraft.report.evidence import summary_of
from lingraft.report.reading import read_record
from lingraft.report.summary import State, Summary, Verdict, summarise

COPY, COPAIN = "probe/random_copy/accuracy", "probe/copain/exact_match"


def row(
    stage: str, name: str, value: float, half: float | None = 0.01, language: str | None = None, tokens: int = 0
) -> Measurement:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Measurement(stage, tokens, name, value, language, low, high, 100)


def run(
    eu: tuple[float, float] = (2.0, 1.5),
    en: tuple[float, float] = (1.0, 1.01),
    copy: tuple[float, float] = (0.6, 0.55),
    half: float | None = 0.005,
    probe_half: float | None = 0.03,
) -> list[Measurement]:
    """The base model and the end of training; eu's intervals are ±0.01."""
    rows = []
    for stage, tokens, i in (("base", 0, 0), ("cpt", 1000, 1)):
        rows.append(row(stage, "bits_per_byte", eu[i], 0.01, "eu", tokens))
        rows.append(row(stage, "bits_per_byte", en[i], half, "en", tokens))
        rows.append(row(stage, COPY, copy[i], probe_half, None, tokens))
        rows.append(row(stage, COPAIN, 0.4, 0.05, None, tokens))
    return rows


def verdict(rows: list[Measurement], **options: object) -> Summary:
    return summarise(rows, "en", "eu", limits=Limits(0.03, 0.3), **options)  # type: ignore[arg-type]


def source(summary: Summary) -> str:
    return summary.lost[0].text


def test_a_clear_gain_with_small_losses_is_safe_and_says_its_numbers() -> None:
    summary = verdict(run())
    assert summary.verdict is Verdict.USE
    assert summary.headline == "A clear gain in Basque (eu), and no loss beyond its limit."
    gain = "Basque (eu): bits per byte 2.000 [1.990, 2.010] → 1.500 [1.490, 1.510], −25.0 % (lower is better)"
    assert summary.gained[0].text == f"{gain}: a clear gain."
    assert [f.state for f in summary.lost] == [State.GOOD] * 3


def test_the_last_measurement_counts_and_the_untrained_rows_do_not() -> None:
    rows = [
        *run(),
        row("expanded", "bits_per_byte", 9.0, 0.01, "eu"),
        row("cpt", "bits_per_byte", 1.8, 0.01, "eu", 500),
    ]
    assert "→ 1.500" in verdict(rows).gained[0].text


@pytest.mark.parametrize(
    ("before", "after", "half", "state", "words"),
    [
        # ±0.005 each: apart. Upper end of the difference 0.02 + √(2·0.005²) = 0.0271: under 3 %.
        (1.0, 1.02, 0.005, State.GOOD, "a clear rise, within the limit of 3 %."),
        (1.0, 1.005, 0.005, State.GOOD, "no clear change (the intervals overlap)."),
        (1.0, 0.90, 0.005, State.GOOD, "clearly better than before."),
        # 0.02 + √(2·0.02²) = 0.0483
        (1.0, 1.02, 0.02, State.UNCLEAR, "no clear change (the intervals overlap); but intervals this wide could hide "
         "a rise of up to 4.8 %, beyond the limit of 3 %: measure on more text to settle it."),
        (1.0, 1.05, 0.005, State.BAD, "a rise of 5.0 %, beyond the limit of 3 %; clearly so."),
        (1.0, 1.05, 0.03, State.UNCLEAR, "a rise of 5.0 %, beyond the limit of 3 %, but no clear change (the intervals "
         "overlap): measure on more text to settle it."),
        (1.0, 1.02, None, State.UNCLEAR, "no interval was measured, so it cannot be said whether the change is clear."),
    ],
)  # fmt: skip
def test_the_source_language_against_its_limit(
    before: float, after: float, half: float | None, state: State, words: str
) -> None:
    summary = verdict(run(en=(before, after), half=half))
    assert summary.lost[0].state is state
    assert source(summary).endswith(f"(lower is better): {words}")


def test_clear_forgetting_forbids_use() -> None:
    summary = verdict(run(en=(1.0, 1.2)))
    assert summary.verdict is Verdict.DO_NOT_USE
    assert summary.headline == "A clear gain in Basque (eu); 1 of 3 checks for losses failed clearly."


def test_a_collapse_of_in_context_learning_forbids_use() -> None:
    summary = verdict(run(copy=(0.6, 0.3)))
    assert summary.verdict is Verdict.DO_NOT_USE
    assert summary.lost[1].text.endswith("a drop of 50.0 %, beyond the limit of 30 %; clearly so.")


def test_a_probe_that_was_zero_has_nothing_to_lose() -> None:
    assert "nothing to lose" in verdict(run(copy=(0.0, 0.1))).lost[1].text


def test_overlapping_target_intervals_are_no_clear_change() -> None:
    summary = verdict(run(eu=(2.0, 1.99)))
    assert summary.verdict is Verdict.NO_GAIN
    assert summary.headline == (
        "No clear change in Basque (eu), and no loss beyond its limit: train on more text, or measure on more of it."
    )
    assert summary.gained[0].text.endswith("no clear change (the intervals overlap).")


def test_no_clear_gain_and_a_loss_that_is_not_settled_ask_for_care() -> None:
    summary = verdict(run(eu=(2.0, 1.99), en=(1.0, 1.02), half=0.02))
    assert summary.verdict is Verdict.CARE
    assert summary.headline == "No clear change in Basque (eu); 1 of 3 checks for losses could not be settled."


def written(before: float, after: float, new: float) -> list[Measurement]:
    loops = "generation/question/loops"
    return [
        *run(),
        row("base", loops, before, None),
        row("expanded", "norm/input/new", 1.0, None),
        row("cpt", loops, after, None, None, 1000),
        row("cpt", "generation/base/distinct_new_tokens", new, None, None, 1000),
    ]


def test_loops_and_new_tokens_that_are_never_written_are_told_and_do_not_decide() -> None:
    summary = verdict(written(0.25, 0.75, 0))
    assert summary.verdict is Verdict.USE
    told = [finding for finding in summary.lost if finding.text.startswith("What it writes")]
    assert [finding.state for finding in told] == [State.UNCLEAR] * 2
    assert "75 % of its answers to questions end in a loop, 25 % before (100 prompts" in told[0].text
    assert "in its continuations of documents there is no new token (100 prompts" in told[1].text


def test_as_many_loops_as_before_and_new_tokens_are_not_told() -> None:
    assert "What it writes" not in str(verdict(written(0.25, 0.30, 3)).lost)
    without = [one for one in written(0.25, 0.25, 0) if one.name != "norm/input/new"]
    assert "What it writes" not in str(verdict(without).lost), "there are no new tokens"


def test_a_worse_target_forbids_use() -> None:
    assert verdict(run(eu=(2.0, 2.2))).verdict is Verdict.DO_NOT_USE


def test_a_missing_probe_asks_for_care() -> None:
    rows = [r for r in run() if r.name != COPAIN]
    assert verdict(rows).verdict is Verdict.CARE
    assert verdict(rows).lost[2].state is State.MISSING


def test_without_measurements_or_before_the_end_it_is_too_early() -> None:
    assert verdict([]).verdict is Verdict.TOO_EARLY
    summary = verdict(run(), planned_tokens=4000)
    assert summary.verdict is Verdict.TOO_EARLY
    assert summary.notes[0] == "The run is not finished: 1k of 4k tokens."


def test_a_failed_vocabulary_check_forbids_use() -> None:
    summary = verdict(run(), failed_gates=["round trip"])
    assert summary.verdict is Verdict.DO_NOT_USE
    assert summary.lost[3].text == "The vocabulary check “round trip” failed."


def test_a_warning_of_a_vocabulary_check_is_told_and_decides_nothing() -> None:
    summary = verdict(run(), warned_gates=["new tokens used"])
    assert summary.verdict is Verdict.USE
    assert [f.state for f in summary.lost] == [*[State.GOOD] * 3, State.UNCLEAR]
    assert summary.lost[3].text == "The vocabulary check “new tokens used” gave a warning; it does not decide."


def test_tokens_of_the_bakeoff_are_no_tokens_of_training() -> None:
    tasted = row("bakeoff", "bits_per_byte/mean", 2.0, None, "eu", 5000)
    assert verdict([*run(), tasted], planned_tokens=4000).notes[0] == "The run is not finished: 1k of 4k tokens."


def test_a_paired_difference_settles_what_separate_intervals_cannot() -> None:
    paired = Measurement("cpt", 1000, "bits_per_byte/difference", 0.02, "en", 0.015, 0.025, 100)
    rows = [*run(en=(1.0, 1.02), half=0.05), paired]
    assert verdict(rows).lost[0].state is State.GOOD
    assert source(verdict(rows)).endswith("a clear rise, within the limit of 3 %.")


def test_the_caveats_and_limits_are_always_said() -> None:
    notes = " ".join(verdict(run()).notes)
    assert "One training run: the intervals are item uncertainty only" in notes
    assert "rise by 3 %" in notes
    assert "fall by 30 %" in notes


def test_fertility_drift_and_shift_are_told_without_deciding() -> None:
    rows = [*run(), row("base", "fertility", 2.75, None, "eu"), row("expanded", "fertility", 1.65, None, "eu"),
            row("expanded", "segmentation_drift", 0.002, None, "en"),
            row("cpt", "shift/mlp/relative_l2", 0.0123, None, None, 1000)]  # fmt: skip
    summary = verdict(rows)
    assert summary.gained[1].text == "Basque (eu): tokens per word 2.750 → 1.650, −40.0 % (fewer is cheaper)."
    assert "0.2 % of 100 held-out documents" in summary.lost[3].text
    assert "mlp 0.0123" in summary.lost[4].text
    assert summary.verdict is Verdict.USE


def test_a_change_by_hand() -> None:
    change = Change(row("base", "x", 1.0, 0.03), row("cpt", "x", 1.1, 0.04))
    assert change.relative == pytest.approx(0.1)
    assert change.difference == pytest.approx((0.05, 0.15))  # 0.1 ± √(0.03² + 0.04²)
    assert change.is_clear
    assert change_of([], "x") is None


def test_answers_that_stay_what_they_are_leave_nothing_open_however_wide_their_intervals() -> None:
    rows = [row("base", COPAIN, 0.75, 0.2), row("cpt", COPAIN, 0.75, 0.2, None, 1)]
    assert "the intervals overlap" in verdict(rows).lost[2].text
    paired = verdict([*rows, Measurement("cpt", 1, f"{COPAIN}/difference", 0.0, None, 0.0, 0.0, 40)]).lost[2]
    assert (paired.state, paired.text.split(": ")[-1]) == (
        State.GOOD, "no clear change (the paired interval includes zero)."
    )  # fmt: skip


def test_a_probe_whose_prompts_became_other_tokens_is_not_judged() -> None:
    rows = [row("base", COPAIN, 0.75, 0.01), row("cpt", COPAIN, 0.1, 0.01, None, 1)]
    assert verdict(rows).lost[2].state is State.BAD
    same, other = (row("expanded", "probe/copain/prompts_tokenised_differently", n) for n in (0, 3))
    assert verdict([*rows, same]).lost[2].state is State.BAD
    found = verdict([*rows, other]).lost[2]
    assert (found.state, "not comparable with the base model" in found.text) == (State.UNCLEAR, True)


def test_a_base_that_scores_next_to_nothing_has_nothing_to_lose() -> None:
    rows = [row("base", COPAIN, 0.04, 0.01), row("cpt", COPAIN, 0.01, 0.01, None, 1)]
    found = verdict(rows).lost[2]
    assert (found.state, "under 5 %: there was nothing to lose" in found.text) == (State.GOOD, True)


def test_the_limits_of_the_recipe_are_those_of_the_verdict(write_arm: Callable[..., Path], tmp_path: Path) -> None:
    def told(**alarm: object) -> str:
        folder = write_arm(tmp_path / f"run{len(alarm)}", measure={"alarm": alarm})
        summary = summary_of(read_record(folder))
        assert summary is not None
        return " ".join(summary.notes)

    assert "may rise by 5 %, a probe may fall by 30 %" in told()
    assert "may rise by 2.5 %, a probe may fall by 30 %" in told(source_rise=0.025, probe_drop=None)
