"""What tokens say, by family."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from lingraft.embeddings.token_text import token_bytes, token_texts
from lingraft.errors import VocabularyError
from lingraft.vocabulary import TokenizerFile


def sentencepiece(tokens, added=()):
    """A BPE of SentencePiece's kind, with the added tokens at the front."""
    model = models.BPE({token: i for i, token in enumerate([*added, *tokens])}, [], byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    raw = json.loads(tokenizer.to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    raw["added_tokens"] = [{"id": i, "content": t, "special": t == "<s>", **flags} for i, t in enumerate(added)]
    return TokenizerFile(json.dumps(raw), "pieces")


def test_byte_level_tokens(tokenizer):
    raw, texts = token_bytes(tokenizer), token_texts(tokenizer)
    the, newline = tokenizer.id_of("Ġthe"), tokenizer.id_of("Ċ")
    assert (raw[the], texts[the]) == (b" the", " the")
    assert (raw[newline], texts[newline]) == (b"\n", "\n")
    fragment = tokenizer.id_of("Ã")
    assert raw[fragment] == b"\xc3"
    assert fragment not in texts
    control = next(i for i, found in raw.items() if found == b"\x07")
    assert control not in texts
    assert not tokenizer.special_ids & raw.keys()


def test_sentencepiece_tokens():
    tokenizer = sentencepiece(["▁kaixo", "a", "<0x0A>", "<0xC3>"], added=["<s>", "\n\n"])
    assert token_bytes(tokenizer) == {1: b"\n\n", 2: b" kaixo", 3: b"a", 4: b"\n", 5: b"\xc3"}
    assert token_texts(tokenizer) == {2: " kaixo", 3: "a"}


def test_a_joiner_is_clean_text():
    """Zero-width joiners are letters' neighbours in Persian and Hindi, not control characters."""
    assert token_texts(sentencepiece(["می\u200cشود"])) == {0: "می\u200cشود"}


def test_other_families_are_refused():
    words = TokenizerFile(Tokenizer(models.WordPiece({"[UNK]": 0, "##a": 1}, unk_token="[UNK]")).to_str(), "words")
    with pytest.raises(VocabularyError, match="words: tokens of a wordpiece tokenizer cannot be read as text"):
        token_bytes(words)
