"""Filters that judge a document by its text alone; a recipe names them with their thresholds.

A filter returns None for a document that may stay, else the reason. Reasons state the threshold, not the value, so that
they can be counted. Words are those of :func:`~lingraft.corpus.characters.words`: in scripts without spaces each
character is one, so thresholds on words mean something else there.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import regex

from lingraft.corpus.characters import count_words, script_histogram, words
from lingraft.corpus.scripts import SCRIPTS
from lingraft.errors import RecipeError, nearest
from lingraft.registry import Registry

__all__ = [
    "QualityFilter",
    "bind_filters",
    "bullet_lines",
    "digits",
    "ellipsis_lines",
    "letters",
    "mean_word_length",
    "num_words",
    "quality_filter",
    "quality_filters",
    "repeated_lines",
    "repeated_ngram",
    "scripts",
    "symbols",
]

QualityFilter = Callable[[str], str | None]
"""A text → the reason for which it is not fit to learn from, or None."""

quality_filters: Registry[Callable[..., str | None]] = Registry("quality filter")
quality_filter = quality_filters.register

_GOPHER = "arXiv 2112.11446, appendix A"
_LETTER = regex.compile(r"[\p{L}\p{M}]")
_DIGIT = regex.compile(r"\p{Nd}")
_SYMBOL = regex.compile(r"#|\.\.\.|…")
_BULLETS = ("•", "‣", "▪", "●", "◦", "·", "-", "*", "–", "—")
_ELLIPSES = ("...", "…")


def bind_filters(chosen: Sequence[tuple[str, Mapping[str, Any]]], where: str) -> tuple[QualityFilter, ...]:
    """Return filters with their thresholds filled in, each tried on a short text.

    Raises:
        RecipeError: a name or an option is unknown, or a filter returns neither a reason nor None; the message names
            the recipe path ``where`` and the place in the list.
    """
    bound = []
    for index, (name, options) in enumerate(chosen):
        at = f"{where}.{index}"
        judge = quality_filters.get(name, at).bind(options, at)
        try:
            verdict = judge("A short text.")
        except (TypeError, ValueError) as error:
            raise RecipeError(f"{at}: {name!r} cannot be used: {error}") from error
        if not isinstance(verdict, str | None):
            raise RecipeError(f"{at}: {name!r} must return a reason or None, it returned {verdict!r}")
        bound.append(judge)
    return tuple(bound)


@quality_filter("num_words", reference=_GOPHER)
def num_words(text: str, *, at_least: int = 50, at_most: int = 100_000) -> str | None:
    """Keep documents of a number of words."""
    count = count_words(text)
    if count < at_least:
        return f"fewer than {at_least} words"
    return f"more than {at_most} words" if count > at_most else None


@quality_filter("mean_word_length", reference=_GOPHER)
def mean_word_length(text: str, *, at_least: float = 3.0, at_most: float = 10.0) -> str | None:
    """Keep documents whose words have a number of characters on average.

    The defaults are for English: agglutinating languages have longer words, and in scripts without spaces every word
    has one character.
    """
    found = words(text)
    mean = sum(map(len, found)) / max(1, len(found))
    if mean < at_least:
        return f"mean word shorter than {at_least:g} characters"
    return f"mean word longer than {at_most:g} characters" if mean > at_most else None


@quality_filter("letters", reference=_GOPHER)
def letters(text: str, *, at_least: float = 0.8) -> str | None:
    """Keep documents in which that share of the words holds a letter of any script."""
    found = words(text)
    with_letter = sum(_LETTER.search(word) is not None for word in found)
    return f"letters in fewer than {at_least:.0%} of the words" if with_letter < at_least * len(found) else None


@quality_filter("symbols", reference=_GOPHER)
def symbols(text: str, *, at_most: float = 0.1) -> str | None:
    """Keep documents with few hash signs and ellipses, at most that many a word."""
    count = len(_SYMBOL.findall(text))
    return f"more than {at_most:g} hashes and ellipses a word" if count > at_most * count_words(text) else None


@quality_filter("digits", reference="arXiv 2303.03915")
def digits(text: str, *, at_most: float = 0.2) -> str | None:
    """Keep documents of which at most that share of the characters other than white space are digits of any script."""
    size = sum(map(len, text.split()))
    return f"more than {at_most:.0%} digits" if len(_DIGIT.findall(text)) > at_most * size else None


@quality_filter("bullet_lines", reference=_GOPHER)
def bullet_lines(text: str, *, at_most: float = 0.9) -> str | None:
    """Keep documents of which at most that share of the lines begins with a bullet."""
    lines = _lines(text)
    count = sum(line.startswith(_BULLETS) for line in lines)
    return f"bullets in more than {at_most:.0%} of the lines" if count > at_most * len(lines) else None


@quality_filter("ellipsis_lines", reference=_GOPHER)
def ellipsis_lines(text: str, *, at_most: float = 0.3) -> str | None:
    """Keep documents of which at most that share of the lines ends with an ellipsis."""
    lines = _lines(text)
    count = sum(line.endswith(_ELLIPSES) for line in lines)
    return f"ellipses in more than {at_most:.0%} of the lines" if count > at_most * len(lines) else None


@quality_filter("scripts", reference="https://www.unicode.org/reports/tr24/")
def scripts(text: str, *, names: Sequence[str], at_least: float = 0.5) -> str | None:
    """Keep documents of which at least that share of the letters is of the named scripts, such as ``[Latin]``.

    Raises:
        ValueError: a name is not one of Unicode's scripts.
    """
    for name in names:
        if name not in SCRIPTS:
            raise ValueError(f"{name!r} is no script{nearest(name, SCRIPTS)}")
    counts = script_histogram([text])
    share = sum(counts.get(name, 0) for name in names) / max(1, sum(counts.values()) - counts.get("Common", 0))
    return f"fewer than {at_least:.0%} {' or '.join(names)} letters" if share < at_least else None


@quality_filter("repeated_lines", reference=_GOPHER)
def repeated_lines(text: str, *, at_most: float = 0.3) -> str | None:
    """Keep documents of which at most that share of the lines repeats an earlier line of theirs."""
    lines = _lines(text)
    return f"more than {at_most:.0%} repeated lines" if len(lines) - len(set(lines)) > at_most * len(lines) else None


@quality_filter("repeated_ngram", reference=_GOPHER)
def repeated_ngram(text: str, *, n: int = 2, at_most: float = 0.2) -> str | None:
    """Keep documents of which at most that share of the characters stands in the most frequent row of ``n`` words.

    Rows that occur once do not count, so that short documents stay. Gopher's thresholds are 0.20, 0.18 and 0.16 for
    rows of 2, 3 and 4 words.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    found = words(text)
    rows = Counter(zip(*(found[place:] for place in range(n)), strict=False))
    size = sum(map(len, found))
    heaviest = max((sum(map(len, row)) * count for row, count in rows.items() if count > 1), default=0)
    return f"more than {at_most:.0%} in one repeated row of {n} words" if heaviest > at_most * size else None


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.split("\n")) if line]
