"""The verbs `compare` and `sweep` as they are typed, and their tables; one small sweep is run for all of them."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lingraft.cli import main
from lingraft.model import export
from lingraft.pipeline import sweeping

RECIPE = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{method: keep}}
precision: fp32
stages:
  - name: everything
    tokens: 256
    mix: {{eu: 0.5, en: 0.5}}
    lr: {{peak: 1e-2}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 2}}
measure:
  {{at: [100%], validation_bytes: 1500, probes: [{{name: random_copy, num_items: 2, length: 8}}], sample_tokens: 2}}
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


def lingraft(*words: object) -> Said:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch().context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["lingraft", *map(str, words)])
        patch.setenv("COLUMNS", "200")
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tied_folder: Path, corpora_folder: Path) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(RECIPE.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    return path


ARMS = ("--arm", "pure:stages.0.mix.en=0", "--arm", "mixed:", "--arm", "wild:stages.0.lr.peak=0.9")


@pytest.fixture(scope="module")
def swept(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A sweep of which one arm fails, and what was said."""
    folder = tmp_path_factory.mktemp("sweeps") / "tiny"
    whole = sweeping.adapt

    def attempt(recipe, to, **rest):
        if to.name == "wild":
            raise RuntimeError("the [tensor] is\x1b[31m too hot")
        return whole(recipe, to, **rest)

    with pytest.MonkeyPatch().context() as patch:
        patch.setattr(sweeping, "adapt", attempt)
        # That another process loads an exported model is tested with whole runs.
        patch.setattr(export, "_load_elsewhere", lambda *_: {})
        return folder, lingraft("sweep", recipe, *ARMS, "--to", folder)


def test_a_sweep_ends_in_one_page_and_tells_of_failures_by_its_exit_status(swept: tuple[Path, Said]) -> None:
    folder, said = swept
    assert (said.code, said.err) == (1, ""), said
    assert "failed: RuntimeError: the [tensor] is␛[31m too hot" in said.out
    assert "Ship “" in said.out or "Ship none" in said.out
    assert "One training run per arm: item uncertainty only." in said.out.replace("\n", " ")
    assert f"comparison: {folder / 'comparison.html'}" in said.out
    told = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert [arm["arm"] for arm in told["arms"]] == ["pure", "mixed"]
    assert list(told["failed"]) == ["wild"]


def test_compare_prints_differences_and_writes_the_page(swept: tuple[Path, Said], tmp_path: Path) -> None:
    arms = swept[0] / "arms"
    said = lingraft("compare", arms / "pure", arms / "mixed", "-o", tmp_path / "page.html")
    assert said.code == 0, said
    assert "minus pure, on the same items" in said.out
    assert "bits per byte, eu" in said.out
    assert (tmp_path / "page.html").stat().st_size > 1_000_000
    assert str(tmp_path / "page.html") in said.out.replace("\n", "")


def test_compare_refuses_what_it_cannot_compare(swept: tuple[Path, Said], tmp_path: Path) -> None:
    arms = swept[0] / "arms"
    said = lingraft("compare", arms / "pure", arms / "wild")
    assert said.code == 1
    assert "a comparison needs two finished runs, and 1 of these are" in said.err
    assert "wild: its last stage, everything, is not done" in said.err
    said = lingraft("compare", arms / "pure", arms / "mixed", "-o", tmp_path)
    assert "is a folder; name the file to write" in said.err


def test_the_plan_of_a_sweep_runs_nothing(recipe: Path, tmp_path: Path) -> None:
    said = lingraft("sweep", recipe, "--vary", "seed=0,1", "--to", tmp_path / "sweep", "--plan")
    assert said.code == 0, said
    assert "sweep tiny: 2 arms" in said.out
    assert "in all 512 training tokens" in said.out
    assert "all arms: only 256 training tokens in all" in said.out.replace("\n", " ")
    assert not (tmp_path / "sweep").exists()


def test_a_task_of_an_array_is_told_its_arm_by_the_environment(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    monkeypatch.setattr(sweeping, "adapt", lambda recipe, to, **rest: ran.append(to.name))
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    said = lingraft("sweep", recipe, *ARMS[:4], "--to", tmp_path / "sweep")
    assert said.code == 0, said
    assert set(ran) == {"mixed"}
    said = lingraft("sweep", recipe, *ARMS[:4], "--to", tmp_path / "sweep", "--arm-index", 2)
    assert (said.code, "--arm-index 2: there are 2 arms" in said.err) == (1, True)


def test_the_launch_file_hands_the_whole_sweep_to_each_task(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/bash\necho "$SLURM_ARRAY_TASK_ID: $*"\n', encoding="utf-8")
    srun.chmod(0o755)
    script = Path(__file__).parents[1] / "scripts" / "launch" / "sweep.sbatch"
    words = ["recipe.yaml", "--vary", "stages.1.mix.en=0,0.1", "--arm", "a:stages.1.ema={kind: live, decay: 0.7}"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "3"}
    said = subprocess.run(["bash", script, *words], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == f"3: lingraft sweep {' '.join(words)}\n"


def test_the_example_sweep_states_what_it_says(tmp_path: Path) -> None:
    from lingraft.pipeline.arms import read_sweep

    sweep = read_sweep(Path(__file__).parents[1] / "recipes" / "sweeps" / "replay.yaml")
    mixes = {arm.name: arm.recipe.stages[1].mix.options["mix"] for arm in sweep.arms}
    assert mixes == {
        "no-source": {"eu": 1.0},
        "replay-10": {"eu": 0.9, "en": 0.1},
        "replay-25": {"eu": 0.75, "en": 0.25},
        "no-source-ema": {"eu": 1.0},
    }
    assert [arm.name for arm in sweep.arms if arm.recipe.stages[1].ema] == ["no-source-ema"]
