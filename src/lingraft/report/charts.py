"""The figures of the report: which quantity goes on which chart, and how each is to be read."""

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from lingraft.measurement import Measurement
from lingraft.report.drawing import COLOURS, Chart, Series, blank_figure, line_chart, transparent
from lingraft.report.escaping import chart_text
from lingraft.report.reading import RunRecord
from lingraft.report.rows import between, curve, first_at, format_value, language_name, stage_starts, thin

__all__ = [
    "bits_per_byte_charts",
    "fertility_chart",
    "labelled",
    "norm_chart",
    "over_runs",
    "shift_charts",
    "stage_marks",
    "training_charts",
]

_RATE_STYLE = 6
_SHIFT_KINDS = (
    "embeddings_old",
    "embeddings_new",
    "head_old",
    "head_new",
    "attention",
    "mlp",
    "norm",
    "other",
)


def labelled(records: Sequence[RunRecord]) -> list[tuple[str, RunRecord]]:
    """Return each run with what a line of it is called: its name where there are several."""
    return [(record.name if len(records) > 1 else "adapted model", record) for record in records]


def over_runs(records: Sequence[RunRecord], name: str, language: str | None = None) -> list[Series]:
    """Return one line per run, since a quantity is compared between runs more often than within one."""
    return [
        Series(label, curve(record.rows, name, language), first_at(record.rows, "base", name, language), style)
        for style, (label, record) in enumerate(labelled(records))
    ]


def stage_marks(records: Sequence[RunRecord]) -> list[tuple[str, int]]:
    """Return where stages begin, if that is the same in all runs."""
    found = [stage_starts(record.rows, record.stages) for record in records]
    return found[0] if found and all(each == found[0] for each in found) else []


def bits_per_byte_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return one chart per language: runs overlaid, interval bands, the base model as a line."""
    languages = list(dict.fromkeys(code for record in records for code in record.languages))
    caption = "Lower is better. Band: 95 % interval over documents. The first point has new, untrained rows."
    return [
        line_chart(
            f"Bits per byte, {language_name(code)}",
            caption,
            "bits per byte",
            over_runs(records, "bits_per_byte", code),
            stage_marks(records),
        )
        for code in languages
    ]


def shift_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return one chart per run: how far each kind of weight moved, relative to its own size."""
    charts = []
    for record in records:
        series = [
            Series(kind.replace("_", " "), curve(record.rows, f"shift/{kind}/relative_l2"), None, style)
            for style, kind in enumerate(_SHIFT_KINDS)
        ]
        name = f", {record.name}" if len(records) > 1 else ""
        caption = "‖θ − θ₀‖ / ‖θ₀‖ by kind of weight, where θ₀ is the model after expansion and before training."
        charts.append(
            line_chart(
                f"Parameter shift by kind{name}",
                caption,
                "relative distance",
                series,
                stage_marks([record]),
                "small",
            )
        )
    return [chart for chart in charts if chart.rows]


def training_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return training loss per corpus, the realised mix over the learning rate, and the gradient's norm."""
    charts = [_loss_chart(records), *(_ribbon_chart(record, len(records) > 1) for record in records)]
    if len(records) > 1:
        charts.append(_thinned("Learning rate", "As it was at each optimiser step.", "learning_rate", records))
    about = "Before clipping. Spikes mean unstable steps."
    charts.append(_thinned("Gradient norm", about, "gradient_norm", records))
    return [chart for chart in charts if chart.rows]


def _thinned(title: str, caption: str, name: str, records: Sequence[RunRecord]) -> Chart:
    series = [replace(s, points=thin(s.points), base=None) for s in over_runs(records, name)]
    return line_chart(title, caption, title.lower(), series, stage_marks(records), "small")


def _loss_chart(records: Sequence[RunRecord]) -> Chart:
    series: list[Series] = []
    for label, record in labelled(records):
        for corpus in between(record.rows, "loss"):
            name = f"{label}, {corpus}" if len(records) > 1 else corpus
            series.append(Series(name, thin(curve(record.rows, "loss", corpus)), None, len(series)))
    caption = "Lower is better. Compare within one run: tokens differ between vocabularies. Points are means of steps."
    return line_chart("Training loss", caption, "nats per token", series, stage_marks(records))


def _ribbon_chart(record: RunRecord, is_one_of_many: bool) -> Chart:
    """The mix as a ribbon, shares stacked to one so that the eye reads the mix, and the learning rate below it."""
    shares = [
        Series(c, thin(curve(record.rows, "share", c)), None, i) for i, c in enumerate(between(record.rows, "share"))
    ]
    rate = Series("learning rate", thin(curve(record.rows, "learning_rate")), None, _RATE_STYLE)
    title = "Mix of corpora and learning rate" + (f", {record.name}" if is_one_of_many else "")
    about = "Above: realised share of training tokens. Below: the learning rate at each step."
    chart = line_chart(title, about, "share", shares, stage_marks([record]), "percent")
    for trace in chart.figure.data:
        trace.update(stackgroup="mix", mode="lines", line_shape="hv", fillcolor=transparent(trace.line.color, 0.55))
    if not rate.points:
        chart.figure.update_yaxes(range=[0, 1])
        return chart
    below = line_chart("", "", "learning rate", [rate], (), "small")
    for trace in below.figure.data:
        trace.update(yaxis="y2", mode="lines", fill="tozeroy", fillcolor=transparent(trace.line.color))
        chart.figure.add_trace(trace)
    chart.figure.update_layout(
        height=360,
        showlegend=True,
        yaxis={"range": [0, 1], "domain": [0.42, 1]},
        yaxis2={**below.figure.layout.yaxis.to_plotly_json(), "domain": [0, 0.32], "rangemode": "tozero",
                "exponentformat": "power", "nticks": 4},
        xaxis={"anchor": "y2"},
    )  # fmt: skip
    return replace(chart, rows=(*chart.rows, *below.rows))


def fertility_chart(records: Sequence[RunRecord]) -> Chart | None:
    """Return bars of tokens per word before and after expansion, per language; None where not measured."""
    languages = list(dict.fromkeys(c for record in records for c in between(record.rows, "fertility")))
    if not languages:
        return None
    bars: dict[str, list[Measurement | None]] = {}
    for label, record in labelled(records):
        prefix = f"{label}, " if len(records) > 1 else ""
        for stage in ("base", "expanded"):
            bars[f"{prefix}{stage} tokenizer"] = [first_at(record.rows, stage, "fertility", c) for c in languages]
    figure, names = blank_figure("tokens per word"), [chart_text(language_name(code)) for code in languages]
    figure.update_layout(barmode="group", bargap=0.45, hovermode="closest", showlegend=True)
    figure.update_yaxes(rangemode="tozero")
    for index, (label, values) in enumerate(bars.items()):
        figure.add_trace(
            go.Bar(
                x=names,
                y=[v.value if v else None for v in values],
                name=chart_text(label),
                hovertemplate="%{y:.3f}",
                text=[format_value(v.value) if v else "" for v in values],
                textposition="outside",
                cliponaxis=False,
                marker={
                    "color": COLOURS[index % 8],
                    "pattern": {"shape": ("", "/", ".", "x")[index % 4], "fillmode": "overlay"},
                },
            )
        )
    rows = tuple(
        (label, language_name(c), format_value(v.value))
        for label, values in bars.items()
        for c, v in zip(languages, values, strict=True)
        if v
    )
    return Chart(
        "Fertility",
        "Tokens per word; fewer means faster and cheaper text.",
        figure,
        ("tokenizer", "language", "tokens per word"),
        rows,
    )


def norm_chart(records: Sequence[RunRecord]) -> Chart | None:
    """Return the median lengths of old and new rows of each matrix before training; None where they are not known."""
    bars: dict[str, list[tuple[str, Measurement]]] = {}
    for label, record in labelled(records):
        for side in ("input", "output"):
            for kind, words in _ROWS.items():
                row = first_at(record.rows, "expanded", f"norm/{side}/{kind}")
                if row:
                    name = f"{label}, {side}" if len(records) > 1 else f"{side} matrix"
                    bars.setdefault(words, []).append((name, row))
    if not bars:
        return None
    figure = blank_figure("median length of a row")
    figure.update_layout(barmode="group", bargap=0.45, hovermode="closest", showlegend=True)
    figure.update_yaxes(rangemode="tozero")
    for style, (words, found) in enumerate(bars.items()):
        figure.add_trace(
            go.Bar(
                x=[chart_text(name) for name, _ in found],
                y=[row.value for _, row in found],
                name=words,
                hovertemplate="%{y:.3f}",
                marker={"color": COLOURS[style], "pattern": {"shape": ("", "/", ".")[style], "fillmode": "overlay"}},
            )
        )
    rows = tuple((words, name, format_value(row.value)) for words, found in bars.items() for name, row in found)
    caption = "Before training. New rows that are much longer than old ones take probability everywhere."
    return Chart("Lengths of embedding rows", caption, figure, ("rows", "matrix", "median length"), rows)


_ROWS = {"old": "old rows", "script": "old rows in the target's script", "new": "new rows"}
