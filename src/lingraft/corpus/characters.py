"""Text as an array of code points: words, scripts and rows of words, found for all characters at once.

A word is what white space separates, and a single character in scripts that write none: Han, kana, Thai, Lao, Khmer,
Myanmar and Tibetan. A combining mark belongs to the character before it.
"""

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

import numpy as np
import regex
from numpy.typing import NDArray

from lingraft.corpus.scripts import SCRIPTS

__all__ = [
    "NOTED",
    "count_noted",
    "count_words",
    "hash_ngrams",
    "hash_rows",
    "name_scripts",
    "script_counts",
    "script_histogram",
    "top_script",
    "words",
]

NOTED = {
    # Tab and newline are text; the rest of C0, DEL and C1 is what terminals, printers and broken decoders leave behind.
    "control characters": r"[^\P{Cc}\t\n]",
    "bidi marks": "[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]",
    "zero-width joiners and non-joiners": "[\u200c\u200d]",
    "byte order marks inside a text": "\ufeff",
    "kashidas": "\u0640",
    "Arabic presentation forms": "[\ufb50-\ufdff\ufe70-\ufefc]",
    "U+FFFD, left by a wrong decoding": "\ufffd",
    "digits other than 0 to 9": r"[^\P{Nd}0-9]",
}
"""Characters that are worth counting, and patterns for them; no character is in two."""

_SPACE = r"\s\x1c-\x1f"  # what str.split() splits at
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_WORD = regex.compile(rf"(?V1)[[{_UNSPACED}]--\p{{M}}]\p{{M}}*|[[^{_SPACE}{_UNSPACED}]\p{{M}}]+")
_GAP, _LETTER, _SINGLE, _MARK, _SIGN = range(5)
_NUM_CODES = 0x110000
_NAMES = ("Other", "Common", *SCRIPTS)
# An odd base has an inverse modulo 2^64, so the hash of a word is cut out of the running sum of a whole text.
_BASE = 0x9E3779B97F4A7C15
# Any odd numbers do; these make the sum depend on the order of the words.
_FACTORS = np.random.default_rng(0x11A6).integers(1, 2**63, size=64, dtype=np.uint64) | np.uint64(1)


@lru_cache(maxsize=1)
def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _runs(pattern: str, characters: str) -> Iterator[slice]:
    """Yield the stretches of characters that are all of one kind."""
    for found in regex.finditer(f"(?:{pattern})+", characters):
        yield slice(found.start(), found.end())


@cache
def _assigned() -> NDArray[np.uint32]:
    """Return the code points that may be characters: the planes that Unicode has filled, without surrogates."""
    return np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x33800), np.arange(0xE0000, 0xE0200)]).astype("<u4")


@cache
def _classes() -> NDArray[np.uint8]:
    """Code point → gap, letter, single (a word by itself), mark, or sign."""
    table = np.full(_NUM_CODES, _LETTER, dtype=np.uint8)
    codes = _assigned()
    spelled = codes.tobytes().decode("utf-32-le")
    patterns = ((_SIGN, r"[\p{P}\p{S}]"), (_SINGLE, f"[{_UNSPACED}]"), (_MARK, r"\p{M}"), (_GAP, f"[{_SPACE}]"))
    for kind, pattern in patterns:
        for run in _runs(pattern, spelled):
            table[codes[run]] = kind
    return table


@cache
def _script_table() -> NDArray[np.uint8]:
    """Code point → 0 for what is no letter, else 1 + its place in ``_NAMES``."""
    table = np.zeros(_NUM_CODES, dtype=np.uint8)
    codes = _assigned()
    is_letter = np.fromiter(map(str.isalpha, codes.tobytes().decode("utf-32-le")), dtype=np.bool_, count=len(codes))
    letters = codes[is_letter]
    table[letters] = 1
    spelled = letters.tobytes().decode("utf-32-le")
    patterns = (r"[\p{Script=Common}\p{Script=Inherited}]", *(rf"\p{{Script={name}}}" for name in SCRIPTS))
    for number, pattern in enumerate(patterns, start=2):
        for run in _runs(pattern, spelled):
            table[letters[run]] = number
    return table


@cache
def _noted_table() -> NDArray[np.uint8]:
    """Code point → 0, or 1 + its place in NOTED."""
    table = np.zeros(_NUM_CODES, dtype=np.uint8)
    codes = _assigned()
    spelled = codes.tobytes().decode("utf-32-le")
    for number, pattern in enumerate(NOTED.values(), start=1):
        for run in _runs(pattern, spelled):
            table[codes[run]] = number
    return table


def count_noted(text: str) -> dict[str, int]:
    """Return how many of the characters of :data:`NOTED` a text holds, those that it has none of left out."""
    found = _noted_table().take(_codes(text))
    if not found.any():
        return {}
    counts = np.bincount(found, minlength=1 + len(NOTED))[1:].tolist()
    return {name: count for name, count in zip(NOTED, counts, strict=True) if count}


def words(text: str) -> list[str]:
    """Return the words: what white space separates; single characters in scripts without spaces.

    Those are Han, kana, Thai, Lao, Khmer, Myanmar and Tibetan. A vowel sign stays with its letter.
    """
    if text.isascii() or not (_classes().take(_codes(text)) == _SINGLE).any():
        return text.split()
    found: list[str] = _WORD.findall(text)
    return found


def count_words(text: str) -> int:
    """Return how many :func:`words` a text has; fertility is tokens per word."""
    if text.isascii():
        return len(text.split())
    kinds = _classes().take(_codes(text))
    return int(_starts(np.where(kinds == _SIGN, np.uint8(_LETTER), kinds)).sum())


def _starts(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return where a word begins, for a text of gaps, letters, singles and marks."""
    if not len(kinds):
        return np.zeros(0, dtype=np.bool_)
    marks = kinds == _MARK
    if marks.any():
        before = np.concatenate([[np.uint8(_GAP)], kinds[:-1]])
        # A mark behind a gap has nothing to stand on and begins a word of letters; any other is what it stands on.
        kinds = np.where(marks & (before == _GAP), np.uint8(_LETTER), kinds)
        places = np.maximum.accumulate(np.where(kinds == _MARK, 0, np.arange(len(kinds))))
        kinds, continues = kinds[places], kinds == _MARK
    else:
        continues = marks
    before = np.concatenate([[np.uint8(_GAP)], kinds[:-1]])
    begins = (kinds == _SINGLE) | ((kinds == _LETTER) & (before != _LETTER))
    starts: NDArray[np.bool_] = begins & ~continues
    return starts


@lru_cache(maxsize=1)
def script_counts(text: str) -> NDArray[np.int64]:
    """Return how many letters a text holds of other scripts, of no one script, and of each of ``SCRIPTS``.

    Asked again for the text asked last, it gives the same array.
    """
    return np.bincount(_script_table().take(_codes(text)), minlength=1 + len(_NAMES))[1:]


def script_histogram(texts: Iterable[str]) -> dict[str, int]:
    """Return how many letters of each Unicode script the texts hold, the most frequent script first.

    Letters that belong to no one script (ー) are counted as ``Common``; digits, signs and punctuation are not counted.
    """
    return name_scripts(sum(map(script_counts, texts), start=np.zeros(len(_NAMES), dtype=np.int64)))


def name_scripts(counts: NDArray[np.int64]) -> dict[str, int]:
    """Return the sum of some :func:`script_counts` as script → letters, the most frequent script first."""
    named = zip(_NAMES, counts.tolist(), strict=True)
    return dict(sorted(((name, count) for name, count in named if count), key=lambda pair: -pair[1]))


def top_script(counts: NDArray[np.int64]) -> str | None:
    """Return the script that most letters of some :func:`script_counts` are of; None where none is of a script."""
    best = int(counts[2:].argmax())
    return SCRIPTS[best] if counts[2 + best] else None


def hash_ngrams(text: str, n: int, *, is_short_kept: bool = False) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every ``n`` words in a row, case, punctuation and symbols aside.

    It is the sum of word hash times factor of the place, modulo 2⁶⁴; the hash of a word is a polynomial in its code
    points. The same text has the same hashes on every machine.

    Args:
        text: of any script; words are those of :func:`words`, with signs as gaps.
        n: words in a row, at most 64.
        is_short_kept: whether a text of fewer words has one hash, of all its words; else it has none.
    """
    hashes = _hash_words(text)
    size = min(n, len(hashes)) if is_short_kept and len(hashes) else n
    return _rows(hashes, (size,))[0]


def hash_rows(text: str, sizes: tuple[int, ...]) -> list[NDArray[np.uint64]]:
    """Return the :func:`hash_ngrams` of several numbers of words, given in rising order, for the price of the last."""
    return _rows(_hash_words(text), sizes)


def _rows(hashes: NDArray[np.uint64], sizes: tuple[int, ...]) -> list[NDArray[np.uint64]]:
    total = np.zeros(len(hashes), dtype=np.uint64)
    found = []
    for place in range(sizes[-1]):
        count = max(len(hashes) - place, 0)
        total = total[:count] + hashes[place:] * _FACTORS[place]
        if place + 1 in sizes:
            found.append(total)
    return found


def _hash_words(text: str) -> NDArray[np.uint64]:
    codes = _codes(text.casefold())
    kinds = _classes().take(codes)
    kinds = np.where(kinds == _SIGN, np.uint8(_GAP), kinds)
    starts = np.flatnonzero(_starts(kinds))
    if not len(starts):
        return np.zeros(0, dtype=np.uint64)
    # Gaps add nothing, so a word may be taken to last until the next one begins.
    powers, inverses = _powers(len(codes))
    terms = _weights().take(codes) * powers[: len(codes)]
    sums = np.add.reduceat(terms, starts) * inverses[starts]
    # The last bits of a product depend on the last bits of its factors only: mix before the sums are taken.
    sums ^= sums >> np.uint64(32)
    mixed: NDArray[np.uint64] = sums * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


@cache
def _weights() -> NDArray[np.uint64]:
    """Code point → what it adds to the hash of a word: gaps and signs nothing, others their number."""
    is_silent = (_classes() == _GAP) | (_classes() == _SIGN)
    return np.where(is_silent, np.uint64(0), np.arange(1, _NUM_CODES + 1, dtype=np.uint64))


_tables: list[NDArray[np.uint64]] = []


def _powers(length: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the powers of the base and of its inverse modulo 2⁶⁴, at least so many; they are kept and grow."""
    if not _tables or len(_tables[0]) < length:
        size = 1 << max(16, length.bit_length())
        _tables[:] = [_powers_of(_BASE, size), _powers_of(pow(_BASE, -1, 2**64), size)]
    return _tables[0], _tables[1]


def _powers_of(base: int, size: int) -> NDArray[np.uint64]:
    """Double the table until it is long enough; ``size`` is a power of two."""
    table = np.ones(1, dtype=np.uint64)
    while len(table) < size:
        table = np.concatenate([table, table * np.uint64(pow(base, len(table), 2**64))])
    return table
