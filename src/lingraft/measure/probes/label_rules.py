"""Two kinds of inputs that a rule tells apart, to be named by symbols that mean nothing."""

from lingraft.measure.items import ItemStream

__all__ = ["RULES", "draw_labelled", "draw_symbols"]

_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxz"

RULES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (tuple(str(n) for n in range(10, 100, 2)), tuple(str(n) for n in range(11, 100, 2))),
    (tuple(str(n) for n in range(10, 50)), tuple(str(n) for n in range(51, 100))),
    (tuple(a + b for a in _VOWELS for b in _CONSONANTS), tuple(a + b for a in _CONSONANTS for b in _CONSONANTS)),
)
"""Even and odd; below and above 50; two letters that begin with a vowel and with a consonant."""


def draw_labelled(stream: ItemStream, rule: int, count: int, query: int) -> tuple[list[tuple[str, int]], str]:
    """Return ``count`` different inputs, each with its kind 0 or 1, and one more of the kind ``query``.

    Of each two that follow each other from the first on, one is of each kind, in either order.
    """
    pairs = (count + 1) // 2
    kinds = [kind for _ in range(pairs) for kind in stream.shuffled((0, 1))][:count]
    drawn = [stream.sample(inputs, pairs + 1) for inputs in RULES[rule]]
    return [(drawn[kind].pop(), kind) for kind in kinds], drawn[query].pop()


def draw_symbols(stream: ItemStream) -> tuple[str, str]:
    """Return two different capital letters."""
    first, second = stream.sample("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 2)
    return first, second
