"""Mean of all old rows."""

import math

import torch

from lingraft.embeddings import InitContext, mean
from lingraft.vocabulary import LearnOptions, expand_vocabulary


def test_every_new_row_is_the_mean_row(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["karpeta"] * 12, [], LearnOptions(2))
    old = torch.tensor([[1.0, 10.0], [2.0, 20.0], [6.0, -30.0]])
    assert mean(InitContext(expansion, old, "input", torch.Generator())).tolist() == [[3.0, 0.0], [3.0, 0.0]]


def test_o21_new_tokens_take_no_more_than_their_share(tokenizer):
    """KL(old || new) ≤ log(1 + N/V), for any hidden state (Hewitt)."""
    expansion = expand_vocabulary(tokenizer, ["karpeta leihoa"] * 12, [], LearnOptions(8))
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(50, 16, generator=generator) - 2.0
    rows = mean(InitContext(expansion, old, "output", generator))
    for hidden in torch.randn(200, 16, generator=generator) * 3:
        before, after = old @ hidden, torch.cat([old, rows]) @ hidden
        rise = (after.logsumexp(0) - before.logsumexp(0)).item()
        assert -1e-5 <= rise <= math.log(1 + expansion.num_new / 50) + 1e-5
