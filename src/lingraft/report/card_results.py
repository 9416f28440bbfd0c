"""The results in a model card: what was measured of the base model and of the adapted one, in short tables."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lingraft.errors import MeasurementError
from lingraft.measure.tasks.conditions import read_task_records, record_path
from lingraft.measurement import Measurement
from lingraft.quantities import format_tokens
from lingraft.report.conduct import alarm_name, alarms_in
from lingraft.report.escaping import markdown_text
from lingraft.report.reading import RunRecord
from lingraft.report.rows import MeasuredRow, format_value, language_name, measured_rows

__all__ = ["markdown_table", "results"]

_MAIN = (
    "bits_per_byte|probe/random_copy/accuracy|probe/copain/(exact_match|element_picker)|fertility|"
    "segmentation_drift|shift/mean_l2"
)
_LADDER = "probe/[^/]+/(auc|icl_gain)"
_WRITTEN = "generation/(?!reference/)[^/]+/(target_share|repetition)"
_TASKS = r"task/.+/(?!seams_crossed$|prompts_cut$)[^/]+|label_perplexity/.+/(gold|gold_bits_per_byte)"
_MANY = 40
"""Lines of a table; a card is read by people, the run's report has everything."""


def results(record: RunRecord) -> str:
    """Return the tables with their headings, and the alarms that training raised; empty ones are left out."""
    parts = [_of(record, _MAIN)]
    told = _told_of_tasks(record)
    tasks = _of(record, _TASKS, lambda line: _asked(line, told), _is_summed_up(record))
    for heading, body in (
        ("Downstream tasks", f"{tasks}\n\n{_conditions(record, told)}" if tasks else ""),
        ("In-context learning, by the ladder of demonstrations", _of(record, _LADDER)),
        ("What it writes on its own", _of(record, _WRITTEN)),
    ):
        if body:
            parts.append(f"### {heading}\n\n{body}")
    if not any(parts):
        return "Nothing has been measured yet."
    return "\n\n".join(part.rstrip() for part in (*parts, _alarms(record)) if part)


def _of(
    record: RunRecord,
    pattern: str,
    behind: Callable[[MeasuredRow], str] = lambda _: "",
    is_left_out: Callable[[MeasuredRow], bool] = lambda _: False,
) -> str:
    lines = [line for line in measured_rows(record.rows, pattern) if not is_left_out(line)]
    lines.sort(key=lambda line: line.name.startswith("label_perplexity/"))
    if not lines:
        return ""
    head = ("quantity", "base model", "adapted model", "change", "items")
    more = f"\n\n{len(lines) - _MANY:,} more are in the report of the run." if len(lines) > _MANY else ""
    return markdown_table(head, [_line(line, behind(line)) for line in lines[:_MANY]]) + more


def _line(line: MeasuredRow, behind: str) -> tuple[str, ...]:
    about = f"{language_name(line.language)}: " if line.language else ""
    count = line.latest.count if line.latest else None
    values = (_with_interval(row, line.metric.unit) for row in (line.base, line.after))
    return (about + line.label + behind, *values, line.change, f"{count:,}" if count is not None else "")


def _with_interval(row: Measurement | None, unit: str) -> str:
    if row is None:
        return "—"
    if row.low is None or row.high is None:
        return format_value(row.value, unit)
    return f"{format_value(row.value, unit)} [{format_value(row.low, unit)}, {format_value(row.high, unit)}]"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the cells are escaped, the columns' names are not."""
    lines = [columns, ["---"] * len(columns), *([markdown_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_summed_up(record: RunRecord) -> Callable[[MeasuredRow], bool]:
    """Say of a line whether it is a task's of a group whose mean is there too: one line for all of them is enough."""
    names = {row.name for row in record.rows}

    def told(line: MeasuredRow) -> bool:
        kind, *places, score = line.name.split("/")
        return kind == "task" and len(places) > 1 and f"task/{places[0]}/{score}" in names

    return told


def _told_of_tasks(record: RunRecord) -> Mapping[str, Mapping[str, Any]]:
    """Return task → how it was asked, also under its group's name; nothing where that cannot be read."""
    if record.folder is None:
        return {}
    try:
        found = read_task_records(record_path(record.folder, "base", 0))
    except MeasurementError:
        return {}
    told: dict[str, Mapping[str, Any]] = {}
    for one in found:
        told[one["filed_as"]] = one
        told.setdefault(one["filed_as"].partition("/")[0], one)
    return told


def _asked(line: MeasuredRow, told: Mapping[str, Mapping[str, Any]]) -> str:
    """Say with how many demonstrations a task was asked, in which language, and what guessing gets."""
    kind, *places, score = line.name.split("/")
    one = told.get("/".join(places))
    if one is None or kind != "task":
        return ""
    language, chance = one.get("prompt_language"), one.get("chance")
    words = [f"{one.get('shots')}-shot"]
    words += [f"prompt in {language}"] if isinstance(language, str) else []
    words += (
        [f"guessing {format_value(chance, 'percent')}"] if isinstance(chance, float) and score.startswith("acc") else []
    )
    return f" ({', '.join(words)})"


def _conditions(record: RunRecord, told: Mapping[str, Mapping[str, Any]]) -> str:
    """Say by which versions tasks were asked, and in how many items a token spans prompt and answer."""
    versions = sorted({str(one.get("lm_eval")) for one in told.values()})
    text = f"Asked by lm-eval {markdown_text(', '.join(versions))}. " if told else ""
    last = {row.name: row for row in record.rows if re.fullmatch("task/.+/seams_crossed", row.name)}.values()
    crossed, asked = sum(row.value for row in last), sum(row.count or 0 for row in last)
    if not asked:
        return text
    return f"{text}A token spans the seam between prompt and answer in {crossed:,.0f} of {asked:,} items."


def _alarms(record: RunRecord) -> str:
    """Tell each kind of alarm once: when it was first raised, how often, and its largest value."""
    lines = list(_alarm_lines(alarms_in(record)))
    if lines:
        return "### Alarms raised in training\n\n" + "\n".join(lines)
    watched = record.recipe is not None and record.recipe.measure.alarm.action != "off"
    return "No alarm on forgetting was raised in training." if watched else ""


def _alarm_lines(alarms: Sequence[Measurement]) -> Iterator[str]:
    for name in dict.fromkeys(row.name for row in alarms):
        found = [row for row in alarms if row.name == name]
        first = f"first in stage {found[0].stage} after {format_tokens(found[0].tokens)} tokens"
        often = f"{len(found):,} times, largest" if len(found) > 1 else "once,"
        value = f"{often} {max(row.value for row in found):.3g}"
        yield f"- {markdown_text(f'{alarm_name(found[0])} ({first}; {value})')}"
