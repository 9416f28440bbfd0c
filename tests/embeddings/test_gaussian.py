"""Draws from the distribution of the old rows."""

import pytest
import torch

from lingraft.embeddings import InitContext, gaussian
from lingraft.vocabulary import LearnOptions, expand_vocabulary, keep_vocabulary

COVARIANCE = torch.tensor([[4.0, 1.9], [1.9, 1.0]])


@pytest.fixture(scope="module")
def expansion(tokenizer, corpora_folder):
    text = (corpora_folder / "eu.jsonl").read_text("utf-8")
    return expand_vocabulary(tokenizer, [text], [], LearnOptions(150, min_count=2))


@pytest.fixture(scope="module")
def old():
    noise = torch.randn(5000, 2, generator=torch.Generator().manual_seed(3))
    return torch.tensor([5.0, -5.0]) + noise @ torch.linalg.cholesky(COVARIANCE).T


def draws(expansion, old, seed, **options):
    return gaussian(InitContext(expansion, old, "input", torch.Generator().manual_seed(seed)), **options)


def test_draws_have_the_mean_and_the_whole_covariance_of_the_old_rows(expansion, old):
    assert expansion.num_new == 150
    rows = torch.cat([draws(expansion, old, seed) for seed in range(40)])
    torch.testing.assert_close(rows.mean(0), old.mean(0), atol=0.12, rtol=0)
    torch.testing.assert_close(torch.cov(rows.T), COVARIANCE, atol=0.25, rtol=0.06)


def test_scale_multiplies_the_covariance(expansion, old):
    whole, quarter = draws(expansion, old, 0), draws(expansion, old, 0, scale=0.25)
    torch.testing.assert_close((quarter - old.mean(0)) * 2, whole - old.mean(0))
    torch.testing.assert_close(draws(expansion, old, 0, scale=0.0), old.mean(0).repeat(150, 1))


def test_same_seed_same_bits(expansion, old):
    assert torch.equal(draws(expansion, old, 7), draws(expansion, old, 7))
    assert not torch.equal(draws(expansion, old, 7), draws(expansion, old, 8))


def test_chance_comes_from_the_generator_alone(expansion, old):
    torch.manual_seed(1)
    first = draws(expansion, old, 7)
    torch.manual_seed(2)
    assert torch.equal(first, draws(expansion, old, 7))


def test_equal_old_rows_leave_no_chance(expansion):
    old = torch.full((9, 3), 2.0)
    assert torch.equal(draws(expansion, old, 0), torch.full((150, 3), 2.0))


def test_no_new_tokens_no_rows(tokenizer, old):
    assert draws(keep_vocabulary(tokenizer), old, 0).shape == (0, 2)
    assert draws(keep_vocabulary(tokenizer), old, 0).dtype == torch.float32
