"""How the new rows began: what they cost, where each came from, how long they are, and the bake-off of methods."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lingraft.report.blocks import definitions, table
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.lenient import mapping_of, mappings_of, number_of, shown
from lingraft.report.reading import RunRecord
from lingraft.report.rows import first_at, format_value, language_name

__all__ = ["bakeoff_table", "new_rows"]

_SIDES = ("input", "output")
_ORIGINS = {
    "copied": "copied from the base",
    "initialised": "filled by the method",
    "fallback": "filled by a fallback",
    "padding": "padding",
}
_STANDS_OUT = 0.2
_FLOAT_BYTES = 4
_MEBI = 2**20
_MEGA = 1e6
# Steps are small numbers; a longer string of digits is none of ours.
_LONGEST_STEP = 12


def new_rows(record: RunRecord) -> Html:
    """Return what the rows of the matrices cost, where they came from, and how long new ones are beside old ones."""
    methods = {"init methods": shown(record.init_methods)} if record.init_methods else {}
    cost = [element("p", sentence) for sentence in _cost_words(record)]
    return join(definitions(methods) if methods else "", cost, _origins(record), _norms(record))


def _cost_words(record: RunRecord) -> Iterator[str]:
    """Yield what the matrices hold, and what the head computes for a byte of target text: 2 · rows · width · tokens."""
    rows, old = number_of(record.embeddings.get("rows")), number_of(record.expansion.get("num_old"))
    if not rows or not old:
        return
    matrices, padding = _matrices(record)
    added = f", {padding:,.0f} of them padding" if padding else ""
    width = number_of(record.config.get("hidden_size"))
    size = f": {rows * width * matrices * _FLOAT_BYTES / _MEBI:,.0f} MiB in 32-bit numbers" if width else ""
    kind = "one matrix serves input and head" if matrices == 1 else "input and head have a matrix each"
    yield f"The base has {old:,.0f} tokens, a matrix now has {rows:,.0f} rows{added}; {kind}{size}."
    before, after = (first_at(record.rows, stage, "tokens_per_byte", record.target) for stage in ("base", "expanded"))
    if width and before and after and record.target:
        flops = [2 * count * width * row.value / _MEGA for count, row in ((old, before), (rows, after))]
        yield (
            f"For a byte of {language_name(record.target)} the head computes {flops[0]:,.2f} MFLOP before and "
            f"{flops[1]:,.2f} after (2 · rows · width · tokens per byte; the base counts with a row per token)."
        )


def _matrices(record: RunRecord) -> tuple[int, int | float]:
    """How many matrices there are, and how many rows of each are padding."""
    padding = number_of(mapping_of(record.embeddings.get("input")).get("padding")) or 0
    return (2 if record.embeddings.get("output") else 1), padding


def _origins(record: RunRecord) -> Html:
    counts = {side: mapping_of(record.embeddings.get(side)) for side in _SIDES}
    counts = {side: found for side, found in counts.items() if found}
    if not counts:
        return Html("")
    rows = [(side, *(f"{number_of(found.get(kind)) or 0:,.0f}" for kind in _ORIGINS)) for side, found in counts.items()]
    warnings = [_fallback_warning(side, found) for side, found in counts.items() if number_of(found.get("fallback"))]
    return join(warnings, table("Where the rows of each matrix came from", ("matrix", *_ORIGINS.values()), rows))


def _fallback_warning(side: str, counts: Mapping[str, Any]) -> Html:
    fallbacks, filled = (number_of(counts.get(kind)) or 0 for kind in ("fallback", "initialised"))
    return element("p", (
        f"! For {fallbacks:,.0f} of {fallbacks + filled:,.0f} new {side} rows the method could not be used and a "
        f"fallback was; embeddings/origins-{side}.jsonl says which and why."
    ), class_="warning")  # fmt: skip


def _norms(record: RunRecord) -> Html:
    found = {
        side: {kind: first_at(record.rows, "expanded", f"norm/{side}/{kind}") for kind in ("old", "script", "new")}
        for side in _SIDES
    }
    rows = [
        (side, *(_norm(row.value, row.count) if row else "—" for row in norms.values()))
        for side, norms in found.items()
        if any(norms.values())
    ]
    if not rows:
        return Html("")
    columns = ("matrix", "old rows", "old rows in the target's script", "new rows")
    lengths = {side: (norms["old"], norms["new"]) for side, norms in found.items()}
    ratios = {side: new.value / old.value for side, (old, new) in lengths.items() if old and new and old.value}
    note = _norm_note(ratios)
    told = element("p", note) if note else ""
    return join(table("Lengths of rows before training: medians, with how many rows", columns, rows), told)


def _norm(median: float, count: int | None) -> Html:
    return join(format_value(median), element("small", f" of {count:,}") if count is not None else "")


def _norm_note(ratios: Mapping[str, float]) -> str:
    """Return one sentence on new rows that are much longer or shorter than old ones; empty where none are."""
    apart = [
        f"new {side} rows are {abs(ratio - 1):.0%} {'longer' if ratio > 1 else 'shorter'} than old ones"
        for side, ratio in ratios.items()
        if abs(ratio - 1) > _STANDS_OUT
    ]
    if not apart:
        return ""
    return (
        f"In the median {' and '.join(apart)}; rows that come out longer are why a first stage that trains embeddings "
        "alone was introduced (arXiv 2407.12869)."
    )


def bakeoff_table(record: RunRecord) -> Html:
    """Return bits per byte of each candidate after so many steps, and which was chosen; nothing without a bake-off."""
    tastings = mappings_of(record.bakeoff.get("tastings"))
    if not tastings:
        return Html("")
    steps = sorted({step for tasting in tastings for step in _steps_of(tasting)})
    chosen = record.bakeoff.get("chosen")
    rows = [_tasting(tasting, steps, tasting.get("label") == chosen) for tasting in tastings]
    last = f"source, step {steps[-1]}" if steps else "source"
    columns = ("init methods", "outcome", *(f"target, step {step}" for step in steps), last)
    about = (
        "Each candidate trained for the same steps from the same weights, and the lowest target bits per byte after "
        "the last step won. Values at step 0 do not predict which that will be (arXiv 2608.03494)."
    )
    return join(element("p", about), table("Bake-off of init methods: bits per byte, lower is better", columns, rows))


def _steps_of(tasting: Mapping[str, Any]) -> list[int]:
    steps = map(str, mapping_of(tasting.get("target")))
    return [int(step) for step in steps if step.isascii() and step.isdecimal() and len(step) <= _LONGEST_STEP]


def _tasting(tasting: Mapping[str, Any], steps: Sequence[int], is_chosen: bool) -> tuple[str, ...]:
    target, source = mapping_of(tasting.get("target")), mapping_of(tasting.get("source"))
    values = [number_of(target.get(str(step))) for step in steps]
    values.append(number_of(source.get(str(steps[-1]))) if steps else None)
    label = isolated(shown(tasting.get("label", "")), "code", class_="chosen" if is_chosen else None)
    if tasting.get("failure"):
        outcome = join(element("span", "✕ failed: ", class_="mark bad"), isolated(shown(tasting["failure"])))
    else:
        outcome = element("span", "✓ chosen", class_="mark good") if is_chosen else Html("")
    return (label, outcome, *(f"{value:.4f}" if value is not None else "—" for value in values))
