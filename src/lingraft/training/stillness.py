"""Whether embedding matrices learn: that a gradient arrives is no proof that anything moves."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from lingraft.errors import TrainingError
from lingraft.model.shards import held

__all__ = ["STEPS_TO_MOVE", "learning_rows", "refuse_stillness"]

STEPS_TO_MOVE = 10
"""Steps after which a matrix that gradients reach must have moved."""


def learning_rows(parameters: Mapping[str, nn.Parameter], tables: Sequence[str]) -> dict[str, tuple[int, Tensor]]:
    """Return, of each matrix that has a gradient, the row that gets most of it: its place here, and its weights now."""
    rows = {}
    for name in tables:
        gradient = parameters[name].grad if name in parameters else None
        if gradient is not None and len(held(gradient)):
            row = int(held(gradient).abs().sum(dim=1).argmax())
            if bool(held(gradient)[row].any()):
                rows[name] = row, held(parameters[name]).detach()[row].clone()
    return rows


def refuse_stillness(
    parameters: Mapping[str, nn.Parameter], rows: Mapping[str, tuple[int, Tensor]], stage: str, steps: int
) -> None:
    """Refuse to train on where a row that had a gradient still has the same bits after some steps.

    Raises:
        TrainingError: it does; the optimiser moves other weights than the model has, or the rate is lost in rounding.
    """
    for name, (row, before) in rows.items():
        if torch.equal(held(parameters[name])[row], before):
            raise TrainingError(
                f"stage {stage!r}: {name} has not moved in {steps} steps though gradients reach it: the optimiser "
                "moves other weights than the model's, or the learning rate is lost in rounding (lr.peak, lr.warmup)"
            )
