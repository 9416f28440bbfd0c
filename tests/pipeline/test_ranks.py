"""A run by several processes, started as users start it."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from lingraft.corpus.loader import SequenceLoader
from lingraft.errors import RecipeError, TrainingError
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.ranks import refuse_undivided
from lingraft.pipeline.training import stage_plan
from lingraft.run import Run
from lingraft.training.distributed import Ranks
from lingraft.training.stage import _refuse_undivided as refuse_undivided_stage
from lingraft.training.stage_plan import SINGLE_PROCESS

SLURM = Path(__file__).parents[2] / "scripts" / "launch" / "slurm.sbatch"
OVERRIDES = (
    "stages.0.optimizer={eps: 1e-2}",
    "stages.0.ema={kind: shadow, decay: 0.5, every: 1}",
    "stages.1.tokens=1024",
    "stages.1.lr={peak: 1e-3, warmup: 0%}",
    "stages.1.optimizer={eps: 1e-2, start: carry}",
    "stages.1.ema={decay: 0.92, every: 1}",
    "stages.1.guards=[{name: l2_start, strength: 0.1}]",
    "stages.1.checkpoint_every=256",
    "measure={at: [50%], probes: [], validation_bytes: 1000}",
    "embeddings.max_source_mass=1.0",
    "embeddings.max_source_rise=9",
)


def torchrun(recipe: Path, folder: Path, count: int, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a recipe by several processes."""
    sets = [word for override in OVERRIDES for word in ("--set", override)]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command = [*launcher, "-m", "lingraft", "run", str(recipe), "--to", str(folder), *sets, *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)


@pytest.mark.slow
def test_o59_torchrun_ends_with_the_weights_of_one_process(make_recipe, recipe_path: Path, tmp_path: Path) -> None:
    alone = adapt(make_recipe(*OVERRIDES), tmp_path / "alone")
    first = torchrun(recipe_path, tmp_path / "two", 2, "--until", "first")
    assert first.returncode == 0, first.stderr
    done = torchrun(recipe_path, tmp_path / "two", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("report:") == 1
    for place in ("model", "stages/1-first/model-averaged", "stages/1-first/model", "stages/2-second/model"):
        one = load_file(alone.path(place, "model.safetensors"))
        two = load_file(tmp_path / "two" / place / "model.safetensors")
        assert one.keys() == two.keys()
        for name, weight in one.items():
            torch.testing.assert_close(two[name], weight, atol=1e-6, rtol=0, msg=f"{place}: {name}")
    for one, two in zip(alone.measurements(), Run(tmp_path / "two").measurements(), strict=True):
        assert (one.stage, one.tokens, one.name, one.language) == (two.stage, two.tokens, two.name, two.language)
        if not any(word in one.name for word in ("seconds", "peak_memory", "tokens_per_second")):
            assert two.value == pytest.approx(one.value, abs=1e-4), one.name


@pytest.mark.slow
def test_what_fails_on_rank_0_ends_all_ranks(recipe_path: Path, tmp_path: Path) -> None:
    """It fails before a stage, the others hear it, and nothing hangs."""
    done = torchrun(recipe_path, tmp_path / "two", 2, "--set", "embeddings.max_source_mass=1e-9")
    assert done.returncode != 0
    assert "rank 0: embeddings.input" in done.stderr


def killed(process: "subprocess.Popen[bytes]") -> None:
    """Kill torchrun and all that it has started, without a warning."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(family) >= 3
    for each in family:
        each.kill()
    psutil.wait_procs(family, timeout=60)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("then", [1, 2])
def test_o63_killed_ranks_go_on_as_any_number_of_them(
    make_recipe, recipe_path: Path, tmp_path: Path, then: int
) -> None:
    overrides = [*OVERRIDES[:2], *OVERRIDES[4:], "stages.1.tokens=12800"]
    alone = adapt(make_recipe(*overrides), tmp_path / "alone", until="second")
    sets = [word for override in overrides for word in ("--set", override)]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [
        *launcher,
        "-m",
        "lingraft",
        "run",
        str(recipe_path),
        "--to",
        str(tmp_path / "two"),
        "--until",
        "second",
        *sets,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        checkpoints = tmp_path / "two" / "stages" / "2-second" / "checkpoints"
        ends = time.monotonic() + 200
        while not list(checkpoints.glob("step-*")):
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < ends
            time.sleep(0.05)
        killed(process)
    assert not (tmp_path / "two" / "stages" / "2-second" / "model").exists()
    if then == 1:
        adapt(make_recipe(*overrides), tmp_path / "two", until="second")
    else:
        again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert again.returncode == 0, again.stderr
    place = "stages/2-second/model/model.safetensors"
    two = load_file(tmp_path / "two" / place)
    for name, weight in load_file(alone.path(place)).items():
        torch.testing.assert_close(two[name], weight, atol=1e-6, rtol=0, msg=name)


SRUN = """#!/bin/bash
# A stand-in that starts two tasks here, and passes USR1 on to the second when there is a checkpoint.
shift
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@" & tasks[task]=$!
done
if [ -n "$WAIT_FOR" ]; then
    until compgen -G "$WAIT_FOR" > /dev/null; do sleep 0.1; kill -0 "${tasks[0]}" || break; done
    kill -USR1 "${tasks[1]}"
fi
wait "${tasks[0]}"; first=$?
wait "${tasks[1]}"; exit $((first > $? ? first : $?))
"""


@pytest.mark.slow
def test_the_slurm_file_starts_ranks_and_a_signal_to_one_saves(make_recipe, recipe_path: Path, tmp_path: Path) -> None:
    """The second task alone hears USR1; all stop, saved, and one process goes on to the same weights."""
    overrides = [*OVERRIDES[:2], *OVERRIDES[4:], "stages.1.tokens=12800"]
    alone = adapt(make_recipe(*overrides), tmp_path / "alone", until="second")
    commands = {
        "srun": SRUN,
        "scontrol": "#!/bin/bash\necho 127.0.0.1\n",
        "lingraft": f'#!/bin/bash\nexec {sys.executable} -m lingraft "$@"\n',
    }
    for name, text in commands.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    wait_for = tmp_path / "two" / "stages" / "2-second" / "checkpoints" / "step-*"
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "here", "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_CPUS_PER_TASK": "1", "WAIT_FOR": str(wait_for),
    }  # fmt: skip
    sets = [word for override in overrides for word in ("--set", override)]
    command = ["bash", str(SLURM), str(recipe_path), "--to", str(tmp_path / "two"), "--until", "second", *sets]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("stopped in stage 'second' after step") == 2
    two = adapt(make_recipe(*overrides), tmp_path / "two", until="second")
    place = "stages/2-second/model/model.safetensors"
    for name, weight in load_file(alone.path(place)).items():
        torch.testing.assert_close(load_file(two.path(place))[name], weight, atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.0.batch={tokens: 96, sequence_length: 32, micro_batch: 2}", r"stages\.0\.batch: 3 sequences a step"),
        ("compile=true", "compile: works in one process only, and there are 2"),
        ("stages.1.extra_heads=1", r"stages\.1\.extra_heads: works in one process only, and there are 2"),
        ("stages.1.optimizer={name: muon}", r"stages\.1\.optimizer\.name: muon works in one process only"),
        (
            "stages.1.guards=[{name: l2_start, strength: 1.0}, {name: ewc, strength: 1.0}]",
            r"stages\.1\.guards\.1: ewc works in one process only",
        ),
        ("stages.1.saves_beside=true", r"stages\.1\.saves_beside: works in one process only, and there are 2"),
        ("stages.1.slices={count: 2}", r"stages\.1\.slices: works in one process only, and there are 2"),
        ("stages.1.optimizer={name: adafactor}", r"stages\.1\.optimizer\.name: adafactor works in one process only"),
        ("stages.1.guards=[source_shielded]", r"stages\.1\.guards\.0: source_shielded works in one process only"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_first(
    make_recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, message: str
) -> None:
    recipe = make_recipe(override)
    refuse_undivided(recipe, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match=message):
        make_plan(recipe)
    with pytest.raises(RecipeError, match=message):
        adapt(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


_ASKED = {"extra_heads": 1, "compile": True, "saves_beside": True, "optimizer": "muon"}


@pytest.mark.parametrize("name", [*SINGLE_PROCESS, "optimizer"])
def test_whatever_a_stage_refuses_in_several_processes_the_plan_refuses(make_recipe, monkeypatch, name: str) -> None:
    """The stage refuses by the same list, which this goes through; a new entry must be asked for here."""
    asked = _ASKED[name]
    word = {"compile": "compile", "optimizer": "stages.1.optimizer.name"}.get(name, f"stages.1.{name}")
    recipe = make_recipe(f"{word}={str(asked).lower()}")
    plan = stage_plan(recipe, 1)
    assert getattr(plan, name) == asked
    with pytest.raises(TrainingError, match=r"works in one process only, and there are 2"):
        refuse_undivided_stage(plan, _Loader(), Ranks(count=2))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match=rf"^{re.escape(word)}: .*works in one process only, and there are 2"):
        make_plan(recipe)


class _Loader(SequenceLoader):
    """Stands for batches that two processes can divide."""

    def __init__(self) -> None:
        pass

    def batch(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> Any:
        assert (step, rank, num_ranks) == (0, 0, 2)
