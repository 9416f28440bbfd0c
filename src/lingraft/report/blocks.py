"""The building blocks of the page: tables, figures with their numbers, runs side by side."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from lingraft.report.drawing import Chart
from lingraft.report.escaping import Html, element, isolated, redacted, visible
from lingraft.report.reading import RunRecord

__all__ = [
    "Figures",
    "Section",
    "code_block",
    "definitions",
    "folded",
    "nothing",
    "section",
    "side_by_side",
    "table",
]


_NUMBER = re.compile(r"(?:< )?[+−–]?\d[\d.,]*(?: %| \[.*\])?$")


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


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    class_: str | None = None,
    *,
    whole: bool = False,
    chosen: Collection[int] = (),
) -> Html:
    """Return a table that scrolls in its own box; the first cell of a row is its head.

    Args:
        caption: what it shows.
        columns: heads of the columns.
        rows: cells as text, or as markup that was made here.
        class_: how it is to look; with ``cards`` in it, a row is a card on a narrow screen, cells behind their columns'
            names.
        whole: show all rows, however many, so that it scrolls sideways only.
        chosen: the numbers of rows that are to stand out, counted from 0.
    """
    head = element("thead", element("tr", (element("th", column, scope="col") for column in columns)))
    names = columns if "cards" in (class_ or "").split() else ()
    body = element("tbody", (_table_row(row, names, is_chosen=number in chosen) for number, row in enumerate(rows)))
    made = element("table", element("caption", caption), head, body, class_=class_)
    shape = "scroll whole" if whole else "scroll"
    return element("div", made, class_=shape, role="region", tabindex="0", aria_label=f"Table: {caption}")


def _table_row(cells: Sequence[str], names: Sequence[str], *, is_chosen: bool) -> Html:
    first = element("th", cells[0] if isinstance(cells[0], Html) else isolated(cells[0]), scope="row")
    rest = (_cell(cell, names[place] if names else None) for place, cell in enumerate(cells[1:], start=1))
    return element("tr", first, rest, class_="chosen" if is_chosen else None)


def _cell(text: str, name: str | None) -> Html:
    """A number stays on one line with its interval; words may break."""
    if isinstance(text, Html):
        return element("td", text, data_name=name)
    return element("td", isolated(text), class_="number" if _NUMBER.match(text) else None, data_name=name)


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


def code_block(text: str) -> Html:
    """Return text in a scrolling block of its own, line by line as it stands."""
    return element("pre", element("code", redacted(visible(text))), dir="auto", tabindex="0")
