"""Optimisers by name: what each does in one step, and that a row without a gradient stays where it is."""

import pytest
import torch
from torch import nn

from lingraft.errors import RecipeError
from lingraft.model.freeze import Trainable
from lingraft.training.optimizer import optimizers
from lingraft.training.optimizer_state import parameter_groups

TRAINABLE = Trainable(("table", "body", "norm"), ("table",), (1, 2), 4, ("table",))


def weights() -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"table": (5, 4), "body": (6, 4), "norm": (4,)}
    return {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}


def made(name: str, parameters, **options):
    groups = parameter_groups(parameters, TRAINABLE, weight_decay=0.5, table_factor=0.1)
    found = optimizers.get(name, "optimizer.name").bind(options, "optimizer")(groups)
    for optimizer in found:
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * group["factor"]
    return found


def steps(name: str, count: int = 1, **options) -> tuple[dict, dict]:
    parameters = weights()
    before = {key: p.detach().clone() for key, p in parameters.items()}
    optimizer = made(name, parameters, **options)
    for number in range(count):
        for p in parameters.values():
            p.grad = torch.full_like(p, 0.5 + number)
        TRAINABLE.mask_gradients(parameters)
        for part in optimizer:
            part.step()
    return before, {key: p.detach() for key, p in parameters.items()}


def test_adamw_by_hand() -> None:
    """The first step is the rate along the sign, behind the decay of the matrix of the body alone."""
    before, after = steps("adamw")
    torch.testing.assert_close(after["body"], before["body"] * (1 - 0.01 * 0.5) - 0.01)
    torch.testing.assert_close(after["norm"], before["norm"] - 0.01)
    torch.testing.assert_close(after["table"][1:3], before["table"][1:3] - 0.001)


def test_sgd_by_hand() -> None:
    """Momentum: the second step is 0.9 · 0.5 + 1.5."""
    before, after = steps("sgd", 2)
    torch.testing.assert_close(after["norm"], before["norm"] - 0.01 * (0.5 + 0.9 * 0.5 + 1.5))


def test_muon_takes_the_body_s_matrices_and_adamw_the_rest() -> None:
    parameters = weights()
    matrices, others = made("muon", parameters)
    assert [p.shape for group in matrices.param_groups for p in group["params"]] == [(6, 4)]
    assert {p.shape for group in others.param_groups for p in group["params"]} == {(5, 4), (4,)}
    before, after = steps("muon")
    torch.testing.assert_close(after["norm"], before["norm"] - 0.01)
    # Of a gradient of rank 1 nothing but its direction is left, times 0.2 · √(longer side) as for AdamW's size of step.
    update = (before["body"] * (1 - 0.01 * 0.5) - after["body"]) / 0.01 / (0.2 * 6**0.5)
    sizes = torch.linalg.svdvals(update).tolist()
    assert 0.6 < sizes[0] < 1.3
    assert max(sizes[1:]) < 0.01


def test_adafactor_by_hand() -> None:
    """Relative to a gradient that is the same everywhere the update is 1 everywhere."""
    before, after = steps("adafactor")
    moved = before["norm"] - after["norm"]
    assert float(moved.std()) == pytest.approx(0, abs=1e-6)
    assert float(moved.mean()) > 0


@pytest.mark.parametrize("name", [entry.name for entry in optimizers])
def test_o33_rows_without_a_gradient_stand_still_bit_for_bit(name: str) -> None:
    before, after = steps(name, 5)
    frozen = [0, 3, 4]
    assert torch.equal(after["table"][frozen], before["table"][frozen])
    assert (after["table"][[1, 2]] != before["table"][[1, 2]]).all()


def test_groups_by_hand() -> None:
    parameters = weights() | {"multi_token.2.weight": nn.Parameter(torch.zeros(5, 4))}
    groups = parameter_groups(parameters, TRAINABLE, weight_decay=0.5, table_factor=0.1)
    found = [([tuple(p.shape) for p in g["params"]], g["weight_decay"], g["factor"], g["is_table"]) for g in groups]
    assert found == [
        ([(5, 4)], 0.0, 0.1, True), ([(6, 4)], 0.5, 1.0, False), ([(4,)], 0.0, 1.0, False), ([(5, 4)], 0.5, 0.1, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adamv", {}, "unknown optimiser 'adamv', did you mean 'adamw'"),
        ("sgd", {"betas": (0.9, 0.99)}, r"optimizer\.betas: 'sgd' has no such option"),
    ],
)
def test_unknown_names_and_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        optimizers.get(name, "optimizer.name").bind(options, "optimizer")
