"""Rows of zeros."""

import torch

from lingraft.embeddings import InitContext, zero
from lingraft.vocabulary import LearnOptions, expand_vocabulary, keep_vocabulary


def test_zero_by_hand(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    old = torch.ones(tokenizer.num_ids, 3)
    assert zero(InitContext(expansion, old, "input", torch.Generator())).tolist() == [[0.0] * 3] * 2
    assert zero(InitContext(keep_vocabulary(tokenizer), old, "input", torch.Generator())).shape == (0, 3)
