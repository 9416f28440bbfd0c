"""Live averaging by the formula of arXiv 2506.00288."""

import pytest
import torch
from torch import nn

from lingraft.errors import CheckpointError
from lingraft.training.averaging import LiveEma


def weights(*values: float) -> dict[str, nn.Parameter]:
    return {"w": nn.Parameter(torch.tensor(values))}


def add(parameters: dict[str, nn.Parameter], amount: float) -> None:
    with torch.no_grad():
        parameters["w"].add_(amount)


def test_alpha_weighs_the_old_weights() -> None:
    parameters = weights(1.0)
    ema = LiveEma(parameters, decay=0.75, every=1)
    add(parameters, 4.0)
    ema.after_update(1)
    assert parameters["w"].item() == 0.75 * 1 + 0.25 * 5
    assert ema.state()["w"].item() == 2.0


def test_with_eta_one_every_update_is_scaled_by_one_minus_alpha() -> None:
    parameters, plain = weights(3.0, -1.0), torch.tensor([3.0, -1.0])
    ema = LiveEma(parameters, decay=0.92, every=1)
    for step in range(1, 20):
        update = 0.1 * step
        add(parameters, update)
        ema.after_update(step)
        plain += 0.08 * update
    torch.testing.assert_close(parameters["w"].detach(), plain, rtol=1e-5, atol=1e-5)


def test_with_eta_three_only_every_third_step_averages_and_back_to_the_last_average() -> None:
    parameters, seen = weights(0.0), []
    ema = LiveEma(parameters, decay=0.5, every=3)
    for step in range(1, 8):
        add(parameters, 1.0)
        ema.after_update(step)
        seen.append(parameters["w"].item())
    # 3 → ½·0 + ½·3 = 1.5; 4.5 → ½·1.5 + ½·4.5 = 3
    assert seen == [1, 2, 1.5, 2.5, 3.5, 3, 4]


@pytest.mark.parametrize("decay", [0.1, 0.5, 0.92, 0.999])
def test_weights_that_do_not_move_stay_bit_for_bit(decay: float) -> None:
    start = torch.randn(1000)
    parameters = {"w": nn.Parameter(start.clone())}
    ema = LiveEma(parameters, decay=decay, every=1)
    for step in range(1, 50):
        ema.after_update(step)
    assert torch.equal(parameters["w"].detach(), start)


@pytest.mark.parametrize(("decay", "kept"), [(1e-7, 1.0), (1 - 1e-7, 0.0)])
def test_the_limits_of_decay_are_plain_training_and_no_training(decay: float, kept: float) -> None:
    parameters = weights(0.0)
    ema = LiveEma(parameters, decay=decay, every=1)
    add(parameters, 1.0)
    ema.after_update(1)
    assert parameters["w"].item() == pytest.approx(kept, abs=1e-6)


def test_the_closed_form_under_a_constant_pull() -> None:
    """With θ' = c at every step, θₜ − c = αᵗ (θ₀ − c)."""
    parameters = weights(1.0)
    ema = LiveEma(parameters, decay=0.9, every=1)
    for step in range(1, 11):
        with torch.no_grad():
            parameters["w"].fill_(5.0)
        ema.after_update(step)
        with torch.no_grad():
            assert parameters["w"].item() == pytest.approx(5 - 4 * 0.9**step, abs=1e-5)


def test_o57_state_and_step_number_are_all_there_is() -> None:
    one, other = weights(0.0), weights(0.0)
    whole = LiveEma(one, decay=0.5, every=3)
    for step in range(1, 6):
        add(one, 1.0)
        whole.after_update(step)
    fresh = LiveEma(other, decay=0.5, every=3)
    fresh.load(whole.state(), whole.counters())
    with torch.no_grad():
        other["w"].copy_(one["w"])
    for parameters, ema in ((one, whole), (other, fresh)):
        add(parameters, 1.0)
        ema.after_update(6)
    assert torch.equal(one["w"], other["w"])


def test_a_state_of_other_parameters_is_refused() -> None:
    ema = LiveEma(weights(0.0), decay=0.5, every=1)
    with pytest.raises(CheckpointError, match="this stage has 1"):
        ema.load({"v": torch.zeros(1), "w": torch.zeros(1)}, {})
