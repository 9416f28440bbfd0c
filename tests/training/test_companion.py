"""What runs beside the optimiser: when it is called, what of it is saved, and averaged weights in the model's place."""

import pytest
import torch
from torch import nn

from lingraft.errors import CheckpointError
from lingraft.model.base import is_tied
from lingraft.training.checkpoint import latest_checkpoint
from lingraft.training.companion import Companion, exchanged, refuse_other_tensors

STEPS = 7


class Watching(Companion):
    """Keeps a running sum of the weights as its average, and a log of the calls."""

    group = "watching"

    def __init__(self, start, log=None):
        self.parameters, self.log = dict(start.parameters), log if log is not None else []
        self.total = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.count = 1

    def before_update(self, step):
        norm = sum(float(p.grad.square().sum()) for p in self.parameters.values()) ** 0.5
        self.log.append(("before", step, norm))

    def after_update(self, step):
        assert all(p.grad is None for p in self.parameters.values())
        self.log.append(("after", step))
        for name, parameter in self.parameters.items():
            self.total[name].lerp_(parameter.detach(), 0.5)
        self.count += 1

    def state(self):
        return self.total

    def counters(self):
        return {"count": self.count}

    def load(self, state, counters):
        refuse_other_tensors(state, self.total, "sum")
        for name, tensor in state.items():
            self.total[name].copy_(tensor)
        self.count = counters["count"]

    def averaged(self):
        return self.total


def bits(model) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_it_is_called_around_every_update_before_gradients_are_clipped(make_trial) -> None:
    log = []
    trial = make_trial(clip=1e-3, companions=(lambda start: Watching(start, log),)).run()
    assert [entry[:2] for entry in log] == [(when, n) for n in range(1, STEPS + 1) for when in ("before", "after")]
    assert [e[2] for e in log if e[0] == "before"] == pytest.approx([r.gradient_norm for r in trial.reports])


def test_rows_that_must_not_move_have_no_gradient_by_then(make_trial) -> None:
    class Looking(Companion):
        def __init__(self, start):
            self.table = start.parameters["model.embed_tokens.weight"]

        def before_update(self, step):
            assert not self.table.grad[:380].any()
            assert self.table.grad[380:].any()

    make_trial(train="new_embeddings", companions=(Looking,)).run()


def test_o57_tensors_and_counters_come_back_from_a_checkpoint(make_trial) -> None:
    made = []

    def make(start):
        made.append(Watching(start))
        return made[-1]

    class KilledError(Exception):
        pass

    def kill(_, report):
        if report.step == 5:
            raise KilledError

    whole = make_trial(companions=(make,)).run()
    trial = make_trial(companions=(make,))
    with pytest.raises(KilledError):
        trial.run(kill)
    trial.run()
    assert [companion.count for companion in made] == [8, 6, 8]
    assert trial.last_save() == whole.last_save()
    assert "watching.safetensors" in trial.last_save()


def test_o61_o65_averaged_weights_are_measured_and_leave_the_raw_ones_as_they_were(make_trial) -> None:
    seen = {}

    def run(**changes):
        trial = make_trial(companions=(Watching,), **changes)
        raw = lambda model, step: seen.setdefault(("raw", step), bits(model))  # noqa: E731
        return trial.run(
            measure=raw,
            measure_averaged=lambda step: seen.setdefault(("averaged", step), bits(trial.model)),
            finish_averaged=lambda: seen.setdefault("end", bits(trial.model)),
        )

    measured = run(measure_at=frozenset({2, 4, STEPS}))
    assert measured.last_save() == run().last_save()
    checkpoint, _ = latest_checkpoint(measured.checkpoints, {"recipe": "r"})
    for name, tensor in checkpoint.tensors("model").items():
        assert torch.equal(tensor, seen["raw", STEPS][name])
        assert torch.equal(checkpoint.tensors("watching")[name], seen["averaged", STEPS][name])
        assert torch.equal(seen["end"][name], seen["averaged", STEPS][name])
        assert torch.equal(dict(measured.model.named_parameters())[name], tensor)
        assert not torch.equal(seen["raw", STEPS][name], seen["averaged", STEPS][name])


def test_o65_a_checkpoint_cannot_be_made_from_inside_a_measurement_of_the_average(make_trial) -> None:
    from lingraft.training import stage

    saved = []
    original = stage._Loop.averages

    def spying(loop):
        saved.append(loop)
        return original(loop)

    trial = make_trial(companions=(Watching,), measure_at=frozenset({3}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage._Loop, "averages", spying)
        with pytest.raises(CheckpointError, match="averaged"):
            trial.run(measure_averaged=lambda step: saved[-1].save(step))
    assert not saved[-1].holds_average


def test_o61_raw_weights_come_back_from_a_measurement_that_fails() -> None:
    parameters = {"a": nn.Parameter(torch.randn(5)), "b": nn.Parameter(torch.randn(3, 2))}
    raw = {name: p.detach().clone() for name, p in parameters.items()}
    average = {name: torch.randn_like(p) for name, p in raw.items()}
    wanted = {name: a.clone() for name, a in average.items()}

    def measure() -> None:
        with exchanged(parameters, average):
            assert all(torch.equal(p, wanted[name]) for name, p in parameters.items())
            raise RuntimeError("measuring failed")

    with pytest.raises(RuntimeError, match="measuring failed"):
        measure()
    assert all(torch.equal(p, raw[name]) for name, p in parameters.items())
    assert all(torch.equal(a, wanted[name]) for name, a in average.items())


def test_an_exchange_that_cannot_be_finished_is_undone() -> None:
    parameters = {"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.ones(2))}
    with pytest.raises(RuntimeError), exchanged(parameters, {"a": torch.zeros(2), "b": torch.zeros(3)}):
        raise AssertionError
    assert all(torch.equal(p, torch.ones(2)) for p in parameters.values())


def test_a_tied_matrix_stays_one(make_trial) -> None:
    ties = []
    trial = make_trial(companions=(Watching,), measure_at=frozenset({2}))
    trial.run(measure_averaged=lambda step: ties.append(is_tied(trial.model)))
    assert ties == [True]
    assert is_tied(trial.model)


def test_a_state_of_other_parameters_is_refused() -> None:
    with pytest.raises(CheckpointError, match="differ at \\['b'\\]"):
        refuse_other_tensors({"a": 1, "b": 2}, {"a": 1}, "average")
