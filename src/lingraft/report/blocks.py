"""The building blocks of the page: tables, figures with their numbers, runs side by side."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lingraft.measurement import Measurement
from lingraft.report.drawing import Chart
from lingraft.report.escaping import Html, element, isolated, join, redacted, visible
from lingraft.report.reading import RunRecord
from lingraft.report.rows import MeasuredRow, format_value, language_name, measured_rows

__all__ = [
    "Figures",
    "Section",
    "code_block",
    "definitions",
    "folded",
    "measured_table",
    "nothing",
    "section",
    "side_by_side",
    "table",
]


class Figures:
    """The charts placed on a page so far, numbered in the order placed."""

    def __init__(self) -> None:
        self.specifications: list[Any] = []

    def place(self, chart: Chart) -> Html:
        """Return a figure: an empty box the page draws in, its caption, and its numbers as a table."""
        number = len(self.specifications)
        specification = json.loads(chart.figure.to_json())
        # The template is only plotly's own defaults, thousands of characters of them in every figure.
        specification["layout"].pop("template", None)
        self.specifications.append(specification)
        box = element("div", class_="chart", id=f"chart-{number}", data_figure=str(number), role="img",
                      aria_label=f"Chart: {chart.title}. Its numbers are in the table below it.")  # fmt: skip
        caption = element("figcaption", element("strong", isolated(chart.title)), " ", chart.caption)
        numbers = table(f"Numbers of “{chart.title}”", chart.columns, chart.rows)
        return element("figure", caption, box, element("details", element("summary", "Numbers"), numbers))

    def grid(self, charts: Sequence[Chart]) -> Html:
        """Return figures beside each other where the width allows it."""
        shape = "grid single" if len(charts) == 1 else "grid"
        return element("div", [self.place(chart) for chart in charts], class_=shape) if charts else Html("")


class Section(NamedTuple):
    """A part of the page: what its address is, its title, and what stands in it; without content it is left out."""

    identifier: str
    title: str
    content: Html


def folded(title: str, content: Html) -> Html:
    """Return content that is shown when its title is opened."""
    return element("details", element("summary", title), content)


def section(identifier: str, title: str, *content: str) -> Html:
    """Return a section of the page with its heading, and a landmark name."""
    heading = element("h2", title, id=f"{identifier}-title")
    return element("section", heading, *content, id=identifier, aria_labelledby=f"{identifier}-title")


def nothing(what: str) -> Html:
    """Return the sentence that stands where there is nothing to show."""
    return element("p", what, class_="nothing")


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], class_: str | None = None) -> Html:
    """Return a table that scrolls in its own box; the first cell of a row is its head."""
    head = element("thead", element("tr", (element("th", column, scope="col") for column in columns)))
    body = element("tbody", (_table_row(row) for row in rows))
    whole = element("table", element("caption", caption), head, body, class_=class_)
    return element("div", whole, class_="scroll", role="region", tabindex="0", aria_label=f"Table: {caption}")


def _table_row(cells: Sequence[str]) -> Html:
    first = element("th", cells[0] if isinstance(cells[0], Html) else isolated(cells[0]), scope="row")
    return element("tr", first, (element("td", c if isinstance(c, Html) else isolated(c)) for c in cells[1:]))


def definitions(pairs: Mapping[str, Any]) -> Html:
    """Return names and values as a description list; numbers get thousands separators."""
    return element("dl", (
        element("div", element("dt", isolated(str(name))), element("dd", isolated(_plain(value))))
        for name, value in pairs.items()
    ))  # fmt: skip


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "—"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def side_by_side(records: Sequence[RunRecord], block: Callable[[RunRecord], Html]) -> Html:
    """Return one block for a single run, or the blocks of several beside each other under their names."""
    if len(records) == 1:
        return block(records[0])
    columns = (element("div", element("h3", isolated(r.name)), block(r), class_="column") for r in records)
    return element("div", columns, class_="columns")


def measured_table(records: Sequence[RunRecord], include: str, caption: str, *, quiet: bool = False) -> Html:
    """Return base, expanded and final values of the measurements whose name matches, for each run.

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
    columns = _columns(lines)
    body = element("tbody", (_measured_row(key, [each.get(key) for each in lines], columns) for key in keys))
    whole = element("table", element("caption", caption), _measured_head(records, columns), body, class_="measured")
    return element("div", whole, class_="scroll whole", role="region", tabindex="0", aria_label=f"Table: {caption}")


_Column = tuple[str, Callable[[MeasuredRow], Html]]


def _columns(lines: Sequence[Mapping[Any, MeasuredRow]]) -> list[_Column]:
    """The columns that have something to show; side by side there is room for base, last and change only."""
    base: _Column = ("base model", lambda line: _cell(line.base, line.metric.unit))
    change: _Column = ("change", lambda line: element("td", line.change))
    if len(lines) > 1:
        return [base, ("last in training", lambda line: _cell(line.after, line.metric.unit)), change]
    shown = list(lines[0].values())
    columns: list[_Column] = [base] if any(line.base for line in shown) else []
    if any(line.expanded for line in shown):
        columns.append(("expanded, untrained", lambda line: _cell(line.expanded, line.metric.unit)))
    if any(line.final for line in shown):
        columns.append(("last in training", lambda line: _cell(line.final, line.metric.unit)))
    return [*columns, change, ("items", _items)]


def _items(line: MeasuredRow) -> Html:
    count = line.latest.count if line.latest else None
    return element("td", f"{count:,}" if count is not None else "")


def _measured_head(records: Sequence[RunRecord], columns: Sequence[_Column]) -> Html:
    names = [element("th", isolated(record.name), scope="colgroup", colspan=str(len(columns))) for record in records]
    top = element("tr", element("td"), names) if len(records) > 1 else ""
    titles = (element("th", title, scope="col") for _ in records for title, _ in columns)
    return element("thead", top, element("tr", element("th", "quantity", scope="col"), titles))


def _measured_row(key: tuple[str, str | None], lines: Sequence[MeasuredRow | None], columns: Sequence[_Column]) -> Html:
    label, language = key
    first = next(line for line in lines if line)
    better = element("small", f" {first.metric.better} is better") if first.metric.better else ""
    about = join(element("span", isolated(language_name(language)), class_="language"), " ") if language else ""
    head = element("th", about, isolated(label), better, scope="row")
    return element("tr", head, (show(line) if line else element("td", "—") for line in lines for _, show in columns))


def _cell(row: Measurement | None, unit: str) -> Html:
    if row is None:
        return element("td", "—")
    interval = ""
    if row.low is not None and row.high is not None:
        interval = element("small", f" [{format_value(row.low, unit)}, {format_value(row.high, unit)}]")
    return element("td", format_value(row.value, unit), interval)


def code_block(text: str) -> Html:
    """Return text in a scrolling block of its own, line by line as it stands."""
    return element("pre", element("code", redacted(visible(text))), dir="auto", tabindex="0")
