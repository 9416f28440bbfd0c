"""Counted words are the text's words: pieces are cut where nothing crosses, and only types are kept."""

import json
import tracemalloc
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lingraft.vocabulary import TokenizerFile
from lingraft.vocabulary.curve import TextSize
from lingraft.vocabulary.words import CountedPieces, count_pieces, cut_before_words, segment_pieces

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def with_pattern(base, pattern):
    pre_tokenizer = {"type": "Sequence", "pretokenizers": [split(pattern), BYTE_LEVEL]}
    return TokenizerFile(json.dumps(base.raw | {"pre_tokenizer": pre_tokenizer}), "x")


@pytest.fixture(scope="module")
def patterned(bases):
    named = {"llama3": LLAMA3, "qwen": QWEN, "gpt2": GPT2}
    made = {name: with_pattern(bases["pair"], pattern) for name, pattern in named.items()}
    made["space in front"] = TokenizerFile(
        json.dumps(bases["pair"].raw | {"pre_tokenizer": BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True}}),
        "x",
    )
    made["nfc"] = TokenizerFile(json.dumps(made["qwen"].raw | {"normalizer": {"type": "NFC"}}), "x")
    return made


def words_of(tokenizer, texts, **settings):
    """Return the counted words of texts, by the way that expansion takes."""
    cut, stream = cut_before_words(tokenizer, texts)
    return segment_pieces(count_pieces(stream, cut), tokenizer.encode_words, **settings)


texts_of_any_kind = st.lists(
    st.text(
        st.one_of(st.sampled_from("ab zé'12.,!\n\t \u0301\u00a0(½²हि筹"), st.characters(codec="utf-8")), max_size=30
    ),
    max_size=3,
)


@pytest.mark.parametrize("name", ["llama3", "qwen", "gpt2", "space in front", "nfc"])
def test_pieces_together_are_the_whole_text_s_encoding(patterned, name):
    tokenizer = patterned[name]

    @settings(max_examples=250, deadline=None)
    @given(texts=texts_of_any_kind)
    @example(["a b"])
    @example(["x  y\n z ½ a ² b\t c . d\u0301 e \u00a0f"])
    @example(["' s 's", "(a (b \r\n c", "a\u2028 b"])
    def check(texts):
        cut, stream = cut_before_words(tokenizer, texts)
        assert list(stream) == texts
        assert any(len(cut(text)) > 1 for text in ["a b"])
        for text in texts:
            assert "".join(cut(text)) == text
            assert [i for ids in tokenizer.encode_batch(cut(text)) for i in ids] == tokenizer.encode(text)

    check()


@pytest.mark.parametrize("name", ["llama3", "qwen", "gpt2"])
def test_words_are_those_of_the_whole_texts(patterned, basque_lines, name):
    texts = basque_lines[:200]
    slow = Counter(word for words in patterned[name].encode_words(texts) for word in words)
    counted = words_of(patterned[name], texts)
    assert counted.words == slow
    assert counted.base_tokens == sum(map(len, patterned[name].encode_batch(texts)))
    assert counted.size.words == sum(len(text.split()) for text in texts)
    assert (counted.size.characters, counted.size.bytes) == (
        sum(map(len, texts)),
        sum(len(text.encode()) for text in texts),
    )
    ids = Counter(i for text in patterned[name].encode_batch(texts) for i in text)
    assert counted.counts() == ids


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a b", ["a", " b"]),
        (" a b", [" a", " b"]),
        ("a  b", ["a  b"]),
        ("a\n b", ["a\n b"]),
        ("a 1 .b _c", ["a 1 .b _c"]),
        ("a. b, c", ["a.", " b,", " c"]),
        ("", [""]),
    ],
)
def test_cut_is_before_a_single_space_between_a_character_and_a_letter(bases, text, pieces):
    """Between more spaces than one some pattern may take them together, so runs are left alone."""
    cut, _ = cut_before_words(bases["pair"], [])
    assert cut(text) == pieces


def test_unsafe_cut_is_found_and_documents_are_left_whole(bases):
    """A pattern that keeps two words together: 'a b' is one pre-token, and 'ab' or ' b' may be another's token."""
    pairs = with_pattern(bases["pair"], r"\p{L}+ \p{L}+|.")
    raw = json.loads(pairs.text)
    raw["model"]["vocab"]["eĠt"] = len(bases["pair"].vocabulary)
    raw["model"]["merges"].insert(0, ["e", "Ġt"])
    raw["model"]["merges"] = [["e", "Ġ"], ["eĠ", "t"], *raw["model"]["merges"][1:]]
    raw["model"]["vocab"]["eĠ"] = len(bases["pair"].vocabulary) + 1
    unsafe = TokenizerFile(json.dumps(raw | {"added_tokens": []}), "x")
    texts = ["see the", "we tell"]
    cut, stream = cut_before_words(unsafe, texts)
    assert cut("see the") == ["see the"]
    assert list(stream) == texts
    counted = words_of(unsafe, texts)
    assert counted.base_tokens == sum(map(len, unsafe.encode_batch(texts)))
    safe, _ = cut_before_words(bases["pair"], texts)
    assert safe("see the") == ["see", " the"]


@settings(max_examples=80, deadline=None)
@given(length=st.integers(1, 1000), count=st.integers(1, 5))
@example(length=200, count=1)
@example(length=201, count=1)
@example(length=399, count=2)
@example(length=400, count=2)
@example(length=401, count=2)
def test_overlong_words_come_in_parts(length, count):
    word = tuple(range(length))
    pieces = CountedPieces(Counter({"x": count}), TextSize(1, 1, 1))
    exact = segment_pieces(pieces, lambda texts: [[word] for _ in texts])
    assert sum(len(part) * n for part, n in exact.words.items()) == exact.base_tokens == length * count
    assert [i for part in exact.words for i in part] == list(word)
    assert max(map(len, exact.words)) <= 200
    # For source text no pair may be missed, and none is counted twice.
    over = segment_pieces(pieces, lambda texts: [[word] for _ in texts], overlap=True)
    found = Counter({pair: n for part, n in over.words.items() for pair in pairwise(part)})
    assert found == Counter(dict.fromkeys(pairwise(word), count))
    assert max(map(len, over.words)) <= 200


def test_memory_follows_the_types_and_not_the_length(patterned):
    """Sixteen times the text, a quarter more memory at most; documents are never held together."""

    def peak(times):
        texts = (f"Egin klik eskuineko botoiarekin {n % 50} gelaxkan." for n in range(500 * times))
        tracemalloc.start()
        counted = words_of(patterned["gpt2"], texts)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return counted, memory

    peak(1)
    (small, before), (large, after) = peak(1), peak(16)
    assert large.words.keys() == small.words.keys()
    assert large.base_tokens == 16 * small.base_tokens
    assert after < 1.25 * before
