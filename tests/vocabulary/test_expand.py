"""One way in for every family, and the tokens of a second tokenizer as candidates."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from lingraft.errors import VocabularyError
from lingraft.vocabulary import (
    LearnOptions,
    TokenizerFile,
    candidates_from,
    expand_vocabulary,
    refuse_unexpandable,
)


@pytest.fixture(scope="module")
def unigram(basque_lines):
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        basque_lines[:200],
        trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False),
    )
    return TokenizerFile(made.to_str(), "unigram")


@pytest.mark.parametrize("kind", ["pair", "concat", "llama", "gemma", "metaspace"])
def test_o12_every_family_goes_its_own_way(bases, basque_lines, kind):
    grown = expand_vocabulary(bases[kind], basque_lines[:100], [], LearnOptions(20, min_count=5))
    assert (grown.method, grown.num_new) == ("expand", 20)
    assert grown.new.family == bases[kind].family


def test_o12_unigram_too(unigram, english_lines):
    grown = expand_vocabulary(unigram, english_lines[:100], [], LearnOptions(20, min_count=5))
    assert (grown.method, grown.num_new > 0) == ("expand", True)


@pytest.mark.parametrize("key", ["dropout", "continuing_subword_prefix", "end_of_word_suffix"])
def test_models_that_cannot_be_followed_exactly_are_refused(bases, key):
    model = bases["llama"].raw["model"] | {key: 0.1 if key == "dropout" else "@@", "merges": []}
    given = TokenizerFile(json.dumps(bases["llama"].raw | {"model": model}), "here")
    with pytest.raises(VocabularyError) as caught:
        refuse_unexpandable(given)
    assert str(caught.value) == f"here: model.{key} is {model[key]!r}; expansion is not exact with it"


def test_candidates_are_texts_whatever_the_spelling(bases):
    assert bases["concat"].id_of("Ġthe") is not None
    assert bases["llama"].id_of("▁the") is not None
    for kind in ("pair", "concat", "llama", "gemma", "metaspace"):
        found = candidates_from(bases[kind])
        assert b" the" in found
        assert not any(b"<|" in raw or b"<s>" in raw or b"<0x" in raw for raw in found)


def test_candidates_of_a_byte_level_donor_are_no_single_bytes(bases):
    assert min(map(len, candidates_from(bases["pair"]))) == 2
    assert all(bases["pair"].raw["model"]["vocab"].get(chr(c)) is not None for c in b"abc")


def test_candidates_of_a_unigram_donor(unigram):
    found = candidates_from(unigram)
    assert any(raw.startswith(b" ") and len(raw) > 3 for raw in found)
    assert b"<unk>" not in found


def test_wordpiece_has_no_candidates():
    other = TokenizerFile(Tokenizer(models.WordPiece({"a": 0}, unk_token="a")).to_str(), "donor")
    with pytest.raises(VocabularyError, match="donor: the tokens of a WordPiece tokenizer are no text"):
        candidates_from(other)


@pytest.mark.parametrize("base", ["pair", "concat"])
def test_o12_byte_level_base_with_a_sentencepiece_donor(bases, basque_lines, english_lines, base):
    """Pieces are spelled anew: `▁kaixo` becomes `Ġkaixo`, and ñ its two bytes."""
    donor = expand_vocabulary(bases["llama"], basque_lines[:300], [], LearnOptions(200, min_count=5)).new
    candidates = candidates_from(donor)
    options = LearnOptions(100, min_count=5, candidates=candidates)
    grown = expand_vocabulary(bases[base], basque_lines[:300], english_lines[:200], options)
    inside = [token for token in grown.new_tokens if token.text(grown.new).encode() in candidates]
    assert len(inside) == grown.num_new - grown.record["on_the_way"] > 50
    assert not any("▁" in token.spelling for token in grown.new_tokens)
    assert any(token.spelling.startswith("Ġ") for token in inside)


def test_o12_sentencepiece_base_with_a_unigram_donor(bases, unigram, basque_lines):
    options = LearnOptions(40, min_count=5, candidates=candidates_from(unigram))
    grown = expand_vocabulary(bases["llama"], basque_lines[:300], [], options)
    pieces = {piece for piece, _ in unigram.pieces}
    outside = [token.spelling for token in grown.new_tokens if token.spelling not in pieces]
    assert len(outside) == grown.record["on_the_way"] < grown.num_new


def test_without_candidates_there_is_no_such_record(bases, basque_lines):
    grown = expand_vocabulary(bases["llama"], basque_lines[:100], [], LearnOptions(5, min_count=5))
    assert "on_the_way" not in grown.record
