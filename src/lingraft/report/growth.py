"""How the vocabulary grew and how its rows began: curve, audits, what gave way, fallbacks, the bake-off.

Everything here is read from a run folder, where it may be absent, older, or damaged; what is not of the kind that is
expected counts as absent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from lingraft.report.blocks import definitions, table
from lingraft.report.drawing import COLOURS, Chart, blank_figure
from lingraft.report.escaping import Html, chart_text, element, isolated, join, visible
from lingraft.report.reading import RunRecord
from lingraft.report.rows import format_value, language_name

__all__ = ["curve_chart", "growth_facts", "rows_facts"]

_REMOVED_SHOWN = 100
_EXAMPLES_SHOWN = 5
_PERCENT = 100
_CLIP = 160


def curve_chart(records: Sequence[RunRecord]) -> Chart | None:
    """Return tokens per word over the number of new tokens, for each run and text; None where there is no curve."""
    lines = [line for record in records for line in _lines(record, len(records) > 1)]
    if not lines:
        return None
    figure = blank_figure("tokens per word")
    figure.update_layout(hovermode="closest", showlegend=len(lines) > 1)
    figure.update_xaxes(title_text="new tokens", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    for index, (label, points) in enumerate(lines):
        sizes, values = zip(*points, strict=True)
        style = {"color": COLOURS[index % len(COLOURS)]}
        figure.add_trace(
            go.Scatter(
                x=sizes,
                y=values,
                name=chart_text(label),
                mode="lines+markers",
                line=style,
                hovertemplate="%{x:,} new tokens: %{y:.3f}",
            )
        )
    caption = (
        "Held-out text. Each point is the vocabulary with the first so many new tokens; the last is the one that was "
        "chosen."
    )
    rows = tuple((label, f"{size:,}", format_value(value)) for label, points in lines for size, value in points)
    return Chart("Fertility over new tokens", caption, figure, ("text", "new tokens", "tokens per word"), rows)


def _lines(record: RunRecord, is_one_of_many: bool) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    curve = _mapping(record.expansion.get("curve"))
    sizes, points = _mapping(curve.get("sizes")), curve.get("points")
    for text, size in sizes.items():
        words = _number(_mapping(size).get("words"))
        found = [(p.get("num_new"), _number(_mapping(p.get("tokens")).get(text))) for p in _mappings(points)]
        line = [(n, tokens / words) for n, tokens in found if isinstance(n, int) and tokens is not None and words]
        if line:
            name = "parallel text" if text == "parallel" else language_name(str(text))
            yield (f"{record.name}, {name}" if is_one_of_many else name), line


def growth_facts(record: RunRecord) -> Html:
    """Return, in words and tables, what the base's pattern and normaliser do, what was seen, and what gave way."""
    facts = _mapping(record.expansion.get("record"))
    sentences = [
        *_pattern_words(facts),
        *_normaliser_words(facts),
        *_seen_words(facts),
        *_parallel_words(record, facts),
    ]
    listed = element("ul", (element("li", isolated(sentence)) for sentence in sentences)) if sentences else Html("")
    return join(listed, _removed(record))


def _pattern_words(facts: Mapping[str, Any]) -> Iterator[str]:
    cuts = _mapping(facts.get("words"))
    words, cut = _number(cuts.get("words")), _number(cuts.get("cut"))
    if not words or cut is None:
        return
    yield f"The base's pattern cuts {cut:,.0f} of {words:,.0f} target words apart ({_PERCENT * cut / words:.1f} %)."
    if examples := [_shown(e) for e in _list(cuts.get("examples"))[:_EXAMPLES_SHOWN]]:
        yield f"Cut apart: {'; '.join(examples)}."
    patched = _mapping(facts.get("pre_tokenizer"))
    if patched.get("patched") is True:
        left = _number(_mapping(patched.get("after")).get("cut"))
        rest = f"; {left:,.0f} words are still cut" if left is not None else ""
        yield (
            f"The pattern was changed so that it keeps marks in words{rest}. Text without these marks is cut as "
            "before. GGUF converters do not know the changed pattern."
        )


def _normaliser_words(facts: Mapping[str, Any]) -> Iterator[str]:
    found = _mapping(facts.get("normaliser"))
    changed, documents = _number(found.get("changed")), _number(found.get("documents"))
    if changed is None or not documents:
        return
    yield f"The base's normaliser changes {changed:,.0f} of {documents:,.0f} target documents."
    for category, deleted in _mapping(found.get("deleted")).items():
        examples = ", ".join(_shown(e) for e in _list(_mapping(deleted).get("examples"))[:_EXAMPLES_SHOWN])
        yield f"It deletes characters of category {_shown(category)}: {examples}."
    if folded := [_shown(e) for e in _list(_mapping(found.get("folded")).get("examples"))[:_EXAMPLES_SHOWN]]:
        yield f"It replaces: {', '.join(folded)}."


def _seen_words(facts: Mapping[str, Any]) -> Iterator[str]:
    sizes = _mapping(facts.get("sample_bytes"))
    for language, share in _mapping(facts.get("share_seen")).items():
        size, part = _number(sizes.get(language)), _number(share)
        if size is not None and part is not None:
            name = language_name(str(language))
            yield f"{name}: learned on {size / 1e6:,.2f} MB, {_PERCENT * part:.0f} % of the training text."
    if vetoed := _number(facts.get("vetoed")):
        yield f"{vetoed:,.0f} joins were left out because they occur in protected text."
    if (way := _number(facts.get("on_the_way"))) is not None:
        yield f"{way:,.0f} of the new tokens are no tokens of the second tokenizer, but lie on the way to one."


def _parallel_words(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    found = _mapping(facts.get("parallel"))
    documents, source = _number(found.get("documents")), _number(found.get("source_tokens"))
    points = _mappings(_mapping(record.expansion.get("curve")).get("points"))
    tokens = [_number(_mapping(point.get("tokens")).get("parallel")) for point in points]
    if documents and source and tokens and tokens[0] is not None and tokens[-1] is not None:
        yield (
            f"On {documents:,.0f} held-out documents in both languages the target takes {tokens[0] / source:.2f} "
            f"tokens for one of the source before, {tokens[-1] / source:.2f} after."
        )


def _removed(record: RunRecord) -> Html:
    removed = _mappings(record.expansion.get("removed"))
    if not removed:
        return Html("")
    rows = [
        (
            _shown(token.get("spelling", "")),
            *(_count(token.get(key)) for key in ("id", "source_count", "target_count")),
        )
        for token in removed[:_REMOVED_SHOWN]
    ]
    caption = f"{len(rows)} of {len(removed):,} old tokens that gave way"
    return table(caption, ("token", "id", "in source text", "in target text"), rows)


def rows_facts(record: RunRecord) -> Html:
    """Return how the new rows began: methods, fallbacks, norms that stand out, and the bake-off."""
    begun = record.step("embeddings")
    pairs = {"init methods": _shown(begun["methods"])} if "methods" in begun else {}
    for side in ("input", "output"):
        if fallbacks := _number(_mapping(begun.get(side)).get("fallback")):
            pairs[f"{side} rows with a fallback"] = f"{fallbacks:,.0f} (embeddings/origins-{side}.jsonl says why)"
    notes = element("ul", (element("li", note) for note in _norm_notes(record)))
    return join(definitions(pairs) if pairs else "", notes, _bakeoff(record))


def _norm_notes(record: RunRecord) -> Iterator[str]:
    values = {row.name: row.value for row in record.rows if row.stage == "expanded" and row.name.startswith("norm/")}
    for side in ("input", "output"):
        old, new = values.get(f"norm/{side}/old"), values.get(f"norm/{side}/new")
        if old and new and abs(new / old - 1) > 0.2:
            longer = "longer" if new > old else "shorter"
            yield (
                f"New {side} rows are {abs(new / old - 1):.0%} {longer} than old ones. arXiv 2407.12869 trains the "
                "embeddings alone first because new rows came out longer."
            )


def _bakeoff(record: RunRecord) -> Html:
    found = record.step("bakeoff")
    tastings = _mappings(found.get("tastings"))
    if not tastings:
        return Html("")
    steps = sorted({int(s) for t in tastings for s in _mapping(t.get("target")) if str(s).isdigit()})
    rows = [_tasting(tasting, steps, tasting.get("label") == found.get("chosen")) for tasting in tastings]
    columns = ("init methods", *(f"target, step {step}" for step in steps), "source at the end")
    about = (
        "Each candidate trained for the same steps from the same weights. The order at step 0 does not tell which will "
        "be best (arXiv 2608.03494); the last step decides."
    )
    return join(element("p", about), table("Bake-off of init methods, bits per byte", columns, rows))


def _tasting(tasting: Mapping[str, Any], steps: Sequence[int], is_chosen: bool) -> tuple[str, ...]:
    label = ("→ " if is_chosen else "") + _shown(tasting.get("label", ""))
    if tasting.get("failure"):
        return (label, *[""] * (len(steps) - 1), "failed", _shown(tasting["failure"])) if steps else (label, "failed")
    target, source = _mapping(tasting.get("target")), _mapping(tasting.get("source"))
    values = [_number(target.get(str(step))) for step in steps]
    last = _number(source.get(str(steps[-1]))) if steps else None
    return (label, *(f"{value:.4f}" if value is not None else "—" for value in [*values, last]))


def _shown(value: Any) -> str:
    text = visible(str(value), keep="")
    return text if len(text) <= _CLIP else text[:_CLIP] + "…"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "—"


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in _list(value) if isinstance(item, Mapping)]
