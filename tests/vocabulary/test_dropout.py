"""Merges left out at random: never another text, always the same draw, and without dropout the tokenizer itself."""

from collections import Counter

import pytest

from lingraft.errors import VocabularyError
from lingraft.vocabulary import LearnOptions, expand_vocabulary
from lingraft.vocabulary.dropout import DroppedMerges, _merged

from ..conftest import BASQUE, ENGLISH

TEXTS = [*BASQUE[:4], "Ñandúa 🙂 gelaxka\n  gelaxka", ""]


@pytest.fixture(scope="module")
def expansion(tokenizer):
    return expand_vocabulary(tokenizer, {"eu": BASQUE}, ENGLISH, LearnOptions(num_tokens=60, min_count=2))


@pytest.mark.parametrize("only_new", [True, False])
def test_without_dropout_it_is_the_tokenizer(expansion, only_new: bool) -> None:
    merges = DroppedMerges(expansion, rate=0.0, only_new=only_new, seed="s")
    assert merges.encode_batch(TEXTS) == expansion.new.encode_batch(TEXTS)


@pytest.mark.parametrize("only_new", [True, False])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99])
def test_the_text_stays_the_same(expansion, only_new: bool, rate: float) -> None:
    merges = DroppedMerges(expansion, rate=rate, only_new=only_new, seed="s")
    encoded = merges.encode_batch(TEXTS)
    assert [expansion.new.decode(ids) for ids in encoded] == [expansion.new.normalise(text) for text in TEXTS]
    plain = expansion.new.encode_batch(TEXTS)
    assert sum(map(len, encoded)) > sum(map(len, plain))


def test_text_without_new_tokens_is_never_changed_by_new_merges(expansion) -> None:
    merges = DroppedMerges(expansion, rate=0.9, only_new=True, seed="s")
    english = ENGLISH[:4]
    assert merges.encode_batch(english) == expansion.old.encode_batch(english)
    everything = DroppedMerges(expansion, rate=0.9, only_new=False, seed="s")
    assert everything.encode_batch(english) != expansion.old.encode_batch(english)


def test_new_merges_fall_back_on_old_tokens_only(expansion) -> None:
    """At a rate near 1 hardly any merge is made: what is left is the old tokenizer's own spelling."""
    merges = DroppedMerges(expansion, rate=0.999999, only_new=True, seed="s")
    assert merges.encode_batch(BASQUE[:4]) == expansion.old.encode_batch(BASQUE[:4])


def test_the_draw_is_a_function_of_seed_and_text(expansion) -> None:
    def drawn(seed: str, texts: list[str]) -> list[list[int]]:
        return DroppedMerges(expansion, rate=0.3, only_new=True, seed=seed).encode_batch(texts)

    assert drawn("0/eu/0", TEXTS) == drawn("0/eu/0", TEXTS)
    assert drawn("0/eu/0", TEXTS[::-1])[::-1] == drawn("0/eu/0", TEXTS)
    assert drawn("0/eu/0", TEXTS) != drawn("0/eu/1", TEXTS)


def test_one_merge_is_left_out_as_often_as_the_rate_says() -> None:
    """Two pieces, one merge: it is made or not, once."""
    import random

    generator = random.Random(0)
    outcomes = Counter(len(_merged([1, 2], {(1, 2): (0, 3)}, 0.3, generator)) for _ in range(5000))
    assert outcomes[2] / 5000 == pytest.approx(0.3, abs=0.02)


def test_merges_are_made_in_the_order_they_were_learned() -> None:
    """1 2 3: the merge of 2 and 3 is older, so the one of 1 and 2 comes too late."""
    import random

    merges = {(1, 2): (1, 12), (2, 3): (0, 23), (1, 23): (2, 123)}
    assert _merged([1, 2, 3], merges, 0.0, random.Random(0)) == [123]
    del merges[(1, 23)]
    assert _merged([1, 2, 3], merges, 0.0, random.Random(0)) == [1, 23]


def test_a_tokenizer_without_merges_is_refused(expansion) -> None:
    import dataclasses

    class Unigram:
        family = "unigram"

    other = dataclasses.replace(expansion)
    object.__setattr__(other, "new", Unigram())
    with pytest.raises(VocabularyError, match="of kind unigram has not"):
        DroppedMerges(other, rate=0.1, only_new=True, seed="s")
