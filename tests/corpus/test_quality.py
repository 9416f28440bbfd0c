"""Each filter on texts just inside and just outside its threshold."""

import pytest

from lingraft.corpus.quality import bind_filters, quality_filters
from lingraft.errors import RecipeError

TABLE = [
    ("num_words", {"at_least": 3, "at_most": 4}, "a b c", "a b", "fewer than 3 words"),
    ("num_words", {"at_least": 1, "at_most": 4}, "a b c d", "a b c d e", "more than 4 words"),
    ("num_words", {"at_least": 3}, "北京市", "北京", "fewer than 3 words"),
    ("mean_word_length", {"at_least": 2.0}, "a bcd", "a bc", "mean word shorter than 2 characters"),
    ("mean_word_length", {"at_most": 4.0}, "abc abcde", "abcd abcde", "mean word longer than 4 characters"),
    ("letters", {"at_least": 0.5}, "a 1", "a 1 2", "letters in fewer than 50% of the words"),
    ("letters", {}, "हिन्दी में", "१२ ३४", "letters in fewer than 80% of the words"),
    ("symbols", {"at_most": 0.5}, "a # b c…", "# # …", "more than 0.5 hashes and ellipses a word"),
    ("digits", {"at_most": 0.5}, "ab 12", "a 12", "more than 50% digits"),
    ("digits", {"at_most": 0.5}, "مد ٣٤", "م ٣٤", "more than 50% digits"),
    ("bullet_lines", {"at_most": 0.5}, "- a\nb", "- a\n\n• b\nc", "bullets in more than 50% of the lines"),
    ("ellipsis_lines", {"at_most": 0.5}, "a...\nb", "a…\nb... \nc", "ellipses in more than 50% of the lines"),
    ("repeated_lines", {"at_most": 0.25}, "a\nb\na\nc", "a\nb\na\n a", "more than 25% repeated lines"),
    (
        "repeated_ngram",
        {"n": 2, "at_most": 0.5},
        "a b c d e f a b",
        "a b c a b",
        "more than 50% in one repeated row of 2 words",
    ),
    ("repeated_ngram", {"n": 2, "at_most": 0.5}, "a b", "a b a b", "more than 50% in one repeated row of 2 words"),
    ("scripts", {"names": ["Latin"], "at_least": 0.5}, "ab 北京", "a 北京", "fewer than 50% Latin letters"),
    ("scripts", {"names": ["Han", "Latin"]}, "ab 北京 ж", "a 北 жжж", "fewer than 50% Han or Latin letters"),
]


@pytest.mark.parametrize(("name", "options", "good", "bad", "reason"), TABLE)
def test_thresholds(name, options, good, bad, reason):
    (judge,) = bind_filters([(name, options)], "corpora.eu.quality")
    assert judge(good) is None
    assert judge(bad) == reason


def test_every_filter_has_a_row_above():
    assert {entry.name for entry in quality_filters} == {row[0] for row in TABLE}


@pytest.mark.parametrize("name", ["letters", "mean_word_length", "bullet_lines", "repeated_lines", "symbols", "digits"])
def test_a_text_without_words_breaks_nothing(name):
    (judge,) = bind_filters([(name, {})], "x")
    assert judge("") in (None, "mean word shorter than 3 characters")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("letterz", {}, r"corpora\.eu\.quality\.0: unknown quality filter 'letterz', did you mean 'letters'"),
        ("letters", {"atleast": 1.0}, r"corpora\.eu\.quality\.0\.atleast: .*did you mean 'at_least'"),
        ("letters", {"at_least": "many"}, r"takes a value of type float here"),
        (
            "scripts",
            {"names": ["Latn"]},
            r"quality\.0: 'scripts' cannot be used: 'Latn' is no script, did you mean 'Latin'",
        ),
        ("scripts", {}, r"'scripts' needs names"),
        ("repeated_ngram", {"n": 0}, r"n must be at least 1, not 0"),
        ("builtins:len", {}, r"'builtins:len' must return a reason or None, it returned 13"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(name, options, message):
    with pytest.raises(RecipeError, match=message):
        bind_filters([(name, options)], "corpora.eu.quality")
