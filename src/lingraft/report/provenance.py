"""The sections that show what the run was made of: vocabulary, samples, data, cost, recipe."""

from collections.abc import Mapping, Sequence
from typing import Any

from lingraft.recipe_file import differing_paths
from lingraft.report.blocks import (
    Figures,
    Section,
    code_block,
    definitions,
    nothing,
    side_by_side,
    table,
)
from lingraft.report.charts import fertility_chart, norm_chart
from lingraft.report.data import data_of
from lingraft.report.escaping import Html, element, isolated, join, visible
from lingraft.report.growth import curve_chart, gates_table, growth_facts
from lingraft.report.lenient import clipped, mappings_of
from lingraft.report.measured import measured_table
from lingraft.report.new_rows import bakeoff_table, new_rows
from lingraft.report.reading import RunRecord
from lingraft.report.rows import last_trained

__all__ = ["provenance_sections"]

_COUNTS = {
    "method": "method",
    "family": "kind of tokenizer",
    "num_old": "tokens before",
    "num_new": "new tokens",
    "num_rows": "rows of the matrices",
}
_WITHIN_STAGES = {
    "stage": "training stages",
    "measuring": "of these, measuring",
    "tasks": "of these, downstream tasks",
}
_TOKENS_SHOWN = 60
_SAMPLES_SHOWN = 20
_CLIP = 600


def provenance_sections(records: Sequence[RunRecord], figures: Figures) -> list[Section]:
    """Return the sections from the vocabulary to the recipe, placing their charts among ``figures``."""
    return [
        Section("vocabulary", "Vocabulary", _vocabulary(records, figures)),
        Section("samples", "Samples before and after", side_by_side(records, _samples)),
        Section("data", "Data", side_by_side(records, data_of)),
        Section("cost", "Cost and environment", side_by_side(records, _cost)),
        Section("recipe", "Recipe", join(_differences(records), side_by_side(records, _recipe))),
    ]


def _vocabulary(records: Sequence[RunRecord], figures: Figures) -> Html:
    charts = [chart for chart in (fertility_chart(records), curve_chart(records), norm_chart(records)) if chart]
    include = "fertility|tokens_per_(byte|character)|segmentation_drift.*|new_token_mass|new_token_nats"
    return join(
        figures.grid(charts) if charts else nothing("Fertility was not measured."),
        measured_table(records, include, "Vocabulary before and after"),
        side_by_side(records, _tokens),
    )


def _tokens(record: RunRecord) -> Html:
    counts = {words: record.expansion[key] for key, words in _COUNTS.items() if key in record.expansion}
    tokens = mappings_of(record.expansion.get("new_tokens"))
    chips = element("ul", (_token(token) for token in tokens[:_TOKENS_SHOWN]), class_="tokens")
    words = f"{min(len(tokens), _TOKENS_SHOWN)} of {len(tokens):,} new tokens, with how often each was seen"
    shown = join(element("h3", words), chips) if tokens else nothing("No new tokens are recorded.")
    return join(
        definitions(counts) if counts else "",
        _part("How the vocabulary grew", growth_facts(record)),
        _part("How the new rows began", new_rows(record)),
        _part("Which init methods were tried", bakeoff_table(record)),
        _part("What was checked", gates_table(record)),
        shown,
    )


def _part(title: str, content: Html) -> Html:
    """A part with its heading; nothing where there is no content, as in runs of older versions."""
    return join(element("h3", title), content) if content else Html("")


def _token(token: Mapping[str, Any]) -> Html:
    text = visible(str(token.get("text", "")), keep="").replace(" ", "␣")
    count = token.get("count")
    seen = element("small", f" {count:,}") if isinstance(count, int) else ""
    return element("li", isolated(clipped(text, 60), "code"), seen)


def _samples(record: RunRecord) -> Html:
    if not record.samples:
        return nothing("No samples are recorded.")
    more = len(record.samples) - _SAMPLES_SHOWN
    note = element("p", f"{more} more are in samples.jsonl.") if more > 0 else ""
    about = element(
        "p",
        "The same prompt, continued by the base model and by the adapted model. The prompts are the "
        "recipe's; none was picked afterwards. Empty lines at the beginning are left out.",
    )
    return join(about, [_sample(sample) for sample in record.samples[:_SAMPLES_SHOWN]], note)


def _sample(sample: Mapping[str, Any]) -> Html:
    prompt = element(
        "p", element("b", "Prompt "), isolated(clipped(str(sample.get("prompt", "")), _CLIP)), class_="prompt"
    )
    sides = (("base", "Base model"), ("adapted", "Adapted model"))
    texts = ((title, clipped(str(sample.get(key, "—")).strip("\n"), _CLIP)) for key, title in sides)
    halves = (element("div", element("h4", title), isolated(text, "p", class_="said")) for title, text in texts)
    return element("article", prompt, element("div", halves, class_="halves"), class_="sample")


def _cost(record: RunRecord) -> Html:
    rows: dict[str, float] = {}
    for row in record.rows:
        if row.name.startswith("seconds/"):
            rows[row.name.removeprefix("seconds/")] = rows.get(row.name.removeprefix("seconds/"), 0) + row.value
    # The time of a stage holds what was measured in it.
    within = _WITHIN_STAGES if "stage" in rows else {}
    phases = [(within.get(phase, phase.replace("_", " ")), f"{seconds:,.1f}") for phase, seconds in rows.items()]
    whole = sum(seconds for phase, seconds in rows.items() if phase == "stage" or phase not in within)
    phases += [("all phases", f"{whole:,.1f}")] if rows else []
    speed = last_trained(record.rows, "tokens_per_second")
    return join(
        table("Seconds by phase", ("phase", "seconds"), phases) if phases else nothing("No times are recorded."),
        element("p", f"Speed at the end of training: {speed.value:,.0f} tokens per second.") if speed else "",
        _environment(record.environment),
    )


def _environment(environment: Mapping[str, Any]) -> Html:
    if not environment:
        return nothing("No environment is recorded.")
    versions = environment.get("versions")
    flat = {k.replace("_", " "): v for k, v in environment.items() if not isinstance(v, Mapping | list)}
    return definitions({**flat, **(versions if isinstance(versions, Mapping) else {})})


def _differences(records: Sequence[RunRecord]) -> Html:
    if len(records) < 2:
        return Html("")
    first = records[0]
    blocks = []
    for record in records[1:]:
        title = element("h3", isolated(first.name), " → ", isolated(record.name))
        lines = differing_paths(first.recipe, record.recipe) if first.recipe and record.recipe else None
        if lines is None:
            found = nothing("Cannot be compared: a recipe could not be read.")
        else:
            items = (element("li", isolated(line, "code")) for line in lines)
            found = element("ul", items, class_="differences") if lines else nothing("No difference.")
        blocks.append(join(title, found))
    return element("div", blocks)


def _recipe(record: RunRecord) -> Html:
    if not record.recipe_text:
        return nothing("No recipe is there.")
    title = element("summary", "The resolved recipe: every option, defaults included")
    return element("details", title, code_block(record.recipe_text))
