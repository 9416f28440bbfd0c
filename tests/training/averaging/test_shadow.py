"""The shadow average (registered as "shadow"): closed forms, warm-up, types, and what a stage does with it."""

import pytest
import torch
from torch import nn

from lingraft.errors import CheckpointError, TrainingError
from lingraft.training.averaging import ShadowEma, averages
from lingraft.training.horizon import start_share

STEPS = 7


def run(ema, parameters, values) -> list[float]:
    """Let the raw weight jump to one value after the other; return the average after each."""
    seen = []
    for step, value in enumerate(values, 1):
        with torch.no_grad():
            parameters["w"].fill_(value)
        ema.after_update(step)
        seen.append(ema.averaged()["w"].item())
    return seen


def test_by_hand_without_warm_up() -> None:
    parameters = {"w": nn.Parameter(torch.tensor([1.0]))}
    ema = ShadowEma(parameters, decay=0.75, every=1, warmup=False)
    assert run(ema, parameters, [5.0, 5.0]) == [0.75 * 1 + 0.25 * 5, 0.75 * 2 + 0.25 * 5]
    assert parameters["w"].item() == 5.0


def test_by_hand_with_warm_up() -> None:
    """The first update's decay is 2/11, the second's 3/12."""
    parameters = {"w": nn.Parameter(torch.tensor([0.0]))}
    ema = ShadowEma(parameters, decay=0.999, every=1)
    first = 9 / 11 * 11.0
    assert run(ema, parameters, [11.0, 1.0]) == pytest.approx([first, 0.25 * first + 0.75], rel=1e-6)


@pytest.mark.parametrize("warmup", [True, False])
def test_the_closed_form_under_a_constant_pull(warmup: bool) -> None:
    """With θ = c, s − c is the share of the start times (s₀ − c)."""
    parameters = {"w": nn.Parameter(torch.tensor([1.0], dtype=torch.float64))}
    ema = ShadowEma(parameters, decay=0.9, every=3, warmup=warmup)
    seen = run(ema, parameters, [5.0] * 20)
    for steps, value in enumerate(seen, 1):
        share = start_share(steps, decay=0.9, every=3, warmup=warmup)
        assert value == pytest.approx(5 - 4 * share, abs=1e-5)


def test_weights_that_do_not_move_stay_bit_for_bit() -> None:
    start = torch.randn(1000)
    ema = ShadowEma({"w": nn.Parameter(start.clone())}, decay=0.9)
    for step in range(1, 50):
        ema.after_update(step)
    assert torch.equal(ema.averaged()["w"], start)


def test_o57_after_a_resume_the_decay_goes_on_growing() -> None:
    """A counter that began again would give the next raw weight 9/11 of the average."""
    whole = {"w": nn.Parameter(torch.tensor([0.0]))}
    ema = ShadowEma(whole, decay=0.9999)
    run(ema, whole, [1.0] * 5000)
    resumed = ShadowEma(whole, decay=0.9999)
    resumed.load(ema.state(), ema.counters())
    assert resumed.updates == 5000
    assert run(resumed, whole, [101.0]) == pytest.approx([1 + 100 * 9 / 5011], rel=1e-5)
    assert run(ema, whole, [101.0]) == [resumed.averaged()["w"].item()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_o55_every_floating_type_is_tracked_and_kept_in_fp32(dtype: torch.dtype) -> None:
    parameters = {"w": nn.Parameter(torch.zeros(3, dtype=dtype)), "v": nn.Parameter(torch.zeros(3))}
    ema = ShadowEma(parameters, decay=0.999, warmup=False)
    with torch.no_grad():
        parameters["w"].fill_(1.0)
    ema.after_update(1)
    average = ema.averaged()
    assert average.keys() == parameters.keys()
    assert {t.dtype for t in average.values()} == {torch.float32}
    assert average["w"].tolist() == pytest.approx([0.001] * 3, rel=1e-4)


def test_o55_what_cannot_be_averaged_is_named() -> None:
    counts = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(TrainingError, match=r"1 parameters are not numbers .* first is counts"):
        ShadowEma({"counts": counts})


def test_o59_a_part_of_the_average_is_the_average_of_that_part() -> None:
    """Nothing looks beyond an element, so what is done to a shard is what is done to that part of the whole."""
    start, pulls = torch.randn(8, 3), torch.randn(5, 8, 3)
    whole = {"w": nn.Parameter(start.clone())}
    parts = [{"w": nn.Parameter(start[half].clone())} for half in (slice(4), slice(4, 8))]
    emas = [ShadowEma(p, decay=0.9) for p in (whole, *parts)]
    for step, pull in enumerate(pulls, 1):
        for parameters, piece in zip((whole, *parts), (pull, pull[:4], pull[4:]), strict=True):
            with torch.no_grad():
                parameters["w"].add_(piece)
        for ema in emas:
            ema.after_update(step)
    gathered = torch.cat([ema.averaged()["w"] for ema in emas[1:]])
    assert torch.equal(gathered, emas[0].averaged()["w"])


def test_o60_it_holds_one_fp32_copy_of_what_learns_and_no_more() -> None:
    parameters = {"w": nn.Parameter(torch.zeros(100, 7))}
    ema = ShadowEma(parameters)
    held = list(vars(ema)["_weights"].values())
    assert sum(t.numel() * t.element_size() for t in held) == 100 * 7 * 4


def test_a_state_of_other_parameters_is_refused() -> None:
    ema = ShadowEma({"w": nn.Parameter(torch.zeros(1))})
    with pytest.raises(CheckpointError, match="differ at"):
        ema.load({"v": torch.zeros(1)}, {"updates": 1})


def make(start):
    return averages.get("shadow", "ema").function(start.parameters, decay=0.9, every=2)


def test_o61_raw_training_is_what_it_would_be_without_a_shadow(make_trial) -> None:
    plain = make_trial().run()
    beside = make_trial(companions=(make,), measure_at=frozenset({1, 3})).run()
    assert beside.digest() == plain.digest()
    assert beside.reports == plain.reports


@pytest.mark.parametrize("tied", [True, False])
def test_rows_that_must_not_move_do_not_move_in_the_average_either(make_trial, tied: bool) -> None:
    from lingraft.model.base import load_model

    trial = make_trial(tied=tied, train="new_embeddings", companions=(make,))
    kept = {}
    trial.run(finish_averaged=lambda: kept.update({n: p.detach().clone() for n, p in trial.model.named_parameters()}))
    start = dict(load_model(trial.base).named_parameters())
    for name in ("model.embed_tokens.weight", *(() if tied else ("lm_head.weight",))):
        moved = (kept[name] != start[name]).any(dim=1)
        assert not moved[:380].any()
        assert not moved[410:].any()
        assert moved[380:410].any()
