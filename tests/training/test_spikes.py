"""Spikes and what is not finite, by hand."""

import json
import math
import statistics

import pytest

from lingraft.errors import TrainingError
from lingraft.training.spikes import AlarmRules, Alarms

WINDOW = 8
VALUES = [2.0, 2.2, 1.8, 2.1, 1.9, 2.0, 2.3, 1.7]  # mean 2, population deviation 0.1871


def filled(**rules) -> Alarms:
    alarms = Alarms(AlarmRules(window=WINDOW, **rules))
    for value in VALUES:
        assert alarms.judge(value, 1.0) is None
    return alarms


@pytest.mark.parametrize(("loss", "is_spike"), [(3.12, False), (3.13, True), (-9.0, False), (2.0, False)])
def test_six_deviations_above_the_mean_of_the_window(loss: float, is_spike: bool) -> None:
    assert 2 + 6 * statistics.pstdev(VALUES) == pytest.approx(3.1225, abs=1e-4)
    assert (filled().judge(loss, 1.0) is not None) == is_spike


def test_the_norm_is_watched_too_and_both_are_told() -> None:
    alarm = filled().judge(50.0, 3.0)
    assert alarm is not None
    assert (alarm.kind, alarm.skips) == ("spike", False)
    assert "the loss is 50," in alarm.text
    assert "the gradient's norm is 3, 200.0σ above the mean 1 of 8 steps" in alarm.text


def test_a_curve_that_hardly_moves_has_a_least_spread() -> None:
    """All norms are 1, so their deviation is 0: 1 % of the mean stands in, and 1.06 is the border."""
    assert filled().judge(2.0, 1.06) is None
    assert filled().judge(2.0, 1.061) is not None


def test_there_is_no_judgement_before_the_window_is_full() -> None:
    alarms = Alarms(AlarmRules(window=WINDOW))
    for value in VALUES[:-1]:
        alarms.judge(value, 1.0)
    assert alarms.judge(1e9, 1.0) is None


def test_one_nan_does_not_blind_the_watch() -> None:
    """With it in the window the mean would be NaN, every comparison false, and no later spike seen."""
    alarms = filled()
    alarm = alarms.judge(math.nan, 1.0)
    assert alarm is not None
    assert (alarm.kind, alarm.skips) == ("non_finite", True)
    assert alarms.judge(100.0, 1.0) is not None
    assert alarms.state()["values"]["loss"] == [*VALUES[1:], 100.0]


def test_a_lasting_change_of_level_stops_being_a_spike() -> None:
    alarms = filled()
    judged = [alarms.judge(10.0, 1.0) is not None for _ in range(WINDOW)]
    assert judged[0]
    assert not judged[-1]


@pytest.mark.parametrize("bad", [(math.nan, 1.0), (1.0, math.inf), (-math.inf, math.nan)])
def test_so_many_bad_steps_in_a_row_stop(bad: tuple[float, float]) -> None:
    alarms = Alarms(AlarmRules(bad_steps=3))
    for _ in range(2):
        assert alarms.judge(*bad) is not None
    assert alarms.judge(1.0, 1.0) is None
    for _ in range(2):
        alarms.judge(*bad)
    with pytest.raises(TrainingError, match=r"not finite .* for 3 steps in a row"):
        alarms.judge(*bad)


@pytest.mark.parametrize(("action", "skips"), [("log", False), ("skip", True)])
def test_what_follows_a_spike(action: str, skips: bool) -> None:
    alarm = filled(spikes=action).judge(100.0, 1.0)
    assert alarm is not None
    assert alarm.skips == skips


def test_a_spike_may_stop() -> None:
    with pytest.raises(TrainingError, match="the loss is 100"):
        filled(spikes="stop").judge(100.0, 1.0)


def test_the_window_comes_back_through_json() -> None:
    alarms, again = filled(bad_steps=2), Alarms(AlarmRules(window=WINDOW, bad_steps=2))
    alarms.judge(0.1 + 0.2, 1 / 3)
    alarms.judge(math.nan, 1.0)
    again.load(json.loads(json.dumps(alarms.state())))
    assert again.state() == alarms.state()
    with pytest.raises(TrainingError):
        again.judge(math.nan, 1.0)


def judged(alarms: Alarms, values: list[float]) -> list[bool]:
    """Judge some losses and return after which of them no alarm was open."""
    calm = []
    for value in values:
        alarms.judge(value, 1.0)
        calm.append(alarms.is_calm)
    return calm


def test_an_alarm_is_open_for_a_window_and_over_when_the_losses_are_where_they_were() -> None:
    assert filled().is_calm
    assert judged(filled(), [50.0, *VALUES]) == [False] * 8 + [True]
    assert judged(filled(), [math.nan, *VALUES]) == [False] * 8 + [True]
    assert judged(filled(), [50.0, *VALUES[:4], math.nan, *VALUES]) == [False] * 13 + [True]


def test_a_level_that_stays_high_is_no_calm_though_it_is_no_spike_any_longer() -> None:
    """Highest for calm is 2 + 6 · 0.1871 = 3.12, of the window before the first spike."""
    alarms = filled()
    assert not any(judged(alarms, [50.0, *[5.0] * 40]))
    assert judged(alarms, [3.0] * 8)[-2:] == [False, True]


def test_an_alarm_before_the_window_is_full_is_over_after_a_window() -> None:
    alarms = Alarms(AlarmRules(window=WINDOW))
    assert judged(alarms, [math.inf, *[9.0] * 8]) == [False] * 8 + [True]


def test_an_open_alarm_goes_through_a_checkpoint() -> None:
    one = filled()
    judged(one, [50.0, *VALUES[:3]])
    other = Alarms(AlarmRules(window=WINDOW))
    other.load(json.loads(json.dumps(one.state())))
    rest = VALUES[3:]
    assert judged(other, rest) == judged(one, rest) == [False] * 4 + [True]
