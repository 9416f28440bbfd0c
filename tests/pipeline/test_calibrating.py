"""Steps that are tried have the run's shapes, and what they took stands in the plan."""

import queue

import pytest

from lingraft.errors import ModelError
from lingraft.model.base import is_tied
from lingraft.pipeline import calibrating
from lingraft.pipeline.calibrating import calibrate
from lingraft.pipeline.outline import StepCost
from lingraft.pipeline.plan import make_plan


def test_the_work_of_a_stage_by_hand(make_recipe) -> None:
    plan = make_plan(make_recipe())
    base, stage = plan.base, plan.stages[1]
    weights = base.num_parameters + (plan.num_rows - base.num_rows) * base.hidden_size * (1 if base.is_tied else 2)
    products = weights if base.is_tied else weights - plan.num_rows * base.hidden_size
    length = stage.stage.batch.sequence_length
    # Forward and twice as much backward, two operations each; half of length² pairs, twice, for every layer.
    assert stage.flops == 6 * stage.tokens * (products + base.num_layers * base.hidden_size * length)
    assert stage.utilisation is None


def test_steps_are_tried_in_the_run_s_shape(make_recipe) -> None:
    plan = make_plan(make_recipe())
    model = calibrating._untrained(plan)
    assert model.get_input_embeddings().weight.shape == (plan.num_rows, plan.base.hidden_size)
    assert is_tied(model) == plan.base.is_tied
    assert model.config.num_hidden_layers == plan.base.num_layers
    cost = calibrating._step_cost(plan, 1)
    assert cost.seconds > 0
    assert cost.peak_bytes > 10**7
    assert cost.product_rate > 10**8


def test_a_plan_takes_over_what_was_measured(make_recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(make_recipe())
    costs = [StepCost(0.5, 1000, 1e9), StepCost(0.25, 2000, 1e9)]
    monkeypatch.setattr(calibrating, "_in_another_process", lambda _, index: costs[index])
    tried = calibrate(plan)
    assert [stage.seconds for stage in tried.stages] == [0.5 * 4, 0.25 * 100]
    assert [stage.memory_bytes for stage in tried.stages] == [1000, 2000]
    assert tried.stages[1].utilisation == pytest.approx(plan.stages[1].flops / 100 / 0.25 / 1e9)


def test_another_process_tells_what_its_steps_took(make_recipe) -> None:
    assert isinstance(calibrating._in_another_process(make_plan(make_recipe()), 0), StepCost)


def test_a_stage_that_cannot_be_done_is_named_with_the_reason(make_recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(make_recipe())
    told: queue.Queue = queue.Queue()

    def fail(*_: object) -> None:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(calibrating, "_step_cost", fail)
    calibrating._tell(plan, 1, told)
    assert told.get_nowait() == "RuntimeError: not enough memory"


def _end(*_: object) -> None:
    raise SystemExit(9)


def test_a_process_that_ends_without_a_word_is_named(make_recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "_tell", _end)
    monkeypatch.setattr(calibrating, "_PATIENCE", 0.2)
    plan = make_plan(make_recipe())
    with pytest.raises(ModelError, match=r"stages\.1: no step of .* can be done here: its process ended with status 9"):
        calibrating._in_another_process(plan, 1)
