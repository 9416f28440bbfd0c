"""Probability that a model gives to a range of rows: new tokens on source text, or rows that no token owns."""

from collections.abc import Sequence

import torch
from torch import nn

from lingraft.errors import MeasurementError
from lingraft.model.base import head_of, hidden_states

__all__ = ["probability_mass"]


@torch.no_grad()
def probability_mass(
    model: nn.Module, sequences: Sequence[Sequence[int]], *, condition_id: int, begin: int, end: int, num_ids: int
) -> float:
    """Return the mean, over all positions of the sequences, of Σ p(i) for ``begin`` ≤ i < ``end``.

    The softmax is over ``num_ids`` rows; pass all rows of the matrix to see what padding rows would take.

    Raises:
        MeasurementError: there is no position.
    """
    head = head_of(model, num_ids)
    total, positions = 0.0, 0
    model.eval()
    for sequence in sequences:
        ids = torch.tensor([[condition_id, *sequence]], device=head.weight.device)
        probabilities = head.logits(hidden_states(model, ids)[0].float()).softmax(dim=1)
        total += probabilities[:, begin:end].sum().item()
        positions += ids.shape[1]
    if not positions:
        raise MeasurementError("probability mass needs at least one sequence")
    return total / positions
