"""Bits per byte against a slow, obvious version."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import MeasurementError
from lingraft.measure.bits_per_byte import (
    choose_documents,
    fitting_segments,
    measure_bits_per_byte,
    segments,
    split_lossless,
    token_perplexity,
)
from lingraft.measure.scoring import Scorer
from lingraft.pipeline.settings import document_tokens
from lingraft.recipe import Recipe
from lingraft.vocabulary import TokenizerFile

DOCUMENTS = ["The light in the night is bright.", "A cell can hold a number, a text or a formula. ñandú 東京 🙂\n" * 4]


@pytest.fixture(scope="session")
def scorer(model, tokenizer) -> Scorer:
    return Scorer(model, num_ids=tokenizer.num_ids, condition_id=0)


@pytest.fixture(scope="session")
def byte_tokenizer(tokenizer_text: str) -> TokenizerFile:
    """A tokenizer without merges: it needs a token for every byte."""
    raw = json.loads(tokenizer_text)
    raw["model"]["merges"] = []
    return TokenizerFile(json.dumps(raw), "bytes")


@pytest.fixture(scope="session")
def folding(tokenizer_text: str) -> TokenizerFile:
    """A tokenizer that folds compatibility forms and case before it encodes."""
    raw = json.loads(tokenizer_text)
    raw["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
    return TokenizerFile(json.dumps(raw), "folding")


def slow_bits(model, tokenizer: TokenizerFile, text: str) -> float:
    """Score one token at a time, with everything before it as context."""
    ids, bits = tokenizer.encode(text), 0.0
    for place, token in enumerate(ids):
        with torch.no_grad():
            logits = model(torch.tensor([[0, *ids[:place]]])).logits[0, -1, : tokenizer.num_ids]
        bits -= logits.double().log_softmax(0)[token].item() / math.log(2)
    return bits


def test_it_equals_the_slow_version(scorer, model, tokenizer) -> None:
    found = measure_bits_per_byte(scorer, tokenizer, DOCUMENTS, segment_bytes=100)
    bits = [sum(slow_bits(model, tokenizer, piece) for piece in segments(text, 100)) for text in DOCUMENTS]
    sizes = [len(text.encode()) for text in DOCUMENTS]
    assert found.document_bits == pytest.approx(bits, rel=1e-5)
    assert found.value == pytest.approx(sum(bits) / sum(sizes), rel=1e-5)
    assert (found.documents, found.bytes) == (2, sum(sizes))
    assert found.low <= found.value <= found.high


def test_o68_documents_are_summed_before_dividing(scorer, tokenizer) -> None:
    each = [measure_bits_per_byte(scorer, tokenizer, [text]) for text in DOCUMENTS]
    both = measure_bits_per_byte(scorer, tokenizer, DOCUMENTS)
    assert both.value == pytest.approx(sum(b.value * b.bytes for b in each) / sum(b.bytes for b in each))
    assert both.value != pytest.approx(sum(b.value for b in each) / 2)


def test_o19_the_loss_of_watched_tokens_is_their_own_mean(scorer, tokenizer) -> None:
    ids = tokenizer.encode(DOCUMENTS[0])
    watched = {ids[2], ids[5]}
    scored = scorer.score([ids])[0].log_probabilities
    expected = [-value.item() for token, value in zip(ids, scored, strict=True) if token in watched]
    found = measure_bits_per_byte(scorer, tokenizer, DOCUMENTS[:1], watched=watched)
    assert (found.watched, found.watched_nats) == (len(expected), pytest.approx(sum(expected) / len(expected)))
    assert math.isnan(measure_bits_per_byte(scorer, tokenizer, DOCUMENTS[:1]).watched_nats)


def test_documents_do_not_see_each_other(scorer, tokenizer) -> None:
    one, two = (measure_bits_per_byte(scorer, tokenizer, d).document_bits for d in (DOCUMENTS, DOCUMENTS[::-1]))
    assert one == pytest.approx(two[::-1], rel=1e-6)


def test_a_uniform_model_spends_log_v_bits_on_every_token(tied_folder, tokenizer) -> None:
    from lingraft.model.base import load_model

    blank = load_model(tied_folder)
    torch.nn.init.zeros_(blank.get_input_embeddings().weight)
    found = measure_bits_per_byte(Scorer(blank, num_ids=400, condition_id=0), tokenizer, ["abcd"])
    assert (found.tokens, found.bytes) == (len(tokenizer.encode("abcd")), 4)
    assert found.value == pytest.approx(math.log2(400) * found.tokens / 4, rel=1e-6)


def test_bits_per_character_and_word_are_the_same_bits_by_another_count(scorer, tokenizer) -> None:
    # "n" and a combining tilde are one character after NFC.
    found = measure_bits_per_byte(scorer, tokenizer, ["an\u0303 b\nc", "de"])
    assert (found.bytes, found.characters, found.words) == (10, 8, 4)
    assert found.per_character * 8 == pytest.approx(found.value * 10)
    assert found.per_word * 4 == pytest.approx(found.value * 10)
    assert math.isnan(measure_bits_per_byte(scorer, tokenizer, [" "]).per_word)


def test_the_end_is_scored_once_a_document_and_only_beside_the_number(scorer, model, tokenizer) -> None:
    documents = [DOCUMENTS[1], "ab"]
    plain = measure_bits_per_byte(scorer, tokenizer, documents, segment_bytes=60)
    ended = measure_bits_per_byte(scorer, tokenizer, documents, segment_bytes=60, end_id=1)
    assert plain.with_end is None
    assert ended.document_bits == pytest.approx(plain.document_bits, rel=1e-6)
    bits = 0.0
    for text in documents:
        with torch.no_grad():
            ids = tokenizer.encode(segments(text, 60)[-1])
            bits -= model(torch.tensor([[0, *ids]])).logits[0, -1, : tokenizer.num_ids].log_softmax(0)[1] / math.log(2)
    assert ended.end_bits == pytest.approx(bits.item(), rel=1e-4)
    assert ended.with_end == pytest.approx((sum(plain.document_bits) + bits.item()) / plain.bytes, rel=1e-4)


def test_whole_documents_have_more_context_than_segments(scorer, model, tokenizer) -> None:
    whole = measure_bits_per_byte(scorer, tokenizer, DOCUMENTS, segment_bytes=None)
    assert whole.document_bits == pytest.approx([slow_bits(model, tokenizer, text) for text in DOCUMENTS], rel=1e-5)
    cut = measure_bits_per_byte(scorer, tokenizer, DOCUMENTS, segment_bytes=40)
    assert cut.value != pytest.approx(whole.value, rel=1e-4)


def test_segments_fit_the_window_by_every_tokenizer(tokenizer, byte_tokenizer) -> None:
    text = DOCUMENTS[1] * 2
    pieces = fitting_segments(text, 100, [tokenizer, byte_tokenizer], 20)
    assert "".join(pieces) == text
    assert all(len(t.encode(piece)) <= 20 for piece in pieces for t in (tokenizer, byte_tokenizer))
    assert fitting_segments(text, 100, [tokenizer], 10**6) == segments(text, 100)
    # A character alone is never cut, and two are cut between them.
    assert fitting_segments("🙂東", 100, [tokenizer], 1) == ["🙂", "東"]


def test_both_sides_of_a_comparison_score_the_same_pieces(model, tokenizer, byte_tokenizer) -> None:
    small = Scorer(model, num_ids=tokenizer.num_ids, condition_id=0, window=30)
    both = measure_bits_per_byte(small, tokenizer, DOCUMENTS, others=[byte_tokenizer])
    pieces = [piece for text in DOCUMENTS for piece in fitting_segments(text, 2048, [byte_tokenizer, tokenizer], 29)]
    bits = sum(slow_bits(model, tokenizer, piece) for piece in pieces)
    assert sum(both.document_bits) == pytest.approx(bits, rel=1e-5)


def test_token_perplexity_is_told_only_where_the_tokenizers_are_the_same(scorer, tokenizer, byte_tokenizer) -> None:
    found = measure_bits_per_byte(scorer, tokenizer, DOCUMENTS)
    expected = 2 ** (sum(found.document_bits) / found.tokens)
    assert token_perplexity(found, tokenizer, tokenizer) == pytest.approx(expected)
    assert token_perplexity(found, tokenizer, byte_tokenizer) is None


@pytest.mark.parametrize("text", ["Straße", "İstanbul", "ＡＢＣ", "Light"])
def test_o70_what_a_folding_tokenizer_changes_is_left_out_and_counted(tokenizer, folding, text: str) -> None:
    found = split_lossless(["light", text, "  ", ""], [tokenizer, folding])
    assert (found.documents, found.lossy, found.empty) == (("light",), 1, 2)
    assert split_lossless(["light", text], [tokenizer]).lossy == 0


def test_o70_bytes_are_those_of_the_original_text(scorer, tokenizer) -> None:
    text = "Straße İ ＡＢＣ"
    assert measure_bits_per_byte(scorer, tokenizer, [text]).bytes == len(text.encode()) == 20


def test_no_document_is_an_error(scorer, tokenizer) -> None:
    with pytest.raises(MeasurementError, match="at least one document"):
        measure_bits_per_byte(scorer, tokenizer, [])


@settings(deadline=None)
@given(st.text(max_size=80), st.integers(4, 40))
def test_segments_join_to_the_text_and_none_is_too_long(text: str, max_bytes: int) -> None:
    pieces = segments(text, max_bytes)
    assert "".join(pieces) == text
    assert all(0 < len(piece.encode()) <= max_bytes for piece in pieces)


@pytest.mark.parametrize(
    ("text", "max_bytes", "pieces"),
    [
        ("one two three", 8, ["one two", " three"]),
        ("one\ntwo", 5, ["one", "\ntwo"]),
        ("ññññ", 5, ["ññ", "ññ"]),
        ("abc", 3, ["abc"]),
        ("", 3, []),
        (" abcdef", 4, [" abc", "def"]),
    ],
)
def test_segments_by_hand(text: str, max_bytes: int, pieces: list[str]) -> None:
    assert segments(text, max_bytes) == pieces


def test_a_character_that_fits_into_no_segment_is_an_error() -> None:
    with pytest.raises(MeasurementError, match="cannot hold the character '🙂'"):
        segments("🙂", 3)


def test_chosen_documents_do_not_depend_on_the_order_and_are_cut_at_a_character() -> None:
    texts = [f"ñ{n}" * 10 for n in range(30)]
    chosen = choose_documents(texts, 100)
    assert chosen == choose_documents(texts[::-1], 100)
    assert 97 <= sum(len(t.encode()) for t in chosen) <= 100
    assert all(any(text.startswith(piece) for text in texts) for piece in chosen)
    assert sorted(choose_documents(texts, 10**6)) == sorted(texts)


def test_a_character_that_does_not_fit_any_more_is_no_empty_document() -> None:
    assert "" not in choose_documents(["ñ" * 5, "ñ" * 7], 11)
    assert choose_documents(["abc"], 0) == []


@pytest.mark.parametrize(
    ("bos", "eos", "condition"), [("<|im_start|>", "<|endoftext|>", 1), (None, "<|endoftext|>", 0)]
)
def test_o71_likelihoods_are_conditioned_on_bos_if_there_is_one(tokenizer, bos, eos, condition: int) -> None:
    recipe = Recipe.model_validate({
        "name": "r", "base_model": "m", "languages": {"source": "en", "target": "eu"},
        "corpora": {"eu": {"path": "eu"}, "en": {"path": "en"}},
        "stages": [{"name": "s", "tokens": 65_536, "mix": {"eu": 1.0}, "lr": {"peak": 1e-3}}],
    })  # fmt: skip
    found = document_tokens(recipe, describe(tokenizer, bos, eos))
    assert (found.condition, found.end, found.start) == (condition, 0, None)


def describe(tokenizer, bos, eos):
    from lingraft.model.locate import BaseDescription

    return BaseDescription(tokenizer, 420, 32, 2, 1000, True, 256, bos, eos)
