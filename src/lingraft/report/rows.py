"""Measurements put in order: curves over tokens, and tables of base, expanded and final. No markup here."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lingraft.measurement import Measurement

__all__ = [
    "UNTRAINED",
    "MeasuredRow",
    "Metric",
    "between",
    "curve",
    "first_at",
    "format_change",
    "format_value",
    "language_name",
    "last_trained",
    "measured_rows",
    "metric_of",
    "stage_starts",
    "thin",
]

_LANGUAGES = (
    "am Amharic|ar Arabic|bn Bengali|ca Catalan|cs Czech|cy Welsh|da Danish|de German|el Greek|"
    "en English|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish|fr French|ga Irish|"
    "gl Galician|gu Gujarati|ha Hausa|he Hebrew|hi Hindi|hr Croatian|hu Hungarian|hy Armenian|"
    "id Indonesian|ig Igbo|is Icelandic|it Italian|ja Japanese|ka Georgian|kk Kazakh|km Khmer|"
    "kn Kannada|ko Korean|ku Kurdish|ky Kyrgyz|lo Lao|lt Lithuanian|lv Latvian|mk Macedonian|"
    "ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese|my Burmese|nb Norwegian Bokmål|"
    "ne Nepali|nl Dutch|nn Norwegian Nynorsk|no Norwegian|pa Punjabi|pl Polish|ps Pashto|"
    "pt Portuguese|qu Quechua|ro Romanian|ru Russian|si Sinhala|sk Slovak|sl Slovenian|so Somali|"
    "sq Albanian|sr Serbian|sv Swedish|sw Swahili|ta Tamil|te Telugu|th Thai|ti Tigrinya|tr Turkish|"
    "uk Ukrainian|ur Urdu|uz Uzbek|vi Vietnamese|xh Xhosa|yo Yoruba|zh Chinese|zu Zulu"
)
_NAMES = {entry[:2]: entry[3:] for entry in _LANGUAGES.split("|")}
UNTRAINED = ("base", "expanded", "bakeoff", "interpolated")
"""What measurements have for a stage when they were not made in training; the bake-off's weights were thrown away."""


@dataclass(frozen=True)
class Metric:
    """How a measurement is called and written.

    Attributes:
        pattern: a regular expression over the whole name of the measurement.
        label: plain words; ``{0}`` is the first group of the pattern.
        unit: ``number``, ``percent`` (a fraction in [0, 1], shown times 100) or ``small`` (significant
            digits).
        better: ``lower``, ``higher``, or empty where neither is better by itself.
    """

    pattern: str
    label: str
    unit: str = "number"
    better: str = ""


_METRICS = (
    Metric("bits_per_byte", "bits per byte", better="lower"),
    Metric("probe/random_copy/accuracy", "random copy: accuracy", "percent", "higher"),
    Metric("probe/random_copy/nll_drop", "random copy: drop in nats on the second time", better="higher"),
    Metric("probe/copain/exact_match", "Copain: exact match, mean of tasks", "percent", "higher"),
    Metric("probe/copain/validity", "Copain: answers that are an element", "percent", "higher"),
    Metric("probe/copain/element_picker", "Copain: picking any element (baseline)", "percent"),
    Metric("probe/copain/([^/]+)/exact_match", "{0}: exact match", "percent", "higher"),
    Metric("probe/copain/([^/]+)/choice_accuracy", "{0}: choice accuracy", "percent", "higher"),
    Metric("probe/copain/([^/]+)/validity", "{0}: validity", "percent", "higher"),
    Metric("fertility", "fertility (tokens per word)", better="lower"),
    Metric("tokens_per_byte", "tokens per byte", better="lower"),
    Metric("segmentation_drift", "held-out documents whose tokens changed", "percent"),
    Metric("new_token_nats", "nats per new token", better="lower"),
    Metric("new_token_mass", "probability on new tokens", "small"),
    Metric("norm/([^/]+)/old", "{0} rows: median norm of the old ones"),
    Metric("norm/([^/]+)/script", "{0} rows: median norm of old ones in the target's script"),
    Metric("norm/([^/]+)/new", "{0} rows: median norm of the new ones"),
    Metric("segmentation_drift/tokens", "held-out tokens that changed", "small"),
    Metric("tokens_per_character", "tokens per character", better="lower"),
    Metric("nats_per_token", "nats per token (not comparable between tokenizers)"),
    Metric("shift/mean_l2", "mean distance per tensor from the start", "small"),
    Metric("shift/(.+)/relative_l2", "{0}: relative distance", "small"),
    Metric("shift/(.+)/cosine", "{0}: cosine with the start", "cosine"),
    Metric("bits_per_byte/dead_mass", "probability on padding rows", "small", "lower"),
    Metric("bits_per_byte/full_window", "bits per byte of whole documents", better="lower"),
    Metric("bits_per_byte/per_character", "bits per character", better="lower"),
    Metric("bits_per_byte/per_word", "bits per word", better="lower"),
    Metric("bits_per_byte/with_end", "bits per byte, ends of documents scored too", better="lower"),
    Metric("token_perplexity", "perplexity per token (the tokenizer is the base's)", better="lower"),
    Metric("bits_per_byte/lossy_documents", "documents left out as not reversible", "count"),
)


@dataclass(frozen=True)
class MeasuredRow:
    """One line of a table: a metric in a language, at the base, after expansion, and last in training."""

    metric: Metric
    label: str
    language: str | None
    base: Measurement | None
    expanded: Measurement | None
    final: Measurement | None

    @property
    def latest(self) -> Measurement | None:
        """The last of the three that is there."""
        return self.after or self.base

    @property
    def after(self) -> Measurement | None:
        """What the base is compared with: the last in training, else the expanded model."""
        return self.final or self.expanded

    @property
    def change(self) -> str:
        """The change from the base to the latest, in percent or percentage points; empty without both."""
        if self.base is None or self.after is None:
            return ""
        return format_change(self.base.value, self.after.value, self.metric.unit)


def language_name(code: str) -> str:
    """Return ``Basque (eu)`` for a code we have a name for, else the code."""
    name = _NAMES.get(re.split(r"[-_]", code)[0])
    return f"{name} ({code})" if name else code


def first_at(rows: Iterable[Measurement], stage: str, name: str, language: str | None = None) -> Measurement | None:
    """Return the last row made at a stage for a name and language, or None."""
    found = [r for r in rows if r.stage == stage and r.name == name and r.language == language]
    return found[-1] if found else None


def last_trained(rows: Iterable[Measurement], name: str, language: str | None = None) -> Measurement | None:
    """Return the row with the most tokens that was made in training, the later one of equals, or None."""
    found = [r for r in rows if r.stage not in UNTRAINED and r.name == name and r.language == language]
    return max(enumerate(found), key=lambda pair: (pair[1].tokens, pair[0]))[1] if found else None


def curve(rows: Iterable[Measurement], name: str, language: str | None = None) -> list[Measurement]:
    """Return the rows of a quantity over tokens, the expanded model first and the base left out."""
    found = {r.tokens: r for r in rows if r.stage != "base" and r.name == name and r.language == language}
    return [found[tokens] for tokens in sorted(found)]


def between(rows: Iterable[Measurement], name: str) -> list[str]:
    """Return the languages (or corpora) that a quantity was measured for, in the order they came."""
    return list(dict.fromkeys(r.language for r in rows if r.name == name and r.language))


def thin(points: Sequence[Measurement], limit: int = 200) -> list[Measurement]:
    """Return at most ``limit`` points, each the mean of its neighbours and placed at the last of them.

    No point is dropped: the mean of the means, weighted by their size, is the mean of all.
    """
    if len(points) <= limit:
        return list(points)
    edges = [round(i * len(points) / limit) for i in range(limit + 1)]
    buckets = [points[a:b] for a, b in pairwise(edges)]
    return [
        Measurement(
            b[-1].stage,
            b[-1].tokens,
            b[-1].name,
            sum(p.value for p in b) / len(b),
            b[-1].language,
            count=len(b),
        )
        for b in buckets
    ]


def stage_starts(rows: Iterable[Measurement], stages: Sequence[str]) -> list[tuple[str, int]]:
    """Return each begun stage with the tokens at which it began: where the one before ended."""
    ends: dict[str, int] = {}
    for row in rows:
        if row.stage in stages:
            ends[row.stage] = max(ends.get(row.stage, 0), row.tokens)
    begun = [stage for stage in stages if stage in ends]
    return list(zip(begun, [0, *(ends[stage] for stage in begun)], strict=False))


def metric_of(name: str) -> Metric | None:
    """Return how a measurement is called and written; None for one that belongs on a curve only."""
    return next((metric for metric in _METRICS if re.fullmatch(metric.pattern, name)), None)


def measured_rows(rows: Sequence[Measurement], include: str) -> list[MeasuredRow]:
    """Return table lines for the names that match a regular expression, in the order of the metrics above.

    A name that no metric knows is left out: it is shown on a curve or belongs to the cost.
    """
    keys = dict.fromkeys((r.name, r.language) for r in rows if re.fullmatch(include, r.name))
    lines = [_measured(rows, name, language) for name, language in keys if metric_of(name)]
    return sorted(lines, key=lambda line: _METRICS.index(line.metric))


def _measured(rows: Sequence[Measurement], name: str, language: str | None) -> MeasuredRow:
    metric = metric_of(name)
    if metric is None:
        raise ValueError(f"{name}: no metric of that name")
    match = re.fullmatch(metric.pattern, name)
    groups = [group.replace("_", " ") for group in match.groups()] if match else []
    return MeasuredRow(
        metric,
        metric.label.format(*groups),
        language,
        first_at(rows, "base", name, language),
        first_at(rows, "expanded", name, language),
        last_trained(rows, name, language),
    )


def format_value(value: int | float, unit: str = "number") -> str:
    """Return a number as the tables write it: ``1.205``, ``63.2 %``, ``1.2e-05``, ``12,345``."""
    if unit == "percent":
        return f"{100 * value:.1f} %"
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "cosine":
        return f"{value:.5f}"
    if unit == "small":
        return f"{value:.3g}"
    return f"{value:,.3f}".replace("-", "−")


def format_change(before: int | float, after: int | float, unit: str = "number") -> str:
    """Return a signed change: percentage points for shares, percent of the first value for the rest."""
    if unit == "percent":
        return _signed(100 * (after - before)) + " points"
    if before == 0 or unit in ("count", "cosine", "small"):
        return ""
    return _signed(100 * (after / before - 1)) + " %"


def _signed(value: float) -> str:
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")
