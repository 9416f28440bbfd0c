"""A tokenizer.json is read as it is, and grows without moving anything."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from lingraft.errors import VocabularyError
from lingraft.vocabulary import TokenizerFile
from lingraft.vocabulary.tokenizer_file import bytes_to_spelling, spelling_to_bytes

TEXTS = ["the night is bright and the light is right"] * 4


def llama3_like(ignore_merges=True):
    """Return a file as Llama 3 has it: BOS and EOT are outside the model's vocabulary, BOS is put in front of texts."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    bos = ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    return json.loads(tokenizer.to_str())


def opened(raw):
    return TokenizerFile(json.dumps(raw), "x")


def bpe_file(vocabulary, merges, **model):
    """Return a byte-level file with just these tokens."""
    raw = llama3_like()
    raw["model"] |= {
        "vocab": {t: i for i, t in enumerate(vocabulary)},
        "merges": merges,
        "ignore_merges": False,
    } | model
    return raw | {"added_tokens": [], "post_processor": None}


@pytest.mark.parametrize(
    ("raw", "spelling"),
    [(b" the", "Ġthe"), (b"\n", "Ċ"), (b"\x00", "Ā"), ("é".encode(), "Ã©"), (b"\xad", "Ń"), (b"", "")],
)
def test_byte_alphabet(raw, spelling):
    assert bytes_to_spelling(raw) == spelling
    assert spelling_to_bytes(spelling) == raw


def test_byte_alphabet_is_reversible_and_printable():
    spelled = [bytes_to_spelling(bytes([byte])) for byte in range(256)]
    assert len(set(spelled)) == 256
    assert all(character.isprintable() and not character.isspace() for character in spelled)
    assert b"".join(spelling_to_bytes(s) for s in spelled) == bytes(range(256))


@pytest.mark.parametrize("spelling", ["▁the", "a b", "€"])
def test_what_is_not_in_the_byte_alphabet_has_no_bytes(spelling):
    assert spelling_to_bytes(spelling) is None


@pytest.mark.parametrize(
    ("model", "pre_tokenizer", "family"),
    [
        (models.BPE(), pre_tokenizers.ByteLevel(), "byte_bpe"),
        (models.BPE(), pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]), "byte_bpe"),
        (models.BPE(), pre_tokenizers.Metaspace(), "sentencepiece_bpe"),
        (models.BPE(byte_fallback=True), pre_tokenizers.ByteLevel(), "sentencepiece_bpe"),
        (models.BPE(), None, "sentencepiece_bpe"),
        (models.Unigram([("a", -1.0)], None), None, "unigram"),
        (models.WordPiece({"a": 0}, unk_token="a"), None, "wordpiece"),
        (models.WordLevel({"a": 0}, unk_token="a"), None, "other"),
    ],
)
def test_o12_family_is_detected(model, pre_tokenizer, family):
    tokenizer = Tokenizer(model)
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    assert TokenizerFile(tokenizer.to_str(), "x").family == family


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": {}}'])
def test_what_is_no_tokenizer_is_refused(text):
    with pytest.raises(VocabularyError, match=r"here: not a tokenizer\.json"):
        TokenizerFile(text, "here")


def test_folder_without_a_file_is_refused(tmp_path):
    with pytest.raises(VocabularyError, match=r"no tokenizer\.json"):
        TokenizerFile.open(tmp_path)


def test_open_names_the_file_and_hashes_its_text(tmp_path, tokenizer):
    (tmp_path / "tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
    again = TokenizerFile.open(tmp_path)
    assert again.source == str(tmp_path / "tokenizer.json")
    assert again.sha256 == tokenizer.sha256 != opened(llama3_like()).sha256


def test_two_tokens_with_one_id_are_refused():
    raw = bpe_file(["a", "b"], [])
    raw["added_tokens"] = [llama3_like()["added_tokens"][0] | {"id": 1, "content": "<s>"}]
    with pytest.raises(VocabularyError, match="id 1"):
        opened(raw)


def test_added_token_that_would_load_with_another_id_is_refused():
    """Finding 6: a vocabulary that grew past its added tokens moves them on load, without an error."""
    raw = llama3_like()
    raw["model"]["vocab"] |= {"new1": 300, "new2": 301}
    with pytest.raises(VocabularyError, match=r"begin_of_text\|>' should have id 270, but loads with id 272"):
        opened(raw)


def test_file_that_asks_for_cutting_and_filling_up_is_read_whole(tokenizer):
    raw = json.loads(tokenizer.text)
    raw["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    raw["padding"] = {"strategy": {"Fixed": 30}, "direction": "Right", "pad_to_multiple_of": None}
    raw["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    texts = ["a cell can hold a number", "a"]
    assert opened(raw).encode_batch(texts) == tokenizer.encode_batch(texts)
    assert list(opened(raw).encode_words(texts)) == list(tokenizer.encode_words(texts))
    assert opened(raw).encode_by_merges("number") == tokenizer.encode_by_merges("number")


def test_control_token_in_a_text_is_text(tokenizer):
    ids = tokenizer.encode("<|endoftext|>")
    assert tokenizer.id_of("<|endoftext|>") == 0 not in ids
    assert tokenizer.decode(ids) == "<|endoftext|>" == tokenizer.decode([0])
    assert tokenizer.special_ids == {0, 1}


def test_leading_ids_are_what_the_tokenizer_puts_in_front():
    bos = opened(llama3_like())
    assert bos.leading_ids() == [270]
    assert 270 not in bos.encode("a")
    assert opened(llama3_like() | {"post_processor": None}).leading_ids() == []


def test_words_are_pre_tokens():
    tokenizer = opened(bpe_file(["a", "b", "Ġ", "ab", "!"], [["a", "b"]]))
    assert tokenizer.encode_words(["ab aab!", "", "b"]) == [[(3,), (2, 0, 3), (4,)], [], [(1,)]]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=30), max_size=4))
def test_words_together_are_the_encoding(tokenizer, texts):
    together = [[i for word in words for i in word] for words in tokenizer.encode_words(texts)]
    assert together == tokenizer.encode_batch(texts)


def test_merges_alone_ignore_the_whole_word_look_up():
    tokenizer = opened(bpe_file(["a", "b", "ab", "abb"], [["a", "b"]], ignore_merges=True))
    assert tokenizer.encode("abb") == [3]
    assert tokenizer.encode_by_merges("abb") == [2, 1]


@pytest.mark.parametrize("style", [str, list])
def test_extended_keeps_the_spelling_of_merges(style):
    merges = ["a b"] if style is str else [["a", "b"]]
    grown = opened(bpe_file(["a", "b", "ab"], merges)).extended(["abb"], [("ab", "b")])
    assert [type(merge) for merge in grown.raw["model"]["merges"]] == [style, style]
    assert grown.merges == [("a", "b"), ("ab", "b")]
    assert grown.encode("abab") == [2, 2]
    assert grown.encode("abb") == [3]


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_added_tokens_outside_the_vocabulary_do_not_move(ignore_merges, tmp_path):
    """Finding 6, with transformers' own loader, before and after it saves the file."""
    from transformers import PreTrainedTokenizerFast

    old = opened(llama3_like(ignore_merges))
    grown = old.extended(["qu", "quz"], [("q", "u"), ("qu", "z")])
    assert {t: grown.vocabulary[t] for t in old.vocabulary} == old.vocabulary
    assert (grown.id_of("qu"), grown.id_of("quz"), grown.num_ids) == (272, 273, 274)
    assert grown.leading_ids() == [270]
    (tmp_path / "tokenizer.json").write_text(grown.text, encoding="utf-8")
    PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")).save_pretrained(tmp_path / "again")
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path / "again")
    assert again.encode("<|eot_id|>quz") == [270, 271, 273]


def test_o77_new_tokens_count_as_base_vocabulary(tmp_path):
    from transformers import PreTrainedTokenizerFast

    grown = opened(llama3_like()).extended(["qu"], [("q", "u")])
    (tmp_path / "tokenizer.json").write_text(grown.text, encoding="utf-8")
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert len(theirs) == theirs.vocab_size == grown.num_ids == 273


def test_extended_by_nothing_is_the_same_tokenizer(tokenizer):
    grown = tokenizer.extended([], [])
    assert grown.vocabulary == tokenizer.vocabulary
    assert grown.merges == tokenizer.merges


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


STREAMED = ["pair", "llama", "gemma", "metaspace"]


@pytest.mark.parametrize("kind", STREAMED)
def test_o15_streamed_text_holds_no_half_of_a_character(bases, kind):
    """The four bytes of an emoji, one id at a time: nothing until the last, and then all of it."""
    tokenizer = bases[kind]
    ids = tokenizer.encode("a 👩 b")
    assert len(ids) >= 6
    assert any("\ufffd" in tokenizer.decode([i]) for i in ids)
    pieces = list(tokenizer.stream_decode(iter(ids)))
    assert "".join(pieces) == tokenizer.decode(ids) == "a 👩 b"
    assert not any("\ufffd" in piece for piece in pieces)
    assert len(pieces) >= 2


def test_o15_streamed_text_comes_as_early_as_it_can(bases):
    ids = bases["pair"].encode("the 👩 b")
    ended = []

    def told():
        for n, token_id in enumerate(ids):
            ended.append(n)
            yield token_id

    first = next(bases["pair"].stream_decode(told()))
    assert (first, ended) == (bases["pair"].decode(ids[:1]), [0])


@pytest.mark.parametrize("kind", STREAMED)
def test_o15_joined_stream_is_what_decode_says_of_any_ids(bases, kind):
    """Also of ids that are no text: bytes that end too early, byte after byte, control tokens in between."""
    tokenizer = bases[kind]
    half = [
        i for t, i in tokenizer.vocabulary.items() if t in ("<0xE7>", "<0xAD>", "<0xB9>", "ç", "Ń", "¹", "▁", "Ġ", "a")
    ]
    some = st.one_of(st.sampled_from(half), st.integers(0, tokenizer.num_ids - 1))

    @settings(max_examples=300, deadline=None)
    @given(ids=st.lists(some, max_size=12))
    def check(ids):
        assert "".join(tokenizer.stream_decode(ids)) == tokenizer.decode(ids)

    @settings(max_examples=150, deadline=None)
    @given(text=st.text(max_size=20))
    def check_text(text):
        ids = tokenizer.encode(text)
        assert "".join(tokenizer.stream_decode(ids)) == tokenizer.decode(ids)

    check()
    check_text()


def test_stream_of_nothing_is_nothing(bases):
    assert list(bases["llama"].stream_decode([])) == []


@pytest.mark.parametrize("kind", [models.BPE, models.WordPiece, models.WordLevel])
def test_unknown_token_that_is_not_there_is_named_with_the_file_where_it_is_needed(kind):
    """Such a file loads and writes all that it knows; the first character that it does not know ended in a traceback."""
    vocabulary = {"a": 0, "b": 1}
    made = kind(vocab=vocabulary, unk_token="<unk>", **({"merges": []} if kind is models.BPE else {}))
    tokenizer = TokenizerFile(Tokenizer(made).to_str(), "odd/tokenizer.json")
    assert tokenizer.encode("a") == [0]
    message = (
        r"^odd/tokenizer\.json: a text cannot be tokenised: model\.unk_token is '<unk>', which is not in model\.voc"
    )
    for encode in (tokenizer.encode_batch, tokenizer.encode_words, tokenizer.unknown_characters):
        with pytest.raises(VocabularyError, match=message):
            encode(["a", "é"])


def test_pieces_without_an_unknown_one_are_named_with_the_file():
    tokenizer = TokenizerFile(Tokenizer(models.Unigram([("a", -1.0)])).to_str(), "odd")
    with pytest.raises(VocabularyError, match=r"^odd: a text cannot be tokenised: .*unk_id.* is missing"):
        tokenizer.encode("é")


def test_what_is_no_text_is_a_fault_of_the_caller():
    with pytest.raises(TypeError):
        opened(llama3_like()).encode_batch([7])


def test_file_that_is_not_utf8_or_not_there(tmp_path):
    (tmp_path / "some.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(VocabularyError, match=r"some\.json: not UTF-8 at byte 7"):
        TokenizerFile.read(tmp_path / "some.json")
    with pytest.raises(VocabularyError, match=r"none\.json: cannot be read"):
        TokenizerFile.read(tmp_path / "none.json")
