"""Expansion of byte-level BPE: old ids and source text stay, every new token is built by merges."""

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from lingraft.errors import VocabularyError
from lingraft.vocabulary import LearnOptions, TokenizerFile, expand_vocabulary, segmentation_drift
from lingraft.vocabulary.tokenizer_file import bytes_to_spelling
from lingraft.vocabulary.words import count_pieces, cut_before_words, segment_pieces


@pytest.fixture(scope="module")
def expansion(tokenizer, basque, english):
    return expand_vocabulary(tokenizer, basque, english, LearnOptions(60, min_count=5))


@pytest.fixture(scope="module")
def llama3(english):
    """A base whose added tokens are outside its vocabulary and which looks whole words up before it merges."""
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        english, trainers.BpeTrainer(vocab_size=350, initial_alphabet=alphabet, show_progress=False)
    )
    raw = json.loads(made.to_str())
    raw["model"]["vocab"]["Ġleihoa"] = len(raw["model"]["vocab"])  # lives on the look-up alone, as 332 of Llama 3's do
    made = Tokenizer.from_str(json.dumps(raw))
    made.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    return TokenizerFile(made.to_str(), "llama3")


def with_unknown(tokenizer):
    """Return the tokenizer with an unknown token, which byte-level BPE never needs."""
    model = tokenizer.raw["model"] | {"unk_token": "<|endoftext|>"}
    return TokenizerFile(json.dumps(tokenizer.raw | {"model": model}), "with unknown")


def test_o01_new_token_is_found_at_every_position(tokenizer, english):
    new = expand_vocabulary(tokenizer, ["筹 a"] * 10, english, LearnOptions(2, pinned_scripts=frozenset({"Han"}))).new
    token = new.encode("筹")
    assert len(token) == 1
    assert new.encode("筹筹") == token * 2
    assert new.encode('"筹') == [*new.encode('"'), *token]
    assert new.encode("x筹y")[1] == token[0]


def test_o03_unfinished_token_counts_as_reachable(tokenizer, english):
    """The first bytes of 筹 decode to '�', which encodes to other ids; merges build the token all the same."""
    grown = expand_vocabulary(tokenizer, ["筹 a"] * 10, english, LearnOptions(1, pinned_scripts=frozenset({"Han"})))
    (token,) = grown.new_tokens
    assert token.text(grown.new) == "�"
    assert grown.new.encode("�") != [token.id]
    assert grown.new.encode_by_merges(token.spelling) == [token.id] != grown.old.encode_by_merges(token.spelling)


def test_o03_tokens_are_reachable_with_and_without_a_space_and_inside_words(expansion):
    reached = {"ak": "xak", " bat": "a bat", "eta": "zeta"}
    ids = {token.text(expansion.new): token.id for token in expansion.new_tokens}
    assert all(ids[token] in expansion.new.encode(text) for token, text in reached.items())


def test_o05_old_merges_are_an_exact_prefix(expansion):
    old, new = expansion.old, expansion.new
    assert new.merges[: len(old.merges)] == old.merges
    assert len(new.merges) == len(old.merges) + 60
    assert list(new.raw["model"]["vocab"].items())[: old.num_ids] == list(old.raw["model"]["vocab"].items())


def test_o07_every_new_token_and_line_comes_back(tokenizer, english):
    lines = [f"Bác Hồ đọc tiếng Việt số {n}" for n in range(40)]
    grown = expand_vocabulary(tokenizer, lines, english, LearnOptions(30))
    assert "Bác" in {token.text(grown.new).strip() for token in grown.new_tokens}
    assert all(grown.new.decode(grown.new.encode(text)) == text for text in lines)
    assert all(grown.new.decode(grown.new.encode(t.text(grown.new))) == t.text(grown.new) for t in grown.new_tokens)


def test_o08_merges_alone_build_what_the_look_up_finds(llama3, basque, english):
    grown = expand_vocabulary(llama3, basque, english, LearnOptions(60, min_count=5))
    assert grown.new.raw["model"]["ignore_merges"]
    assert all(grown.new.encode_by_merges(token.spelling) == [token.id] for token in grown.new_tokens)
    assert "Ġleihoa" not in {token.spelling for token in grown.new_tokens}


def test_llama3_ids_do_not_move_and_segmentation_stays(llama3, basque, english):
    grown = expand_vocabulary(llama3, basque, english, LearnOptions(60, min_count=5))
    bos = llama3.id_of("<|begin_of_text|>")
    assert [grown.new.id_of(t) for t in ("<|begin_of_text|>", "<|eot_id|>")] == [bos, bos + 1]
    assert [token.id for token in grown.new_tokens] == list(range(bos + 2, bos + 62))
    assert segmentation_drift(llama3, grown.new, english).changed_documents == 0


def test_o02_o09_thousands_of_tokens_load_and_encode_fast(tokenizer, english):
    choose = random.Random(0)
    words = ["".join(choose.choices("bdgkmnprstzaeiou", k=7)) for _ in range(1500)]
    texts = [" ".join(choose.sample(words, 60)) for _ in range(400)]
    grown = expand_vocabulary(tokenizer, texts, english, LearnOptions(4000, min_count=3))
    assert grown.num_new > 2500

    def seconds(action):
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    assert min(seconds(lambda: TokenizerFile(grown.new.text, "again")) for _ in range(3)) < 1
    old, new = (min(seconds(lambda t=t: t.encode_batch(texts)) for _ in range(3)) for t in (grown.old, grown.new))
    assert new < max(2 * old, 0.25)


def test_o02_o09_seventeen_and_twenty_thousand_tokens_in_the_merge_list_load_and_encode_fast(tokenizer):
    """The sizes of the cases. As added tokens so many take minutes to load and hours to encode with."""
    letters = [bytes_to_spelling(bytes([byte])) for byte in range(0xC3, 0xF5)]
    letters += list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-*/=<>()[]{}|~^@#$%&_!?.,:;")
    pairs = [(a, b) for a in letters for b in letters if tokenizer.id_of(a + b) is None][:20_000]
    assert len(pairs) >= 17_000
    text = tokenizer.extended([a + b for a, b in pairs], pairs).text
    start = time.perf_counter()
    grown = TokenizerFile(text, "grown")
    assert time.perf_counter() - start < 5
    assert grown.num_ids == tokenizer.num_ids + len(pairs)
    sentences = [f"The window of document {n} closes, and the settings are kept." for n in range(1000)]

    def seconds(one):
        start = time.perf_counter()
        one.encode_batch(sentences)
        return time.perf_counter() - start

    old, new = (min(seconds(one) for _ in range(3)) for one in (tokenizer, grown))
    assert new < max(2 * old, 0.25)


SHORT_PIECES = ["xinv xol xve xht yinv yol yve yht zinvz zolz zvez zhtz"] * 20


def test_o11_words_that_were_whole_stay_whole_even_without_a_veto(tokenizer):
    """The case: 'inv', 'ol', 've' and 'ht' become tokens, and 'involved' and 'light' were one token before."""
    grown = expand_vocabulary(tokenizer, SHORT_PIECES, [], LearnOptions(20, min_count=5))
    assert {"inv", "ve", "ht"} <= {token.text(grown.new) for token in grown.new_tokens}
    for word in (" involved", " light", " metadata"):
        assert len(tokenizer.encode(word)) == 1
        assert grown.new.encode(word) == tokenizer.encode(word)


@pytest.mark.parametrize("word", ["reinventing", "weht", "xol"])
def test_o11_words_in_pieces_change_without_the_veto_and_not_with_it(tokenizer, word):
    wild = expand_vocabulary(tokenizer, SHORT_PIECES, [word], LearnOptions(20, min_count=5, veto_per_million=1e6))
    tame = expand_vocabulary(tokenizer, SHORT_PIECES, [word], LearnOptions(20, min_count=5))
    assert [segmentation_drift(e.old, e.new, [word]).changed_documents for e in (wild, tame)] == [1, 0]


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (models.WordPiece({"a": 0}, unk_token="a"), "a WordPiece"),
        (models.WordLevel({"a": 0}, unk_token="a"), "an unknown kind of"),
    ],
)
def test_o12_other_families_are_refused_in_one_sentence(model, kind):
    other = TokenizerFile(Tokenizer(model).to_str(), "base/tokenizer.json")
    with pytest.raises(VocabularyError) as caught:
        expand_vocabulary(other, ["a"], ["a"], LearnOptions(1))
    assert str(caught.value) == (
        f"base/tokenizer.json: this is {kind} tokenizer; byte-level BPE, SentencePiece-type BPE "
        "and Unigram can be expanded (use vocabulary.method: keep)"
    )


@pytest.mark.parametrize("key", ["dropout", "continuing_subword_prefix", "end_of_word_suffix"])
def test_models_that_cannot_be_followed_exactly_are_refused(tokenizer, key):
    model = tokenizer.raw["model"] | {key: 0.5 if key == "dropout" else "@"}
    file = TokenizerFile(json.dumps(tokenizer.raw | {"model": model | {"merges": []}}), "x")
    with pytest.raises(VocabularyError, match=f"model.{key}"):
        expand_vocabulary(file, ["a b"], [], LearnOptions(1))


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60))
def test_o13_no_text_has_unknown_ids(expansion, text):
    ids = with_unknown(expansion.new).encode(text)
    assert with_unknown(expansion.new).id_of("<|endoftext|>") == 0 not in ids


def test_o16_every_old_token_keeps_its_id(expansion):
    assert len(expansion.old.vocabulary) > 390
    assert {t: expansion.new.vocabulary[t] for t in expansion.old.vocabulary} == expansion.old.vocabulary


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_comes_back_as_before(expansion, text):
    assert expansion.new.decode(expansion.new.encode(text)) == expansion.old.decode(expansion.old.encode(text)) == text


@settings(max_examples=30, deadline=None)
@given(protected=st.lists(st.text(alphabet="abdegiknorstuxz ,", min_size=1, max_size=40), min_size=1, max_size=8))
def test_protected_text_is_never_cut_otherwise(tokenizer, basque, protected):
    grown = expand_vocabulary(tokenizer, basque, protected, LearnOptions(40, min_count=5))
    drift = segmentation_drift(grown.old, grown.new, protected)
    assert (drift.changed_documents, drift.documents) == (0, len(protected))


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ"), max_size=60))
def test_pinned_expansion_leaves_text_without_the_script_alone(tokenizer, text):
    greek = ["το αρχείο και ο φάκελος στο παράθυρο της εφαρμογής"] * 12
    grown = expand_vocabulary(tokenizer, greek, [], LearnOptions(50, pinned_scripts=frozenset({"Greek"})))
    assert all(
        "�" in (t := token.text(grown.new)) or any(c in "".join(greek) and c > "ͯ" for c in t)
        for token in grown.new_tokens
    )
    if not any("Ͱ" <= c <= "Ͽ" or "ἀ" <= c <= "῾" for c in text):
        assert grown.new.encode(text) == grown.old.encode(text)


def test_curve_is_what_the_real_tokenizer_says(tokenizer, basque, english):
    """T5: the state of the learner after N merges is the segmentation of the tokenizer with N new tokens."""
    whole = expand_vocabulary(tokenizer, basque, english, LearnOptions(60, min_count=5), {"held out": basque[:20]})
    for point in whole.curve.points:
        count = point.num_new
        grown = (
            expand_vocabulary(tokenizer, basque, english, LearnOptions(count, min_count=5)).new if count else tokenizer
        )
        assert point.tokens == {"held out": sum(map(len, grown.encode_batch(basque[:20])))}
    assert [point.num_new for point in whole.curve.points] == [0, 8, 16, 32, 60]
    assert whole.record["simulation"]["different"] == 0 < whole.record["simulation"]["compared"]


def test_decomposition_is_exact_and_counts_are_true(expansion, tokenizer, basque, english):
    for token in expansion.new_tokens:
        spelled = "".join(k for i in token.pieces for k, v in expansion.old.vocabulary.items() if v == i)
        assert spelled == token.spelling
        assert expansion.old.encode_by_merges(token.spelling) == list(token.pieces)
    one = expand_vocabulary(tokenizer, basque, english, LearnOptions(1, min_count=5))
    before, after = (sum(map(len, t.encode_batch(basque))) for t in (tokenizer, one.new))
    assert expansion.new_tokens[0].count == before - after


@pytest.mark.parametrize("less", [1, 10, 40])
def test_t10_smaller_expansion_is_a_prefix_of_a_larger(expansion, tokenizer, basque, english, less):
    small = expand_vocabulary(tokenizer, basque, english, LearnOptions(less, min_count=5))
    assert small.new_tokens == expansion.new_tokens[:less]
    assert small.new.merges == expansion.new.merges[: len(small.new.merges)]
    again = expand_vocabulary(small.new, basque, english, LearnOptions(60 - less, min_count=5))
    assert again.new.text == expansion.new.text


def test_name_of_an_added_token_is_not_learned(tokenizer):
    raw = json.loads(tokenizer.text)
    flags = raw["added_tokens"][0] | {"id": tokenizer.num_ids, "content": "koadro"}
    base = TokenizerFile(json.dumps(raw | {"added_tokens": [*raw["added_tokens"], flags]}), "x")
    grown = expand_vocabulary(base, ["koadroak koadro"] * 20, [], LearnOptions(20))
    assert grown.new.id_of("koadro") == tokenizer.num_ids
    assert "koadro" not in {token.spelling for token in grown.new_tokens}


def test_added_token_in_the_text_is_no_part_of_a_merge(tokenizer):
    raw = json.loads(tokenizer.text)
    flags = raw["added_tokens"][0] | {"id": tokenizer.num_ids, "content": "bat", "special": False}
    base = TokenizerFile(json.dumps(raw | {"added_tokens": [*raw["added_tokens"], flags]}), "x")
    cut, texts = cut_before_words(base, ["kbatz"])
    words = segment_pieces(count_pieces(texts, cut), base.encode_words).words
    assert words == {(base.id_of("k"),): 1, (tokenizer.num_ids,): 1, (base.id_of("z"),): 1}


def test_nothing_to_learn_is_refused_with_the_numbers(tokenizer):
    with pytest.raises(
        VocabularyError,
        match=r"^vocabulary\.new_tokens: .* of 2 target tokens no pair occurs 10 times .*; 0 were vetoed",
    ):
        expand_vocabulary(tokenizer, ["qz"], [], LearnOptions(5))
    with pytest.raises(VocabularyError, match=r"; 1 were vetoed by protected text \(vocabulary\.veto_per_million\)"):
        expand_vocabulary(tokenizer, ["qz"] * 10, ["qz"], LearnOptions(5))
