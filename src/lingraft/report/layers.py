"""Where in the network the weights moved: a heat map of layers and kinds of weight, and drift by layer."""

import re
from collections.abc import Sequence

import plotly.graph_objects as go

from lingraft.measurement import Measurement
from lingraft.report.charts import over_runs, stage_marks
from lingraft.report.drawing import COLOURS, DASHES, Chart, blank_figure, line_chart
from lingraft.report.escaping import chart_text
from lingraft.report.reading import RunRecord
from lingraft.report.rows import format_value, last_trained, names_of

__all__ = ["drift_charts", "layer_charts"]

_LAYER = re.compile(r"shift/layer/([0-9]{1,5})/([^/]+)/relative_l2")
_CKA = re.compile(r"drift/cka/([^/]+)/layer/([0-9]{1,5})")
# More cells than this hold no legible number; the value is on hover and in the table then.
_WRITTEN = 80
_LIKE_ENOUGH = 0.95


def layer_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return a heat map for each run: how far each kind of weight of each layer moved, by the end of training.

    All runs have one scale of colours, so that they can be compared by eye.
    """
    found = [(record, _by_layer(record)) for record in records]
    top = max((row.value for _, cells in found for row in cells.values()), default=0.0)
    return [_heat_map(record, cells, top, len(records) > 1) for record, cells in found if cells]


def _by_layer(record: RunRecord) -> dict[tuple[int, str], Measurement]:
    found = {}
    for name, language in names_of(record.rows):
        row = last_trained(record.rows, name, language) if (match := _LAYER.fullmatch(name)) else None
        if match and row:
            found[int(match[1]), match[2]] = row
    return found


def _heat_map(record: RunRecord, cells: dict[tuple[int, str], Measurement], top: float, is_one_of_many: bool) -> Chart:
    layers = sorted({layer for layer, _ in cells})
    kinds = list(dict.fromkeys(kind for _, kind in cells))
    texts = [[format_value(r.value, "small") if (r := cells.get((n, k))) else "" for n in layers] for k in kinds]
    figure = blank_figure("")
    figure.add_trace(
        go.Heatmap(
            x=layers,
            y=[chart_text(kind.replace("_", " ")) for kind in kinds],
            z=[[cells[n, k].value if (n, k) in cells else None for n in layers] for k in kinds],
            text=texts,
            texttemplate="%{text}" if len(cells) <= _WRITTEN else None,
            hovertemplate="layer %{x}, %{y}: %{text}<extra></extra>",
            colorscale="Cividis",
            zmin=0,
            zmax=top or 1,
            xgap=1,
            ygap=2,
            colorbar={
                "title": {"text": "‖θ − θ₀‖ / ‖θ₀‖", "side": "right"},
                "thickness": 12,
                "exponentformat": "power",
            },
        )
    )
    figure.update_layout(hovermode="closest", height=110 + 52 * len(kinds))
    figure.update_xaxes(title_text="layer, from the input", showgrid=False, dtick=max(1, len(layers) // 10))
    figure.update_yaxes(showgrid=False, autorange="reversed")
    rows = tuple(
        (f"{n}", *(format_value(r.value, "small") if (r := cells.get((n, k))) else "—" for k in kinds)) for n in layers
    )
    name = f", {record.name}" if is_one_of_many else ""
    caption = "The lighter, the further from the weights before training. Colours mean the same in all runs."
    columns = ("layer", *(kind.replace("_", " ") for kind in kinds))
    return Chart(f"Parameter shift by layer{name}", caption, figure, columns, rows)


def drift_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return how far predictions and hidden states have come from the base model's: over tokens, and by layer."""
    names = dict.fromkeys(key for record in records for key in names_of(record.rows) if key[0] == "drift/kl")
    over_tokens = [
        line_chart(
            "Divergence of predictions from the base model's",
            "KL(base ‖ model) on source text over shared tokens; 0 is the base itself, lower is closer to it.",
            "nats per token",
            over_runs(records, name, language),
            stage_marks(records),
        )
        for name, language in names
    ]
    for chart in over_tokens:
        chart.figure.update_yaxes(rangemode="tozero")
    by_layer = [_cka_chart(records, text) for text in ("source", "copy")]
    return [chart for chart in (*over_tokens, *by_layer) if chart.rows]


def _cka_chart(records: Sequence[RunRecord], text: str) -> Chart:
    figure = blank_figure("CKA with the base model")
    rows: list[tuple[str, ...]] = []
    for style, record in enumerate(records):
        found = {}
        for name, language in names_of(record.rows):
            match = _CKA.fullmatch(name)
            if match and match[1] == text and (row := last_trained(record.rows, name, language)):
                found[int(match[2])] = row.value
        label = record.name if len(records) > 1 else "adapted model"
        rows += [(label, f"{n}", format_value(found[n], "cosine")) for n in sorted(found)]
        if found:
            figure.add_trace(_cka_trace(label, found, style))
    figure.update_layout(showlegend=len(records) > 1)
    figure.update_xaxes(title_text="behind this layer")
    # So that a model that is still the base's own is a level line, not a picture of rounding.
    lowest = min((low for trace in figure.data for low in trace.y), default=1.0)
    figure.update_yaxes(range=[min(_LIKE_ENOUGH, lowest - 0.02), 1.005])
    kind = {"source": "source text", "copy": "random copies"}[text]
    caption = "1: the hidden states are the base model's, up to rotation and scale; lower means they were rebuilt."
    title = f"Likeness of hidden states to the base model's, on {kind}"
    return Chart(title, caption, figure, ("run", "layer", "CKA"), tuple(rows))


def _cka_trace(label: str, found: dict[int, float], style: int) -> go.Scatter:
    layers = sorted(found)
    return go.Scatter(
        x=layers,
        y=[found[n] for n in layers],
        name=chart_text(label),
        mode="lines+markers",
        line={"color": COLOURS[style % len(COLOURS)], "dash": DASHES[style % len(DASHES)], "width": 2},
        marker={"size": 6, "symbol": style % 8},
        hovertemplate="%{y:.4f}",
    )
