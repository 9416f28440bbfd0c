"""Tokens per word, byte and character, counted by hand."""

import json

import pytest

from lingraft.errors import MeasurementError
from lingraft.vocabulary import Fertility, TokenizerFile, measure_fertility


def test_counts_by_hand(tokenizer):
    raw = tokenizer.raw | {"model": tokenizer.raw["model"] | {"merges": []}}
    one_token_per_byte = TokenizerFile(json.dumps(raw), "x")
    found = measure_fertility(one_token_per_byte, ["qž q", "  "])
    assert found == Fertility(tokens=7, words=2, characters=6, bytes=7)


def test_ratios():
    found = Fertility(tokens=12, words=4, characters=24, bytes=48)
    assert (found.tokens_per_word, found.tokens_per_character, found.tokens_per_byte) == (3.0, 0.5, 0.25)


def test_more_texts_than_a_batch_are_all_counted(tokenizer):
    one, many = measure_fertility(tokenizer, ["the night"]), measure_fertility(tokenizer, iter(["the night"] * 300))
    assert (many.tokens, many.words, many.bytes) == (300 * one.tokens, 600, 2700)


@pytest.mark.parametrize("texts", [[], ["", " \n"]])
def test_text_without_words_is_refused(tokenizer, texts):
    with pytest.raises(MeasurementError, match="at least one word"):
        measure_fertility(tokenizer, texts)
