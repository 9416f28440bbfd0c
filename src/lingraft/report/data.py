"""The data report: each corpus with what was found in it, and what corpora have in common."""

import json
from collections.abc import Mapping
from typing import Any

from lingraft.report.blocks import code_block, definitions, nothing, table
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.lenient import clipped, mappings_of, text_of
from lingraft.report.reading import RunRecord
from lingraft.report.rows import format_value

__all__ = ["data_of"]

_SAMPLES_SHOWN = 3
_WARNINGS_SHOWN = 20
_HASH_SHOWN = 16


def data_of(record: RunRecord) -> Html:
    """Return the data report of a run: warnings first, then overlap, then corpus after corpus."""
    if not record.corpora:
        return nothing("No data reports are recorded.")
    return join(_overlap(record.overlap), [_corpus(name, report) for name, report in record.corpora.items()])


def _overlap(overlap: Mapping[str, Any]) -> Html:
    """Show what training text gives away, and what corpora share; nothing where it was not looked for."""
    rows = [
        (
            text_of(watched.get("name")),
            _number(watched.get("documents")),
            _number(watched.get("overlapping")),
            format_value(share, "percent") if isinstance(share := watched.get("share"), int | float) else "—",
            ", ".join(f"{name}: {count}" for name, count in _counts(watched.get("found_in")).items()) or "none",
            _number(watched.get("too_short")),
        )
        for watched in mappings_of(overlap.get("watched"))
    ]
    if not rows:
        return Html("")
    columns = ("looked for", "documents", "found", "share", "in training text of", "too short to tell")
    title = "Held-out text and benchmark items that have 13 words in a row in common with training text"
    pairs = [
        (" and ".join(map(str, pair.get("corpora", ()))), _number(pair.get("documents")))
        for pair in mappings_of(overlap.get("shared_documents"))
    ]
    shared = table("Documents that two corpora share", ("corpora", "documents"), pairs) if pairs else Html("")
    return element("article", _warnings(overlap), table(title, columns, rows), shared, class_="corpus")


def _counts(value: Any) -> Mapping[str, int]:
    return {str(k): v for k, v in value.items() if isinstance(v, int)} if isinstance(value, Mapping) else {}


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "—"


def _warnings(report: Mapping[str, Any]) -> Html:
    found = report.get("warnings")
    shown = [text for text in found if isinstance(text, str)][:_WARNINGS_SHOWN] if isinstance(found, list) else []
    items = (element("li", isolated(clipped(text, 400))) for text in shown)
    return element("ul", items, class_="notes") if shown else Html("")


def _corpus(name: str, report: Mapping[str, Any]) -> Html:
    """Show a data report whatever its keys: plain values in a list, the rest in tables or folded away."""
    plain = {
        k.replace("_", " "): v[:_HASH_SHOWN] if k.endswith("sha256") and isinstance(v, str) else v
        for k, v in report.items()
        if isinstance(v, str | int | float)
    }
    nested = {k: v for k, v in report.items() if isinstance(v, Mapping | list) and v and k != "warnings"}
    parts = [_nested(f"{name}: {key.replace('_', ' ')}", value) for key, value in nested.items()]
    return element(
        "article", element("h4", isolated(name)), _warnings(report), definitions(plain), parts, class_="corpus"
    )


def _nested(title: str, value: Any) -> Html:
    """Show counts as a table, reasons with counts and samples as a table, anything else folded away as JSON."""
    if isinstance(value, Mapping) and all(isinstance(v, int | float) for v in value.values()):
        return table(title, ("reason or kind", "count"), [(str(k), f"{v:,}") for k, v in value.items()])
    if isinstance(value, list) and all(isinstance(v, Mapping) and "reason" in v for v in value):
        return table(title, ("reason", "count", "samples"), [_reject(entry) for entry in value])
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return element("details", element("summary", isolated(title)), code_block(clipped(text, 4000)))


def _reject(entry: Mapping[str, Any]) -> tuple[str, str, Html]:
    samples = entry.get("samples")
    shown = samples[:_SAMPLES_SHOWN] if isinstance(samples, list) else []
    items = (element("li", isolated(clipped(text_of(sample), 200))) for sample in shown)
    count = entry.get("count", "")
    return str(entry["reason"]), f"{count:,}" if isinstance(count, int) else str(count), element("ul", items)
