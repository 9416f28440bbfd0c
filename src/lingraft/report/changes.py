"""One quantity before and after training, and what its intervals allow to be said about the change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lingraft.measurement import Measurement
from lingraft.report.rows import first_at, format_change, format_value, last_trained

__all__ = ["Change", "change_of"]


@dataclass(frozen=True)
class Change:
    """One quantity before and after, and its paired difference where that was measured."""

    before: Measurement
    after: Measurement
    paired: Measurement | None = None

    @property
    def relative(self) -> float | None:
        """Change over the value before; None where that is zero."""
        return self.after.value / self.before.value - 1 if self.before.value else None

    @property
    def difference(self) -> tuple[float, float] | None:
        """The 95 % interval of after − before: paired if measured, else as of independent samples."""
        b, a, paired = self.before, self.after, self.paired
        if paired and paired.low is not None and paired.high is not None:
            return paired.low, paired.high
        if b.low is None or b.high is None or a.low is None or a.high is None:
            return None
        half, middle = math.hypot((b.high - b.low) / 2, (a.high - a.low) / 2), a.value - b.value
        return middle - half, middle + half

    @property
    def is_clear(self) -> bool | None:
        """Whether the paired interval leaves out zero, or else the two intervals lie apart; None without any."""
        if self.difference is None:
            return None
        b, a = self.before, self.after
        if self.paired or b.low is None or b.high is None or a.low is None or a.high is None:
            return not self.difference[0] <= 0 <= self.difference[1]
        return a.low > b.high or a.high < b.low

    def words(self, unit: str = "number") -> str:
        """Return ``1.612 [1.560, 1.665] → 1.205 [1.160, 1.250], −25.2 %``."""
        change = format_change(self.before.value, self.after.value, unit)
        return f"{_with_interval(self.before, unit)} → {_with_interval(self.after, unit)}" + (
            f", {change}" if change else ""
        )


def _with_interval(row: Measurement, unit: str) -> str:
    value = format_value(row.value, unit)
    if row.low is None or row.high is None:
        return value
    return f"{value} [{format_value(row.low, unit)}, {format_value(row.high, unit)}]"


def change_of(rows: Sequence[Measurement], name: str, language: str | None = None) -> Change | None:
    """Return the change from the base model to the last measurement in training; None without both.

    A row ``<name>/difference`` (after − before, with its interval, on paired items) is used where it is
    there.
    """
    before, after = first_at(rows, "base", name, language), last_trained(rows, name, language)
    paired = last_trained(rows, f"{name}/difference", language)
    return Change(before, after, paired) if before and after else None
