"""How the vocabulary grew: the fertility curve, what the base does to target text, what gave way, and the checks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from lingraft.report.blocks import code_block, nothing, table
from lingraft.report.drawing import COLOURS, DASHES, Chart, blank_figure
from lingraft.report.escaping import Html, chart_text, element, isolated, join
from lingraft.report.lenient import (
    clipped,
    count_or_dash,
    list_of,
    mapping_of,
    mappings_of,
    number_of,
    shown,
    text_of,
)
from lingraft.report.reading import RunRecord
from lingraft.report.rows import format_value, language_name

__all__ = ["curve_chart", "gates_table", "growth_facts"]

_REMOVED_SHOWN = 100
_EXAMPLES_SHOWN = 5
_EVIDENCE_SHOWN = 6
_EVIDENCE_CLIP = 400
_PATTERN_CLIP = 4000
_MEGA = 1e6
# Where every word can be one token there is no floor to speak of.
_FLOOR_TOLD = 1.005
# From here on a share is written as "all": 99.96 % would be written as 100 %.
_ALL = 0.9995
_CATEGORIES = {
    "C": "control or format characters",
    "L": "letters",
    "M": "marks (vowel signs, accents)",
    "N": "digits",
    "P": "punctuation",
    "S": "symbols",
    "Z": "spaces",
}
_CAUSES = {"mark": "marks", "joiner": "joiners", "apostrophe": "apostrophes", "other": "other characters"}


def curve_chart(records: Sequence[RunRecord]) -> Chart | None:
    """Return tokens per word over the number of new tokens, for each run and text; None where there is no curve."""
    lines = [line for record in records for line in _lines(record, len(records) > 1)]
    if not lines:
        return None
    figure = blank_figure("tokens per word")
    figure.update_layout(hovermode="closest", showlegend=len(lines) > 1)
    figure.update_xaxes(title_text="new tokens", rangemode="tozero", tickformat="~s")
    figure.update_yaxes(rangemode="tozero")
    for style, (label, chosen, points) in enumerate(lines):
        figure.add_trace(_curve_trace(label, chosen, points, style))
    caption = (
        "Held-out text, fewer is cheaper. Each point is the vocabulary with the first so many new tokens; 0 is the "
        "base, and the star is the size that was chosen."
    )
    rows = tuple(
        (label, f"{size:,}{' (chosen)' if size == chosen else ''}", format_value(value))
        for label, chosen, points in lines
        for size, value in points
    )
    return Chart("Fertility over new tokens", caption, figure, ("text", "new tokens", "tokens per word"), rows)


def _curve_trace(label: str, chosen: int, points: Sequence[tuple[int, float]], style: int) -> Any:
    sizes, values = zip(*points, strict=True)
    marks = [size == chosen for size in sizes]
    return go.Scatter(
        x=sizes,
        y=values,
        name=chart_text(label),
        mode="lines+markers",
        line={"color": COLOURS[style % len(COLOURS)], "dash": DASHES[style % len(DASHES)], "width": 2},
        marker={
            "size": [14 if mark else 6 for mark in marks],
            "symbol": ["star" if mark else "circle" for mark in marks],
        },
        customdata=["chosen: " if mark else "" for mark in marks],
        hovertemplate="%{customdata}%{x:,} new tokens, %{y:.3f} tokens per word",
    )


def _lines(record: RunRecord, is_one_of_many: bool) -> Iterator[tuple[str, int, list[tuple[int, float]]]]:
    """Yield a label, the chosen size, and the points of each watched text."""
    curve = mapping_of(record.expansion.get("curve"))
    for text, size in mapping_of(curve.get("sizes")).items():
        words = number_of(mapping_of(size).get("words"))
        line: list[tuple[int, float]] = []
        for point in mappings_of(curve.get("points")):
            num_new, tokens = number_of(point.get("num_new")), number_of(mapping_of(point.get("tokens")).get(text))
            if isinstance(num_new, int) and tokens is not None and words:
                line.append((num_new, tokens / words))
        if line:
            chosen = number_of(record.expansion.get("num_new"))
            name = "parallel text" if text == "parallel" else language_name(str(text))
            label = f"{record.name}, {name}" if is_one_of_many else name
            yield label, chosen if isinstance(chosen, int) else line[-1][0], line


def growth_facts(record: RunRecord) -> Html:
    """Return, in words and tables, what the base's pattern and normaliser do, what was seen, and what gave way."""
    sentences = [
        *_pattern_words(record),
        *_normaliser_words(record.growth),
        *_seen_words(record),
        *_learned_words(record),
        *_parallel_words(record),
    ]
    listed = element("ul", (element("li", isolated(sentence)) for sentence in sentences)) if sentences else Html("")
    return join(listed, _pattern(record), _removed(record))


def _pattern_words(record: RunRecord) -> Iterator[str]:
    cuts = mapping_of(record.growth.get("words"))
    words, cut = number_of(cuts.get("words")), number_of(cuts.get("cut"))
    if not words or cut is None:
        return
    causes = [
        f"{count:,.0f} at {_CAUSES.get(str(cause), shown(cause))}"
        for cause, count in ((cause, number_of(count)) for cause, count in mapping_of(cuts.get("causes")).items())
        if count
    ]
    why = f": {', '.join(causes)}" if causes else ""
    yield f"The base's pattern cuts {cut:,.0f} of {words:,.0f} target words apart ({cut / words:.1%}){why}."
    if examples := [shown(example) for example in list_of(cuts.get("examples"))[:_EXAMPLES_SHOWN]]:
        yield f"Cut apart most often: {'; '.join(examples)}."
    yield _changed_words(record)
    yield from _floor_words(cuts, mapping_of(mapping_of(record.growth.get("pre_tokenizer")).get("after")))


def _changed_words(record: RunRecord) -> str:
    if not record.is_patched:
        return "The pattern was not changed."
    left = number_of(mapping_of(mapping_of(record.growth.get("pre_tokenizer")).get("after")).get("cut"))
    rest = f" (still cut: {left:,.0f})" if left is not None else ""
    return (
        f"The pattern was changed so that it keeps marks in words{rest}. Text without these marks is cut as before. "
        "Not for llama.cpp: its converter to GGUF takes the model without an error, and then cuts target text with a "
        "built-in pattern, at the marks as before, so that the ids are wrong. vocabulary.pre_tokenizer: keep avoids "
        "that."
    )


def _floor_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    floors = [number_of(cuts.get("floor")) for cuts in (before, after)]
    if floors[0] is not None and floors[0] >= _FLOOR_TOLD:
        now = f", after the change {floors[1]:.2f}" if floors[1] is not None else ""
        yield f"No vocabulary, however large, takes fewer than {floors[0]:.2f} tokens per word with this pattern{now}."


def _pattern(record: RunRecord) -> Html:
    if record.pattern is None:
        return Html("")
    title = element("summary", "The changed pattern")
    return element("details", title, code_block(clipped(record.pattern, _PATTERN_CLIP)))


def _normaliser_words(facts: Mapping[str, Any]) -> Iterator[str]:
    found = mapping_of(facts.get("normaliser"))
    changed, documents = number_of(found.get("changed")), number_of(found.get("documents"))
    if changed is None or not documents:
        return
    if not changed:
        yield f"The base's normaliser leaves all {documents:,.0f} target documents as they are."
        return
    yield f"The base's normaliser changes {changed:,.0f} of {documents:,.0f} target documents."
    for category, deleted in mapping_of(found.get("deleted")).items():
        count = count_or_dash(mapping_of(deleted).get("count"))
        kind = _CATEGORIES.get(str(category)[:1], "characters")
        yield f"Deleted {kind} ({shown(category)}), {count} in all{_examples(deleted)}."
    folded = mapping_of(found.get("folded"))
    if number_of(folded.get("count")):
        yield f"Characters replaced by others, {count_or_dash(folded.get('count'))} in all{_examples(folded)}."
    if found.get("is_lossy_for_marks") is True:
        yield "The target is written with the marks that are deleted, so this base cannot write the target."


def _examples(found: Any) -> str:
    examples = [shown(example) for example in list_of(mapping_of(found).get("examples"))[:_EXAMPLES_SHOWN]]
    return f": {', '.join(examples)}" if examples else ""


def _seen_words(record: RunRecord) -> Iterator[str]:
    sizes = mapping_of(record.growth.get("sample_bytes"))
    shares = mapping_of(record.growth.get("share_seen"))
    for language in dict.fromkeys([*sizes, *shares]):
        size, part = number_of(sizes.get(language)), number_of(shares.get(language))
        told = [f"{size / _MEGA:,.2f} MB"] if size is not None else []
        told += [f"{_share(part)} of the training text"] if part is not None else []
        if told:
            yield f"{language_name(str(language))}: learned on {', '.join(told)}."
    if (part := number_of(record.growth.get("share_protected"))) is not None:
        rest = "" if part >= _ALL else "; what occurs in the rest alone could not be protected"
        yield f"Protected text: {_share(part)} of the training text in other languages was looked at{rest}."
    if scripts := [shown(script) for script in list_of(record.growth.get("pinned_scripts"))]:
        yield f"Written in the target alone: {', '.join(scripts)}. Source text that holds them counts as mixed."


def _share(part: float) -> str:
    return "all" if part >= _ALL else f"{part:.1%}"


def _learned_words(record: RunRecord) -> Iterator[str]:
    learned, taken = number_of(record.growth.get("learned")), number_of(record.expansion.get("num_new"))
    if learned and taken and learned > taken:
        yield (
            f"Of {learned:,.0f} learned tokens the first {taken:,.0f} were taken: beyond them a further thousand saves "
            "too little (vocabulary.min_saving)."
        )
    if vetoed := number_of(record.growth.get("vetoed")):
        yield f"{vetoed:,.0f} candidates were left out because they occur in protected text."
    if (way := number_of(record.growth.get("on_the_way"))) is not None:
        yield f"{way:,.0f} of the new tokens are no tokens of the second tokenizer, but lie on the way to one."
    simulation = mapping_of(record.growth.get("simulation"))
    compared, different = number_of(simulation.get("compared")), number_of(simulation.get("different"))
    if compared and different is not None:
        yield f"The tokenizer cuts {compared - different:,.0f} of {compared:,.0f} words as they were left in learning."


def _parallel_words(record: RunRecord) -> Iterator[str]:
    found = mapping_of(record.growth.get("parallel"))
    documents, source = number_of(found.get("documents")), number_of(found.get("source_tokens"))
    points = mappings_of(mapping_of(record.expansion.get("curve")).get("points"))
    tokens = [number_of(mapping_of(point.get("tokens")).get("parallel")) for point in points]
    if documents and source and tokens and tokens[0] is not None and tokens[-1] is not None:
        yield (
            f"On {documents:,.0f} held-out documents in both languages the target takes {tokens[0] / source:.2f} "
            f"tokens for one of the source before, {tokens[-1] / source:.2f} after."
        )


def _removed(record: RunRecord) -> Html:
    removed = mappings_of(record.expansion.get("removed"))
    if not removed:
        return Html("")
    rows = [
        (
            isolated(shown(token.get("spelling", ""), 60), "code"),
            *(count_or_dash(token.get(key)) for key in ("id", "source_count", "target_count")),
        )
        for token in removed[:_REMOVED_SHOWN]
    ]
    caption = f"Old tokens that gave way: {len(removed):,}, of which {len(rows)} are shown; new tokens took their ids"
    return table(caption, ("token", "id", "in source text", "in target text"), rows)


def gates_table(record: RunRecord) -> Html:
    """Return the vocabulary's checks with what they found; those that only warn are said to."""
    if not record.gates:
        return nothing("No vocabulary checks are recorded.")
    failed, warned, passed = (sum(_rank(gate) == rank for gate in record.gates) for rank in range(3))
    told = [f"{passed} of {len(record.gates)} checks passed"]
    told += [f"{failed} failed"] if failed else []
    told += [f"{warned} gave a warning, which stops nothing"] if warned else []
    columns = ("check", "result", "expected", "found", "evidence")
    # What did not pass comes first: the table is long and scrolls.
    rows = [_gate(gate) for gate in sorted(record.gates, key=_rank)]
    return join(element("p", f"{'; '.join(told)}."), table("Checks that the vocabulary had to pass", columns, rows))


def _rank(gate: Mapping[str, Any]) -> int:
    if gate.get("passed") is True:
        return 2
    return 1 if gate.get("stops") is False else 0


def _gate(gate: Mapping[str, Any]) -> tuple[str, ...]:
    name, expected, found = (clipped(text_of(gate.get(key)), 200) for key in ("name", "expected", "found"))
    # T5 and its like number the checks in the source; a reader has no use for them.
    return re.sub(r"^T\d+ ", "", name) or "unnamed", _result(gate), expected, found, _evidence(gate.get("evidence"))


def _result(gate: Mapping[str, Any]) -> Html:
    words, kind = (("✕ failed", "bad"), ("! warning", "unsure"), ("✓ passed", "good"))[_rank(gate)]
    return element("span", words, class_=f"mark {kind}")


def _evidence(value: Any) -> Html:
    """List what a check has to show, as what changed in source text and how often."""
    if not isinstance(value, list):
        return isolated(clipped(text_of(value), _EVIDENCE_CLIP))
    items = [isolated(clipped(text_of(item), _EVIDENCE_CLIP)) for item in value[:_EVIDENCE_SHOWN]]
    items += [join(f"{len(value) - _EVIDENCE_SHOWN} more in gates.json")] if len(value) > _EVIDENCE_SHOWN else []
    return element("ul", (element("li", item) for item in items)) if items else Html("")
