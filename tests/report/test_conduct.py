"""Tasks, generation and alarms; and that nothing measured is left out."""

from dataclasses import replace
from pathlib import Path

import pytest

from lingraft.measurement import Measurement
from lingraft.report.blocks import Figures
from lingraft.report.conduct import alarm_name, alarms_in, checks_of, tasks_of
from lingraft.report.leftovers import leftovers_of
from lingraft.report.page import render_page
from lingraft.report.reading import RunRecord, read_record
from lingraft.report.rows import Rows


@pytest.fixture
def record(everything_run: Path) -> RunRecord:
    return read_record(everything_run)


def test_tasks_have_a_table_and_a_chart_only_where_there_is_a_curve(record: RunRecord) -> None:
    figures = Figures()
    text = tasks_of([record], figures)
    assert "xstorycloze eu: acc_norm (by characters)" in text
    assert "xstorycloze eu: perplexity of labels, of the right one" in text
    assert figures.specifications == []
    more = Measurement("continued-pretraining", 40_000, "task/xstorycloze_eu/acc", 0.6)
    tasks_of([replace(record, rows=Rows([*record.rows, more]))], figures)
    assert [f["data"][-2]["y"] for f in figures.specifications] == [[0.605, 0.6, 0.63]]


def test_an_alarm_is_told_with_its_moment_and_silence_is_told_too(record: RunRecord) -> None:
    (alarm,) = alarms_in(record)
    assert (alarm.tokens, alarm_name(alarm)) == (61_440, "forgetting: source text costs this much more")
    assert "61.4k" in checks_of([record], Figures())
    silent = replace(record, rows=Rows(r for r in record.rows if not r.name.startswith("alarm/")))
    assert "No alarm was raised in training." in checks_of([silent], Figures())
    assert checks_of([replace(record, rows=Rows())], Figures()) == tasks_of([], Figures()) == ""


def test_what_has_no_section_is_listed_by_its_name(record: RunRecord) -> None:
    text = leftovers_of([record])
    assert "something, nobody drew" in text
    assert "4.25" in text
    assert "copain" not in text
    assert leftovers_of([replace(record, rows=Rows())]) == ""


def test_every_name_of_the_fixture_is_on_the_page(record: RunRecord) -> None:
    """Whatever is measured last shows as a number, drawn or not."""
    marked = Rows(replace(r, value=r.value, name=f"new/{i}/{r.name}") for i, r in enumerate(record.rows[-8:]))
    text = render_page([replace(record, rows=marked)])
    assert all(row.name.replace("_", " ").replace("/", ", ") in text for row in marked)
