"""A map from the donor's space into the base model's."""

import numpy as np
import pytest
import torch

from lingraft.embeddings import InitContext, fill_rows, linear_map, subword_mean
from lingraft.embeddings.methods.linear_map import fit_linear_map
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import LearnOptions, expand_vocabulary


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def expansion(tokenizer):
    return expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa"] * 12, [], LearnOptions(8))


def test_map_by_hand():
    """Through (0, 1), (1, 3), (2, 5) goes y = 2 x + 1."""
    weight, offset = fit_linear_map(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [3.0], [5.0]]), 0.0)
    assert (weight.item(), offset.item()) == (pytest.approx(2.0), pytest.approx(1.0))


def test_ridge_by_hand():
    """x = −1, 0, 1 and y = −2, 0, 2: Σxy = 4, Σx² = 2, λ = ½ · 2 = 1, so W = 4/3."""
    weight, offset = fit_linear_map(torch.tensor([[-1.0], [0.0], [1.0]]), torch.tensor([[-2.0], [0.0], [2.0]]), 0.5)
    assert (weight.item(), offset.item()) == (pytest.approx(4 / 3), pytest.approx(0.0))


@pytest.mark.parametrize("number", [90, 4096, 9000])
def test_map_is_the_least_squares_solution_with_an_offset(number):
    x, y = draw(0, number, 7) + 3.0, draw(1, number, 5)
    weight, offset = fit_linear_map(x, y, 0.0)
    wanted = np.linalg.lstsq(np.hstack([x.double(), np.ones((number, 1))]), y.double().numpy(), rcond=None)[0]
    np.testing.assert_allclose(torch.cat([weight, offset[None]]).numpy(), wanted, atol=1e-10)


def test_a_direction_without_variance_is_mapped_to_nothing():
    x = torch.cat([draw(0, 50, 3), torch.full((50, 1), 4.0)], dim=1)
    weight, _ = fit_linear_map(x, draw(1, 50, 2), 0.0)
    assert weight[3].abs().max() < 1e-12


def test_a_donor_that_is_the_model_seen_through_a_map_gives_the_model_back(write_donor, expansion):
    """Law: with e = W d + b for all tokens, every new row is what the model would have had."""
    number = expansion.new.num_ids
    donor_rows, weight, offset = draw(0, number, 6), draw(1, 6, 4), draw(2, 4)
    whole = donor_rows @ weight + offset
    folder = write_donor(expansion.new.text, {"wte.weight": donor_rows})
    context = InitContext(expansion, whole[: expansion.num_old], "input", torch.Generator())
    made = linear_map(context, donor=str(folder))
    assert made.fallbacks == {}
    torch.testing.assert_close(made.matrix, whole[[token.id for token in expansion.new_tokens]], atol=1e-4, rtol=1e-4)


def test_each_side_is_mapped_from_its_own_matrix(write_donor, expansion):
    number = expansion.new.num_ids
    tensors = {"wte.weight": draw(0, number, 6), "lm_head.weight": draw(1, number, 6)}
    folder = write_donor(expansion.new.text, tensors)
    old = draw(1, number, 6)[: expansion.num_old] * 3
    made = linear_map(InitContext(expansion, old, "output", torch.Generator()), donor=str(folder))
    wanted = draw(1, number, 6)[[token.id for token in expansion.new_tokens]] * 3
    torch.testing.assert_close(made.matrix, wanted, atol=1e-4, rtol=1e-4)


def test_tokens_that_the_donor_lacks_get_the_mean_of_their_pieces(write_donor, expansion, tokenizer):
    fewer = expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa"] * 12, [], LearnOptions(6))
    folder = write_donor(fewer.new.text, {"wte.weight": draw(0, fewer.new.num_ids, 6)})
    old = draw(1, expansion.num_old, 4)
    context = InitContext(expansion, old, "input", torch.Generator())
    filled = fill_rows(context, old, lambda c: linear_map(c, donor=str(folder)), "linear_map", expansion.new.num_ids)
    assert filled.counts() == {"copied": expansion.num_old, "initialised": 6, "fallback": 2}
    wanted = subword_mean(context)
    for place, token in enumerate(expansion.new_tokens):
        is_fallback = filled.origins[token.id].kind == "fallback"
        assert is_fallback == (place >= 6)
        assert torch.equal(filled.matrix[token.id], wanted[place]) == is_fallback
    assert filled.origins[expansion.new_tokens[7].id].why == "mean of its pieces: the donor has no such token"


def test_a_donor_that_lacks_most_tokens_is_refused(write_donor, expansion, tokenizer):
    folder = write_donor(tokenizer.text, {"wte.weight": draw(0, tokenizer.num_ids, 6)})
    old = draw(1, expansion.num_old, 4)
    context = InitContext(expansion, old, "input", torch.Generator())
    with pytest.raises(ModelError, match=r"'linear_map' could not be used for 8 of 8 .*donor has no such token"):
        fill_rows(context, old, lambda c: linear_map(c, donor=str(folder)), "linear_map", expansion.new.num_ids)


def test_too_few_shared_tokens_for_a_map_are_refused_without_ridge(write_donor, expansion):
    folder = write_donor(expansion.new.text, {"wte.weight": draw(0, expansion.new.num_ids, 500)})
    context = InitContext(expansion, draw(1, expansion.num_old, 4), "input", torch.Generator())
    with pytest.raises(ModelError, match=r"500 dimensions cannot be fitted on \d+ shared .*embeddings.input.ridge"):
        linear_map(context, donor=str(folder))
    assert linear_map(context, donor=str(folder), ridge=0.1).matrix.shape == (8, 4)
    with pytest.raises(RecipeError, match=r"embeddings.input.ridge: must not be negative, is -1"):
        linear_map(context, donor=str(folder), ridge=-1.0)
