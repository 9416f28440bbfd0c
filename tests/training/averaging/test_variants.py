"""The other averages ("lookahead", "to_start", "uniform"), and the control of the live one, each by hand."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from lingraft.errors import TrainingError
from lingraft.training.averaging import LiveEma, Lookahead, ToStart, UniformAverage, averages


def jump(parameters, ema, values) -> list[float]:
    seen = []
    for step, value in enumerate(values, 1):
        with torch.no_grad():
            parameters["w"].add_(value)
        ema.after_update(step)
        seen.append(parameters["w"].item())
    return seen


def one(value: float) -> dict[str, nn.Parameter]:
    return {"w": nn.Parameter(torch.tensor([value]))}


def test_the_registry_holds_them_all() -> None:
    assert [entry.name for entry in averages] == ["live", "lookahead", "shadow", "to_start", "uniform"]


def test_lookahead_by_hand() -> None:
    """k = 2, slow step ½: fast 1, 2 → slow 1; fast 2, 3 → slow 2."""
    parameters = one(0.0)
    assert jump(parameters, Lookahead(parameters, decay=0.5, every=2), [1, 1, 1, 1]) == [1, 1, 2, 2]


def test_lookahead_is_the_live_average_with_the_constants_of_its_paper() -> None:
    first, second = one(1.0), one(1.0)
    values = torch.randn(23).tolist()
    assert jump(first, Lookahead(first), values) == jump(second, LiveEma(second, decay=0.5, every=5), values)


def test_to_start_by_hand() -> None:
    """α = ¼, η = 2: from 8 by +4 and +4 to 16, and back to ¼·8 + ¾·16 = 14."""
    parameters = one(8.0)
    assert jump(parameters, ToStart(parameters, decay=0.25, every=2), [4, 4, 1]) == [12, 14, 15]


def test_to_start_comes_to_rest_where_the_closed_form_says() -> None:
    """Under a constant update u: η · u · (1 − α) / α."""
    parameters = one(0.0)
    seen = jump(parameters, ToStart(parameters, decay=0.1, every=3), [0.5] * 600)
    assert seen[-1] == pytest.approx(3 * 0.5 * 0.9 / 0.1, rel=1e-4)


@pytest.mark.parametrize("decay", [0.001, 0.3, 0.7])
def test_to_start_leaves_weights_that_did_not_move_bit_for_bit(decay: float) -> None:
    start = torch.randn(1000)
    parameters = {"w": nn.Parameter(start.clone())}
    ema = ToStart(parameters, decay=decay, every=1)
    for step in range(1, 20):
        ema.after_update(step)
    assert torch.equal(parameters["w"].detach(), start)


def test_to_start_has_nothing_to_save_and_a_resumed_stage_has_the_same_bits(make_trial) -> None:
    class KilledError(Exception):
        pass

    def kill(_, report):
        if report.step == 5:
            raise KilledError

    def make(start):
        return ToStart(start.parameters, decay=0.1, every=2)

    whole, again = make_trial(companions=(make,)).run(), make_trial(companions=(make,))
    with pytest.raises(KilledError):
        again.run(kill)
    assert again.run().last_save() == whole.last_save()
    assert "average.safetensors" not in whole.last_save()


def test_uniform_is_the_plain_mean_of_the_last_part() -> None:
    """Of 1, 3, 6, 10, 15, 21 every second behind step 2: 10 and 21."""
    parameters = one(0.0)
    ema = UniformAverage(parameters, every=2, after=2)
    assert ema.averaged() is None
    jump(parameters, ema, [1, 2, 3, 4, 5, 6])
    assert ema.averaged()["w"].item() == (10 + 21) / 2
    assert parameters["w"].item() == 21


def test_uniform_goes_on_where_it_was_saved() -> None:
    whole = one(0.0)
    ema = UniformAverage(whole, every=1)
    jump(whole, ema, [1, 1, 1])
    other = UniformAverage(whole, every=1)
    other.load(ema.state(), ema.counters())
    jump(whole, other, [1])
    assert other.averaged()["w"].item() == pytest.approx((1 + 2 + 3 + 4) / 4)


@pytest.mark.parametrize("average", [LiveEma, Lookahead, ToStart])
def test_o55_an_average_that_replaces_weights_is_not_rounded_away(average) -> None:
    with pytest.raises(TrainingError, match=r"needs them in fp32; 1 are not, the first is w \(torch.bfloat16\)"):
        average({"w": nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)), "v": nn.Parameter(torch.zeros(2))})


def train(optimizer_class, rate: float, ema: float | None, **options) -> torch.Tensor:
    """Train a small regression; with ``ema`` its weights are averaged live after every step."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64, generator=generator))
    optimizer = optimizer_class([weight], lr=rate, **options)
    average = LiveEma({"w": weight}, decay=ema, every=1) if ema else None
    for step in range(1, 30):
        inputs, targets = (torch.randn(8, n, dtype=torch.float64, generator=generator) for n in (3, 4))
        optimizer.zero_grad()
        mse_loss(inputs @ weight.T, targets).backward()
        optimizer.step()
        if average:
            average.after_update(step)
    return weight.detach()


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(torch.optim.SGD, {"weight_decay": 0.1}), (torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.9, 0.95)})],
)
def test_a_live_average_of_every_step_is_a_rate_multiplied_by_one_minus_alpha(optimizer, options) -> None:
    """The control "lr_matched": decoupled weight decay is scaled with the rate, the moments do not know of either."""
    averaged = train(optimizer, 0.05, 0.92, **options)
    scaled = train(optimizer, 0.05 * (1 - 0.92), None, **options)
    torch.testing.assert_close(averaged, scaled, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(averaged, train(optimizer, 0.05, None, **options), atol=1e-3)


def test_lr_matched_by_hand_for_one_step_of_adamw() -> None:
    """θ = 2, gradient 1, rate 0.1, decay 0.5: θ' = 2 − 0.1 · (0.5 · 2 + 1) = 1.8; of it the average keeps 8 %."""
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    ema = LiveEma({"w": weight}, decay=0.92, every=1)
    weight.grad = torch.ones(1, dtype=torch.float64)
    torch.optim.AdamW([weight], lr=0.1, weight_decay=0.5, eps=0.0).step()
    assert weight.item() == pytest.approx(1.8)
    ema.after_update(1)
    assert weight.item() == pytest.approx(2 - 0.08 * 0.2)
