"""Which scripts a text and an unfinished character belong to."""

import pytest

from lingraft.vocabulary.scripts import dominant_scripts, partial_character_range


@pytest.mark.parametrize(
    ("texts", "scripts"),
    [
        (["only words, 1234567890!"], {"Latin"}),
        (["a" * 95 + "я" * 5], {"Latin", "Cyrillic"}),
        (["a" * 96 + "я" * 4], {"Latin"}),
        (["a" * 50, "я" * 50], {"Latin", "Cyrillic"}),
        ([" 12 .,; 👩"], set()),
        (["𑄌𑄋𑄴𑄟𑄳𑄦"], {"Chakma"}),
        ([], set()),
    ],
)
def test_dominant_scripts_are_those_with_a_share_of_the_letters(texts, scripts):
    assert dominant_scripts(texts) == scripts


@pytest.mark.parametrize(
    "raw",
    [b"", b"a", b"\x80", b"\xc1", b"\xf5", b"\xff", "é".encode(), b"\xc3a", b"\xe0\x80", b"\xf0\x80", b"\xf4\x90"],
)
def test_bytes_that_begin_no_character_have_no_range(raw):
    assert partial_character_range(raw) is None


def test_range_is_what_all_characters_say():
    """The slow way: encode every character of Unicode and look which begin with the bytes."""
    slow = {}
    for point in range(0x80, 0x110000):
        if not 0xD800 <= point <= 0xDFFF:
            raw = chr(point).encode()
            for size in range(1, len(raw)):
                low, _ = slow.get(raw[:size], (point, point))
                slow[raw[:size]] = (low, point)
    for raw, span in slow.items():
        wanted = (span[0], 0xDFFF) if raw == b"\xed" else span  # the surrogates cannot be encoded
        assert partial_character_range(raw) == wanted, raw
