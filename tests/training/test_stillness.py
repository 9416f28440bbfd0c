"""The row with most gradient, and what is said when it stands still."""

import pytest
import torch
from torch import nn

from lingraft.errors import TrainingError
from lingraft.training.stillness import learning_rows, refuse_stillness


def table(gradient: list[list[float]]) -> nn.Parameter:
    made = nn.Parameter(torch.ones(len(gradient), 2))
    made.grad = torch.tensor(gradient, dtype=torch.float32)
    return made


def test_the_row_with_most_gradient_is_watched() -> None:
    parameters = {"a": table([[0, 1], [-2, 1], [0, 0]]), "b": table([[0, 0], [0, 0]]), "c": table([[1, 1], [1, 1]])}
    rows = learning_rows(parameters, ("a", "b", "elsewhere"))
    assert {name: row for name, (row, _) in rows.items()} == {"a": 1}


def test_a_row_that_moved_by_the_last_bit_has_moved() -> None:
    parameters = {"a": table([[1, 0]])}
    rows = learning_rows(parameters, ("a",))
    with pytest.raises(TrainingError, match="stage 's': a has not moved in 3 steps"):
        refuse_stillness(parameters, rows, "s", 3)
    parameters["a"].data[0, 0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    refuse_stillness(parameters, rows, "s", 3)
