"""Replacement: sizes stay, ids are reused, and only leaves go that nothing else is made of."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lingraft.errors import VocabularyError
from lingraft.vocabulary import AuditTexts, LearnOptions, TokenizerFile, audit_expansion, expand_vocabulary
from lingraft.vocabulary.curve import TextSize
from lingraft.vocabulary.growth import BpeStart, CountedTexts
from lingraft.vocabulary.replacement import rare_leaves
from lingraft.vocabulary.tokenizer_file import bytes_to_spelling, spelling_to_bytes
from lingraft.vocabulary.words import CountedText

KINDS = ["pair", "concat", "llama", "gemma"]


@pytest.fixture(scope="module")
def replaced(bases, target, source):
    options = LearnOptions(60, min_count=5, replace=True)
    return {kind: expand_vocabulary(bases[kind], target, source, options, {"eu": target[:50]}) for kind in KINDS}


def toy(merges, added=()):
    """Return a byte-level file of all bytes and what some merges, written 'a b', make."""
    vocabulary = {token: n for n, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    pairs = [tuple(merge.split()) for merge in merges]
    for left, right in pairs:
        vocabulary.setdefault(left + right, len(vocabulary))
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(added))
    return TokenizerFile(made.to_str(), "toy")


def leaves(tokenizer, source, target, count):
    """Return what gives way, as (spelling, source count, target count), in texts given as word → count."""

    def counted(words):
        found = Counter({tuple(tokenizer.encode(word)): n for word, n in words.items()})
        return CountedText(found, TextSize(1, 1, 1), 1)

    raw = {i: bytes_of for t, i in tokenizer.vocabulary.items() if (bytes_of := spelling_to_bytes(t))}
    start = BpeStart(tokenizer, tokenizer, raw, bytes_to_spelling)
    texts = CountedTexts({"eu": counted(target)}, counted(source), {})
    return [(t.spelling, t.source_count, t.target_count) for t in rare_leaves(start, texts, count)]


def test_rarest_in_the_source_goes_first_then_in_the_target_then_by_id():
    base = toy(["a b", "c d", "e f", "g h"])
    source, target = {"ab": 5, "cd": 1}, {"ef": 3}
    assert leaves(base, source, target, 1) == [("gh", 0, 0)]
    assert leaves(base, source, target, 2) == [("ef", 0, 3), ("gh", 0, 0)]
    assert leaves(base, source, target, 3) == [("cd", 1, 0), ("ef", 0, 3), ("gh", 0, 0)]
    assert leaves(base, {}, {}, 2) == [("ab", 0, 0), ("cd", 0, 0)]


def test_only_leaves_go_and_their_counts_pass_to_their_parts():
    """'abc' is made of 'ab' and goes first, rare as 'ab' is; then 'ab' is as frequent as both were."""
    base = toy(["a b", "ab c", "x y"])
    source, target = {"abc": 4, "ab": 1, "xy": 9}, {"abc": 2}
    assert leaves(base, source, target, 1) == [("abc", 4, 2)]
    assert leaves(base, source, target, 2) == [("ab", 5, 2), ("abc", 4, 2)]
    assert leaves(base, source | {"xy": 4}, target | {"xy": 1}, 2) == [("abc", 4, 2), ("xy", 4, 1)]
    assert leaves(base, source | {"xy": 4}, target | {"xy": 1}, 3) == [("ab", 5, 2), ("abc", 4, 2), ("xy", 4, 1)]


def test_token_with_two_ways_waits_for_both_users():
    base = toy(["a b", "b c", "ab c", "a bc"])
    assert leaves(base, {"abc": 1}, {}, 1) == [("abc", 1, 0)]
    assert leaves(base, {"abc": 3, "bc": 1}, {}, 2) == [("bc", 1, 0), ("abc", 3, 0)]


def test_special_byte_and_single_character_tokens_never_go():
    """Of the eight tokens that merges make, one is the letter é, and one has the name of a control token."""
    base = toy(["a b", "Ã ©", "c d", "e f"], added=["cd"])
    assert [spelling for spelling, *_ in leaves(base, {}, {}, 2)] == ["ab", "ef"]
    with pytest.raises(VocabularyError) as caught:
        leaves(base, {}, {}, 3)
    assert str(caught.value) == (
        "vocabulary.new_tokens: 3 old tokens would have to give way, but only 2 may "
        "(special, byte and single-character tokens never do)"
    )


def test_too_many_are_refused_before_anything_is_learned(bases, target, source):
    with pytest.raises(VocabularyError, match=r"5000 old tokens would have to give way, but only \d+ may"):
        expand_vocabulary(bases["concat"], target, source, LearnOptions(5000, replace=True))


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_constant_and_ids_are_reused(bases, replaced, kind):
    old, new = bases[kind], replaced[kind].new
    assert replaced[kind].method == "replace"
    assert (new.num_ids, len(new.vocabulary)) == (old.num_ids, len(old.vocabulary))
    assert len(replaced[kind].removed) == replaced[kind].num_new == 60
    assert replaced[kind].new_ids == tuple(sorted(token.id for token in replaced[kind].removed))
    kept = old.vocabulary.keys() - {token.spelling for token in replaced[kind].removed}
    assert all(new.vocabulary[token] == old.vocabulary[token] for token in kept)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_is_a_prefix_and_every_new_token_is_reached(bases, replaced, kind):
    gone = {token.spelling for token in replaced[kind].removed}
    left = [pair for pair in bases[kind].merges if "".join(pair) not in gone]
    assert not any(part in gone for pair in left for part in pair)
    assert replaced[kind].new.merges[: len(left)] == left
    for token in replaced[kind].new_tokens:
        assert replaced[kind].new.encode_by_merges(token.spelling) == [token.id]
        assert bases[kind].encode_by_merges(token.spelling) == list(token.pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_gates_that_stop_pass(replaced, target, source, held_out_lines, kind):
    texts = AuditTexts(target, [], held_out_lines, max_source_drift=0.1, learning=target)
    gates = audit_expansion(replaced[kind], texts)
    assert {g.name for g in gates if g.stops and not g.passed} - {"encoding still fast"} == set()


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_a_token_that_went_and_without_a_new_one_is_untouched(bases, replaced, english_lines, kind):
    old, new = bases[kind], replaced[kind].new
    gone, fresh = {t.id for t in replaced[kind].removed}, set(replaced[kind].new_ids)
    untouched = 0

    def check(text):
        before, after = old.encode(text), new.encode(text)
        if gone.isdisjoint(before) and fresh.isdisjoint(after):
            assert before == after
            return True
        return False

    untouched = sum(check(text) for text in english_lines)
    assert untouched > 100

    @settings(max_examples=100, deadline=None)
    @given(st.text(st.sampled_from("etaoinshrdlu .,'ABé9\n"), max_size=40))
    def any_text(text):
        check(text)

    any_text()


@pytest.mark.parametrize("kind", KINDS)
def test_source_text_changes_only_where_a_token_went(bases, replaced, source, kind):
    """The veto has seen these texts: new tokens are in none of them."""
    old, new, gone = bases[kind], replaced[kind].new, {t.id for t in replaced[kind].removed}
    names = {token_id: token for token, token_id in old.vocabulary.items()}
    for before, after in zip(old.encode_batch(source), new.encode_batch(source), strict=True):
        assert (before != after) == (not gone.isdisjoint(before))
        assert set(replaced[kind].new_ids).isdisjoint(after)
        assert "".join(names[i] for i in before) == "".join(names[i] for i in after)


@pytest.mark.parametrize("kind", ["pair", "concat", "llama"])
def test_curve_begins_at_the_base_and_ends_at_the_result(bases, replaced, target, kind):
    points = replaced[kind].curve.points
    assert points[0].tokens["eu"] == sum(map(len, bases[kind].encode_batch(target[:50])))
    assert points[-1].num_new == 60
    assert points[-1].tokens["eu"] == sum(map(len, replaced[kind].new.encode_batch(target[:50])))


@pytest.mark.parametrize("kind", ["concat", "llama"])
def test_auto_gives_up_only_as_many_as_it_takes(bases, target, source, kind):
    options = LearnOptions(100, min_count=5, replace=True, min_saving=2.0)
    auto = expand_vocabulary(bases[kind], target, source, options, {"eu": target[:50]})
    assert 0 < auto.num_new == len(auto.removed) < 100
    assert auto.new.num_ids == bases[kind].num_ids
    fixed = expand_vocabulary(
        bases[kind], target, source, LearnOptions(auto.num_new, min_count=5, replace=True), {"eu": target[:50]}
    )
    assert (fixed.new.text, fixed.removed) == (auto.new.text, auto.removed)


def test_fewer_learned_than_asked_gives_up_fewer():
    base = toy(["a b", "c d", "e f", "g h"])
    grown = expand_vocabulary(base, ["qz"] * 9, [], LearnOptions(4, min_count=5, replace=True))
    assert [(t.spelling, t.id) for t in grown.new_tokens] == [("qz", base.id_of("ab"))]
    assert [token.spelling for token in grown.removed] == ["ab"]
    assert grown.new.id_of("cd") == base.id_of("cd")


def test_nothing_learned_is_refused(bases):
    with pytest.raises(VocabularyError, match="no new token could be learned"):
        expand_vocabulary(bases["concat"], ["qz"], [], LearnOptions(5, replace=True))


def test_records_are_plain(replaced, tmp_path):
    replaced["llama"].save(tmp_path)
    stored = json.loads((tmp_path / "expansion.json").read_text("utf-8"))
    assert [token["id"] for token in stored["removed"]] == [token.id for token in replaced["llama"].removed]
