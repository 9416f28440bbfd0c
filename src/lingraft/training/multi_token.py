"""Heads that predict further ahead, as an aid while a stage trains; the exported model does not have them."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lingraft.model.base import Head
from lingraft.training.loss import chunked_cross_entropy

__all__ = ["ExtraHeads"]


class ExtraHeads:
    """``count`` heads beside the model's own; head k, from 2, predicts the token k places ahead.

    Each begins as a copy of the model's output matrix and reads the same hidden states: losses are
    Σₖ mean −log p(token t + k), summed over the heads and added to the model's own (arXiv 2404.19737, sec. 2; for few
    texts of a new language arXiv 2406.11477, sec. 3, whose heads are such copies).

    Attributes:
        parameters: name → matrix, ``multi_token.2.weight`` and so on.
    """

    def __init__(self, head: Head, count: int) -> None:
        self._head = head
        self.parameters = {
            f"multi_token.{ahead}.weight": nn.Parameter(head.weight.detach().clone()) for ahead in range(2, count + 2)
        }

    def loss(
        self,
        hidden: Float[Tensor, "batch position dim"],
        tokens: Int[Tensor, "batch position_1"],
        documents: Int[Tensor, "batch position_1"],
        whole: Int[Tensor, "step position_1"],
        dtype: torch.dtype,
    ) -> Tensor:
        """Return the heads' summed losses in nats per label, with gradients; labels stay inside their document.

        Args:
            hidden: states after the last norm.
            tokens: the sequences that they were made of, with the one more token that is the last label.
            documents: the number of each token's document in its row.
            whole: the same of all rows of the step, over whose labels the mean is taken however the step is cut.
            dtype: the type of matrix products.
        """
        total = hidden.new_zeros((), dtype=torch.float32)
        for ahead, weight in enumerate(self.parameters.values(), start=2):
            head = Head(weight, self._head.bias, self._head.softcap, self._head.num_ids)
            counts = _labels(documents, ahead)
            states, targets = hidden[:, : counts.shape[1]][counts], tokens[:, ahead:][counts]
            summed, _ = chunked_cross_entropy(states, targets, head, dtype=dtype)
            total = total + summed / max(1, int(_labels(whole, ahead).sum()))
        return total


def _labels(documents: Int[Tensor, "batch position_1"], ahead: int) -> Bool[Tensor, "batch position_ahead"]:
    """Return whether the token so far ahead is of the same document, for every position that has one."""
    return documents[:, ahead:] == documents[:, :-ahead]
