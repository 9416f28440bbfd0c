"""Draws around zero, all dimensions alike."""

import pytest
import torch

from lingraft.embeddings import InitContext, random_normal
from lingraft.errors import RecipeError
from lingraft.vocabulary import LearnOptions, expand_vocabulary


@pytest.fixture(scope="module")
def expansion(tokenizer):
    return expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa"] * 12, [], LearnOptions(12))


def draws(expansion, seed=0, dim=500, **options):
    old = torch.full((expansion.num_old, dim), 7.0)
    return random_normal(InitContext(expansion, old, "input", torch.Generator().manual_seed(seed)), **options)


def test_std_is_met_and_old_rows_are_not_looked_at(expansion):
    rows = draws(expansion)
    assert rows.shape == (12, 500)
    assert rows.mean().abs() < 4 * 0.02 / 6000**0.5
    assert rows.std().item() == pytest.approx(0.02, rel=0.04)
    torch.testing.assert_close(draws(expansion, std=0.1), 5 * rows)
    assert torch.equal(draws(expansion, std=0.0), torch.zeros(12, 500))


def test_same_seed_same_bits_whatever_torch_has_drawn_before(expansion):
    torch.manual_seed(1)
    first = draws(expansion, 3)
    torch.manual_seed(2)
    assert torch.equal(first, draws(expansion, 3))
    assert not torch.equal(first, draws(expansion, 4))


def test_negative_std_is_refused(expansion):
    with pytest.raises(RecipeError, match=r"embeddings.input.std: a standard deviation is not negative, -0.1 is"):
        draws(expansion, std=-0.1)
