"""Growth in both styles of merge list: the learner is the tokenizer, old merges stay, two goes are one."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from lingraft.errors import VocabularyError
from lingraft.vocabulary import AuditTexts, LearnOptions, TokenizerFile, audit_expansion, expand_vocabulary
from lingraft.vocabulary.growth import merge_style
from lingraft.vocabulary.learn import WordTable
from lingraft.vocabulary.tokenizer_file import bytes_to_spelling

KINDS = ["pair", "concat", "llama", "gemma", "metaspace"]
CONCAT = KINDS[1:]


def grown_by(base, target, source, **options):
    given_options = {"num_tokens": 150, "min_count": 5} | options
    return expand_vocabulary(base, target, source, LearnOptions(**given_options), {"eu": target[:100]})


@pytest.fixture(scope="module")
def expansions(bases, target, source):
    return {kind: grown_by(base, target, source) for kind, base in bases.items()}


def toy(tokens, *, concat=True, ignore_merges=False, added=()):
    """Return a byte-level file of all bytes and the given tokens, each made in every way, or in its first."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate([*alphabet, *tokens])}
    merges = []
    for token in tokens:
        ways = [(token[:at], token[at:]) for at in range(1, len(token))]
        ways = [way for way in ways if way[0] in vocabulary and way[1] in vocabulary]
        merges += ways if concat else ways[:1]
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=ignore_merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(name, normalized=False) for name in added])
    return TokenizerFile(made.to_str(), "toy")


def all_splits(tokenizer):
    """Return every way to make a token of two tokens."""
    own = tokenizer.raw["model"]["vocab"].keys() - {entry["content"] for entry in tokenizer.raw["added_tokens"]}
    return {(token[:n], token[n:]) for token in own for n in range(1, len(token)) if {token[:n], token[n:]} <= own}


def stopping(expansion, target, source):
    gates = audit_expansion(expansion, AuditTexts(target, source, source, learning=target))
    return {gate.name for gate in gates if gate.stops and not gate.passed} - {"encoding still fast"}


@pytest.mark.parametrize("kind", KINDS)
def test_style_is_found_before_and_after(bases, expansions, kind):
    style = "pair" if kind == "pair" else "concat"
    assert merge_style(bases[kind]) == merge_style(expansions[kind].new) == style == expansions[kind].record["style"]


def test_one_missing_split_makes_a_pair_list(bases):
    raw = json.loads(bases["concat"].text)
    made = Counter("".join(merge) for merge in raw["model"]["merges"])
    raw["model"]["merges"].remove(next(merge for merge in raw["model"]["merges"] if made["".join(merge)] == 1))
    assert merge_style(bases["concat"]) == "concat"
    assert merge_style(TokenizerFile(json.dumps(raw), "x")) == "pair"


@pytest.mark.parametrize("concat", [False, True])
def test_style_does_not_hang_on_added_tokens_that_are_in_the_vocabulary(concat):
    """A second expansion finds the names of added tokens in the model's vocabulary, where the first had to put them."""
    base = toy(["ab", "abb", "bb", "abab"], concat=concat, added=["aab"])
    moved = base.extended([], [])
    assert "aab" in moved.raw["model"]["vocab"]
    assert merge_style(base) == merge_style(moved) == ("concat" if concat else "pair")


@pytest.mark.parametrize("kind", KINDS)
def test_every_gate_that_stops_passes(expansions, target, source, kind):
    assert stopping(expansions[kind], target[:100], source) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_t1_merges_alone_build_every_new_token(expansions, kind):
    for token in expansions[kind].new_tokens:
        assert expansions[kind].new.encode_by_merges(token.spelling) == [token.id]


@pytest.mark.parametrize("kind", KINDS)
def test_t5_pieces_are_what_the_old_tokenizer_says(expansions, kind):
    for token in expansions[kind].new_tokens:
        assert expansions[kind].old.encode_by_merges(token.spelling) == list(token.pieces)
        assert len(token.pieces) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_o05_old_merges_and_ids_are_an_exact_prefix(expansions, kind):
    old, new = expansions[kind].old, expansions[kind].new
    assert new.merges[: len(old.merges)] == old.merges
    assert {token: new.vocabulary[token] for token in old.vocabulary} == old.vocabulary
    assert expansions[kind].new_ids == tuple(range(old.num_ids, old.num_ids + 150))


@pytest.mark.parametrize("kind", KINDS)
def test_number_of_merges_follows_the_style(expansions, kind):
    new, old = expansions[kind].new, expansions[kind].old
    assert len(new.merges) == len(set(new.merges))
    if kind == "pair":
        assert len(new.merges) == len(old.merges) + 150
    else:
        assert set(new.merges) == set(old.merges) | all_splits(new)


@pytest.mark.parametrize("kind", KINDS)
def test_t10_grown_in_two_goes_is_grown_in_one(bases, expansions, target, source, kind):
    small = grown_by(bases[kind], target, source, num_tokens=40)
    assert small.new.merges == expansions[kind].new.merges[: len(small.new.merges)]
    assert [t.spelling for t in small.new_tokens] == [t.spelling for t in expansions[kind].new_tokens[:40]]
    again = grown_by(small.new, target, source, num_tokens=110)
    assert again.new.text == expansions[kind].new.text


@pytest.mark.parametrize("kind", KINDS)
def test_t2_source_and_its_held_out_text(bases, expansions, source, held_out_lines, kind):
    """Source text that the veto saw is as before; of what it did not see, few tokens change."""
    old, new = bases[kind], expansions[kind].new
    assert new.encode_batch(source) == old.encode_batch(source)
    changed = sum(
        a != b for a, b in zip(old.encode_batch(held_out_lines), new.encode_batch(held_out_lines), strict=True)
    )
    assert changed < 0.1 * len(held_out_lines)


@pytest.mark.parametrize("kind", KINDS)
def test_o04_o07_lines_and_white_space_come_back(expansions, basque_lines, kind):
    """A thousand lines, and the case's own text."""
    new = expansions[kind].new
    assert all(new.decode(ids) == text for text, ids in zip(basque_lines, new.encode_batch(basque_lines), strict=True))
    assert new.decode(new.encode("a\n\n  b\tc")) == "a\n\n  b\tc"
    for token in expansions[kind].new_tokens:
        text = f"x{token.text(new)}"
        assert new.decode(new.encode(text)) == text


@pytest.mark.parametrize("kind", ["pair", "concat", "llama", "metaspace"])
def test_curve_is_what_the_prefixes_of_the_real_tokenizer_say(bases, expansions, target, source, kind):
    whole = expansions[kind]
    assert [point.num_new for point in whole.curve.points] == [0, 8, 16, 32, 64, 125, 150]
    for point in whole.curve.points[1::2]:
        prefix = grown_by(bases[kind], target, source, num_tokens=point.num_new)
        assert point.tokens["eu"] == sum(map(len, prefix.new.encode_batch(target[:100])))
    assert whole.curve.points[0].tokens["eu"] == sum(map(len, whole.old.encode_batch(target[:100])))


words = st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=7)
tokens = st.lists(st.text("ab", min_size=2, max_size=5), max_size=6, unique=True)


@settings(max_examples=150, deadline=None)
@given(words=words, tokens=tokens, concat=st.booleans(), look_up=st.booleans())
@example(["aaaa", "aaa", "aaaa", "aaaaaaaaaaa", "a", "aaaaaaaaaa"], ["aaaaa", "aaa", "aaaa"], True, False)
@example(["aaaaaaaaa", "aaaaaaa", "aaa", "aa"], ["aaaaa", "aaaa", "aaa"], True, True)
@example(["ababab", "abb"], ["abab", "bab"], True, True)
def test_learner_and_tokenizer_agree_on_every_word_of_any_base(words, tokens, concat, look_up):
    """Also where new tokens make old ones reachable that no merge of the base could build (Llama 3 has 332)."""
    base = toy(tokens, concat=concat, ignore_merges=look_up)
    target = [" ".join(words)] * 2
    try:
        grown = grown_by(base, target, [], num_tokens=8, min_count=1)
    except VocabularyError:
        return
    assert grown.record["simulation"]["different"] == 0
    assert stopping(grown, target, []) == set()
    assert sum(map(len, grown.new.encode_batch(target))) == grown.curve.points[-1].tokens["eu"]
    small = grown_by(base, target, [], num_tokens=1, min_count=1)
    if grown.num_new > 1:
        again = grown_by(small.new, target, [], num_tokens=7, min_count=1)
        assert again.new.text == grown.new.text


def test_old_token_gets_the_split_that_a_new_token_makes_possible():
    """No merge builds abcd or bcd, for neither ab nor cd is a token. With them both are made, in every way."""
    base = toy(["abcd", "bcd", "xy", "yx", "xyx"])
    assert base.merges == [("a", "bcd"), ("x", "y"), ("y", "x"), ("x", "yx"), ("xy", "x")]
    assert base.encode("abcd") == [base.id_of(token) for token in "abcd"]
    grown = grown_by(base, ["ab"] * 9 + ["cd"] * 8 + ["abcd"] * 7, [], num_tokens=2)
    assert [token.spelling for token in grown.new_tokens] == ["ab", "cd"]
    assert grown.new.merges[5:] == [("a", "b"), ("c", "d"), ("ab", "cd"), ("b", "cd")]
    assert grown.new.encode("abcd") == [base.id_of("abcd")]


def test_in_pair_style_an_old_token_gets_no_second_way():
    base = toy(["bc", "abc"], concat=False)
    grown = grown_by(base, ["ab"] * 9 + ["abc"] * 7, [], num_tokens=3)
    assert grown.new.merges == [("b", "c"), ("a", "bc"), ("a", "b")]


@pytest.mark.parametrize("concat", [False, True])
def test_name_of_an_added_token_is_never_made_by_merges(concat):
    """'koadro' was a control word, so plain text must not reach it, and growth goes around it."""
    base = toy(["ko", "adr", "koad"], concat=concat, added=["koadro"])
    target = ["x koadroak koadro adro"] * 20
    grown = grown_by(base, target, [], num_tokens=30)
    assert grown.new.id_of("koadro") == base.id_of("koadro")
    assert "koadro" not in {"".join(pair) for pair in grown.new.merges}
    assert base.id_of("koadro") not in grown.new.encode_by_merges("koadro")
    assert grown.record["simulation"]["different"] == 0
    assert stopping(grown, target, []) == set()


def test_word_that_is_only_looked_up_is_one_token_and_no_error():
    base = toy(["abcab"], ignore_merges=True)
    grown = grown_by(base, ["abcab"] * 9 + ["abcabb"] * 6, [], num_tokens=3)
    assert grown.curve.points[0].tokens["eu"] == 9 + 6 * 6
    assert grown.record["simulation"] == {"compared": 1, "different": 0}
    assert stopping(grown, ["abcab"] * 9 + ["abcabb"] * 6, []) == set()


def test_nothing_learned_is_refused(bases):
    with pytest.raises(VocabularyError, match="no new token could be learned"):
        grown_by(bases["concat"], ["qz"], [])


@pytest.mark.parametrize("kind", ["concat", "llama"])
def test_auto_takes_the_smallest_size_that_obeys_the_rule(bases, target, source, kind):
    """The rule, by brute force on the full curve: from here a further thousand tokens save less than 20 %."""
    full = grown_by(bases[kind], target, source, num_tokens=300).curve.points

    def saving(here, there):
        per_token = (here.tokens["eu"] - there.tokens["eu"]) / here.tokens["eu"] / (there.num_new - here.num_new)
        return 1000 * per_token

    savings = [saving(a, b) for a, b in pairwise(full)]
    rule = (savings[3] + savings[4]) / 2
    poor = [a.num_new for a, b in pairwise(full) if saving(a, b) < rule]
    assert poor[0] == 64
    chosen = grown_by(bases[kind], target, source, num_tokens=300, min_saving=rule)
    assert chosen.num_new == 64
    assert chosen.curve.points == full[:5]
    fixed = grown_by(bases[kind], target, source, num_tokens=64)
    assert chosen.new.text == fixed.new.text
    assert (chosen.record["learned"], fixed.record["learned"]) == (300, 64)


def test_candidates_and_their_ways_and_nothing_else(bases, target, source):
    donor = grown_by(bases["pair"], target, [], num_tokens=300)
    wanted = [token for token in donor.new_tokens if len(token.spelling.strip("Ġ")) >= 4]
    candidates = frozenset(token.text(donor.new).encode() for token in wanted)
    grown = grown_by(bases["concat"], target, source, candidates=candidates)
    assert grown.num_new > 40
    spelled = {bytes_to_spelling(raw) for raw in candidates}
    others = [token.spelling for token in grown.new_tokens if token.spelling not in spelled]
    assert grown.record["on_the_way"] == len(others) > 0
    for other in others:
        assert any(token.spelling.startswith(other) and token.spelling in spelled for token in grown.new_tokens)
    assert stopping(grown, target[:100], source) == set()


@pytest.mark.parametrize("concat", [False, True])
def test_candidate_of_three_pieces_gets_what_lies_between(concat):
    base = toy(["xy"], concat=concat)
    grown = grown_by(base, ["abc"] * 9 + ["xz"] * 9, [], candidates=frozenset({b"abc"}))
    assert [token.spelling for token in grown.new_tokens] == ["ab", "abc"]
    assert grown.record["on_the_way"] == 1


def test_candidates_that_cannot_be_made_are_not_half_added():
    """'ab' is frequent, but 'abc' and 'abd' are too rare or vetoed: nothing lies on the way to nothing."""
    base = toy([])
    target = ["ab"] * 9 + ["abc"] * 2 + ["xyz"] * 9 + ["kq"] * 9
    wanted = frozenset({b"abc", b"xyz", b"kqu"})
    grown = grown_by(base, target, [], candidates=wanted)
    assert [token.spelling for token in grown.new_tokens] == ["xy", "xyz"]
    with pytest.raises(VocabularyError, match="no new token could be learned"):
        grown_by(base, target, ["xyz"], candidates=wanted)


def test_candidates_cut_short_leave_no_half_of_one():
    """Of two tokens, the second would be half of 'xyzw': the run goes without it."""
    base = toy([])
    target = ["ab"] * 9 + ["xyzw"] * 12
    grown = grown_by(base, target, [], candidates=frozenset({b"ab", b"xyzw"}), num_tokens=2)
    assert [token.spelling for token in grown.new_tokens] == ["ab"]


def test_auto_leaves_no_half_of_a_candidate():
    """The curve ends growth within the way to the 20 letters; what is left is made of whole candidates."""
    base = toy([])
    target = ["abc abc abc kqz kqz defghijklmnopq"] * 9
    options = {"candidates": frozenset({b"abc", b" abc", b" kqz", b"defghijklmnopq", b" defghijklmnopq"})}
    whole = grown_by(base, target, [], num_tokens=20, **options)
    first, second = (point.tokens["eu"] for point in whole.curve.points[1:3])
    cut = grown_by(base, target, [], num_tokens=20, min_saving=(first - second) / first * 1000 / 8 + 1, **options)
    assert 0 < cut.num_new <= 8 < whole.num_new
    made = {token.spelling for token in cut.new_tokens}
    ends = {bytes_to_spelling(raw) for raw in options["candidates"]} & made
    assert all(any(end.startswith(token) or token in end for end in ends) for token in made)
    parts = {left for left, _ in cut.new.merges} | {right for _, right in cut.new.merges}
    assert made <= ends | parts


@pytest.mark.parametrize("languages", [("eu", "hi"), ("hi", "eu")])
def test_parity_gives_the_small_language_its_share(bases, basque_lines, languages):
    """Twelve lines of Hindi in a thousand of Basque: merged into one corpus they get next to nothing."""
    hindi = [
        "यह एक छोटा दस्तावेज़ है और इसमें हिन्दी के कुछ शब्द हैं",
        "दस्तावेज़ खोलने के लिए फ़ाइल चुनें और फिर खोलें पर क्लिक करें",
    ] * 6
    corpora = {"eu": basque_lines, "hi": hindi}
    options = LearnOptions(120, min_count=5, pinned_scripts=frozenset({"Devanagari"}))

    def of_hindi(expansion):
        return sum(not token.spelling.strip("Ġ").isascii() for token in expansion.new_tokens)

    apart = expand_vocabulary(bases["concat"], {name: corpora[name] for name in languages}, [], options)
    merged = expand_vocabulary(bases["concat"], [*basque_lines, *hindi], [], options)
    assert of_hindi(apart) > 40 > 10 * of_hindi(merged)
    again = expand_vocabulary(bases["concat"], {name: corpora[name] for name in languages}, [], options)
    assert again.new.text == apart.new.text


def test_one_language_by_name_is_one_corpus(bases, basque_lines):
    one = grown_by(bases["pair"], basque_lines[:200], [])
    named = expand_vocabulary(bases["pair"], {"eu": basque_lines[:200]}, [], LearnOptions(150, min_count=5))
    assert named.new.text == one.new.text


@pytest.mark.parametrize("power", [33, 65])
def test_o17_counts_beyond_the_largest_machine_integers_are_exact(power):
    """A weighted list of words whose most frequent pair occurs 2 ** 33 and 2 ** 65 times."""
    many = 2**power
    table = WordTable({"eu": {(0, 1): many, (0, 1, 2): many + 1}}, {(1, 2): many})
    assert table.target_pairs["eu"] == {(0, 1): 2 * many + 1, (1, 2): many + 1}
    assert table.num_target_tokens == 5 * many + 3
    assert table.num_source_tokens == 2 * many
    table.merge((0, 1), 3)
    assert table.num_target_tokens == 3 * many + 2
    assert table.target_pairs["eu"][3, 2] == many + 1


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_t6_tiktoken_cuts_as_the_grown_file(bases, target, source, held_out_lines):
    """Of a concat file the ids are the ranks, and that is all that tiktoken is given."""
    tiktoken = pytest.importorskip("tiktoken")
    raw = json.loads(bases["concat"].text) | {"added_tokens": [], "post_processor": None}
    base = TokenizerFile(json.dumps(raw), "no added tokens")
    grown = grown_by(base, target, source, num_tokens=400).new
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    unspelled = {bytes_to_spelling(bytes([byte])): byte for byte in range(256)}
    ranks = {bytes(unspelled[c] for c in token): token_id for token, token_id in grown.vocabulary.items()}
    theirs = tiktoken.Encoding("grown", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in [*target, *source, *held_out_lines, "a\n\n  b\tc", "筹筹 हिन्दी"]:
        assert theirs.encode(text) == grown.encode(text)
