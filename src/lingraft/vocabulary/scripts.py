"""Which scripts a text uses, and which characters an unfinished one can become."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

from lingraft.corpus.scripts import script_of
from lingraft.polling import poll

__all__ = ["dominant_scripts", "partial_character_range"]


def dominant_scripts(texts: Iterable[str], at_least: float = 0.05) -> set[str]:
    """Return the scripts that supply at least that share of the letters of a text sample."""
    characters: Counter[str] = Counter()
    for text in texts:
        poll()
        characters.update(text)
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        if unicodedata.category(character)[0] in "LM" and (script := script_of(character)) is not None:
            counts[script] += count
    total = counts.total()
    return {script for script, count in counts.items() if count >= at_least * total}


def partial_character_range(raw: bytes) -> tuple[int, int] | None:
    """Return the code points, first and last, that the unfinished UTF-8 sequence ``raw`` can become; None if none."""
    lead = raw[0] if raw else 0
    size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    if not size or len(raw) >= size or any(not 0x80 <= byte <= 0xBF for byte in raw[1:]):
        return None
    missing = size - len(raw)
    value = lead & (0xFF >> (size + 1))
    for byte in raw[1:]:
        value = value << 6 | byte & 0x3F
    low, high = value << 6 * missing, (value + 1 << 6 * missing) - 1
    floor = {2: 0x80, 3: 0x800, 4: 0x10000}[size]
    low, high = max(low, floor), min(high, 0x10FFFF)
    return (low, high) if low <= high else None
