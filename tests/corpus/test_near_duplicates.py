"""Which documents are nearly the same: short ones and all scripts stay apart; estimates against exact similarity."""

import numpy as np
import pytest

from lingraft.corpus.characters import hash_ngrams
from lingraft.corpus.near_duplicates import NearDuplicates, NearIndex, signatures
from lingraft.errors import RecipeError

pytest.importorskip("rensa", reason="needs the extra dedup")


def kept(texts, **options):
    chosen = NearDuplicates(**options)
    index = NearIndex(chosen)
    return [text for text, row in zip(texts, signatures(texts, chosen), strict=True) if not index.is_repeated(row)]


def test_o39_texts_shorter_than_a_row_of_words_stay():
    assert kept(["cat", "dog", "cat"]) == ["cat", "dog"]


@pytest.mark.parametrize(
    "texts", [["今天下雨了", "猫在睡觉"], ["السماء تمطر اليوم", "القطة نائمة الآن"], ["आज बारिश", "बिल्ली"]]
)
def test_o48_unrelated_texts_of_any_script_stay(texts):
    assert kept([*texts, texts[0]]) == texts


def test_texts_without_a_word_are_never_repetitions():
    assert kept(["!!!", "...", "!!!", ""]) == ["!!!", "...", "!!!", ""]


def test_estimates_are_near_the_exact_similarity():
    generator = np.random.default_rng(0)
    options, errors = NearDuplicates(num_hashes=256), []
    for share in np.linspace(0.1, 1.0, 10):
        first = [f"w{n}" for n in range(300)]
        second = [word if generator.random() < share else f"x{n}" for n, word in enumerate(first)]
        texts = [" ".join(first), " ".join(second)]
        one, two = (set(hash_ngrams(text, 5).tolist()) for text in texts)
        rows = signatures(texts, options)
        errors.append(abs((rows[0] == rows[1]).mean() - len(one & two) / len(one | two)))
    assert max(errors) < 4 * 0.5 / 16  # four standard errors, at most 1/2 : sqrt(256) each


@pytest.mark.parametrize(("changed", "is_kept"), [(0, False), (1, False), (60, True)])
def test_a_text_with_few_changes_goes_and_one_with_many_stays(changed, is_kept):
    words = [f"w{n}" for n in range(200)]
    other = [f"x{n}" if n < changed else word for n, word in enumerate(words)]
    texts = [" ".join(words), " ".join(other)]
    assert kept(texts) == (texts if is_kept else texts[:1])


def test_case_and_punctuation_make_no_difference():
    assert len(kept(["One two, three four five six.", "one TWO three — four five six"])) == 1


def test_a_repetition_is_not_held_against_later_ones():
    """b is near a and goes; c is near b and not near a, so it stays."""
    words = [f"w{n}" for n in range(400)]
    texts = [" ".join([f"x{n}" for n in range(changed)] + words[changed:]) for changed in (0, 30, 120)]
    assert kept(texts) == [texts[0], texts[2]]


def test_many_documents_against_the_slow_way():
    generator = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in generator.integers(0, 40, size=30)) for _ in range(150)]
    texts += [text + " end" for text in texts[:40]]
    options = NearDuplicates(num_bands=32)
    rows, slow = signatures(texts, options), []
    for place, row in enumerate(rows):
        bands = row.reshape(32, -1)
        if not any(
            (rows[other] == row).mean() >= 0.8 and (rows[other].reshape(32, -1) == bands).all(axis=1).any()
            for other in slow
        ):
            slow.append(place)
    assert kept(texts, num_bands=32) == [texts[place] for place in slow]
    assert len(slow) <= 155


def test_bands_divide_the_hashes():
    with pytest.raises(RecipeError, match=r"corpora\.eu\.near_duplicates\.num_bands: 100 hashes .* 16 equal bands"):
        NearDuplicates(num_hashes=100).refuse_uneven("corpora.eu.near_duplicates")
