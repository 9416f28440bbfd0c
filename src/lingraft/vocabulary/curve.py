"""The fertility curve: tokens of held-out text over the number of new tokens, and where growth stops paying."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["PARALLEL", "CurvePoint", "FertilityCurve", "TextSize", "curve_sizes"]

PARALLEL = "parallel"
_PER = 1000
# Between two sizes that are closer than this, chance decides.
_TOO_CLOSE = 0.1


@dataclass(frozen=True)
class TextSize:
    """Whitespace-separated words, characters and UTF-8 bytes of a text."""

    words: int
    characters: int
    bytes: int


@dataclass(frozen=True)
class CurvePoint:
    """How many tokens each watched text has when the vocabulary has grown by ``num_new``."""

    num_new: int
    tokens: Mapping[str, int]


@dataclass(frozen=True)
class FertilityCurve:
    """Tokens of the watched texts at a number of sizes, from no new token to all of them.

    Attributes:
        sizes: name of a text → its size.
        points: in the order of ``num_new``; the first is the base tokenizer.
    """

    sizes: Mapping[str, TextSize] = field(default_factory=dict)
    points: tuple[CurvePoint, ...] = ()

    def per_word(self, text: str) -> list[tuple[int, float]]:
        """Return ``(new tokens, tokens per word)`` along the curve of one text."""
        words = max(1, self.sizes[text].words)
        return [(point.num_new, point.tokens[text] / words) for point in self.points]

    def choose(self, min_saving: float) -> int:
        """Return the smallest size from which a further thousand tokens save less than ``min_saving`` of the tokens.

        The tokens are those of all texts together, but for ``parallel``, which repeats what others hold.

        A point is held against the first that is far enough behind it. Between two points n < m with T(n) and T(m)
        tokens, a thousand tokens save (T(n) − T(m)) / T(n) · 1000 / (m −
        n). Savings fall as the vocabulary grows, so the first point that is too poor ends it.
        """
        texts = [text for text in self.sizes if text != PARALLEL]
        for place, here in enumerate(self.points[:-1]):
            later = self.points[place + 1 :]
            far = _TOO_CLOSE * here.num_new
            there = next((point for point in later if point.num_new - here.num_new >= far), later[-1])
            before, after = (sum(point.tokens[text] for text in texts) for point in (here, there))
            if (before - after) / max(1, before) * _PER / (there.num_new - here.num_new) < min_saving:
                return here.num_new
        return self.points[-1].num_new if self.points else 0

    def until(self, num_new: int) -> "FertilityCurve":
        """Return the part of the curve up to a size."""
        return FertilityCurve(self.sizes, tuple(point for point in self.points if point.num_new <= num_new))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``expansion.json``."""
        return {
            "sizes": {name: asdict(size) for name, size in self.sizes.items()},
            "points": [{"num_new": point.num_new, "tokens": dict(point.tokens)} for point in self.points],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "FertilityCurve":
        """Return the curve that :meth:`as_dict` described."""
        sizes = {name: TextSize(**size) for name, size in stored["sizes"].items()}
        return cls(sizes, tuple(CurvePoint(point["num_new"], point["tokens"]) for point in stored["points"]))


def curve_sizes(num_new: int) -> list[int]:
    """Return the sizes at which a curve has points: 0, 8, 16 … 500 by doubling, then every thousand, and the last."""
    small = [size for size in (0, 8, 16, 32, 64, 125, 250, 500) if size < num_new]
    return sorted({*small, *range(_PER, num_new, _PER), num_new})
