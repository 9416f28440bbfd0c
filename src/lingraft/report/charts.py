"""The figures of the report: which quantity goes on which chart, and how each is to be read."""

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from lingraft.measurement import Measurement
from lingraft.report.drawing import COLOURS, Chart, Series, blank_figure, line_chart, transparent
from lingraft.report.escaping import chart_text
from lingraft.report.reading import RunRecord
from lingraft.report.rows import between, curve, first_at, format_value, language_name, stage_starts, thin

__all__ = ["bits_per_byte_charts", "fertility_chart", "probe_charts", "shift_charts", "training_charts"]

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


def _labelled(records: Sequence[RunRecord]) -> list[tuple[str, RunRecord]]:
    return [(record.name if len(records) > 1 else "adapted model", record) for record in records]


def _over_runs(records: Sequence[RunRecord], name: str, language: str | None = None) -> list[Series]:
    """One line per run, since a quantity is compared between runs more often than within one."""
    return [
        Series(label, curve(record.rows, name, language), first_at(record.rows, "base", name, language), style)
        for style, (label, record) in enumerate(_labelled(records))
    ]


def _starts(records: Sequence[RunRecord]) -> list[tuple[str, int]]:
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
            _over_runs(records, "bits_per_byte", code),
            _starts(records),
        )
        for code in languages
    ]


def probe_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return random-copy accuracy and Copain exact match over tokens, runs overlaid."""
    random_copy = line_chart(
        "Random copy: accuracy",
        "Higher is better. A sequence of random tokens is shown twice; the share of the "
        "second showing that is predicted. It needs no language, only in-context learning.",
        "accuracy",
        _over_runs(records, "probe/random_copy/accuracy"),
        _starts(records),
        "percent",
    )
    series = _over_runs(records, "probe/copain/exact_match")
    picker = [r for record in records for r in record.rows if r.name == "probe/copain/element_picker"]
    if picker and any(s.points for s in series):
        points = [replace(picker[-1], tokens=p.tokens) for s in series if s.points for p in (s.points[0], s.points[-1])]
        series.append(Series("picking any element of the list", sorted(points, key=lambda p: p.tokens), None, 6))
    copain = line_chart(
        "Copain-style tasks: exact match",
        "Higher is better. Mean of the tasks: find the pattern in a few examples and "
        "apply it. A model that only picks an element of the list would score as the baseline does.",
        "exact match",
        series,
        _starts(records),
        "percent",
    )
    return [chart for chart in (random_copy, copain) if chart.rows]


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
                _starts([record]),
                "small",
            )
        )
    return [chart for chart in charts if chart.rows]


def training_charts(records: Sequence[RunRecord]) -> list[Chart]:
    """Return training loss per corpus, the realised mix, and the learning rate."""
    charts = [_loss_chart(records), *(_mix_chart(record, len(records) > 1) for record in records)]
    rate = [replace(s, points=thin(s.points)) for s in _over_runs(records, "learning_rate")]
    charts.append(
        line_chart(
            "Learning rate",
            "As it was at each optimiser step.",
            "learning rate",
            rate,
            _starts(records),
            "small",
        )
    )
    norm = [replace(s, points=thin(s.points)) for s in _over_runs(records, "gradient_norm")]
    charts.append(
        line_chart(
            "Gradient norm",
            "Before clipping. Spikes mean unstable steps.",
            "norm",
            norm,
            _starts(records),
            "small",
        )
    )
    return [chart for chart in charts if chart.rows]


def _loss_chart(records: Sequence[RunRecord]) -> Chart:
    series: list[Series] = []
    for label, record in _labelled(records):
        for corpus in between(record.rows, "loss"):
            name = f"{label}, {corpus}" if len(records) > 1 else corpus
            series.append(Series(name, thin(curve(record.rows, "loss", corpus)), None, len(series)))
    caption = "Lower is better. Compare within one run: tokens differ between vocabularies. Points are means of steps."
    return line_chart("Training loss", caption, "nats per token", series, _starts(records))


def _mix_chart(record: RunRecord, is_one_of_many: bool) -> Chart:
    series = [
        Series(c, thin(curve(record.rows, "share", c)), None, i) for i, c in enumerate(between(record.rows, "share"))
    ]
    title = "Mix of corpora" + (f", {record.name}" if is_one_of_many else "")
    chart = line_chart(title, "Realised share of training tokens.", "share", series, _starts([record]), "percent")
    # A ribbon: shares stacked to one, so that the eye reads the mix and not two mirrored lines.
    for trace in chart.figure.data:
        trace.update(stackgroup="mix", mode="lines", line_shape="hv", fillcolor=transparent(trace.line.color, 0.55))
    chart.figure.update_yaxes(range=[0, 1])
    return chart


def fertility_chart(records: Sequence[RunRecord]) -> Chart | None:
    """Return bars of tokens per word before and after expansion, per language; None where not measured."""
    languages = list(dict.fromkeys(c for record in records for c in between(record.rows, "fertility")))
    if not languages:
        return None
    bars: dict[str, list[Measurement | None]] = {}
    for label, record in _labelled(records):
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
