"""Probability that a model gives to some rows: new tokens on source text, or rows that no token owns."""

from collections.abc import Sequence

import torch
from torch import nn

from lingraft.errors import MeasurementError
from lingraft.model.base import head_of, hidden_states
from lingraft.model.freeze import row_index
from lingraft.polling import poll

__all__ = ["probability_mass"]


@torch.no_grad()
def probability_mass(
    model: nn.Module, sequences: Sequence[Sequence[int]], *, condition_id: int, ids: Sequence[int], num_ids: int
) -> float:
    """Return the mean, over all positions of the sequences, of Σ p(i) over the ascending ``ids``.

    The softmax is over ``num_ids`` rows; pass all rows of the matrix to see what padding rows would take.

    Raises:
        MeasurementError: there is no position.
    """
    head, rows = head_of(model, num_ids), row_index(ids)
    total, positions = 0.0, 0
    model.eval()
    for sequence in sequences:
        poll()
        inputs = torch.tensor([[condition_id, *sequence]], device=head.weight.device)
        probabilities = head.logits(hidden_states(model, inputs)[0].float()).softmax(dim=1)
        total += probabilities[:, rows].sum().item()
        positions += inputs.shape[1]
    if not positions:
        raise MeasurementError("probability mass needs at least one sequence")
    return total / positions
