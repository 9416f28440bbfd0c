"""How much a model may lose: said once, for the alarm in a run, its report, and the choice among arms."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LEAST_SCORE", "Limits"]

LEAST_SCORE = 0.05
"""A base that scores less than this in a probe has nothing to lose there that could be told from chance."""


@dataclass(frozen=True)
class Limits:
    """What may be lost, as shares of what the base has.

    Attributes:
        source_rise: by what share of the base's bits per byte those of source text may rise.
        probe_drop: by what share of the base's score a probe of in-context learning may fall.
    """

    source_rise: float = 0.05
    probe_drop: float = 0.3

    @classmethod
    def strictest(cls, stated: Iterable["Limits"]) -> "Limits":
        """Return the smallest of each; the defaults where nothing is stated."""
        every = list(stated) or [cls()]
        return cls(min(one.source_rise for one in every), min(one.probe_drop for one in every))
