"""Checkpoints written beside the training are those of their moment, and no failure is lost."""

import threading
from pathlib import Path

import pytest
import torch

from lingraft.errors import CheckpointError, InterruptedRunError
from lingraft.training import stage as stage_module
from lingraft.training.background import Background, copied
from lingraft.training.checkpoint import latest_checkpoint, save_checkpoint


def test_a_copy_stands_still() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    kept = copied({"model": {"w": weight}})
    weight.data.mul_(3)
    assert kept["model"]["w"].tolist() == [1.0, 1.0]
    assert not kept["model"]["w"].requires_grad


def test_pieces_run_one_at_a_time_and_the_end_waits() -> None:
    done: list[int] = []
    gate = threading.Event()

    def work(number: int) -> None:
        assert gate.wait(10)
        done.append(number)

    with Background() as background:
        background.begin(work, 1)
        assert done == []
        gate.set()
        background.begin(work, 2)
        assert done[:1] == [1]
    assert done == [1, 2]


def fail(text: str) -> None:
    raise CheckpointError(text)


def test_what_a_piece_raised_is_raised_by_the_next_or_at_the_end() -> None:
    background = Background()
    background.begin(fail, "first")
    with pytest.raises(CheckpointError, match="first"):
        background.begin(fail, "never begun")
    background.wait()
    with pytest.raises(CheckpointError, match="second"), background:
        background.begin(fail, "second")


def stop_behind(background: Background) -> None:
    with background:
        background.begin(fail, "disk full")
        raise InterruptedRunError("stopped")


def test_an_error_of_the_block_is_told_and_the_failure_with_it() -> None:
    with pytest.raises(InterruptedRunError) as told:
        stop_behind(Background())
    assert told.value.__notes__ == ["and a checkpoint could not be written: disk full"]


def test_training_ends_with_the_same_bits_and_can_go_on_from_what_was_written(make_trial) -> None:
    plain = make_trial(tied=True, ema=(0.92, 1)).run()
    beside = make_trial(tied=True, ema=(0.92, 1), saves_beside=True)
    with pytest.raises(InterruptedRunError, match="it is saved"):
        beside.run(should_stop=lambda: len(beside.reports) == 3)
    found, passed_over = latest_checkpoint(beside.checkpoints, beside.fingerprints)
    assert found is not None
    assert (found.step, passed_over) == (3, [])
    assert beside.run().digest() == plain.digest()


def test_a_checkpoint_holds_the_weights_of_its_step_however_late_it_is_written(make_trial, monkeypatch) -> None:
    first = make_trial(tied=True).run()
    assert first.plan.checkpoint_at
    at = min(first.plan.checkpoint_at)
    go_on = threading.Event()

    def late(folder: Path, step: int, *rest: object) -> Path:
        assert go_on.wait(30)
        return save_checkpoint(folder, step, *rest)

    monkeypatch.setattr(stage_module, "save_checkpoint", late)
    monkeypatch.setattr(stage_module, "prune_checkpoints", lambda *_, **__: None)
    trial = make_trial(tied=True, saves_beside=True, checkpoint_at=frozenset({at}))
    weights: dict[str, torch.Tensor] = {}

    def look(model: torch.nn.Module, report) -> None:
        if report.step == at:
            weights.update({name: p.detach().clone() for name, p in model.named_parameters()})
        if report.step == at + 1:
            go_on.set()

    trial.run(look)
    found, _ = latest_checkpoint(trial.checkpoints, trial.fingerprints)
    assert found is not None
    stored = found.tensors("model")
    assert stored.keys() == weights.keys()
    assert all(torch.equal(stored[name], weights[name]) for name in stored)


def test_a_checkpoint_that_cannot_be_written_ends_the_stage(make_trial, monkeypatch) -> None:
    monkeypatch.setattr(stage_module, "save_checkpoint", lambda *_: fail("no room"))
    with pytest.raises(CheckpointError, match="no room"):
        make_trial(tied=True, saves_beside=True).run()
