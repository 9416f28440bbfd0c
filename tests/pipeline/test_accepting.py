"""A run that goes on although its mix or its data were changed, because its user said so."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

from lingraft import Run, adapt
from lingraft.errors import CheckpointError, InterruptedRunError, RecipeError, RunFolderError, TrainingError
from lingraft.pipeline import adapt as pipeline_adapt
from lingraft.pipeline import training
from lingraft.pipeline.progress import Silent
from lingraft.recipe import Recipe
from lingraft.recipe_file import load_recipe

TEXT = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{new_tokens: 20, min_count: 3, row_multiple: 16}}
embeddings: {{max_source_rise: 5.0, max_source_mass: 0.5}}
precision: fp32
stages:
  - name: first
    tokens: 256
    mix: {{eu: 0.5, en: 0.5}}
    lr: {{peak: 1e-3}}
    batch: {{tokens: 128, sequence_length: 32}}
  - name: second
    tokens: 1024
    mix: {{eu: 0.75, en: 0.25}}
    lr: {{peak: 1e-3}}
    batch: {{tokens: 128, sequence_length: 32}}
    checkpoint_every: 100%
measure: {{at: [100%], validation_bytes: 1000, probes: [], parameter_shift: false, sample_tokens: 1}}
"""
OTHER_MIX = "stages.1.mix={eu: 0.25, en: 0.75}"


class StopAt(Silent):
    """A listener that presses Ctrl-C after a step of the second stage."""

    def __init__(self, step: int) -> None:
        self._stage, self._step = "", step

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        self._stage = name

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        if (self._stage, step) == ("second", self._step):
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, tied_folder: Path, corpora_folder: Path) -> tuple[Path, Path]:
    """A recipe file and its run, which was stopped after 3 of the 8 steps of its second stage."""
    folder = tmp_path_factory.mktemp("stopped")
    corpora = shutil.copytree(corpora_folder, folder / "corpora")
    path = folder / "tiny.yaml"
    path.write_text(TEXT.format(base=tied_folder, corpora=corpora), encoding="utf-8")
    with pytest.raises(InterruptedRunError):
        adapt(load_recipe(path), folder / "run", progress=StopAt(3))
    return path, folder / "run"


def copied(stopped: tuple[Path, Path], to: Path, *overrides: str) -> tuple[Recipe, Path]:
    path, run = stopped
    return load_recipe(path, overrides), shutil.copytree(run, to / "run")


def shares(run: Run, corpus: str) -> list[float]:
    return [
        row.value for row in run.measurements() if (row.stage, row.name, row.language) == ("second", "share", corpus)
    ]


def record(run: Run, name: str) -> dict:
    marker = run.finished(name)
    assert marker is not None
    return marker["record"]


def test_a_changed_mix_is_refused_unless_it_is_accepted(stopped, tmp_path) -> None:
    recipe, folder = copied(stopped, tmp_path, OTHER_MIX)
    for accepted in ((), ("data",)):
        with pytest.raises(RunFolderError, match=r"stages\.1\.mix\.options\.mix\.en: 0\.25 → 0\.75"):
            adapt(recipe, folder, accept_changed=accepted)


def test_a_changed_mix_goes_on_with_every_corpus_where_it_stood(stopped, tmp_path) -> None:
    """3 steps of 3 eu and 1 en, then 5 steps of 1 eu and 3 en, behind what the first stage took."""
    recipe, folder = copied(stopped, tmp_path, OTHER_MIX)
    run = adapt(recipe, folder, accept_changed=["mix"])
    assert shares(run, "eu") == [0.75] * 3 + [0.25] * 5
    before = record(run, "stage-1-first")["cursors"]
    assert before == {"eu": 128, "en": 128}
    assert record(run, "stage-2-second")["cursors"] == {"eu": 128 + 32 * (9 + 5), "en": 128 + 32 * (3 + 15)}
    told = [json.loads(line) for line in (folder / "changes.jsonl").read_text().splitlines()]
    assert told[0]["accepted"] == ["mix"]
    assert "stages.1.mix.options.mix.eu: 0.75 → 0.25" in told[0]["recipe"]
    assert run.recipe == recipe
    weights = record(run, "stage-2-second")["weights_sha256"]
    assert record(adapt(recipe, folder), "stage-2-second")["weights_sha256"] == weights


@pytest.mark.slow
def test_a_run_with_a_changed_mix_that_is_stopped_ends_with_the_same_weights(stopped, tmp_path) -> None:
    recipe, folder = copied(stopped, tmp_path / "whole", OTHER_MIX)
    whole = adapt(recipe, folder, accept_changed=["mix"])
    recipe, folder = copied(stopped, tmp_path / "again", OTHER_MIX)
    with pytest.raises(InterruptedRunError):
        adapt(recipe, folder, accept_changed=["mix"], progress=StopAt(6))
    again = adapt(recipe, folder)
    assert record(again, "stage-2-second") | {"seconds": 0} == record(whole, "stage-2-second") | {"seconds": 0}


def test_the_mix_of_a_stage_that_is_done_cannot_change(stopped, tmp_path) -> None:
    recipe, folder = copied(stopped, tmp_path, "stages.0.mix={eu: 1.0}")
    with pytest.raises(RunFolderError, match=r"stages\.0\.mix"):
        adapt(recipe, folder, accept_changed=["mix"])


def test_changed_data_are_refused_unless_they_are_accepted(stopped, tmp_path) -> None:
    """The vocabulary stays as it was; the store is made anew; the corpora are read on."""
    recipe, folder = copied(stopped, tmp_path)
    path = Path(recipe.corpora["eu"].paths[0])
    old = path.read_text(encoding="utf-8")
    lines = [json.dumps({"id": f"new-{n}", "text": f"Testu berria da hau, zenbakia {n}."}) for n in range(20)]
    try:
        path.write_text(old + "\n".join(lines) + "\n", encoding="utf-8")
        with pytest.raises(RunFolderError, match=r"the text of corpora\.eu has changed"):
            adapt(recipe, folder)
        vocabulary = (folder / "vocabulary" / "tokenizer.json").read_bytes()
        run = adapt(recipe, folder, accept_changed=["data"])
        assert (folder / "vocabulary" / "tokenizer.json").read_bytes() == vocabulary
        assert record(run, "stage-2-second")["cursors"] == {"eu": 128 + 32 * 24, "en": 128 + 32 * 8}
        told = [json.loads(line) for line in (folder / "changes.jsonl").read_text().splitlines()]
        assert [change["step"] for change in told] == ["corpus-eu"]
        assert len([name for name in (folder / "tokens").iterdir() if name.name.startswith("eu-")]) == 2
        adapt(recipe, folder)
    finally:
        path.write_text(old, encoding="utf-8")


def losses(run: Run) -> list[float]:
    return [row.value for row in run.measurements() if (row.stage, row.name) == ("second", "loss")]


def test_what_decides_memory_goes_on_with_the_same_sequences_and_losses(stopped, tmp_path) -> None:
    """Also when a stage is saved, and whether beside its steps; only what is of memory needs the flag."""
    saving = ("stages.1.checkpoint_every=25%", "stages.1.saves_beside=true")
    recipe, folder = copied(stopped, tmp_path / "as it was", *saving)
    whole = adapt(recipe, folder, until="second")
    assert "stages.1.saves_beside: False → True" in (folder / "changes.jsonl").read_text()
    recipe, folder = copied(stopped, tmp_path / "otherwise", "stages.1.batch.micro_batch=1", "measure.batch_size=2")
    with pytest.raises(RunFolderError) as refused:
        adapt(recipe, folder)
    assert str(refused.value).splitlines()[1:] == [
        "  measure.batch_size: 8 → 2 (--accept-changed memory goes on with it)",
        "  stages.1.batch.micro_batch: 4 → 1 (--accept-changed memory goes on with it)",
    ]
    run = adapt(recipe, folder, until="second", accept_changed=["memory"])
    assert record(run, "stage-2-second")["cursors"] == record(whole, "stage-2-second")["cursors"]
    assert shares(run, "eu") == shares(whole, "eu")
    assert losses(run) == pytest.approx(losses(whole), abs=1e-4)
    assert "stages.1.batch.micro_batch: 4 → 1" in (folder / "changes.jsonl").read_text()


@pytest.mark.slow
def test_when_a_stage_is_saved_may_change_without_a_word_and_its_bits_stay(stopped, tmp_path) -> None:
    weights = []
    for name, overrides in (("one", ()), ("two", ("stages.1.checkpoint_every=25%", "stages.1.saves_beside=true"))):
        recipe, folder = copied(stopped, tmp_path / name, *overrides)
        weights.append(record(adapt(recipe, folder, until="second"), "stage-2-second")["weights_sha256"])
    assert weights[0] == weights[1]


def test_what_a_stage_that_is_done_was_made_with_cannot_change(stopped, tmp_path) -> None:
    recipe, folder = copied(stopped, tmp_path, "stages.0.batch.micro_batch=2")
    with pytest.raises(RunFolderError, match=r"stages\.0\.batch\.micro_batch: 4 → 2$"):
        adapt(recipe, folder, accept_changed=["memory"])


@pytest.mark.parametrize("where", ["stage 'second'", "before or after training"])
def test_a_device_without_memory_is_told_with_the_flag_wherever_it_happens(
    stopped, tmp_path, monkeypatch, where: str
) -> None:
    """A stage that runs out of it keeps its checkpoint."""

    def failing(*_given, **_more):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much")

    monkeypatch.setattr(
        *((training, "train_stage") if where.startswith("stage") else (pipeline_adapt, "prepare_base")), failing
    )
    recipe, folder = copied(stopped, tmp_path)
    with pytest.raises(
        TrainingError, match=rf"^{where}: .*\(CUDA out of memory.*micro_batch \(now 4\).*--accept-changed mem"
    ):
        adapt(recipe, folder)
    assert any((folder / "stages" / "2-second" / "checkpoints").glob("step-*"))


def test_a_stage_that_is_left_out_is_refused_and_nothing_breaks(stopped, tmp_path) -> None:
    path, run = stopped
    recipe, folder = load_recipe(path), shutil.copytree(run, tmp_path / "run")
    shorter = recipe.model_copy(update={"stages": recipe.stages[:1]})
    with pytest.raises(RunFolderError, match=r"stages\.1\.mix\.schedule"), Run(folder) as locked:
        locked.adopt(shorter, ["mix", "memory"])


def test_what_cannot_be_accepted_is_named(stopped, tmp_path) -> None:
    recipe, folder = copied(stopped, tmp_path)
    with pytest.raises(
        RecipeError, match="--accept-changed: 'mixx' is not one of mix, data, memory, alarm, did you mean 'mix'"
    ):
        adapt(recipe, folder, accept_changed=["mixx"])


def test_a_checkpoint_of_another_mix_says_how_to_go_on(stopped, tmp_path) -> None:
    """Killed between the change and the next checkpoint, the run must be told again."""
    recipe, folder = copied(stopped, tmp_path, OTHER_MIX)
    with Run(folder) as run:
        run.adopt(recipe, ["mix"])
    with pytest.raises(CheckpointError, match="another mix; it cannot be resumed from; --accept-changed"):
        adapt(recipe, folder)
