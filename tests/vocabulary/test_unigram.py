"""Expansion of Unigram tokenizers: old rows stay, text without a new piece is cut as before, every new piece is used."""

import json
from collections import Counter

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lingraft.errors import VocabularyError
from lingraft.vocabulary import LearnOptions, TokenizerFile, expand_vocabulary, measure_fertility, segmentation_drift
from lingraft.vocabulary.curve import TextSize
from lingraft.vocabulary.unigram import _Base, _giving_way, _interleaved
from lingraft.vocabulary.words import CountedPieces

HINDI = [
    "यह एक छोटा दस्तावेज़ है और इसमें हिन्दी के कुछ शब्द हैं",
    "दस्तावेज़ खोलने के लिए फ़ाइल चुनें और फिर खोलें पर क्लिक करें",
    "हिन्दी के शब्द इस दस्तावेज़ में बार बार आते हैं",
] * 8
NAMED = ["<mask> is not a word, but < and > are signs; mask ask as k s a m."] * 3


def train(texts, size=160, normalizer=None, mask=None, byte_fallback=False):
    """Return a Unigram of the XLM-R type; with ``mask`` an added token lies behind its list."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizer or normalizers.Sequence([normalizers.NFKC()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = decoders.Metaspace()
    specials = ["<unk>", "<s>", "</s>"]
    made.train_from_iterator(
        [*texts, *NAMED],
        trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token="<unk>", show_progress=False),
    )
    raw = json.loads(made.to_str())
    if byte_fallback:
        raw["model"]["byte_fallback"] = True
        raw["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        steps = [{"type": "ByteFallback"}, raw["decoder"]]
        raw["decoder"] = {"type": "Sequence", "decoders": steps}
    made = Tokenizer.from_str(json.dumps(raw))
    if mask:
        made.add_special_tokens([AddedToken(mask, special=True, normalized=False)])
    return TokenizerFile(made.to_str(), "tiny unigram")


@pytest.fixture(scope="module")
def base(english):
    return train(english)


@pytest.fixture(scope="module")
def masked(english):
    return train(english, mask="<mask>")


@pytest.fixture(scope="module")
def expansion(base, basque, english):
    return expand_vocabulary(base, basque, english, LearnOptions(30, min_count=5), {"eu": basque[:8]})


def pinned(num_tokens, **settings):
    return LearnOptions(num_tokens, min_count=5, pinned_scripts=frozenset({"Devanagari"}), **settings)


def old_splits(expansion):
    old = expansion.old.encode_all_by_merges([token.spelling for token in expansion.new_tokens])
    return [tuple(ids) for ids in old]


def test_o10_old_rows_are_a_prefix_and_new_ids_follow(expansion):
    old, new = expansion.old, expansion.new
    assert expansion.num_new == 30
    assert new.pieces[: old.num_ids] == old.pieces
    assert [new.id_of(token.spelling) for token in expansion.new_tokens] == list(expansion.new_ids)
    assert expansion.new_ids == tuple(range(old.num_ids, old.num_ids + 30))
    assert new.raw["model"]["unk_id"] == old.raw["model"]["unk_id"]


def test_o14_scores_are_on_the_scale_of_the_base(expansion):
    """Raised above its best split, a piece still scores below that split's best part; 0 would take over the text."""
    scores = dict(expansion.new.pieces)
    learned = [scores[token.spelling] for token in expansion.new_tokens]
    lowest = min(score for _, score in expansion.old.pieces)
    assert max(learned) < -1.0
    assert min(learned) >= lowest
    assert expansion.record["shared_pieces"]["target"] > 10
    assert -5 < expansion.record["offset"]["target"] < 5


def test_o14_every_new_piece_is_produced_from_its_own_string(expansion):
    new = expansion.new
    assert [new.encode_by_merges(token.spelling) for token in expansion.new_tokens] == [[i] for i in expansion.new_ids]
    starting = [token for token in expansion.new_tokens if token.spelling.startswith("▁")]
    assert starting
    assert all(new.encode(token.spelling[1:]) == [token.id] for token in starting)


def test_o14_a_score_is_raised_just_above_the_best_other_split(base):
    """aa, then aaa: the longer piece must beat the shorter, whose own score was raised before, and an a."""
    made = _Base.of(base)
    single = dict(made.rows)["a"]
    raised = made.raised({"aaa": -1000.0, "aa": -1000.0})
    assert list(raised) == ["aaa", "aa"]
    assert raised["aa"] == pytest.approx(2 * single + 0.01)
    assert raised["aaa"] == pytest.approx(3 * single + 0.02)


def test_o14_no_score_falls_below_the_lowest_old_one(base):
    """An unknown character costs the lowest score − 10: a lower score would change how old text is cut."""
    made = _Base.of(base)
    assert made.lowest > 4 * dict(made.rows)["a"] + 0.01
    assert made.raised({"aaaa": -1000.0}) == {"aaaa": made.lowest}


def test_o14_source_text_is_untouched_and_target_text_gets_shorter(expansion, basque, english):
    drift = segmentation_drift(expansion.old, expansion.new, english)
    assert (drift.changed_documents, drift.documents) == (0, len(english))
    before, after = (measure_fertility(t, basque).tokens_per_word for t in (expansion.old, expansion.new))
    assert after < 0.75 * before


def test_o14_pieces_of_score_zero_take_over_english_and_ours_do_not(base, basque, english):
    """The case: pieces appended with score 0 (probability 1). The same strings as candidates leave English alone."""
    words = [f"▁{word}" for text in english for word in text.split() if word.isalpha()]
    strings = list(dict.fromkeys(word[:-1] for word in words if len(word) > 5))[:100]
    strings = [string for string in strings if base.id_of(string) is None]
    raw = json.loads(base.text)
    raw["model"]["vocab"] += [[string, 0.0] for string in strings]
    naive = TokenizerFile(json.dumps(raw), "naive")
    assert segmentation_drift(base, naive, english).document_share > 0.9
    candidates = frozenset(string.replace("▁", " ").encode() for string in strings) | {b" leihoa", b" dokumentu"}
    ours = expand_vocabulary(base, [*basque, *english], english, LearnOptions(100, min_count=2, candidates=candidates))
    assert segmentation_drift(base, ours.new, english).changed_documents == 0
    made = {token.id for token in ours.new_tokens}
    assert made & {i for ids in ours.new.encode_batch(basque) for i in ids}


def test_source_strings_are_vetoed_anywhere_within_a_word(base, basque, english):
    """'leihoa' stands in one long source word only; whatever is a part of that word cannot become a token."""
    free = expand_vocabulary(base, basque, english, LearnOptions(30, min_count=5))
    kept = expand_vocabulary(base, basque, [*english, "xleihoax"], LearnOptions(30, min_count=5))
    assert any(token.spelling.lstrip("▁") in "leihoa" for token in free.new_tokens)
    assert not any(token.spelling in "▁xleihoax" for token in kept.new_tokens)
    assert kept.record["vetoed"] > free.record["vetoed"]
    loose = LearnOptions(30, min_count=5, veto_per_million=1e6)
    assert expand_vocabulary(base, basque, english, loose).record["vetoed"] == 0


def test_pieces_are_what_the_old_tokenizer_makes_of_them(expansion):
    assert [token.pieces for token in expansion.new_tokens] == old_splits(expansion)
    assert min(len(token.pieces) for token in expansion.new_tokens if len(token.spelling) > 1) >= 2


def test_counts_hold_the_minimum_and_no_digit_is_learned(expansion):
    assert min(token.count for token in expansion.new_tokens) >= 5
    assert not any(character.isdigit() for token in expansion.new_tokens for character in token.spelling)


def test_the_same_texts_give_the_same_tokenizer(base, expansion, basque, english):
    again = expand_vocabulary(base, basque, english, LearnOptions(30, min_count=5))
    assert again.new.sha256 == expansion.new.sha256


def test_o13_unknown_characters_come_first_and_then_nothing_is_unknown(base, english):
    expansion = expand_vocabulary(base, HINDI, english, pinned(70), {"hi": HINDI[:3]})
    singles = [len(token.spelling) == 1 for token in expansion.new_tokens]
    assert singles == sorted(singles, reverse=True)
    assert any(singles)
    assert not all(singles)
    unknown = base.raw["model"]["unk_id"]
    assert all(unknown in ids for ids in base.encode_batch(HINDI))
    assert not any(unknown in ids for ids in expansion.new.encode_batch(HINDI))
    assert expansion.new.decode(expansion.new.encode(HINDI[1])) == base.normalise(HINDI[1])
    assert all(0 <= i < base.num_ids for token in expansion.new_tokens for i in token.pieces)


def test_o13_with_byte_fallback_pieces_are_bytes(english):
    base = train(english, byte_fallback=True)
    expansion = expand_vocabulary(base, HINDI, english, pinned(60))
    first = expansion.new_tokens[0]
    assert len(first.spelling) == 1
    assert bytes(i - base.id_of("<0x00>") for i in first.pieces) == first.spelling.encode()
    text = "👍 हिन्दी"
    assert expansion.new.decode(expansion.new.encode(text)) == text


def test_candidates_are_the_only_pieces_and_fixed_points_of_the_normaliser(base, basque, english):
    """A donor's ' ﬁtxategia' would be rewritten by NFKC before the model sees it; ' xyz' is in no text."""
    donor = frozenset(token.encode() for token in (" ﬁtxategia", " fitxategia", " leihoa", " xyz", " hautatu"))
    texts = [text.lower() for text in basque]
    expansion = expand_vocabulary(base, texts, english, LearnOptions(10, min_count=5, candidates=donor))
    assert {token.spelling for token in expansion.new_tokens} == {"▁fitxategia", "▁leihoa", "▁hautatu"}
    assert all(expansion.new.encode_by_merges(t.spelling) == [t.id] for t in expansion.new_tokens)


def test_o04_added_token_behind_the_list_keeps_its_id_and_its_name_stays_text(masked, basque, english):
    """A row of its own keeps the id; a row with score 0 would make the text '<mask>' the control token."""
    old_id = masked.id_of("<mask>")
    assert old_id == len(masked.pieces)
    new = expand_vocabulary(masked, basque, english, LearnOptions(20, min_count=5)).new
    assert new.id_of("<mask>") == old_id
    assert new.pieces[old_id][0] == "<mask>"
    for text in ("<mask>", "a <mask> b", "x<mask>y", "<<mask>>"):
        assert new.encode(text) == masked.encode(text)
        assert old_id not in new.encode(text)
    loud = new.raw["model"] | {"vocab": [[p, 0.0 if p == "<mask>" else s] for p, s in new.pieces]}
    assert old_id in TokenizerFile(json.dumps(new.raw | {"model": loud}), "loud").encode("<mask>")


def test_unknown_characters_cost_what_they_did(masked, basque, english):
    new = expand_vocabulary(masked, basque, english, LearnOptions(20, min_count=5)).new
    texts = ["the ☃ night", "☃☃file☃", "ж the жfile"]
    assert new.encode_batch(texts) == masked.encode_batch(texts)


def test_an_added_token_that_cannot_get_a_row_is_refused(english, basque):
    base = train(english, mask="{mask}")  # '{' is no piece, so a text '{' would be dearer than the row of '{mask}'
    with pytest.raises(VocabularyError, match=r"'{mask}' lies behind the list of pieces.*the character '{'"):
        expand_vocabulary(base, basque, english, LearnOptions(5, min_count=5))


def test_curve_is_what_the_tokenizers_of_its_prefixes_make(expansion, basque, base):
    points = {point.num_new: point.tokens["eu"] for point in expansion.curve.points}
    assert points[0] == sum(map(len, base.encode_batch(basque[:8])))
    assert points[30] == sum(map(len, expansion.new.encode_batch(basque[:8])))


def test_auto_keeps_a_beginning_of_the_same_list(base, basque, english):
    watched = {"eu": basque[:8]}
    whole = expand_vocabulary(base, basque, english, LearnOptions(150, min_count=3), watched)
    auto = expand_vocabulary(base, basque, english, LearnOptions(150, min_count=3, min_saving=50.0), watched)
    assert auto.num_new < whole.num_new
    assert [t.spelling for t in auto.new_tokens] == [t.spelling for t in whole.new_tokens[: auto.num_new]]
    assert auto.record["learned"] == whole.num_new
    assert auto.curve.points[-1].num_new == auto.num_new


def test_rare_old_pieces_give_way(base, basque, english):
    expansion = expand_vocabulary(base, basque, english[:12], LearnOptions(6, min_count=5, replace=True))
    assert expansion.method == "replace"
    assert expansion.new.num_ids == base.num_ids
    assert [token.id for token in sorted(expansion.new_tokens, key=lambda t: t.id)] == sorted(
        t.id for t in expansion.removed
    )
    changed = {i for i, (old, new) in enumerate(zip(base.pieces, expansion.new.pieces, strict=True)) if old != new}
    assert changed == {token.id for token in expansion.removed}
    counts = Counter(i for ids in base.encode_batch(english[:12]) for i in ids)
    assert [token.source_count for token in expansion.removed] == [counts[token.id] for token in expansion.removed]
    assert all(
        len(token.spelling) > 1 and token.spelling not in ("<s>", "</s>", "<unk>") for token in expansion.removed
    )
    assert all(expansion.new.encode_by_merges(t.spelling) == [t.id] for t in expansion.new_tokens)
    assert min(score for _, score in expansion.new.pieces) == min(score for _, score in base.pieces)
    if not any(token.source_count for token in expansion.removed):
        assert segmentation_drift(base, expansion.new, english[:12]).changed_documents == 0


def test_one_piece_with_the_lowest_score_never_gives_way():
    """aa and ▁a share the lowest score; the first stays, or unknown characters would cost less."""
    rows = [("<unk>", 0.0), ("▁", -2.0), ("a", -3.0), ("b", -3.0), ("ab", -4.0), ("aa", -9.0), ("▁a", -9.0)]
    rows.append(("<extra_0>", 0.0))
    base = _Base.of(TokenizerFile(Tokenizer(models.Unigram(rows, 0)).to_str(), "by hand"))
    source = CountedPieces(Counter({"▁ab": 3, "▁a": 2}), TextSize(5, 5, 5))
    going = _giving_way(base, {}, source, 2)
    assert [(token.id, token.spelling, token.source_count) for token in going] == [(6, "▁a", 0), (4, "ab", 3)]
    with pytest.raises(VocabularyError, match="3 old tokens would have to give way, but only 2 may"):
        _giving_way(base, {}, source, 3)


def test_more_than_can_give_way_is_refused(basque, english):
    base = train(english[:4], size=60)
    with pytest.raises(VocabularyError, match="old tokens would have to give way, but only"):
        expand_vocabulary(base, basque, english, LearnOptions(500, min_count=1, replace=True))


def test_nothing_to_learn_is_said(base, basque, english):
    with pytest.raises(
        VocabularyError,
        match=r"^vocabulary\.new_tokens: no new token could be learned: of .* none occurs 100000 times \(vocabulary\.min_count\)",
    ):
        expand_vocabulary(base, basque, english, LearnOptions(10, min_count=100000))


def test_the_language_that_pays_most_gets_the_next_piece():
    """eu pays 3.0 and takes a (→ 2.5), hi pays 2.8 and takes x (→ 1.8), then eu goes on until it is at 1.8 as well."""
    saved = {"eu": {"a": 0.5, "b": 0.4, "c": 0.3}, "hi": {"x": 1.0, "y": 0.1, "c": 0.05}}
    assert _interleaved(saved, {"eu": 3.0, "hi": 2.8}) == ["a", "x", "b", "c", "y"]


def test_a_piece_that_two_languages_share_is_taken_once():
    saved = {"eu": {"a": 0.5, "b": 0.1}, "hi": {"a": 2.0, "x": 1.0}}
    assert _interleaved(saved, {"eu": 3.0, "hi": 2.0}) == ["a", "b", "x"]


def test_two_languages_both_get_pieces(base, basque, english):
    targets = {"eu": basque, "hi": HINDI}
    expansion = expand_vocabulary(base, targets, english, pinned(90))
    scripts = Counter("hi" if any("ऀ" <= c <= "ॿ" for c in t.spelling) else "eu" for t in expansion.new_tokens)
    assert scripts["hi"] > 10
    assert scripts["eu"] > 10
    assert set(expansion.record["offset"]) == {"eu", "hi"}
