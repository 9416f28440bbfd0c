"""What may become a token: a table by hand. The rules that every family shares are in test_learn."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.corpus.scripts import WIDESPREAD_SCRIPTS, script_of
from lingraft.vocabulary.admission import LearnOptions, is_pinned, is_well_formed

LETTERS = LearnOptions(1, letters_only=True)
ZWJ, ZWNJ = "\u200d", "\u200c"


@pytest.mark.parametrize(
    ("text", "free", "letters"),
    [
        ("ka", True, True),
        (" ka", True, True),
        ("  ka", True, False),
        ("k a", True, False),
        ("ka ", True, False),
        ("ñandú", True, True),
        ("n\u0303a", True, True),
        ("\u0303a", True, True),
        ("don't", True, False),
        ("ka-", True, False),
        (".ka", True, False),
        ("ka\n", True, False),
        ("k1", False, False),
        ("१", False, False),
        ("हि", True, True),
        ("क्" + ZWJ + "ष", True, True),
        ("می" + ZWNJ + "خواهم", True, True),
        (ZWJ, False, False),
        ("kक", True, False),
        ("kя", True, False),
        ("京か", True, False),
        ("京", True, True),
        ("☃", False, False),
        ("a☃", True, False),
        ("ªa", True, True),
        (" ", False, False),
        ("", False, False),
    ],
)
def test_letters_only_is_one_script_s_letters_marks_and_joiners(text, free, letters):
    assert is_well_formed(text.encode(), LearnOptions(1)) == free
    assert is_well_formed(text.encode(), LETTERS) == letters


def test_length_is_in_characters_and_leaves_the_space_out():
    options = LearnOptions(1, max_characters=3, letters_only=True)
    assert is_well_formed(" हिन".encode(), options)
    assert not is_well_formed(" हिन्".encode(), options)


def test_digits_are_a_matter_of_the_options_but_no_letters():
    assert is_well_formed(b"k1", LearnOptions(1, allow_digits=True))
    assert not is_well_formed(b"k1", LearnOptions(1, allow_digits=True, letters_only=True))


def test_name_of_an_added_token_is_taken():
    assert not is_well_formed(b"mask", LearnOptions(1, reserved=frozenset({b"mask"})))
    assert is_well_formed(b"masks", LearnOptions(1, reserved=frozenset({b"mask"})))


@settings(max_examples=300, deadline=None)
@given(raw=st.one_of(st.binary(max_size=8), st.text(max_size=4).map(str.encode)))
def test_letters_only_only_ever_takes_away(raw):
    if is_well_formed(raw, LETTERS):
        assert is_well_formed(raw, LearnOptions(1))
        assert raw.decode().removeprefix(" ")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_an_unfinished_character_may_be_is_what_all_characters_say(size):
    """The slow way: of all characters that go on from these bytes, none is another script's, and most are Devanagari."""
    scripts = frozenset({"Devanagari"})
    following = defaultdict(Counter)
    for point in (*range(0x80, 0xD800), *range(0xE000, 0x20000)):
        raw = chr(point).encode()
        if len(raw) > size:
            following[raw[:size]][script_of(chr(point))] += 1
    for raw, found in following.items():
        # Sequences that begin more than a block or two are never looked at.
        wanted = found.total() <= 0x1000 and not found.keys() & WIDESPREAD_SCRIPTS - {"Devanagari"}
        assert is_pinned(raw, scripts) == (wanted and found["Devanagari"] > found[None]), raw
        assert is_well_formed(raw, LearnOptions(1, pinned_scripts=scripts)) == is_pinned(raw, scripts)
        assert not is_well_formed(raw, LearnOptions(1))


def test_a_target_with_a_script_of_its_own_takes_no_token_without_it():
    options = LearnOptions(9, pinned_scripts=frozenset({"Greek"}), pinned_only=True)
    words = {"αβ": True, " α": True, "Linux": False, " Linux": False, "x-α": True}
    assert {word: is_well_formed(word.encode(), options) for word in words} == words
