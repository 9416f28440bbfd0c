"""The sections that show what was gained and lost: summary, measurements, curves, training."""

from collections.abc import Sequence

from lingraft.report.averaged import averaged_record
from lingraft.report.blocks import Figures, Section, folded, nothing, side_by_side, table
from lingraft.report.charts import bits_per_byte_charts, shift_charts, training_charts
from lingraft.report.conduct import checks_of, tasks_of
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.layers import drift_charts, layer_charts
from lingraft.report.leftovers import leftovers_of
from lingraft.report.lenient import number_of
from lingraft.report.measured import measured_table
from lingraft.report.probing import probes_of
from lingraft.report.reading import RunRecord
from lingraft.report.rows import format_value, last_trained
from lingraft.report.summary import Finding, State, Summary, Verdict, summarise

__all__ = ["evidence_sections", "summary_of"]

_MARKS = {
    Verdict.USE: "✓",
    Verdict.NO_GAIN: "=",
    Verdict.CARE: "!",
    Verdict.DO_NOT_USE: "✕",
    Verdict.TOO_EARLY: "…",
}
_SIGNS = {State.GOOD: "✓", State.BAD: "✕", State.UNCLEAR: "?", State.MISSING: "—", State.NEUTRAL: "·"}
_HEADLINE_METRICS = (
    "bits_per_byte|bits_per_byte/difference|probe/random_copy/accuracy|probe/copain/(exact_match|element_picker)|"
    "fertility|segmentation_drift|shift/mean_relative_l2"
)
_OF_AVERAGED = f"{_HEADLINE_METRICS}|bits_per_byte/.*|probe/random_copy/.*|probe/copain/validity"


def summary_of(record: RunRecord) -> Summary | None:
    """Return the verdict on a run; None where its recipe, and so its languages, could not be read."""
    if record.recipe is None or not record.source or not record.target:
        return None
    gates = [gate for gate in record.gates if gate.get("passed") is not True]
    failed, warned = (
        [str(gate.get("name", "unnamed")) for gate in gates if (gate.get("stops") is False) is is_warning]
        for is_warning in (False, True)
    )
    planned, limits = record.recipe.total_tokens, record.recipe.measure.alarm.limits
    return summarise(record.rows, record.source, record.target, planned, failed, warned, limits)


def evidence_sections(records: Sequence[RunRecord], figures: Figures) -> list[Section]:
    """Return the sections from the summary to training, placing their charts among ``figures``."""
    # What a summary is made of holds every item of a run: it is read once.
    summaries = {id(record): summary_of(record) for record in records}
    verdicts = side_by_side(records, lambda record: _summary(record, summaries[id(record)]))
    told = [(record, summary.notes) for record in records if (summary := summaries[id(record)])]
    return [
        Section("summary", "Summary", join(verdicts, _notes(told))),
        Section(
            "measured", "What was measured", join(_measured(records), _averaged(records), map(_interpolation, records))
        ),
        Section("bits-per-byte", "Bits per byte", _bits(records, figures)),
        Section("icl", "In-context learning", probes_of(records, figures)),
        Section("tasks", "Tasks", tasks_of(records, figures)),
        Section("shift", "Weights and drift", _drift(records, figures)),
        Section("checks", "Generation and alarms", checks_of(records, figures)),
        Section("training", "Training", _charts(figures, training_charts(records))),
        Section("other", "Other measurements", leftovers_of(records)),
    ]


def _bits(records: Sequence[RunRecord], figures: Figures) -> Html:
    others = "bits_per_byte/.*|nats_per_token|token_perplexity"
    details = measured_table(records, others, "Bits per byte in other ways, and what was left out")
    return join(_about_bits(), _charts(figures, bits_per_byte_charts(records)), folded("Details", details))


def _drift(records: Sequence[RunRecord], figures: Figures) -> Html:
    charts = [*shift_charts(records), *layer_charts(records), *drift_charts(records)]
    mean = "shift/mean_l2|shift/mean_relative_l2|drift/[^/]+|drift/cka/[^/]+"
    each = measured_table(records, "drift/(layer/.*|cka/[^/]+/.*)", "Drift layer by layer")
    about = (
        "How far training has moved the weights, relative to their own size, and how much of what the base computes "
        "has changed with them. A large move is no fault by itself: read it beside what was lost."
    )
    return join(
        element("p", about),
        _charts(figures, charts),
        side_by_side(records, _shift),
        measured_table(records, mean, "How far the model has come from the base", quiet=True),
        folded("Layer by layer", each) if "<table" in each else "",
    )


def _averaged(records: Sequence[RunRecord]) -> Html:
    """Return the same table for averaged weights, where a run kept such beside the raw ones."""
    averaged = [record for record in map(averaged_record, records) if record]
    if not averaged:
        return Html("")
    told = element(
        "p",
        "Besides the raw weights (model) averaged ones were kept (model-averaged). All else on this page is about the "
        "raw weights; last in training, the averaged ones gave:",
    )
    return join(told, measured_table(averaged, _OF_AVERAGED, "The same of the averaged weights"))


def _interpolation(record: RunRecord) -> Html:
    """Return the sweep back to the base as a table, the best λ marked."""
    found = record.steps.get("interpolate", {})
    weights, target, source = (found.get(key) for key in ("weights", "target", "source"))
    if not (isinstance(weights, list) and isinstance(target, list) and isinstance(source, list)):
        return Html("")
    best, before, limit = (number_of(found.get(key)) for key in ("best", "base_source", "limit"))
    rows = [
        (
            f"{weight:g}" + (" (best)" if weight == best else ""),
            format_value(t),
            format_value(s),
            format_value(s - (before or 0)),
        )
        for weight, t, s in zip(weights, target, source, strict=True)
    ]
    told = element(
        "p",
        "Between the base (λ = 0) and the trained weights (λ = 1), rows of new tokens as trained. Best is the fewest "
        f"target bits per byte where the source costs at most {format_value(limit or 0)}; where it never does, the "
        "fewest source bits per byte.",
    )
    columns = ("λ", "target bits per byte", "source bits per byte", "source, more than the base model")
    return join(told, table(f"Interpolation back to the base: {record.name}", columns, rows))


def _charts(figures: Figures, charts: Sequence) -> Html:
    return figures.grid(charts) if charts else nothing("Nothing was measured yet, so there is nothing to draw.")


def _summary(record: RunRecord, summary: Summary | None) -> Html:
    missing = _missing(record)
    if summary is None:
        return join(nothing("No verdict: the recipe, and with it source and target, could not be read."), missing)
    badge = element(
        "span",
        element("span", _MARKS[summary.verdict], aria_hidden="true"),
        " ",
        summary.verdict.value,
        class_="badge",
    )
    head = element("div", badge, element("p", summary.headline, class_="headline"),
                   class_=f"verdict {summary.verdict.name.lower().replace('_', '-')}")  # fmt: skip
    halves = (("What was gained", summary.gained), ("What was lost, or might have been", summary.lost))
    lists = (element("div", element("h3", title), _findings(found)) for title, found in halves)
    return join(head, element("div", lists, class_="halves"), missing)


def _notes(told: Sequence[tuple[RunRecord, Sequence[str]]]) -> Html:
    """Return what is to be known of the verdicts: what holds for all runs once, the rest with the run's name."""
    shared = [note for note in (told[0][1] if told else ()) if all(note in notes for _, notes in told)]
    own = [(record.name, note) for record, notes in told for note in notes if note not in shared]
    items = [element("li", isolated(name, "b"), f": {note}") for name, note in own]
    items += [element("li", note) for note in shared]
    return element("ul", items, class_="notes") if items else Html("")


def _findings(findings: Sequence[Finding]) -> Html:
    return element("ul", (
        element("li", element("span", _SIGNS[f.state], class_="sign", role="img", aria_label=f.state.value),
                element("span", f.text), class_=f.state.value)
        for f in findings
    ), class_="findings")  # fmt: skip


def _missing(record: RunRecord) -> Html:
    if not record.missing:
        return Html("")
    items = (element("li", text) for text in record.missing)
    title = element("summary", f"Not in the run folder, or damaged: {len(record.missing)}")
    return element("details", title, element("ul", items), class_="missing", open=True)


def _measured(records: Sequence[RunRecord]) -> Html:
    about = element("p", (
        "The base model was measured untouched, then with new and untrained rows, then during "
        "training; every time on the same held-out text and items. In brackets: 95 % intervals over "
        "items."
    ))  # fmt: skip
    return join(
        about,
        measured_table(records, _HEADLINE_METRICS, "Base model, expanded model, and the last measurement in training"),
    )


def _about_bits() -> Html:
    return element("p", (
        "Bits per byte is how many bits the model needs for a byte of text it has not seen. It does "
        "not depend on the tokenizer, so that models with different vocabularies can be compared on "
        "the same text; it cannot be compared between languages."
    ))  # fmt: skip


def _shift(record: RunRecord) -> Html:
    names = (r.name.split("/")[1] for r in record.rows if r.name.startswith("shift/") and r.name.count("/") == 2)
    kinds = list(dict.fromkeys(names))
    if not kinds:
        return Html("")
    rows = []
    for kind in kinds:
        pairs = (("relative_l2", "small"), ("cosine", "cosine"), ("row_cosine", "cosine"), ("row_cosine_low", "cosine"))
        found = [(last_trained(record.rows, f"shift/{kind}/{name}"), unit) for name, unit in pairs]
        rows.append((kind.replace("_", " "), *(format_value(row.value, unit) if row else "—" for row, unit in found)))
    columns = ("kind", "relative distance", "cosine", "mean cosine of a row", "lowest twentieth of rows")
    shown = [i for i in range(len(columns)) if any(row[i] != "—" for row in rows)]
    return table(
        "How far each kind of weight moved, at the end",
        [columns[i] for i in shown],
        [tuple(row[i] for i in shown) for row in rows],
    )
