"""The limits that alarm, report and comparison share."""

import pytest

from lingraft.limits import Limits
from lingraft.measure.alarm import ForgettingLimits
from lingraft.recipe_forgetting import ForgettingAlarm


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ([], Limits()),
        ([Limits(0.1, 0.2), Limits(0.03, 0.4)], Limits(0.03, 0.2)),
        ([Limits(1.0, 0.9)], Limits(1.0, 0.9)),
    ],
)
def test_of_several_the_strictest_of_each_counts(stated: list[Limits], expected: Limits) -> None:
    assert Limits.strictest(stated) == expected


def test_alarm_report_and_comparison_have_the_same_limits() -> None:
    assert ForgettingAlarm().limits == Limits(ForgettingLimits().source_rise, ForgettingLimits().probe_drop) == Limits()
    assert ForgettingAlarm(source_rise=0.01, probe_drop=None).limits == Limits(0.01, Limits().probe_drop)
