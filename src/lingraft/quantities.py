"""The units a recipe is written in: tokens, fractions, lengths, language codes.

Tokens are the one unit of length; steps are derived. ``50M`` is fifty million tokens, ``10%`` a fraction
of whatever it is a part of (a stage, a corpus).
"""

import math
import re
from fractions import Fraction as Exact
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

__all__ = [
    "Fraction",
    "LanguageCode",
    "Length",
    "TokenCount",
    "format_duration",
    "format_tokens",
    "is_language",
    "length_in_tokens",
    "parse_tokens",
]

_SUFFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
# Positions are 64-bit numbers; all text there is has a thousandth of this.
_TOO_MANY = 10**18
_TOKENS = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?)\s*([kKMBGT]?)\s*")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


def parse_tokens(value: Any) -> int:
    """Return a whole number of tokens from ``50_000_000``, ``"50M"``, ``"1.5B"`` or ``100000``.

    Raises:
        ValueError: the value is a boolean, negative, not whole, beyond what is ever counted, or not of that form.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a number of tokens such as 200k, 50M or 1B, not {value!r}")
    if isinstance(value, str):
        match = _TOKENS.fullmatch(value)
        if not match:
            raise ValueError(f"must be a number of tokens such as 200k, 50M or 1B, not {value!r}")
        value = Exact(match[1].replace("_", "")) * _SUFFIXES[match[2]]
        value = value.numerator if value.denominator == 1 else float(value)
    if (isinstance(value, float) and not math.isfinite(value)) or value < 0 or value != int(value):
        raise ValueError(f"must be a whole number of tokens, zero or more, not {value!r}")
    if value >= _TOO_MANY:
        raise ValueError(f"must be a number of tokens below {_TOO_MANY // 10**12:,}T, not {value!r}")
    return int(value)


def _parse_fraction(value: Any) -> float:
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        value = float(match[1]) / 100
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a fraction such as 10% or 0.1, not {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"must lie between 0 and 1 (0% and 100%), not {value!r}")
    return float(value)


def _parse_length(value: Any) -> int | float:
    """Keep a fraction as float and a token count as int, so that the two can be told apart."""
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return _parse_fraction(value)
    if isinstance(value, float) and 0 <= value <= 1:
        return value
    try:
        return parse_tokens(value)
    except ValueError as error:
        raise ValueError(f"must be a fraction such as 10% or a number of tokens such as 5M, not {value!r}") from error


def is_language(text: str) -> bool:
    """Return whether a text is spelled as the code of a language is: ``eu``, ``zh-Hant``."""
    return _LANGUAGE.fullmatch(text) is not None


def _parse_language(value: Any) -> str:
    if isinstance(value, bool):
        raise ValueError(
            f"must be a language code in quotes, not the truth value {str(value).lower()} (Norwegian is 'no')"
        )
    if not isinstance(value, str) or not is_language(value):
        raise ValueError(f"must be a language code such as eu, ar or zh-Hant, not {value!r}")
    return value


TokenCount = Annotated[int, BeforeValidator(parse_tokens)]
Fraction = Annotated[float, BeforeValidator(_parse_fraction)]
Length = Annotated[int | float, BeforeValidator(_parse_length), PlainSerializer(lambda v: v)]
LanguageCode = Annotated[str, BeforeValidator(_parse_language)]


def length_in_tokens(length: int | float, whole: int) -> int:
    """Return a :data:`Length` in tokens: a float is a fraction of ``whole``, an int is itself."""
    return round(length * whole) if isinstance(length, float) else length


def format_tokens(count: int | float) -> str:
    """Return a count as people write it: ``102k``, ``1.5B``."""
    for suffix, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g}{suffix}"
    return f"{count:.0f}"


def format_duration(seconds: float) -> str:
    """Return seconds as people write them: ``45 s``, ``12.5 min``, ``3.0 h``."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"
