"""Rows in order: curves, thinning, tables."""

import pytest

from lingraft.measurement import Measurement
from lingraft.report.rows import (
    curve,
    format_change,
    format_value,
    language_name,
    last_trained,
    measured_rows,
    stage_starts,
    thin,
)


def row(stage: str, tokens: int, value: float, name: str = "loss", language: str | None = "eu") -> Measurement:
    return Measurement(stage, tokens, name, value, language)


def test_a_curve_is_in_order_of_tokens_without_the_base_and_the_last_of_equals_counts() -> None:
    rows = [row("base", 0, 9), row("b", 20, 2), row("expanded", 0, 5), row("a", 10, 3), row("a", 10, 4)]
    assert [(r.tokens, r.value) for r in curve(rows, "loss", "eu")] == [(0, 5), (10, 4), (20, 2)]
    assert last_trained(rows, "loss", "eu") == rows[1]
    assert last_trained(rows, "loss", "en") is None


def test_thinning_averages_and_drops_nothing() -> None:
    points = thin([row("a", t, float(t)) for t in range(10)], 5)
    assert [(p.tokens, p.value, p.count) for p in points] == [
        (1, 0.5, 2),
        (3, 2.5, 2),
        (5, 4.5, 2),
        (7, 6.5, 2),
        (9, 8.5, 2),
    ]
    assert len(thin([row("a", t, 1.0) for t in range(1001)])) == 200


def test_a_stage_starts_where_the_one_before_ended() -> None:
    rows = [row("base", 0, 1), row("a", 10, 1), row("a", 20, 1), row("b", 30, 1)]
    assert stage_starts(rows, ["a", "b", "c"]) == [("a", 0), ("b", 20)]


def test_table_lines_have_base_expanded_final_and_change() -> None:
    bits_rows = [
        row(stage, t, v, "bits_per_byte") for stage, t, v in (("base", 0, 2.0), ("expanded", 0, 3.0), ("a", 5, 1.5))
    ]
    task_row, rate = row("base", 0, 0.5, "probe/copain/max/exact_match", None), row("a", 5, 1, "learning_rate", None)
    rows = [*bits_rows, task_row, rate]
    bits, task = measured_rows(rows, ".*")
    assert [m.value for m in (bits.base, bits.expanded, bits.final) if m] == [2.0, 3.0, 1.5]
    assert bits.change == "−25.0 %"
    assert (task.label, task.final, task.change) == ("max: exact match", None, "")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.2345, "number", "1.234"),
        (-2.0, "number", "−2.000"),
        (0.632, "percent", "63.2 %"),
        (1.2e-5, "small", "1.2e-05"),
        (12345, "count", "12,345"),
        (0.99999, "cosine", "0.99999"),
    ],
)
def test_values_are_written_as_people_write_them(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_changes_are_signed_and_nothing_is_not() -> None:
    assert format_change(2.0, 2.5) == "+25.0 %"
    assert format_change(0.5, 0.4, "percent") == "−10.0 points"
    assert format_change(1.0, 1.0) == "0.0 %"
    assert format_change(0.0, 1.0) == ""
    assert (format_change(-2.0, -1.0), format_change(-2.0, -3.0)) == ("+50.0 %", "−50.0 %")


def test_languages_have_names_where_we_know_them() -> None:
    assert [language_name(c) for c in ("eu", "zh-Hant", "xx", "no")] == [
        "Basque (eu)", "Chinese (zh-Hant)", "xx", "Norwegian (no)"]  # fmt: skip
