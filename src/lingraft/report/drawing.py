"""How a figure is drawn: lines over training tokens with bands, base-model lines and stage marks.

Colours are Okabe and Ito's (safe for colour-blind readers) and never the only sign: every line has a dash
of its own as well. The page recolours text and grid for light, dark and print, so none of that is set
here. All labels that come from outside pass :func:`lingraft.report.escaping.chart_text`, since plotly
reads tags in labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from lingraft.measurement import Measurement
from lingraft.report.escaping import chart_text
from lingraft.report.rows import format_value

__all__ = ["COLOURS", "DASHES", "Chart", "Series", "blank_figure", "line_chart", "transparent"]

# Okabe and Ito's, the two that are pale on white last; the page swaps pale and dark kin in dark mode.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A8A8A", "#5E4FA2")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "6px 2px", "2px 4px")
_GREY = "#767676"


@dataclass(frozen=True)
class Chart:
    """One figure with everything that a reader who cannot see it needs.

    Attributes:
        title: what is shown.
        caption: how to read it.
        figure: the plotly figure.
        columns: heads of its table of numbers.
        rows: the numbers, as text.
    """

    title: str
    caption: str
    figure: go.Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Series:
    """One line: a label, its points over tokens, and the base model's value to compare with."""

    label: str
    points: Sequence[Measurement]
    base: Measurement | None = None
    style: int = 0


def line_chart(
    title: str,
    caption: str,
    unit_label: str,
    series: Sequence[Series],
    starts: Sequence[tuple[str, int]] = (),
    unit: str = "number",
    log: bool = False,
) -> Chart:
    """Return lines over training tokens, with interval bands, base-model lines and marks where stages begin.

    Args:
        title: what is shown.
        caption: how to read it.
        unit_label: title of the vertical axis.
        series: the lines; one without points is left out.
        starts: stages with the tokens at which they begin.
        unit: how values are written: ``number``, ``percent`` or ``small``.
        log: whether the vertical axis is logarithmic.
    """
    shown = [s for s in series if s.points]
    figure = blank_figure(unit_label)
    for one in shown:
        figure.add_traces(list(_traces(one, unit)))
    tokens = sorted({0, *(p.tokens for s in shown for p in s.points)})
    for label, value, style in _base_lines(shown):
        figure.add_trace(_base_trace(label, value, tokens, style, unit))
    _mark_stages(figure, starts)
    figure.update_layout(showlegend=sum(t.showlegend is not False for t in figure.data) > 1)
    figure.update_xaxes(title_text="training tokens", tickformat="~s", rangemode="tozero")
    if unit == "percent":
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    if log:
        figure.update_yaxes(type="log", exponentformat="power")
    if len(starts) > 1:
        caption += " Vertical lines: " + ", ".join(f"{i} {name}" for i, (name, _) in enumerate(starts, 1)) + "."
    return Chart(title, caption, figure, ("line", "stage", "tokens", "value", "95 % interval"), _numbers(shown, unit))


def blank_figure(unit_label: str) -> go.Figure:
    """Return an empty figure with our layout; the argument is the title of its vertical axis."""
    figure = go.Figure(layout={"template": "none"})
    figure.update_layout(
        margin={"l": 62, "r": 14, "t": 14, "b": 48},
        hovermode="x unified",
        hoverdistance=-1,
        height=300,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"namelength": -1},
    )
    figure.update_yaxes(title_text=unit_label, title_standoff=10, title_font_size=12, automargin=True)
    figure.update_xaxes(automargin=True, title_font_size=12, spikethickness=1, spikecolor=_GREY)
    return figure


def _traces(series: Series, unit: str) -> Iterator[Any]:
    colour, dash = COLOURS[series.style % len(COLOURS)], DASHES[series.style % len(DASHES)]
    banded = [p for p in series.points if p.low is not None and p.high is not None]
    if banded:
        tokens = [p.tokens for p in banded]
        yield go.Scatter(
            x=tokens + tokens[::-1],
            y=[p.high for p in banded] + [p.low for p in banded][::-1],
            fill="toself",
            fillcolor=transparent(colour),
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            mode="lines",
        )
    yield go.Scatter(
        x=[p.tokens for p in series.points],
        y=[p.value for p in series.points],
        name=chart_text(series.label),
        mode="lines+markers" if len(series.points) <= 40 else "lines",
        line={"color": colour, "dash": dash, "width": 2},
        marker={"size": 6, "symbol": series.style % 8},
        customdata=[_hover(p, unit) for p in series.points],
        hovertemplate="%{customdata}",
    )


def transparent(colour: str, opacity: float = 0.18) -> str:
    """Return a ``#rrggbb`` colour as ``rgba(…)``."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _hover(point: Measurement, unit: str) -> str:
    if point.low is None or point.high is None:
        return format_value(point.value, unit)
    value, low, high = (format_value(number, unit) for number in (point.value, point.low, point.high))
    return f"{value} [{low}, {high}]"


def _base_lines(series: Sequence[Series]) -> list[tuple[str, float, int | None]]:
    """One grey line where all runs share a base value, else one per line in that line's colour."""
    values = {s.base.value for s in series if s.base}
    if len(values) == 1:
        return [("base model", values.pop(), None)]
    return [(f"{s.label}: base model", s.base.value, s.style) for s in series if s.base]


def _base_trace(label: str, value: float, tokens: Sequence[int], style: int | None, unit: str) -> Any:
    """A level line with a point wherever a curve has one, so that pointing at a curve shows the base beside it."""
    colour = _GREY if style is None else COLOURS[style % len(COLOURS)]
    text = format_value(value, unit)
    return go.Scatter(
        x=tokens,
        y=[value] * len(tokens),
        mode="lines",
        name=chart_text(label),
        customdata=[text] * len(tokens),
        line={"color": colour, "dash": "2px 3px", "width": 1.5},
        hovertemplate="%{customdata}",
    )


def _mark_stages(figure: go.Figure, starts: Sequence[tuple[str, int]]) -> None:
    if len(starts) < 2:
        return
    for number, (_, tokens) in enumerate(starts, 1):
        figure.add_vline(
            x=tokens,
            line={"color": _GREY, "dash": "dot", "width": 1},
            annotation_text=str(number),
            annotation_position="top right",
            annotation_font_size=11,
        )


def _numbers(series: Sequence[Series], unit: str) -> tuple[tuple[str, ...], ...]:
    lines = []
    for one in series:
        for point in [one.base, *one.points] if one.base else one.points:
            interval = (
                ""
                if point.low is None or point.high is None
                else (f"{format_value(point.low, unit)} to {format_value(point.high, unit)}")
            )
            lines.append((one.label, point.stage, f"{point.tokens:,}", format_value(point.value, unit), interval))
    return tuple(lines)
