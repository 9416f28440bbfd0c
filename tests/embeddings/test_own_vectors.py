"""Vectors of tokens from the user's own text: counts and information by hand, the decomposition against torch's."""

import math
import sys
import types
from importlib import metadata

import numpy as np
import pytest
import torch

from lingraft.embeddings import VectorOptions, own_vectors, train_vectors
from lingraft.embeddings.own_vectors import positive_pmi, truncated_svd, windowed_counts
from lingraft.errors import MissingExtraError, ModelError, RecipeError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def counted(ids, window, size):
    stream = np.array(ids)
    return windowed_counts(stream, stream, (size, size), window).to_dense().tolist()


def test_counts_beside_by_hand():
    assert counted([0, 1, 0, 2], 1, 3) == [[0, 2, 1], [2, 0, 0], [1, 0, 0]]


def test_a_neighbour_two_tokens_away_counts_half_in_a_window_of_two():
    assert counted([0, 1, 0, 2], 2, 3) == [[1, 2, 1], [2, 0, 0.5], [1, 0.5, 0]]


def test_what_has_no_row_or_column_is_passed_over_but_keeps_its_place():
    assert counted([0, -1, 1], 1, 2) == [[0, 0], [0, 0]]
    assert counted([0, -1, 1], 2, 2) == [[0, 0.5], [0.5, 0]]


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_counts_do_not_depend_on_how_the_text_is_cut_into_stretches(monkeypatch, chunk):
    ids = np.random.default_rng(0).integers(-1, 5, size=40)
    whole = counted(ids, 3, 5)
    monkeypatch.setattr(own_vectors, "_CHUNK_TOKENS", chunk)
    assert counted(ids, 3, 5) == whole


def sparse(rows):
    return torch.tensor(rows, dtype=torch.float64).to_sparse().coalesce()


def test_information_by_hand():
    """Six pairs: n(0) = 3, n(1) = 2, n(2) = 1. Every pair that occurs does so twice as often as by chance."""
    information = positive_pmi(sparse([[0.0, 2, 1], [2, 0, 0], [1, 0, 0]])).to_dense()
    wanted = math.log(2) * torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(information, wanted)


def test_information_below_chance_is_nought():
    """n(0,0) = 1 where 3 · 3 / 5 = 1.8 are expected."""
    information = positive_pmi(sparse([[1.0, 2], [2, 0]])).to_dense()
    assert information[0, 0] == 0
    assert information[0, 1].item() == pytest.approx(math.log(2 * 5 / (3 * 2)))


def test_smoothing_takes_the_power_of_what_stands_beside_only():
    information = positive_pmi(sparse([[0.0, 4], [9, 0]]), smoothing=0.5).to_dense()
    assert information[0, 1].item() == pytest.approx(math.log(1 / (2 / 5)))
    assert information[1, 0].item() == pytest.approx(math.log(1 / (3 / 5)))


def test_decomposition_is_the_one_that_torch_finds_with_the_whole_matrix():
    matrix = torch.rand(40, 30, generator=seeded(), dtype=torch.float64)
    matrix = matrix * (matrix > 0.6)
    left, values = truncated_svd(matrix.to_sparse().coalesce(), 8, seeded(1))
    wanted_left, wanted, _ = torch.linalg.svd(matrix)
    torch.testing.assert_close(values, wanted[:8], rtol=1e-4, atol=0)
    torch.testing.assert_close((left[:, :4] * wanted_left[:, :4]).sum(dim=0).abs(), torch.ones(4, dtype=torch.float64))
    assert (left.gather(0, left.abs().argmax(dim=0, keepdim=True)) > 0).all()


TEXTS = ["the qj cat", "the qv cat", "a wz dog", "a wy dog"] * 6


def test_tokens_that_are_used_alike_get_vectors_that_are_alike(tokenizer):
    vectors = train_vectors(tokenizer, TEXTS, 6, seeded(), VectorOptions(window=3))
    j, v, z = (torch.nn.functional.normalize(vectors.find(letter), dim=0) for letter in "jvz")
    assert j @ v > 0.9
    assert j @ z < 0.5


def test_vectors_are_by_spelling_and_only_of_what_occurs_often_enough(tokenizer):
    vectors = train_vectors(tokenizer, ["qq qq", "z"], 4, seeded(), VectorOptions(min_count=2))
    assert set(vectors.words) == {"q"}
    assert vectors.matrix.dtype == torch.float32


def test_windows_do_not_reach_from_one_text_into_the_next(tokenizer):
    """Were they counted, x would stand beside z, and both would have a vector that says so."""
    apart = train_vectors(tokenizer, ["qx", "zq"] * 5, 3, seeded(), VectorOptions(smoothing=1.0))
    assert abs(apart.find("x") @ apart.find("q")) < 1e-6
    torch.testing.assert_close(apart.find("x"), apart.find("z"))
    together = train_vectors(tokenizer, ["qxzq"] * 5, 3, seeded(), VectorOptions(smoothing=1.0, window=1))
    assert not torch.allclose(together.find("x"), together.find("z"))


def test_the_text_is_read_until_it_is_enough(tokenizer):
    def texts():
        yield from ["qz"] * 256
        raise AssertionError("more text was asked for")

    vectors = train_vectors(tokenizer, texts(), 2, seeded(), VectorOptions(max_tokens=512))
    assert set(vectors.words) == {"q", "z"}


def test_neighbours_are_capped_at_the_most_frequent(tokenizer):
    vectors = train_vectors(tokenizer, ["qzqx", "qz"] * 5, 8, seeded(), VectorOptions(max_contexts=1))
    assert vectors.matrix.shape == (3, 1)


def test_the_same_seed_gives_the_same_bits(tokenizer):
    one, two = (train_vectors(tokenizer, TEXTS, 4, seeded(3)).matrix for _ in range(2))
    assert torch.equal(one, two)


def test_the_global_generator_is_left_alone(tokenizer):
    before = torch.get_rng_state()
    train_vectors(tokenizer, TEXTS, 4, seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_text_without_a_token_that_occurs_often_enough_is_refused(tokenizer):
    with pytest.raises(ModelError, match="no token occurs 2 times"):
        train_vectors(tokenizer, ["qz"], 4, seeded())
    with pytest.raises(ModelError, match="no token occurs"):
        train_vectors(tokenizer, [], 4, seeded())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (VectorOptions(engine="fastext"), "engine 'fastext' is not known, did you mean 'fasttext'"),
        (VectorOptions(window=0), "window is 0; it must be at least 1"),
        (VectorOptions(min_count=0), "min_count is 0"),
        (VectorOptions(max_tokens=0), "max_tokens is 0"),
    ],
)
def test_options_without_a_meaning_are_refused(tokenizer, options, message):
    with pytest.raises(RecipeError, match=message):
        train_vectors(tokenizer, TEXTS, 4, seeded(), options)


@pytest.mark.parametrize("absent", [None, types.ModuleType("fasttext")], ids=["none", "one that only predicts"])
def test_fasttext_that_is_not_there_is_named_with_its_pip_line(tokenizer, monkeypatch, absent):
    monkeypatch.setitem(sys.modules, "fasttext", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'lingraft\[fasttext\]'"):
        train_vectors(tokenizer, TEXTS, 4, seeded(), VectorOptions(engine="fasttext"))


@pytest.mark.skipif(
    "fasttext" not in {each.name for each in metadata.distributions()}, reason="the fasttext extra is not installed"
)
def test_fasttext_trains_on_every_text_and_is_repeatable(tokenizer):
    options = VectorOptions(engine="fasttext", epochs=30)
    one, two = (train_vectors(tokenizer, TEXTS * 8, 16, seeded(3), options) for _ in range(2))
    assert torch.equal(one.matrix, two.matrix)
    assert torch.isfinite(one.matrix).all()
    svd = train_vectors(tokenizer, TEXTS * 8, 16, seeded(3))
    assert one.words == svd.words
    other = train_vectors(tokenizer, TEXTS * 8, 16, seeded(4), options)
    assert not torch.equal(one.matrix, other.matrix)
