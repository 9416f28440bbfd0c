"""What survives the border between two stages, held against a run that has no border."""

import pytest
import torch
from torch import nn

from lingraft.errors import CheckpointError
from lingraft.model.freeze import Trainable
from lingraft.training.optimizer import adamw
from lingraft.training.optimizer_state import carried_state, parameter_groups, take_over

BETAS = (0.9, 0.999)
ALL = Trainable(("table", "body"), ("table",))
NEW = Trainable(("table",), ("table",), (2, 3), 5, ("table",))


def weights() -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {name: nn.Parameter(torch.randn(6, 4, generator=generator)) for name in ("table", "body")}


def gradient(name: str, step: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1000 * step + len(name)))


def begin(parameters, trainable, carried=None, **options):
    own = {name: parameters[name] for name in trainable.names}
    groups = parameter_groups(own, trainable, weight_decay=0.1, table_factor=1.0)
    made = adamw(groups, betas=BETAS, **options)
    return made, own, take_over(made, own, trainable, carried or {})


def go(made, own, trainable, steps) -> None:
    for step in steps:
        for name, p in own.items():
            p.grad = gradient(name, step)
        trainable.mask_gradients(own)
        for optimizer in made:
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            optimizer.step()


def test_two_stages_that_train_the_same_are_one_stage_to_the_bit() -> None:
    whole, halves = weights(), weights()
    made, own, _ = begin(whole, ALL)
    go(made, own, ALL, range(10))
    first, own, _ = begin(halves, ALL)
    go(first, own, ALL, range(5))
    second, own, taken = begin(halves, ALL, carried_state(first, own, ALL))
    go(second, own, ALL, range(5, 10))
    assert taken == 2
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def by_hand(start: torch.Tensor, steps_of_row: dict[int, list[int]], *, decay: float) -> torch.Tensor:
    """Return a matrix after AdamW, each row by itself with its own count of steps, in the obvious slow way."""
    result = start.clone()
    for row, own_steps in steps_of_row.items():
        value, mean, square = start[row].clone(), torch.zeros(4), torch.zeros(4)
        for count, step in enumerate(own_steps, start=1):
            slope = gradient("table", step)[row]
            mean = BETAS[0] * mean + (1 - BETAS[0]) * slope
            square = BETAS[1] * square + (1 - BETAS[1]) * slope**2
            size = mean / (1 - BETAS[0] ** count) / ((square / (1 - BETAS[1] ** count)).sqrt() + 1e-8)
            value = value * (1 - 0.01 * (decay if step >= 5 else 0.0)) - 0.01 * size
        result[row] = value
    return result


def test_rows_that_begin_later_have_a_count_of_their_own() -> None:
    """Rows 2 and 3 learn from step 0, the others from step 5, when the second stage trains the whole matrix."""
    parameters = weights()
    start = parameters["table"].detach().clone()
    first, own, _ = begin(parameters, NEW)
    go(first, own, NEW, range(5))
    second, own, _ = begin(parameters, ALL, carried_state(first, own, NEW))
    go(second, own, ALL, range(5, 12))
    rows = {row: list(range(0 if row in NEW.new_rows else 5, 12)) for row in range(6)}
    torch.testing.assert_close(parameters["table"].detach(), by_hand(start, rows, decay=0.1), atol=1e-6, rtol=1e-5)
    ages = carried_state(second, own, ALL)
    assert ages["table::age"].flatten().tolist() == [7, 7, 12, 12, 7, 7]
    assert ages["body::age"].flatten().tolist() == [7] * 6


def test_without_a_count_of_their_own_late_rows_would_leap() -> None:
    """What the counts are for: with the one counter of AdamW a row's first step at its age 0 is a third too long."""
    parameters = weights()
    first, own, _ = begin(parameters, NEW)
    go(first, own, NEW, range(200))
    carried = carried_state(first, own, NEW)
    moved = {}
    for name, ages in (("own", carried["table::age"]), ("one", torch.full_like(carried["table::age"], 200))):
        again = weights()
        second, own, _ = begin(again, ALL, carried | {"table::age": ages})
        before = again["table"].detach().clone()
        go(second, own, ALL, [300])
        moved[name] = float((again["table"].detach() - before)[[0, 1, 4, 5]].abs().mean())
    assert moved["own"] == pytest.approx(0.01, rel=0.1)
    assert moved["one"] > 1.3 * moved["own"]


def test_o33_old_rows_that_had_momentum_stand_still_in_a_stage_of_new_rows() -> None:
    """Their gradient is masked; carried momentum alone would move them."""
    parameters = weights()
    first, own, _ = begin(parameters, ALL)
    go(first, own, ALL, range(5))
    carried = carried_state(first, own, ALL)
    before = parameters["table"].detach().clone()
    second, own, taken = begin(parameters, NEW, carried)
    go(second, own, NEW, range(5, 10))
    assert taken == 1
    moved = (parameters["table"] != before).any(dim=1)
    assert moved.tolist() == [row in NEW.new_rows for row in range(6)]


def test_new_rows_go_on_alone_as_if_nothing_had_been() -> None:
    """All rows, then new rows only: these have the same history either way, so the same bits."""
    one, other = weights(), weights()
    first, own, _ = begin(one, ALL)
    go(first, own, ALL, range(5))
    second, own, _ = begin(one, NEW, carried_state(first, own, ALL))
    for optimizer in second:
        assert "row_step" not in optimizer.state[one["table"]]
    go(second, own, NEW, range(5, 8))
    whole, own, _ = begin(other, ALL)
    for optimizer in whole:
        for group in optimizer.param_groups:
            group["initial"] = True
    go(whole, own, ALL, range(5))
    for optimizer in whole:
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0  # rows of a partly trained matrix are not decayed
    go(whole, own, ALL, range(5, 8))
    rows = list(NEW.new_rows)
    assert torch.equal(one["table"][rows], other["table"][rows])


def test_what_the_stage_before_did_not_train_begins_fresh() -> None:
    parameters = weights()
    first, own, _ = begin(parameters, NEW)
    go(first, own, NEW, range(3))
    second, own, taken = begin(parameters, ALL, carried_state(first, own, NEW))
    assert taken == 1
    assert len(second[0].state[parameters["body"]]) == 0


def test_moments_of_another_shape_are_refused() -> None:
    parameters = weights()
    first, own, _ = begin(parameters, ALL)
    go(first, own, ALL, range(2))
    carried = carried_state(first, own, ALL)
    carried["body::exp_avg"] = carried["body::exp_avg"][:3]
    with pytest.raises(CheckpointError, match="moments of body"):
        begin(parameters, ALL, carried)
