"""Continued merging: by hand, and against a version that counts everything again at each step."""

from collections import Counter
from itertools import count, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lingraft.vocabulary.admission import LearnOptions, is_pinned, is_well_formed
from lingraft.vocabulary.learn import WordTable, learn_merges

GREEK = frozenset({"Greek"})
# Ids of the tests: letters, a space, a digit, the two bytes of α, and "ab" as the base tokenizer's own token.
BYTES = {0: b"a", 1: b"b", 2: b"c", 3: b" ", 4: b"1", 5: b"\xce", 6: b"\xb1", 7: b"ab"}


def learned(target, source=(), **options):
    """Return (left, right, count) of the merges over words given as tuples of ids."""
    options = LearnOptions(**({"num_tokens": 10, "min_count": 2} | options))
    result = learn_merges(WordTable({"eu": Counter(dict(target))}, Counter(dict(source))), BYTES, count(8), options)
    return [(merge.left, merge.right, merge.count) for merge in result.merges]


def slow_merges(target, source, options):
    """Return what ``learn_merges`` must: at each step count all pairs of all words and take the best one admitted."""
    words = {word: list(word) for word in [*target, *source]}
    known, merges = dict(BYTES), []
    sizes = [sum(len(word) * n for word, n in target.items())]
    allowed = options.veto_per_million * sum(len(word) * n for word, n in source.items()) / 1e6

    def counts(corpus):
        return Counter(
            {
                pair: sum(n * list(pairwise(words[w])).count(pair) for w, n in corpus.items())
                for pair in {p for w in words.values() for p in pairwise(w)}
            }
        )

    while len(merges) < options.num_tokens:
        found, harmful = counts(target), counts(source)
        for pair in sorted(found, key=lambda pair: (-found[pair], pair)):
            raw = known.get(pair[0], b"\xff") + known.get(pair[1], b"\xff")
            free = harmful[pair] <= allowed or is_pinned(raw, options.pinned_scripts)
            fresh = raw not in known.values() and is_well_formed(raw, options)
            if found[pair] >= options.min_count and fresh and free:
                break
        else:
            return merges, sizes
        new = 8 + len(merges)
        known[new] = raw
        merges.append((*pair, found[pair]))
        for key, word in words.items():
            text = "".join(chr(i) for i in word).replace(chr(pair[0]) + chr(pair[1]), chr(new))
            words[key] = [ord(character) for character in text]
        sizes.append(sum(len(words[word]) * n for word, n in target.items()))
    return merges, sizes


def test_most_frequent_pair_first_then_pairs_with_the_new_token():
    assert learned({(0, 2, 1): 5, (0, 2): 4}) == [(0, 2, 9), (8, 1, 5)]


def test_ties_go_to_the_smaller_ids():
    assert [pair[:2] for pair in learned({(2, 0): 3, (0, 2): 3, (1, 2): 3})] == [(0, 2), (1, 2), (2, 0)]


@pytest.mark.parametrize(("length", "merges"), [(3, [(0, 0, 4)]), (4, [(0, 0, 6), (8, 8, 2)])])
def test_overlapping_pairs_merge_from_the_left(length, merges):
    table = WordTable({"eu": {(0,) * length: 2}}, {})
    options = LearnOptions(num_tokens=5, min_count=2)
    result = learn_merges(table, BYTES, count(8), options)
    wanted = [*merges, (8, 0, 2)] if length == 3 else merges
    assert [(m.left, m.right, m.count) for m in result.merges] == wanted
    assert result.target_tokens == ([6, 4, 2] if length == 3 else [8, 4, 2])


def test_pair_whose_join_is_a_token_already_is_left_alone():
    assert learned({(0, 1): 9, (0, 1, 2): 3}) == [(1, 2, 3), (0, 8, 3)]


def test_no_more_than_asked_and_none_below_the_least_count():
    target = {(0, 2): 5, (1, 2): 4, (2, 0): 3}
    assert learned(target, num_tokens=2) == [(0, 2, 5), (1, 2, 4)]
    assert learned(target, min_count=4) == [(0, 2, 5), (1, 2, 4)]
    assert learned(target, num_tokens=0) == []


def test_one_occurrence_in_the_source_is_a_veto():
    assert learned({(0, 2): 9, (2, 0): 5}, {(0, 2): 1}) == [(2, 0, 5)]


def test_veto_is_per_million_source_tokens():
    source = {(0, 2): 1, (1,): 998}
    assert learned({(0, 2): 9}, source, veto_per_million=999.0) == []
    assert learned({(0, 2): 9}, source, veto_per_million=1000.0) == [(0, 2, 9)]


def test_veto_is_lifted_when_the_source_text_reads_otherwise_by_then():
    """(c, a) stands in the source word only until the pinned merge has taken its a."""
    target, source = {(2, 0): 9, (0, 5): 5}, {(2, 0, 5, 6): 1}
    assert learned(target, source) == []
    assert learned(target, source, pinned_scripts=GREEK) == [(0, 5, 5), (2, 0, 9)]


def test_pinned_merges_pass_the_veto():
    assert learned({(5, 6): 9}, {(5, 6): 9}) == []
    assert learned({(5, 6): 9}, {(5, 6): 9}, pinned_scripts=GREEK) == [(5, 6, 9)]


def test_ids_that_are_no_bytes_take_no_part():
    assert learned({(99, 0): 9, (0, 2): 3}) == [(0, 2, 3)]


@settings(max_examples=150, deadline=None)
@given(
    target=st.dictionaries(
        st.lists(st.integers(0, 7), min_size=1, max_size=7).map(tuple), st.integers(1, 4), max_size=8
    ),
    source=st.dictionaries(
        st.lists(st.integers(0, 7), min_size=1, max_size=5).map(tuple), st.integers(1, 3), max_size=3
    ),
    options=st.builds(
        LearnOptions,
        num_tokens=st.integers(0, 12),
        min_count=st.integers(1, 4),
        max_characters=st.sampled_from([2, 4, 24]),
        veto_per_million=st.sampled_from([0.0, 150_000.0]),
        allow_digits=st.booleans(),
        pinned_scripts=st.sampled_from([frozenset(), GREEK]),
    ),
)
@example({(0, 0, 0, 0): 2, (0, 0, 0): 1, (2, 2, 2, 2, 2): 2}, {}, LearnOptions(10, min_count=1))
@example({(0, 2): 2, (2, 0): 2, (0, 2, 0): 1}, {(0, 2): 1}, LearnOptions(10, min_count=1))
@example({(5, 6, 5, 6): 3, (5, 6): 1}, {(5, 6): 1}, LearnOptions(10, min_count=1, pinned_scripts=GREEK))
def test_same_merges_as_counting_everything_again(target, source, options):
    result = learn_merges(WordTable({"eu": target}, source), BYTES, count(8), options)
    merges = [(m.left, m.right, m.count) for m in result.merges]
    assert (merges, result.target_tokens) == slow_merges(target, source, options)


@pytest.mark.parametrize(
    ("raw", "good"),
    [
        (b"ka", True), (b" ka", True), (b"", False), (b" ", False), (b"--", False), (b"k1", False), (b"a" * 24, True),
        (b" " + b"a" * 24, True), (b"a" * 25, False), ("ñ".encode(), True), (b"\xb1a", False), (b"a\xce", False),
        (b"a\xff", False), (b"a\xffb", False), ("a\ufffd".encode(), False), (b"'s", True),
    ],
)  # fmt: skip
def test_what_may_become_a_token(raw, good):
    assert is_well_formed(raw, LearnOptions(1)) == good


def test_digits_only_where_allowed():
    assert is_well_formed(b"k1", LearnOptions(1, allow_digits=True))
    assert not is_well_formed(b"12", LearnOptions(1, allow_digits=True))


@pytest.mark.parametrize(
    ("raw", "pinned"),
    [
        ("α".encode(), True), ("aα".encode(), True), (b" \xce", True), (b"\xce", True), (b"\xcd", False), (b"a", False),
        ("я".encode(), False), (b"\xe1", False), (b"\xe1\xbd", True), (b"", False),
    ],
)  # fmt: skip
def test_pinned_to_greek(raw, pinned):
    """CE begins only Greek letters, CD also combining marks of all; E1 many scripts, E1 BD only Greek."""
    assert is_pinned(raw, GREEK) == pinned


def test_unfinished_character_only_of_a_pinned_script():
    assert is_well_formed(b"\xce", LearnOptions(1, pinned_scripts=GREEK))
    assert not is_well_formed(b"\xd0", LearnOptions(1, pinned_scripts=GREEK))
    assert not is_well_formed(b"\xce", LearnOptions(1))


def slow_parity(targets, units, options):
    """Return what learning must with several languages: at each step all is counted anew for the dearest language."""
    words = {word: list(word) for corpus in targets.values() for word in corpus}
    known, merges = dict(BYTES), []
    while len(merges) < options.num_tokens:
        cost = {
            name: sum(len(words[w]) * n for w, n in corpus.items()) / units[name] for name, corpus in targets.items()
        }
        for name in sorted(targets, key=lambda name: -cost[name]):
            found = Counter()
            for word, n in targets[name].items():
                for pair in pairwise(words[word]):
                    found[pair] += n
            joins = ((-n, pair) for pair, n in found.items() if n >= options.min_count)
            fresh = [
                (count, pair, raw)
                for count, pair in joins
                if (raw := known[pair[0]] + known[pair[1]]) not in known.values() and is_well_formed(raw, options)
            ]
            if fresh:
                break
        else:
            return merges
        count, pair, raw = min(fresh)
        new = 8 + len(merges)
        known[new] = raw
        merges.append((name, *pair, -count))
        for key, word in words.items():
            text = "".join(chr(i) for i in word).replace(chr(pair[0]) + chr(pair[1]), chr(new))
            words[key] = [ord(character) for character in text]
    return merges


letters = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)
corpora = st.dictionaries(letters, st.integers(1, 6), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(first=corpora, second=corpora, units=st.tuples(st.integers(1, 20), st.integers(1, 20)))
@example({(0, 2): 900}, {(1, 2, 0): 3}, (900, 1))
def test_language_that_pays_most_a_word_is_served(first, second, units):
    """Two corpora of any sizes; the number of words of each is given, as it is by the text."""
    targets = {"eu": first, "hi": second}
    options = LearnOptions(8, min_count=2)
    table = WordTable(targets, {}, None, dict(zip(targets, units, strict=True)))
    result = learn_merges(table, BYTES, count(8), options)
    wanted = slow_parity(targets, dict(zip(targets, units, strict=True)), options)
    assert [(m.left, m.right, m.count) for m in result.merges] == [merge[1:] for merge in wanted]


def test_parity_by_hand():
    """Basque pays 2 a word, Hindi 3: Hindi is served first; at 2 each the tie goes to the first named."""
    targets = {"eu": {(0, 2): 100}, "hi": {(1, 0, 2): 4}}
    table = WordTable(targets, {}, None, {"eu": 100, "hi": 4})
    assert (table.cost("eu"), table.cost("hi")) == (2, 3)
    result = learn_merges(table, BYTES, count(8), LearnOptions(3, min_count=2))
    assert [(m.left, m.right, m.count) for m in result.merges] == [(0, 2, 4), (1, 8, 4)]
    assert (table.cost("eu"), table.cost("hi")) == (1, 1)


def test_source_that_is_vetoed_for_one_language_is_so_for_all():
    targets = {"eu": {(0, 2): 9}, "hi": {(0, 2): 9, (2, 1): 5}}
    result = learn_merges(WordTable(targets, {(0, 2): 1}), BYTES, count(8), LearnOptions(3, min_count=2))
    assert [(m.left, m.right) for m in result.merges] == [(2, 1)]
    assert result.vetoed == {b"ac"}


def test_watched_texts_are_counted_and_nothing_is_learned_from_them():
    table = WordTable({"eu": {(0, 2): 9}}, {}, {"dev": {(0, 2, 1, 1): 3, (1, 1): 50}})
    result = learn_merges(table, BYTES, count(8), LearnOptions(3, min_count=2))
    assert [(m.left, m.right) for m in result.merges] == [(0, 2)]
    assert (result.target_tokens, result.watched) == ([18, 9], {"dev": [112, 109]})


def test_candidates_are_the_only_tokens():
    assert learned({(0, 2): 9, (2, 0): 5}, candidates=frozenset({b"ca"})) == [(2, 0, 5)]
    assert learned({(0, 2): 9}, candidates=frozenset()) == []


def test_in_concat_style_every_way_to_a_token_is_merged_and_old_tokens_are_closed():
    """'ab' is a token. 'abc' counts as ab+c and as a+bc; when 'ca' comes, 'cac' of old is made of ca+c."""
    known = BYTES | {9: b"bc", 10: b"cac"}
    words = {(7, 2): 4, (0, 9): 3, (2, 0): 9, (2, 0, 2): 2}
    table = WordTable({"eu": words}, {})
    result = learn_merges(table, known, count(11), LearnOptions(2, min_count=2), "concat")
    assert [(m.raw, m.count) for m in result.merges] == [(b"ca", 11), (b"abc", 7)]
    assert table.words == [[12], [12], [11], [10]]
    pairs = WordTable({"eu": words}, {})
    other = learn_merges(pairs, known, count(11), LearnOptions(2, min_count=2))
    assert [(m.raw, m.count) for m in other.merges] == [(b"ca", 11), (b"abc", 4)]
    assert pairs.words == [[12], [0, 9], [11], [11, 2]]
