"""Target gain against source loss: what each arm buys, and at what price."""

from collections.abc import Sequence

import plotly.graph_objects as go

from lingraft.measure.verdict import Standing, Verdict
from lingraft.report.drawing import COLOURS, Chart, blank_figure
from lingraft.report.escaping import chart_text
from lingraft.report.recommendation import change_in_words, signed
from lingraft.report.rows import language_name

__all__ = ["pareto_chart"]

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_GREY = "#767676"


def pareto_chart(verdict: Verdict) -> Chart | None:
    """Return arms as points with intervals both ways, the best for each price joined; None where none is judged."""
    shown = [standing for standing in verdict.standings if standing.is_judged]
    if not shown:
        return None
    figure = blank_figure(f"{language_name(verdict.target)}: change in bits per byte (up is better)")
    figure.update_layout(hovermode="closest", height=430, showlegend=True)
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title_text=f"{language_name(verdict.source)}: change in bits per byte (left is better)")
    front = _front(verdict, shown)
    figure.add_trace(
        go.Scatter(
            x=[point.loss.value for point in front if point.loss],
            y=[-point.gain.value for point in front if point.gain],
            mode="lines",
            name="the best for each price",
            line={"color": _GREY, "dash": "dot", "width": 1.5},
            hoverinfo="skip",
        )
    )
    for index, standing in enumerate(verdict.standings):
        if standing in shown:
            figure.add_trace(_point(standing, index, is_chosen=standing.arm == verdict.chosen))
    limit = verdict.allowed
    is_near = limit is not None and _is_near(limit, shown)
    if is_near:
        figure.add_vline(x=limit, line={"color": _GREY, "dash": "dash", "width": 1}, annotation_text="allowed")
        figure.update_layout(
            annotations=[{**a.to_plotly_json(), "font": {"size": 11}} for a in figure.layout.annotations]
        )
    right = (
        "Right of the dashed line an arm costs the source language more than is allowed. "
        if is_near
        else f"What is allowed for the source language, {signed(limit)}, is beyond the right edge. "
        if limit is not None
        else "The arms began with different bases, so that each has its own limit. "
    )
    return Chart(
        "What each arm gains and what it costs",
        "Upper left is better. Each point is an arm, with its 95 % intervals both ways; a dotted line joins those that "
        f"no other beats in both. {right}Both are changes from the base model, on the same documents. Where the "
        "intervals of two overlap, the data may tell them apart all the same, because both read the same documents: "
        "that is under Differences.",
        figure,
        ("arm", language_name(verdict.target), language_name(verdict.source), "may be shipped"),
        tuple(_row(standing) for standing in verdict.standings),
    )


def _is_near(limit: float, shown: Sequence[Standing]) -> bool:
    """Whether the chart can reach to the limit without leaving half of itself empty."""
    losses = [one.loss for one in shown if one.loss]
    lowest, highest = min(loss.low for loss in losses), max(loss.high for loss in losses)
    return limit - highest < highest - lowest


def _front(verdict: Verdict, shown: Sequence[Standing]) -> list[Standing]:
    best = [standing for standing in shown if verdict.dominated_by(standing.arm) is None]
    return sorted(best, key=lambda standing: standing.loss.value if standing.loss else 0.0)


def _point(standing: Standing, index: int, *, is_chosen: bool) -> go.Scatter:
    (gain, loss), colour = standing.changes, COLOURS[index % len(COLOURS)]
    assert gain is not None
    assert loss is not None
    whiskers = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": colour}
    return go.Scatter(
        x=[loss.value],
        y=[gain.value],
        error_x=whiskers | {"array": [loss.high - loss.value], "arrayminus": [loss.value - loss.low]},
        error_y=whiskers | {"array": [gain.high - gain.value], "arrayminus": [gain.value - gain.low]},
        name=chart_text(f"{standing.arm} (recommended)" if is_chosen else standing.arm),
        mode="markers",
        marker={"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 15 if is_chosen else 10},
        hovertemplate=chart_text(f"{change_in_words(gain)}; {change_in_words(loss)}"),
    )


def _row(standing: Standing) -> tuple[str, ...]:
    changes = map(change_in_words, standing.changes)
    return standing.arm, *changes, "yes" if standing.excluded is None else "no"
