"""Words, scripts and rows of words: by hand, against Python's own properties, and against the slow way."""

import unicodedata

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from lingraft.corpus.characters import (
    NOTED,
    count_noted,
    count_words,
    hash_ngrams,
    hash_rows,
    script_counts,
    script_histogram,
    top_script,
    words,
)
from lingraft.corpus.scripts import script_of

TRICKY = st.text(st.sampled_from("ab \n\u0301\u0e31ไ北मै\x1c\u0f71.!á\u2028क्\u200d"), max_size=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Kaixo,  mundua!\n", ["Kaixo,", "mundua!"]),
        ("don't stop", ["don't", "stop"]),
        ("北京 2024年", ["北", "京", "2024", "年"]),
        ("मैं हिन्दी", ["मैं", "हिन्दी"]),
        ("ไป", ["ไ", "ป"]),
        ("มัน", ["มั", "น"]),
        ("a\u0301b", ["a\u0301b"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected
    assert count_words(text) == len(expected)


@given(TRICKY)
def test_words_are_counted_as_they_are_found(text):
    assert count_words(text) == len(words(text))


def test_white_space_is_what_python_splits_at():
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000 and chr(code).isspace():
            assert words(f"á{chr(code)}b") == ["á", "b"]


def test_scripts():
    histogram = script_histogram(["abc, 12", "мир", "हिन्दी", "北ᚠー"])
    assert histogram == {"Latin": 3, "Cyrillic": 3, "Devanagari": 3, "Han": 1, "Runic": 1, "Common": 1}
    assert next(iter(histogram)) == "Latin"
    assert top_script(script_counts("北京 a")) == "Han"
    assert top_script(script_counts("12 ー")) is None


def test_every_letter_counts_for_its_script():
    letters = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] == "L"]
    for letter in letters[::7]:
        assert script_histogram([letter]) == {script_of(letter) or "Common": 1}


def test_noted_characters_are_those_of_their_patterns():
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    slow = {name: len(regex.findall(pattern, every)) for name, pattern in NOTED.items()}
    assert count_noted(every) == slow
    assert count_noted("plain text") == {}


def test_rows_of_words_are_equal_for_equal_words_and_else_not():
    one = hash_ngrams("One, two — THREE four", 2)
    assert one.tolist() == hash_ngrams("one two three\u2028(four)", 2).tolist()
    assert len({*one.tolist(), *hash_ngrams("two one three four", 2).tolist()}) == 5  # "three four" is in both
    assert len(hash_ngrams("one two", 3)) == 0
    assert len(hash_ngrams("one two", 3, is_short_kept=True)) == 1
    assert len(hash_ngrams("", 3, is_short_kept=True)) == 0


def test_hashes_are_the_same_on_every_machine():
    """By hand: the hash of a word is Σ (code point + 1)·B^place, mixed; the row adds it times the first factor."""
    base, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    value = (98 + 99 * base) & mask  # "ab"
    value ^= value >> 32
    value = value * 0xD6E8FEB86659FD93 & mask
    value ^= value >> 32
    factor = int(np.random.default_rng(0x11A6).integers(1, 2**63, size=64, dtype=np.uint64)[0]) | 1
    assert hash_ngrams("AB", 1).tolist() == [value * factor & mask]
    assert hash_ngrams("x ab", 1).tolist()[1] == value * factor & mask


@given(st.lists(st.sampled_from(["a", "b", "ab", "ba", "北", "क्षि", "ไป", "x1"]), max_size=8))
def test_words_of_a_row_do_not_run_into_each_other(parts):
    spelled = words(" ".join(parts))
    rows = [tuple(spelled[i : i + 2]) for i in range(len(spelled) - 1)]
    assert len(set(hash_ngrams(" ".join(parts), 2).tolist())) == len(set(rows))


def test_several_lengths_at_once():
    text = "a b c d e f g"
    for size, rows in zip((2, 3, 5), hash_rows(text, (2, 3, 5)), strict=True):
        assert rows.tolist() == hash_ngrams(text, size).tolist()
