"""Draws that have each dimension's own mean and deviation, and no covariance."""

import pytest
import torch

from lingraft.embeddings import InitContext, normal_per_dimension
from lingraft.embeddings.methods.normal_per_dimension import draw_per_dimension
from lingraft.vocabulary import LearnOptions, expand_vocabulary


def test_mean_and_deviation_by_hand():
    """Columns 1, 3 (μ 2, σ 1) and 5, 5 (μ 5, σ 0): the first is μ + z, the second is 5."""
    old = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    noise = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    rows = draw_per_dimension(old, 4000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(rows[:, 0], 2 + noise[:, 0])
    assert rows[:, 1].tolist() == [5.0] * 4000
    assert rows[:, 0].std().item() == pytest.approx(1.0, abs=0.05)


def test_dimensions_are_drawn_apart():
    base = torch.randn(3000, 1, generator=torch.Generator().manual_seed(1))
    rows = draw_per_dimension(base.repeat(1, 2), 3000, torch.Generator().manual_seed(2))
    assert torch.corrcoef(rows.T)[0, 1].abs() < 0.06


def test_one_row_for_each_new_token_from_the_generator(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    old = torch.randn(expansion.num_old, 3, generator=torch.Generator().manual_seed(0))
    context = InitContext(expansion, old, "input", torch.Generator().manual_seed(5))
    wanted = draw_per_dimension(old, 2, torch.Generator().manual_seed(5))
    assert torch.equal(normal_per_dimension(context), wanted)
