"""The probes of in-context learning: curves over training, tables task by task, ladders over demonstrations."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from lingraft.measurement import Measurement
from lingraft.report.blocks import Figures, folded, nothing, side_by_side, table
from lingraft.report.charts import labelled, over_runs, stage_marks
from lingraft.report.drawing import COLOURS, DASHES, Chart, Series, blank_figure, line_chart
from lingraft.report.escaping import Html, chart_text, element, isolated, join
from lingraft.report.lenient import shown
from lingraft.report.measured import measured_table
from lingraft.report.metrics import metric_of
from lingraft.report.reading import RunRecord
from lingraft.report.rows import curve, first_at, format_change, format_value, last_trained, names_of

__all__ = ["probes_of", "prompts_looked_at"]

_HEADLINES = ("exact_match", "accuracy", "auc", "choice_accuracy", "token_accuracy", "icl_gain")
_OVERVIEW = f"probe/[^/]+/({'|'.join(_HEADLINES)}|validity|nll|nll_drop)"
_GATE = re.compile(r"probe/([^/]+)/prompts_tokenised_differently")
_CHANCE = re.compile(r"(.*/)?(chance|element_picker|baseline/[^/]+)")
_SHOTS = re.compile(r"(?:k|shots)?[-_=]?([0-9]{1,4})(?:[-_]?shots?)?")


@dataclass(frozen=True)
class _Name:
    """A row's name taken apart: ``probe/copain/min/exact_match`` is probe, task and score."""

    whole: str
    probe: str
    task: str
    score: str
    shots: int | None = None


def _parsed(whole: str) -> _Name | None:
    parts = whole.split("/")
    if parts[0] != "probe" or len(parts) < 3:
        return None
    places, counts = parts[2:-1], [int(m[1]) for part in parts[2:-1] if (m := _SHOTS.fullmatch(part))]
    shots = counts[0] if len(counts) == 1 else None
    task = "/".join(part for part in places if shots is None or not _SHOTS.fullmatch(part))
    return _Name(whole, parts[1], task, parts[-1], shots)


def probes_of(records: Sequence[RunRecord], figures: Figures) -> Html:
    """Return the whole section: what is no comparison, curves, then each probe with its tasks and baselines."""
    names = [parsed for name in _names(records) if (parsed := _parsed(name))]
    if not names:
        return nothing("No probe was measured yet, so there is nothing to draw.")
    probes = list(dict.fromkeys(name.probe for name in names))
    charts = [chart for chart in _curves(records, names) if chart.rows]
    parts = [_probe(records, probe, [n for n in names if n.probe == probe]) for probe in probes]
    overview = measured_table(records, _OVERVIEW, "Probes at a glance", quiet=True)
    ladders = [chart for probe in probes for chart in _ladders(records, [n for n in names if n.probe == probe])]
    climbs = join(element("h3", "Over more and more demonstrations"), element("p", _CLIMB), figures.grid(ladders))
    return join(_gate(records), figures.grid(charts), overview, climbs if ladders else "", parts)


_CLIMB = (
    "Higher is better. A model that learns in context climbs with the number of demonstrations. With the answers of "
    "demonstrations exchanged there is nothing to learn from their pairing: the distance to that line is learned in "
    "context."
)


def _names(records: Sequence[RunRecord]) -> list[str]:
    names = dict.fromkeys(name for record in records for name, _ in names_of(record.rows))
    return [name for name in names if not name.endswith("/difference")]


def prompts_looked_at(record: RunRecord) -> list[tuple[str, Measurement]]:
    """Return every probe whose prompts both tokenizers were given, with how many the new one cuts otherwise."""
    return [
        (match[1], row)
        for name, language in names_of(record.rows)
        if (match := _GATE.fullmatch(name)) and (row := first_at(record.rows, "expanded", name, language))
    ]


def _gate(records: Sequence[RunRecord]) -> Html:
    """Say where prompts are other tokens than before: what a probe then scores is not the same question."""
    found, is_asked = [], False
    for record in records:
        for probe, row in prompts_looked_at(record):
            is_asked = True
            found += [element("li", *_changed(record, probe, row, len(records) > 1))] if row.value else []
    if not found:
        told = "Both tokenizers cut the prompts of these probes into the same tokens: before and after are comparable."
        return element("p", told) if is_asked else Html("")
    told = (
        "Not comparable with the base model: the new tokenizer cuts prompts of these probes otherwise than the old, "
        "so that the two models were not asked the same."
    )
    return element("div", element("p", element("strong", told)), element("ul", found), class_="warning")


def _changed(record: RunRecord, probe: str, row: Measurement, is_one_of_many: bool) -> list[Html]:
    place = f"probe/{probe}/prompts_tokens"
    before, after = (first_at(record.rows, "expanded", f"{place}_{which}") for which in ("base", "adapted"))
    of = f" of {row.count:,}" if row.count else ""
    counts = f"; in all {before.value:,.0f} tokens before, {after.value:,.0f} after" if before and after else ""
    run = join(isolated(record.name), ": ") if is_one_of_many else Html("")
    return [run, isolated(_title(probe)), join(f": {row.value:,.0f}{of} prompts{counts}.")]


def _curves(records: Sequence[RunRecord], names: Sequence[_Name]) -> list[Chart]:
    """Return what sums each probe up over tokens, runs overlaid; without a curve where only the ends were measured."""
    heads = [n for n in names if not n.task and n.shots is None and n.score in _HEADLINES]
    chosen = {n.probe: n for n in sorted(heads, key=lambda n: _HEADLINES.index(n.score), reverse=True)}
    order = [*(chosen.pop(p) for p in ("random_copy", "copain") if p in chosen)]
    followed = [n for n in chosen.values() if any(len(curve(r.rows, n.whole)) > 2 for r in records)]
    return [_curve(records, name) for name in (*order, *followed)]


def _curve(records: Sequence[RunRecord], name: _Name) -> Chart:
    series = over_runs(records, name.whole)
    pickers = [r for record in records for r in record.rows if r.name == f"probe/{name.probe}/element_picker"]
    if pickers and any(s.points for s in series):
        tokens = sorted({p.tokens for s in series for p in (*s.points[:1], *s.points[-1:])})
        level = [Measurement("base", t, name.whole, pickers[-1].value) for t in tokens]
        series.append(Series("picking any element of the list", level, None, 6))
    metric = metric_of(name.whole)
    return line_chart(
        f"{_title(name.probe)}: {name.score.replace('_', ' ')}",
        _ABOUT.get(name.probe, "Higher is better."),
        name.score.replace("_", " "),
        series,
        stage_marks(records),
        metric.unit if metric else "number",
    )


_ABOUT = {
    "random_copy": (
        "Higher is better. A sequence of random tokens is shown twice; the share of the second showing that is "
        "predicted. It needs no language, only in-context learning."
    ),
    "copain": (
        "Higher is better. Mean of the tasks: find the pattern in a few examples and apply it. A model that only picks "
        "an element of the list would score as the baseline does."
    ),
}


def _title(probe: str) -> str:
    words = shown(probe.replace("_", " "), 60)
    return "Copain-style tasks" if probe == "copain" else words[:1].upper() + words[1:]


def _probe(records: Sequence[RunRecord], probe: str, names: Sequence[_Name]) -> Html:
    """Return a probe's scores task by task; those of a ladder, which is drawn, when they are asked for."""
    if not any(name.task or name.shots is not None for name in names):
        return Html("")
    steps, flat = [n for n in names if n.shots is not None], [n for n in names if n.shots is None]
    flat = [n for n in flat if not n.score.startswith(("prompts_", "original_items"))]
    tables = side_by_side(records, lambda record: join(_task_table(record, probe, flat), _rung_table(record, steps)))
    if steps:
        return folded(f"{_title(probe)}: all scores", tables)
    original = any(r.name == "probe/copain/original_items" and r.value for each in records for r in each.rows)
    kind = "" if probe != "copain" else " (original items)" if original else " (regenerated items)"
    return join(element("h3", f"{_title(probe)}{kind}"), tables)


def _task_table(record: RunRecord, probe: str, names: Sequence[_Name]) -> Html:
    """Return tasks down, scores across; each cell from the base model to the last in training."""
    scores = [n.score for n in names if not _is_chance(n)]
    scores = list(dict.fromkeys(scores))
    tasks = list(dict.fromkeys(n.task for n in names if not _is_chance(n)))
    rows = [
        (
            element("b", "mean of the tasks") if not task else isolated(_task_name(task)),
            *(_cell(record, "/".join(filter(None, ("probe", probe, task, score)))) for score in scores),
        )
        for task in tasks
    ]
    rows = [row for row in rows if any(row[1:])]
    if not rows:
        return Html("")
    columns = ("task", *(score.replace("_", " ") for score in scores))
    title = f"{_title(probe)}, task by task: base model → last in training, 95 % interval of the last"
    return join(table(title, columns, rows, "scores"), _chances(record, names))


def _is_chance(name: _Name) -> bool:
    return bool(_CHANCE.fullmatch("/".join(filter(None, (name.task, name.score)))))


def _task_name(task: str) -> str:
    return shown(task.replace("_", " ").replace("/", ", "), 80)


def _cell(record: RunRecord, name: str) -> Html:
    metric = metric_of(name)
    unit = metric.unit if metric else "number"
    before, after = first_at(record.rows, "base", name), last_trained(record.rows, name)
    if before is None and after is None:
        return Html("")
    values = " → ".join(format_value(row.value, unit) if row else "—" for row in (before, after))
    notes = []
    if after and after.low is not None and after.high is not None:
        notes.append(f"[{format_value(after.low, unit)}, {format_value(after.high, unit)}]")
    if before and after and (change := format_change(before.value, after.value, unit)):
        notes.append(change)
    return join(values, element("small", " " + ", ".join(notes)) if notes else "")


def _chances(record: RunRecord, names: Sequence[_Name]) -> Html:
    """Return what rules that infer nothing would score on the same items."""
    rows = []
    for name in filter(_is_chance, names):
        row = last_trained(record.rows, name.whole) or first_at(record.rows, "base", name.whole)
        if row:
            label = "/".join(filter(None, (name.task, name.score))).replace("baseline/", "")
            rows.append((_BASELINES.get(label, _task_name(label)), format_value(row.value, "percent")))
    title = "Baselines: what rules that infer nothing would score on the same items"
    return table(title, ("rule", "exact match"), rows) if rows else Html("")


_BASELINES = {
    "element_picker": "any element of the list, by chance",
    "chance": "chance",
    "first": "the first element",
    "last": "the last element",
    "middle": "the middle element",
    "repeat_last": "the last demonstration's answer again",
    "majority_place": "the place where most demonstrations have their answer",
}


def _ladders(records: Sequence[RunRecord], names: Sequence[_Name]) -> list[Chart]:
    """Return a chart for each task that was asked with several numbers of demonstrations."""
    steps = [n for n in names if n.shots is not None and n.score in _HEADLINES]
    charts: list[Chart] = []
    for task in dict.fromkeys(n.task for n in steps if not _is_control(n)):
        control = [n for n in steps if n.task == "/".join(filter(None, (task, "shuffled")))]
        of_task = [n for n in steps if n.task == task]
        # What the control was scored by is what sums the probe up.
        score = control[0].score if control else min((n.score for n in of_task), key=_HEADLINES.index)
        rungs, mixed = ([n for n in each if n.score == score] for each in (of_task, control))
        chart = _ladder(records, score, rungs, mixed) if len(rungs) > 1 else None
        charts += [chart] if chart and chart.rows else []
    return charts


def _is_control(name: _Name) -> bool:
    return name.task.rpartition("/")[2] == "shuffled"


def _ladder(records: Sequence[RunRecord], score: str, rungs: Sequence[_Name], control: Sequence[_Name]) -> Chart:
    words, first = score.replace("_", " "), rungs[0]
    figure = blank_figure(words)
    lines = [("base model", _points(records[0], rungs, is_base=True), 0)]
    for style, (label, record) in enumerate(labelled(records), 1):
        lines.append((label, _points(record, rungs), style))
    if len(records) == 1:
        lines.append(("adapted model, answers exchanged", _points(records[0], control), 2))
    for label, points, style in lines:
        figure.add_traces(_rungs(label, points, style))
    shots = sorted({n.shots or 0 for n in rungs})
    places, ticks = [_place(k) for k in shots], [f"{k}" for k in shots]
    figure.update_xaxes(title_text="demonstrations (k)", tickvals=places, ticktext=ticks, zeroline=False)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_layout(showlegend=True)
    task = f", {_task_name(first.task)}" if first.task else ""
    rows = [(label, f"{k}", format_value(r.value, "percent"), _interval(r)) for label, points, _ in lines
            for k, r in points]  # fmt: skip
    columns = ("line", "demonstrations", words, "95 % interval")
    return Chart(f"{_title(first.probe)}{task}: {words}", "", figure, columns, tuple(rows))


def _points(record: RunRecord, names: Sequence[_Name], *, is_base: bool = False) -> list[tuple[int, Measurement]]:
    """Return number of demonstrations and row, ascending, of the base model or of the end of training."""
    found = (
        (n.shots or 0, first_at(record.rows, "base", n.whole) if is_base else last_trained(record.rows, n.whole))
        for n in sorted(names, key=lambda n: n.shots or 0)
    )
    return [(shots, row) for shots, row in found if row]


def _place(shots: int) -> float:
    return math.log2(shots) if shots else -1.0


def _rungs(label: str, points: Sequence[tuple[int, Measurement]], style: int) -> list[go.Scatter]:
    if not points:
        return []
    colour = "#767676" if style == 0 else COLOURS[(style - 1) % len(COLOURS)]
    high = [p.high - p.value if p.high is not None else 0 for _, p in points]
    low = [p.value - p.low if p.low is not None else 0 for _, p in points]
    return [
        go.Scatter(
            x=[_place(shots) for shots, _ in points],
            y=[p.value for _, p in points],
            error_y={"type": "data", "array": high, "arrayminus": low, "thickness": 1, "color": colour},
            name=chart_text(label),
            mode="lines+markers",
            line={"color": colour, "dash": "2px 3px" if style == 0 else DASHES[(style - 1) % len(DASHES)], "width": 2},
            marker={"size": 7, "symbol": style % 8},
            customdata=[f"{format_value(p.value, 'percent')} {_interval(p)}" for _, p in points],
            hovertemplate="%{customdata}",
        )
    ]


def _interval(row: Measurement) -> str:
    if row.low is None or row.high is None:
        return ""
    return f"{format_value(row.low, 'percent')} to {format_value(row.high, 'percent')}"


def _rung_table(record: RunRecord, steps: Sequence[_Name]) -> Html:
    """Return every number of a ladder: task and score down, demonstrations across."""
    counts = sorted({n.shots for n in steps if n.shots is not None})
    named = {(n.task, n.score, n.shots): n.whole for n in steps}
    keys = list(dict.fromkeys((n.task, n.score) for n in steps))
    rows = [
        (
            isolated(f"{_task_name(task) or 'all tasks'}: {score.replace('_', ' ')}"),
            *(_cell(record, named[(task, score, k)]) if (task, score, k) in named else "" for k in counts),
        )
        for task, score in keys
    ]
    rows = [row for row in rows if any(row[1:])]
    title = "By number of demonstrations: base model → last in training, 95 % interval of the last"
    return table(title, ("task", *(f"k = {k}" for k in counts)), rows, "scores") if rows else Html("")
