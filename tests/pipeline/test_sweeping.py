"""Sweeps on the tiny Llama: what arms share is made once and is, bit for bit, what each would have made alone."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lingraft.errors import CorpusError, InterruptedRunError, LingraftError, RecipeError, RunFolderError, TrainingError
from lingraft.model import export
from lingraft.pipeline import adapt as adapting
from lingraft.pipeline import sweeping
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.arms import Sweep, read_sweep
from lingraft.pipeline.sharing import pieces_of
from lingraft.pipeline.sweeping import arm_folder, plan_sweep, read_states, run_sweep
from lingraft.run import Run

SHORT = (
    "stages.0.tokens=256",
    "stages.1.tokens=512",
    "stages.1.mix={eu: 0.75, en: 0.25}",
    "measure.at=[100%]",
    "measure.validation_bytes=2000",
    "measure.probes=[{name: random_copy, num_items: 2}]",
    "measure.sample_tokens=2",
    "embeddings.max_source_mass=1.0",
    "embeddings.max_source_rise=1.0",
)
TIMED = ("seconds/", "tokens_per_second", "peak_memory")


@pytest.fixture
def sweep(recipe_path: Path) -> Sweep:
    """Three arms that differ in the second stage alone, in its mix or in its average."""
    arms = ("none:stages.1.mix.en=0", "half:stages.1.mix.en=0.5", "ema:stages.1.ema={kind: live, decay: 0.9}")
    return read_sweep(recipe_path, overrides=SHORT, arms=arms)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets what stands in for a run; plans are not made either."""
    monkeypatch.setattr(sweeping, "_planned", lambda arm: None)
    return lambda instead: monkeypatch.setattr(sweeping, "adapt", instead)


def _rows(folder: Path) -> list[Any]:
    return [row for row in Run(folder).measurements() if not row.name.startswith(TIMED)]


def _weights(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "model").glob("*.safetensors"))}


@pytest.fixture
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what whole runs are tested for elsewhere: that another process loads the model, and the page."""
    monkeypatch.setattr(export, "_load_elsewhere", lambda *_: {})
    monkeypatch.setattr(adapting, "write_report", lambda *_: None)


def test_arms_share_what_is_the_same_and_come_out_as_they_would_alone(
    sweep: Sweep, tmp_path: Path, in_short: None
) -> None:
    folder = tmp_path / "sweep"
    sweep = replace(sweep, arms=sweep.arms[:2])
    states = run_sweep(sweep, folder)
    assert [state.status for state in states] == ["done", "done"]
    assert states[0].taken == ()
    expected = ["corpus-eu", "corpus-en", "overlap", "base", "vocabulary", "tokens", "embeddings"]
    expected += ["measure-base", "measure-expanded", "stage-1-first"]
    assert states[1].taken == tuple(expected)
    first, second = (arm_folder(folder, arm) for arm in sweep.arms[:2])
    for shared in ("embeddings/model/model.safetensors", "stages/1-first/model/model.safetensors"):
        assert (first / shared).stat().st_ino == (second / shared).stat().st_ino
    alone = tmp_path / "alone"
    adapt(sweep.arms[1].recipe, alone)
    assert _weights(alone) == _weights(second)
    assert len(_weights(alone)) > 0
    assert _rows(alone) == _rows(second)
    assert Run(alone).items() == Run(second).items()
    assert (alone / "samples.jsonl").read_bytes() == (second / "samples.jsonl").read_bytes()
    # Arms with other mixes differ.
    assert _weights(first) != _weights(second)


def test_an_arm_that_fails_is_written_down_and_the_others_go_on(sweep: Sweep, tmp_path: Path, pretend: Any) -> None:
    ran, broken = [], {"none": TrainingError("the loss is not a number"), "half": RuntimeError("out of memory")}

    def attempt(recipe: Any, folder: Path, **_: Any) -> None:
        ran.append(Path(folder).name)
        if error := broken.get(ran[-1]):
            raise error

    pretend(attempt)
    states = run_sweep(sweep, tmp_path / "sweep")
    assert [state.status for state in states] == ["failed", "failed", "done"]
    assert states[0].error == "the loss is not a number"
    assert "RuntimeError: out of memory" in states[1].error
    assert "attempt" in states[1].error, "what is no fault of the user comes with its place"
    assert ran == ["none", "half", "ema"]
    # The same command tries again what failed, and only that.
    broken.clear()
    assert [state.status for state in run_sweep(sweep, tmp_path / "sweep")] == ["done"] * 3
    assert ran[3:] == ["none", "half"]


def test_a_stop_by_the_user_ends_the_sweep_and_it_goes_on_later(sweep: Sweep, tmp_path: Path, pretend: Any) -> None:
    ran: list[str] = []

    def attempt(recipe: Any, folder: Path, **_: Any) -> None:
        ran.append(Path(folder).name)
        if len(ran) == 2:
            raise InterruptedRunError("stopped")

    pretend(attempt)
    with pytest.raises(InterruptedRunError):
        run_sweep(sweep, tmp_path / "sweep")
    assert [state.status for state in read_states(tmp_path / "sweep", sweep)] == ["done", "waiting", "waiting"]
    run_sweep(sweep, tmp_path / "sweep")
    assert ran == ["none", "half", "half", "ema"]


def test_every_recipe_is_refused_before_anything_runs(recipe_path: Path, tmp_path: Path) -> None:
    sweep = read_sweep(recipe_path, overrides=SHORT, vary=["stages.1.tokens=512,900M"])
    with pytest.raises(CorpusError, match=r"arm 'tokens-900M': corpora\.\w+: its share"):
        run_sweep(sweep, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    with pytest.raises(LingraftError, match="arm 'tokens-900M'"):
        plan_sweep(sweep)


def test_a_plan_counts_what_is_shared_once(sweep: Sweep) -> None:
    plan = plan_sweep(sweep)
    assert plan.own_stages == (("first", "second"), ("second",), ("second",))
    assert plan.tokens == (768, 512, 512)
    assert plan.bytes[0] > plan.bytes[1] == plan.bytes[2] > 0
    assert min(plan.seconds) > 0


def test_one_arm_of_an_array_makes_what_is_shared_behind_the_lock(sweep: Sweep, tmp_path: Path, pretend: Any) -> None:
    folder, calls = tmp_path / "sweep", []

    def attempt(recipe: Any, to: Path, *, until: str | None = None, **_: Any) -> None:
        lock = sweeping.FileLock(folder / ".shared.lock")
        try:
            lock.acquire(timeout=0)
            calls.append((Path(to).name, until, "free"))
            lock.release()
        except sweeping.Timeout:
            calls.append((Path(to).name, until, "locked"))

    pretend(attempt)
    states = run_sweep(sweep, folder, only=1)
    assert calls == [("half", "first", "locked"), ("half", None, "free")]
    assert [state.status for state in states] == ["waiting", "done", "waiting"]
    with pytest.raises(RecipeError, match=r"--arm-index 3: there are 3 arms, from 0 to 2"):
        run_sweep(sweep, folder, only=3)


@pytest.mark.slow
def test_arms_in_any_order_by_single_tasks_come_out_the_same(sweep: Sweep, tmp_path: Path) -> None:
    small = replace(sweep, arms=sweep.arms[:2])
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run_sweep(small, whole)
    for index in (1, 0):
        run_sweep(small, parts, only=index)
    for arm in small.arms:
        assert _weights(arm_folder(whole, arm)) == _weights(arm_folder(parts, arm))
        assert _rows(arm_folder(whole, arm)) == _rows(arm_folder(parts, arm))


def test_the_folder_of_another_sweep_is_left_alone(sweep: Sweep, tmp_path: Path, pretend: Any) -> None:
    pretend(lambda *a, **k: None)
    folder = tmp_path / "sweep"
    run_sweep(replace(sweep, arms=sweep.arms[:2]), folder)
    assert len(run_sweep(sweep, folder)) == 3, "an arm may come in addition"
    with pytest.raises(RunFolderError, match=r"a sweep of other arms \(none\)"):
        run_sweep(replace(sweep, arms=sweep.arms[1:]), folder)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(RunFolderError, match="is not a sweep's folder"):
        run_sweep(sweep, tmp_path / "letters")


def test_an_arm_with_another_recipe_than_its_folder_fails_and_says_in_what(
    sweep: Sweep, recipe_path: Path, tmp_path: Path, pretend: Any
) -> None:
    pretend(lambda recipe, folder, **_: None)
    run_sweep(sweep, tmp_path / "sweep")
    changed = read_sweep(
        recipe_path, overrides=(*SHORT, "stages.1.lr.peak=2e-3"),
        arms=("none:stages.1.mix.en=0", "half:stages.1.mix.en=0.5", "ema:stages.1.ema={kind: live, decay: 0.9}"),
    )  # fmt: skip
    states = run_sweep(changed, tmp_path / "sweep")
    assert {state.status for state in states} == {"failed"}
    assert "stages.1.lr.peak: 0.001 → 0.002" in states[0].error


def test_several_processes_are_sent_to_the_arms(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match=r"lingraft run .*/recipes/ARM\.yaml --to .*/arms/ARM"):
        run_sweep(sweep, tmp_path / "sweep")


def _keys(recipe_path: Path, *overrides: str) -> dict[str, str]:
    from lingraft.recipe_file import load_recipe

    return {"+".join(p.needs) or p.step: p.key for p in pieces_of(load_recipe(recipe_path, (*SHORT, *overrides)))}


@pytest.mark.parametrize(
    ("override", "made_anew"),
    [
        ("name=other", ()),
        ("stages.1.mix={eu: 1.0}", ("stage-2-second",)),
        ("stages.0.lr.peak=1e-3", ("stage-1-first", "stage-2-second")),
        # A stage keeps its moments only where the next goes on from them.
        ("stages.1.optimizer.start=carry", ("stage-1-first", "stage-2-second")),
        ("seed=1", ("embeddings", "measure-expanded", "stage-1-first", "stage-2-second")),
        ("embeddings.input=mean", ("embeddings", "measure-expanded", "stage-1-first", "stage-2-second")),
        ("measure.segment_bytes=512", ("measure-base", "measure-expanded", "stage-1-first", "stage-2-second")),
    ],
)
def test_what_a_changed_option_has_a_say_in_is_not_shared(
    recipe_path: Path, override: str, made_anew: tuple[str, ...]
) -> None:
    plain, changed = _keys(recipe_path), _keys(recipe_path, override)
    assert tuple(name for name in plain if plain[name] != changed[name]) == made_anew


def test_a_changed_corpus_is_not_shared_and_nothing_that_stands_on_it(recipe_path: Path) -> None:
    plain, changed = _keys(recipe_path), _keys(recipe_path, "corpora.en.max_documents=40")
    assert {name for name in plain if plain[name] == changed[name]} == {"corpus-eu", "base"}


def test_text_that_changed_between_two_arms_stops_the_second(
    corpora_folder: Path, recipe_path: Path, tmp_path: Path, pretend: Any
) -> None:
    """Arms are compared, so they must have read the same."""
    pretend(partial(adapt, until="corpora"))
    own = tmp_path / "eu.jsonl"
    own.write_bytes((corpora_folder / "eu.jsonl").read_bytes())
    arms = ("a:stages.1.mix.en=0", "b:stages.1.mix.en=0.5")
    sweep = read_sweep(recipe_path, overrides=(*SHORT, f"corpora.eu.path={own}"), arms=arms)
    run_sweep(replace(sweep, arms=sweep.arms[:1]), tmp_path / "sweep")
    with own.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "late", "text": "Beste esaldi bat, geroago etorria."}) + os.linesep)
    states = run_sweep(sweep, tmp_path / "sweep")
    assert [state.status for state in states] == ["done", "failed"]
    assert "the text of corpora.eu has changed" in states[1].error
