"""A stage in slices: which steps a slice has, what is merged, and the same bits when it is killed anywhere."""

import dataclasses
from pathlib import Path

import pytest
import torch

from lingraft.corpus.loader import Batch, SequenceLoader
from lingraft.errors import RecipeError
from lingraft.model.base import head_of, load_model
from lingraft.model.freeze import choose_trainable
from lingraft.model.interpolate import merge_weights
from lingraft.pipeline.slicing import SlicedTraining, SliceLoader, slice_plan
from lingraft.recipe import Slices
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan

NUM_IDS, NUM_OLD = 410, 380
PLAN = StagePlan(
    name="trial", seed=1, num_steps=8, micro_batch=4, dtype=torch.float32, peak_rate=1e-2, warmup_steps=4,
    checkpoint_at=frozenset({1, 3, 5, 7}),
)  # fmt: skip


class Steps(SequenceLoader):
    """A batch of random tokens for each step."""

    def __init__(self, num_steps: int = 8) -> None:
        self._steps = num_steps

    @property
    def num_steps(self) -> int:
        return self._steps

    def batch(self, step, *, rank=0, num_ranks=1):
        torch.manual_seed(step)
        tokens = torch.randint(NUM_IDS, (4, 17)).numpy()
        return Batch(tokens=tokens, documents=tokens * 0, corpora=("eu",) * 4)

    def consumed(self, step):
        return {"eu": step * 64}

    def state(self, step):
        return {"step": step}

    def go_on(self, step, state, *, changed=False):
        assert state == {"step": step}


class KilledError(Exception):
    """Stands for a process that dies."""


def run(base: Path, folder: Path, spec: Slices, train="all", kill_at: int = 0, told=None):
    model = load_model(base)
    trainable = choose_trainable(model, train, tuple(range(NUM_OLD, NUM_IDS)), NUM_IDS)
    told = told if told is not None else []

    def on_step(report):
        told.append(("step", report.step, report.learning_rate))
        if report.step == kill_at:
            raise KilledError

    callbacks = StageCallbacks(on_step=on_step, measure=lambda step: told.append(("measured", step)))
    still = SlicedTraining(
        spec, model, head_of(model, NUM_IDS), trainable, Steps(), lambda turn: PLAN, folder, {"recipe": "r"},
        callbacks, lambda step: told.append(("forget", step)),
    ).run()  # fmt: skip
    return model, still, told


def weights(model) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_a_slice_has_its_part_of_the_steps_and_a_schedule_of_its_own() -> None:
    plan = slice_plan(PLAN, 2, 4)
    assert (plan.name, plan.num_steps, plan.warmup_steps, plan.measure_at) == ("trial/slice-3", 2, 1, frozenset())
    assert plan.checkpoint_at == {1}  # step 5 of the stage
    assert slice_plan(dataclasses.replace(PLAN, warmup_steps=0), 0, 4).warmup_steps == 0
    loader = SliceLoader(Steps(), 4, 2)
    assert loader.num_steps == 2
    assert (loader.batch(1).tokens == Steps().batch(5).tokens).all()
    assert (loader.consumed(2), loader.state(1)) == ({"eu": 6 * 64}, {"step": 5})


@pytest.mark.parametrize("merge", ["linear", "slerp"])
def test_it_is_branches_from_one_start_merged_round_by_round(tied_folder, tmp_path, merge: str) -> None:
    """The slow obvious version: four trainings by hand, two merges."""
    model, _, told = run(tied_folder, tmp_path / "a", Slices(count=4, width=2, merge=merge))
    by_hand = load_model(tied_folder)
    for turn in range(2):
        start, branches = weights(by_hand), []
        for number in (2 * turn, 2 * turn + 1):
            by_hand.load_state_dict(start, strict=False)
            train_stage(
                by_hand, head_of(by_hand, NUM_IDS), choose_trainable(by_hand, "all", (), NUM_IDS),
                SliceLoader(Steps(), 2 * number, 2), slice_plan(PLAN, number, 4), tmp_path / f"b{number}", {},
                StageCallbacks(),
            )  # fmt: skip
            branches.append(weights(by_hand))
        with torch.no_grad():
            merged = merge_weights(branches, merge)
            for name, parameter in by_hand.named_parameters():
                parameter.copy_(merged[name])
    assert all(torch.equal(p, weights(by_hand)[n]) for n, p in model.named_parameters())
    assert [step for kind, step, *_ in told if kind == "step"] == list(range(1, 9))
    assert [step for kind, step, *_ in told if kind == "measured"] == [4, 8]
    assert [step for kind, step, *_ in told if kind == "forget"] == [0, 2, 4, 6]


@pytest.mark.parametrize("kill_at", [1, 2, 4, 5, 8])
def test_killed_anywhere_it_ends_with_the_same_bits(tied_folder, tmp_path, kill_at: int) -> None:
    spec = Slices(count=4, width=2, merge="slerp")
    whole, _, _ = run(tied_folder, tmp_path / "whole", spec)
    with pytest.raises(KilledError):
        run(tied_folder, tmp_path / "again", spec, kill_at=kill_at)
    again, _, told = run(tied_folder, tmp_path / "again", spec)
    assert all(torch.equal(p, weights(whole)[n]) for n, p in again.named_parameters())
    assert len([1 for kind, *_ in told if kind == "step"]) < 8 or kill_at == 1


def test_rows_that_must_not_move_stand_still_through_every_merge(tied_folder, tmp_path) -> None:
    spec = Slices(count=4, width=2, merge="slerp")
    model, still, _ = run(tied_folder, tmp_path / "rows", spec, train="new_embeddings")
    start, now = weights(load_model(tied_folder)), weights(model)
    table = "model.embed_tokens.weight"
    assert {name for name in now if not torch.equal(now[name], start[name])} == {table}
    moved = (now[table] != start[table]).any(dim=1)
    assert not moved[:NUM_OLD].any()
    assert moved[NUM_OLD:NUM_IDS].any()
    assert still > 0


def test_a_branch_of_other_inputs_is_not_taken_for_this_one(tied_folder, tmp_path) -> None:
    model = load_model(tied_folder)
    spec, told = Slices(count=2, width=2), []
    for recipe in ("r", "s"):
        SlicedTraining(
            spec, model, head_of(model, NUM_IDS), choose_trainable(model, "all", (), NUM_IDS), Steps(),
            lambda turn: PLAN, tmp_path, {"recipe": recipe}, StageCallbacks(on_step=lambda r: told.append(r.step)),
            lambda step: None,
        ).run()  # fmt: skip
    assert told == [*range(1, 9), *range(1, 9)]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("stages.1.slices={count: 3, width: 2}",), r"slices: count 3 must be a multiple of width 2"),
        (("stages.1.slices={count: 8}",), r"stages\.1: 100 steps cannot be cut into 8 equal slices"),
        (("stages.1.slices={}", "stages.1.ema={kind: shadow}"), r"stages\.1: slices with ema\.kind shadow"),
        (("stages.1.slices={merge: ties}",), r"stages\.1\.slices\.merge: "),
        (
            ("stages.0.slices={count: 2}", "stages.1.optimizer.start=carry"),
            r"cannot be carried on to or from a stage in",
        ),
    ],
)
def test_what_cannot_be_sliced_is_refused(make_recipe, overrides, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make_recipe(*overrides)


def test_the_plan_counts_the_start_and_the_branches(make_recipe) -> None:
    from lingraft.pipeline.outline import stage_memory
    from lingraft.pipeline.plan import make_plan

    plain, sliced = make_recipe(), make_recipe("stages.1.slices={count: 4, width: 2}")
    base = make_plan(plain).base
    counted = [stage_memory(r, base, r.stages[1], 1000, 1000, 50) for r in (plain, sliced)]
    assert counted[1] - counted[0] == 3 * 4 * 1000
    assert sliced.stages[1].is_guarded


@pytest.fixture(scope="module")
def sliced_run(tmp_path_factory, tied_folder: Path, corpora_folder: Path):
    """Return a maker of runs of a recipe with one stage in slices, stopped behind it."""
    from lingraft.pipeline.adapt import adapt
    from lingraft.recipe_file import load_recipe

    path = tmp_path_factory.mktemp("sliced") / "tiny.yaml"
    path.write_text(
        f"""
name: tiny
base_model: {tied_folder}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora_folder}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora_folder}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{method: keep}}
precision: fp32
stages:
  - name: only
    tokens: 1024
    mix: {{eu: 0.75, en: 0.25}}
    lr: {{peak: 1e-2, warmup: 25%}}
    slices: {{count: 4, width: 2, merge: slerp}}
    guards: [{{name: ewc, strength: 10.0, tokens: 64}}]
    ema: {{kind: live, decay: 0.5}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 4}}
measure: {{at: [100%], validation_bytes: 1000, probes: []}}
""",
        encoding="utf-8",
    )
    return lambda folder: adapt(load_recipe(path), folder, until="only")


def test_a_run_measures_after_every_merge_and_leaves_no_branches(sliced_run, tmp_path) -> None:
    run = sliced_run(tmp_path / "run")
    rows = [row for row in run.measurements() if row.stage == "only"]
    assert [row.tokens for row in rows if row.name == "bits_per_byte" and row.language == "eu"] == [512, 1024]
    assert [row.tokens for row in rows if row.name == "learning_rate"] == [128 * step for step in range(1, 9)]
    assert {p.name for p in run.path("stages", "1-only").iterdir()} == {"model"}


def test_a_run_killed_between_slices_goes_on_with_the_same_bits(sliced_run, tmp_path, monkeypatch) -> None:
    from lingraft.pipeline import slicing

    whole, folder = sliced_run(tmp_path / "whole"), tmp_path / "killed"
    original = slicing.publish_folder

    def dying(to, fill):
        original(to, fill)
        if to.name.startswith("slice-3-"):
            raise KilledError

    monkeypatch.setattr(slicing, "publish_folder", dying)
    with pytest.raises(KilledError):
        sliced_run(folder)
    monkeypatch.undo()
    again = sliced_run(folder)
    markers = [run.finished("stage-1-only")["record"]["weights_sha256"] for run in (whole, again)]
    assert markers[0] == markers[1]
    steps = [row.tokens for row in again.measurements() if row.name == "learning_rate"]
    assert steps == [128 * step for step in range(1, 9)]
