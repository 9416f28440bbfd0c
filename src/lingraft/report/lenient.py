"""Values out of JSON that may be of any kind: what is not of the kind that is expected counts as absent.

Run folders come from strangers, from older versions, and from runs that were killed; a page about them must come out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lingraft.report.escaping import visible

__all__ = ["clipped", "count_or_dash", "list_of", "mapping_of", "mappings_of", "number_of", "shown", "text_of"]

# No count of ours comes near it; larger ones break formatting and division.
_TOO_LARGE = 2**63
_CLIP = 160
_DEPTH = 8


def mapping_of(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: Any) -> Sequence[Any]:
    """Return a list as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []


def mappings_of(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the mappings in a list; without a list none."""
    return tuple(item for item in list_of(value) if isinstance(item, Mapping))


def number_of(value: Any) -> int | float | None:
    """Return a finite number of a sensible size as it is, anything else as None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _TOO_LARGE:
        return None
    return value if math.isfinite(value) else None


def count_or_dash(value: Any) -> str:
    """Return a whole number with thousands separators, anything else as a dash."""
    number = number_of(value)
    return f"{number:,}" if isinstance(number, int) else "—"


def shown(value: Any, length: int = _CLIP) -> str:
    """Return a value as one line of text in which control characters can be seen, cut where it is long."""
    return clipped(visible(str(value), keep=""), length)


def clipped(text: str, length: int) -> str:
    """Return text cut to a length, and said to be."""
    return text if len(text) <= length else text[:length] + f"… ({len(text):,} characters)"


def text_of(value: Any, depth: int = _DEPTH) -> str:
    """Return plain text of whatever JSON holds: lists and mappings by their values, on one line.

    Args:
        value: anything.
        depth: how many levels are opened; what is nested deeper is left out.
    """
    if isinstance(value, list | Mapping):
        items = value.values() if isinstance(value, Mapping) else value
        joint = ": " if isinstance(value, Mapping) else ", "
        return joint.join(text_of(item, depth - 1) for item in items) if depth else "…"
    return "" if value is None else str(value)
