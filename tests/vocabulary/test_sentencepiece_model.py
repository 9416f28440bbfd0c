"""A tokenizer.model that says in scores what tokenizer.json says in merges."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from lingraft.errors import VocabularyError
from lingraft.vocabulary import DIFFICULT, LearnOptions, TokenizerFile, expand_vocabulary
from lingraft.vocabulary.sentencepiece_model import refuse_other_ids, sentencepiece_model

KINDS = ["llama", "gemma", "metaspace"]
# "bc" is merged before "ab", although its id is the higher one.
TINY = {
    "added_tokens": [{"id": 0, "content": "<unk>", "special": True}, {"id": 8, "content": "<x>", "special": False}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "model": {
        "type": "BPE", "unk_token": "<unk>", "byte_fallback": False, "merges": [["b", "c"], ["a", "b"]],
        "vocab": {"<unk>": 0, "<0x61>": 1, "a": 2, "b": 3, "c": 4, "ab": 5, "bc": 6, "abc": 7},
    },
}  # fmt: skip


def tiny(**changes):
    added = [
        {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False} | entry
        for entry in TINY["added_tokens"]
    ]
    raw = {"version": "1.0"} | TINY | {"added_tokens": added} | changes
    return TokenizerFile(json.dumps(raw), "tiny")


@pytest.fixture(scope="module")
def grown(bases, target, source):
    options = LearnOptions(num_tokens=150, min_count=5)
    return {kind: expand_vocabulary(bases[kind], target, source, options).new for kind in KINDS}


def test_scores_count_the_merges_and_kinds_are_told():
    model = sentencepiece_model_pb2.ModelProto.FromString(sentencepiece_model(tiny()))
    normal, unknown, user, unused = 1, 2, 4, 5
    assert [(piece.piece, piece.type, piece.score) for piece in model.pieces] == [
        ("<unk>", unknown, 0), ("<0x61>", unused, -2), ("a", normal, -2), ("b", normal, -2), ("c", normal, -2),
        ("ab", normal, -1), ("bc", normal, 0), ("abc", unused, -2), ("<x>", user, 0),
    ]  # fmt: skip
    assert (model.trainer_spec.unk_id, model.trainer_spec.bos_id) == (0, -1)
    read = SentencePieceProcessor(model_proto=model.SerializeToString())
    assert read.encode("abc") == tiny().encode("abc") == [2, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_base_and_expansion_give_the_ids_of_the_other_file(bases, grown, kind, target, source, held_out_lines):
    texts = [*DIFFICULT, *target, *source, *held_out_lines]
    for tokenizer in (bases[kind], grown[kind]):
        assert refuse_other_ids(sentencepiece_model(tokenizer), tokenizer, texts, "them") == len(texts)


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.one_of(st.sampled_from("etxe ▁<s>\n"), st.characters(codec="utf-8"))))
def test_any_text_gets_the_same_ids(grown, text):
    for tokenizer in grown.values():
        refuse_other_ids(sentencepiece_model(tokenizer), tokenizer, [text], "it")


def test_without_the_scores_other_ids_come_out_and_are_refused(grown, target):
    """What a converter makes of tokenizer.json alone."""
    model = sentencepiece_model_pb2.ModelProto.FromString(sentencepiece_model(grown["llama"]))
    for piece in model.pieces:
        piece.score = -1000.0
    with pytest.raises(
        VocabularyError, match=r"text \d+ of the lines becomes \d+ tokens here and \d+ there, first dif"
    ):
        refuse_other_ids(model.SerializeToString(), grown["llama"], target, "the lines")


def test_bytes_of_which_some_are_missing_are_refused():
    tokenizer = tiny(model=TINY["model"] | {"byte_fallback": True})
    pieces = sentencepiece_model_pb2.ModelProto.FromString(sentencepiece_model(tokenizer)).pieces
    assert [piece.type for piece in pieces if piece.piece == "<0x61>"] == [6]
    with pytest.raises(VocabularyError, match=r"tiny: SentencePiece does not read .* not 256 byte pieces"):
        refuse_other_ids(sentencepiece_model(tokenizer), tokenizer, ["a"], "it")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "NFC"}}, "its normaliser NFC cannot be put into a tokenizer.model"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "its pattern for cutting text, Whitespace, cannot be put"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": False}}, "Split"),
    ],
)  # fmt: skip
def test_what_the_form_has_no_word_for_is_refused(changes, message):
    with pytest.raises(VocabularyError, match=message):
        sentencepiece_model(tiny(**changes))


def test_another_kind_of_tokenizer_is_refused(bases):
    with pytest.raises(VocabularyError, match=r"SentencePiece's kind, and this one is byte bpe; such a model is"):
        sentencepiece_model(bases["pair"])
