"""Tables of what was measured: of one run from the base to the end, of several runs side by side."""

from collections.abc import Callable, Mapping, Sequence

from lingraft.measurement import Measurement
from lingraft.report.blocks import nothing
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.metrics import Metric
from lingraft.report.reading import RunRecord
from lingraft.report.rows import MeasuredRow, format_change, format_value, language_name, measured_rows

__all__ = ["measured_table"]

_Line = tuple[str, str | None]
_Column = tuple[str, Callable[[MeasuredRow], Html]]
_RULE = "Small print: the 95 % interval, and the difference from the first run."


def measured_table(records: Sequence[RunRecord], include: str, caption: str, *, quiet: bool = False) -> Html:
    """Return a table of the measurements whose name matches; quantities down.

    Of one run: base, expanded and last value, and the change. Of several: the base model, then the last value of each
    run with its difference from the first run's. A number per token has no such difference where the tokenizers
    differ: runs are not ranked by it.

    Args:
        records: the runs, side by side.
        include: a regular expression over names of measurements.
        caption: the table's caption.
        quiet: say nothing where nothing was measured.
    """
    lines = [{(r.label, r.language): r for r in measured_rows(record.rows, include)} for record in records]
    keys = list(dict.fromkeys(key for each in lines for key in each))
    if not keys:
        return Html("") if quiet else nothing("Not measured.")
    head, body = _of_one(lines[0], keys) if len(records) == 1 else _of_many(records, lines, keys)
    told = caption if len(records) == 1 else f"{caption}. {_RULE}"
    whole = element("table", element("caption", told), head, element("tbody", body), class_="measured")
    return element("div", whole, class_="scroll whole", role="region", tabindex="0", aria_label=f"Table: {caption}")


def _of_one(lines: Mapping[_Line, MeasuredRow], keys: Sequence[_Line]) -> tuple[Html, list[Html]]:
    columns = _columns(list(lines.values()))
    titles = (element("th", title, scope="col") for title, _ in columns)
    head = element("thead", element("tr", element("th", "quantity", scope="col"), titles))
    body = [element("tr", _row_head(key, lines[key].metric), (show(lines[key]) for _, show in columns)) for key in keys]
    return head, body


def _columns(shown: Sequence[MeasuredRow]) -> list[_Column]:
    """The columns that have something to show."""
    found: list[_Column] = []
    if any(line.base for line in shown):
        found.append(("base model", lambda line: _cell(line.base, line.metric.unit)))
    if any(line.expanded for line in shown):
        found.append(("expanded, untrained", lambda line: _cell(line.expanded, line.metric.unit)))
    if any(line.final for line in shown):
        found.append(("last in training", lambda line: _cell(line.final, line.metric.unit)))
    if any(line.change for line in shown):
        found.append(("change", lambda line: element("td", line.change)))
    if any(line.latest and line.latest.count is not None for line in shown):
        found.append(("items", _items))
    return found


def _items(line: MeasuredRow) -> Html:
    count = line.latest.count if line.latest else None
    return element("td", f"{count:,}" if count is not None else "")


def _of_many(
    records: Sequence[RunRecord], lines: Sequence[Mapping[_Line, MeasuredRow]], keys: Sequence[_Line]
) -> tuple[Html, list[Html]]:
    has_base = any(line.base for each in lines for line in each.values())
    base = [element("th", "base model", scope="col")] if has_base else []
    names = [element("th", isolated(record.name), scope="col") for record in records]
    head = element("thead", element("tr", element("th", "quantity", scope="col"), base, names))
    return head, [_row_of_many(records, key, [each.get(key) for each in lines], has_base) for key in keys]


def _row_of_many(records: Sequence[RunRecord], key: _Line, lines: Sequence[MeasuredRow | None], has_base: bool) -> Html:
    known = next(line for line in lines if line)
    bases = [line.base if line else None for line in lines]
    is_shared = len({base.value for base in bases if base}) == 1
    cells = [_base_cell(bases, known.metric)] if has_base else []
    first = lines[0].after if lines[0] else None
    for number, (record, line) in enumerate(zip(records, lines, strict=True)):
        is_ranked = not known.metric.per_token or (
            record.tokenizer is not None and record.tokenizer == records[0].tokenizer
        )
        notes = []
        if number and line and line.after and first:
            notes = [_difference(first, line.after, known.metric) if is_ranked else "another tokenizer: not comparable"]
        if line and line.base and not is_shared:
            notes.append(f"its base: {format_value(line.base.value, known.metric.unit)}")
        cells.append(_cell(line.after if line else None, known.metric.unit, notes))
    return element("tr", _row_head(key, known.metric), cells)


def _base_cell(bases: Sequence[Measurement | None], metric: Metric) -> Html:
    """The base model's value where all runs have the same."""
    found = [base for base in bases if base]
    if len({base.value for base in found}) > 1:
        return element("td", element("small", "not the same in all runs"))
    return _cell(found[0] if found else None, metric.unit)


def _difference(first: Measurement, row: Measurement, metric: Metric) -> str:
    change = row.value - first.value
    if metric.unit == "percent":
        return format_change(first.value, row.value, "percent")
    return (
        f"{'+' if change >= 0 else ''}{format_value(change, metric.unit).removeprefix('+')}" if change else "the same"
    )


def _row_head(key: _Line, metric: Metric) -> Html:
    label, language = key
    better = element("small", f" {metric.better} is better") if metric.better else ""
    about = join(element("span", isolated(language_name(language)), class_="language"), " ") if language else ""
    return element("th", about, isolated(label), better, scope="row")


def _cell(row: Measurement | None, unit: str, notes: Sequence[str] = ()) -> Html:
    if row is None:
        return element("td", "—")
    told = list(notes)
    if row.low is not None and row.high is not None:
        told.insert(0, f"[{format_value(row.low, unit)}, {format_value(row.high, unit)}]")
    return element("td", format_value(row.value, unit), (element("small", f" {note}") for note in told))
