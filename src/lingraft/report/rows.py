"""Measurements put in order: curves over tokens, and tables of base, expanded and final. No markup here."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lingraft.measurement import Measurement
from lingraft.report.metrics import Metric, metric_of

__all__ = [
    "UNTRAINED",
    "MeasuredRow",
    "Rows",
    "between",
    "curve",
    "first_at",
    "format_change",
    "format_share",
    "format_value",
    "language_name",
    "last_trained",
    "measured_rows",
    "names_of",
    "rows_named",
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
class MeasuredRow:
    """One line of a table: a metric in a language, at the base, after expansion, and last in training."""

    name: str
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
        """The change from the base to the latest, in percent or percentage points; empty without both.

        A number per token has none where the base may count in tokens of another size.
        """
        is_per_token = self.metric.per_token and not self.metric.of_one_tokenizer
        if self.base is None or self.after is None or is_per_token:
            return ""
        return format_change(self.base.value, self.after.value, self.metric.unit)


def language_name(code: str) -> str:
    """Return ``Basque (eu)`` for a code we have a name for, else the code."""
    name = _NAMES.get(re.split(r"[-_]", code)[0])
    return f"{name} ({code})" if name else code


class Rows(tuple[Measurement, ...]):
    """Rows in the order made, found by name without a look at all the others."""

    @cached_property
    def named(self) -> dict[tuple[str, str | None], list[Measurement]]:
        """Name and language → rows, in the order in which the names came first."""
        found: dict[tuple[str, str | None], list[Measurement]] = {}
        for row in self:
            found.setdefault((row.name, row.language), []).append(row)
        return found


def names_of(rows: Sequence[Measurement]) -> list[tuple[str, str | None]]:
    """Return every name with the language it is about, in the order in which they came first."""
    return list(rows.named if isinstance(rows, Rows) else dict.fromkeys((r.name, r.language) for r in rows))


def rows_named(rows: Iterable[Measurement], name: str, language: str | None = None) -> list[Measurement]:
    """Return the rows of a name and language in the order made."""
    if isinstance(rows, Rows):
        return rows.named.get((name, language), [])
    return [r for r in rows if r.name == name and r.language == language]


def first_at(rows: Iterable[Measurement], stage: str, name: str, language: str | None = None) -> Measurement | None:
    """Return the last row made at a stage for a name and language, or None."""
    found = [r for r in rows_named(rows, name, language) if r.stage == stage]
    return found[-1] if found else None


def last_trained(rows: Iterable[Measurement], name: str, language: str | None = None) -> Measurement | None:
    """Return the row with the most tokens that was made in training, the later one of equals, or None."""
    found = [r for r in rows_named(rows, name, language) if r.stage not in UNTRAINED]
    return max(enumerate(found), key=lambda pair: (pair[1].tokens, pair[0]))[1] if found else None


def curve(rows: Iterable[Measurement], name: str, language: str | None = None) -> list[Measurement]:
    """Return the rows of a quantity over tokens, the expanded model first and the base left out."""
    found = {r.tokens: r for r in rows_named(rows, name, language) if r.stage != "base"}
    return [found[tokens] for tokens in sorted(found)]


def between(rows: Sequence[Measurement], name: str) -> list[str]:
    """Return the languages (or corpora) that a quantity was measured for, in the order they came."""
    return [language for each, language in names_of(rows) if each == name and language]


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


def measured_rows(rows: Sequence[Measurement], include: str) -> list[MeasuredRow]:
    """Return table lines for the names that match a regular expression, in the order of the metrics.

    What training itself tells at every step is left out: it is drawn as curves, or belongs to the cost.
    """
    pattern = re.compile(include)
    keys = [(name, language) for name, language in names_of(rows) if pattern.fullmatch(name)]
    lines = [_measured(rows, name, language, metric) for name, language in keys if (metric := metric_of(name))]
    return sorted(lines, key=lambda line: line.metric.place)


def _measured(rows: Sequence[Measurement], name: str, language: str | None, metric: Metric) -> MeasuredRow:
    return MeasuredRow(
        name,
        metric,
        metric.words(name),
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
        return f"{value:.3g}".replace("-", "−", 1) if value < 0 else f"{value:.3g}"
    if unit == "signed":
        return f"{value:+,.3f}".replace("-", "−")
    return f"{value:,.3f}".replace("-", "−")


def format_share(share: float) -> str:
    """Return a limit as a share: ``5 %``, ``2.5 %``."""
    return f"{100 * share:.3g} %"


def format_change(before: int | float, after: int | float, unit: str = "number") -> str:
    """Return a signed change: percentage points for shares, percent of the first value's size for the rest.

    The sign is that of the change: a log-probability of −2 that becomes −1 has risen, by 50 %.
    """
    if unit == "percent":
        return _signed(100 * (after - before)) + " points"
    if before == 0 or unit in ("count", "cosine", "small", "signed"):
        return ""
    return _signed(100 * (after - before) / abs(before)) + " %"


def _signed(value: float) -> str:
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")
