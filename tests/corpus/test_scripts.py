"""Which script a character belongs to: a table by hand, and every letter that Python knows."""

import unicodedata

import pytest
import regex

from lingraft.corpus.scripts import WIDESPREAD_SCRIPTS, script_of


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"), ("ñ", "Latin"), ("я", "Cyrillic"), ("α", "Greek"), ("ع", "Arabic"), ("क", "Devanagari"),
        ("京", "Han"), ("か", "Hiragana"), ("한", "Hangul"), ("ქ", "Georgian"), ("ไ", "Thai"), ("ᚠ", "Runic"),
        ("𑄌", "Chakma"), ("\ue000", "Other"), ("\u0378", "Other"),
        (" ", None), (".", None), ("7", None), ("\u0301", None), ("👩", None),
    ],
)  # fmt: skip
def test_script_of_a_character(character, script):
    assert script_of(character) == script


def test_every_letter_and_mark_of_unicode_has_the_script_that_its_property_says():
    """The slow way: each name is put to `regex` again, for all characters at once."""
    characters = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    letters = [character for character in characters if unicodedata.category(character)[0] in "LM"]
    by_script = {}
    for character in letters:
        by_script.setdefault(script_of(character), set()).add(character)
    # A version of Python with a newer Unicode fails here until its scripts are listed.
    assert "Other" not in by_script
    assert by_script.keys() >= WIDESPREAD_SCRIPTS
    for script in by_script.keys() - {None}:
        assert set(regex.findall(rf"\p{{sc={script}}}", characters)) & set(letters) == by_script[script], script
