"""How long training stands still for a checkpoint, written before the next step or beside it.

    python benchmarks/saving.py FOLDER [--steps 9]

FOLDER is a Hugging Face causal LM; all of it learns, on random tokens, with AdamW in fp32. One checkpoint falls in the
middle. Told are the median step, what the step behind the checkpoint took beyond it, the same for all steps until the
end (writing beside them makes them slower), and the size of the checkpoint. Each way is a process of its own.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from trainers import made_loader, made_model

from lingraft.model.base import head_of
from lingraft.model.freeze import choose_trainable
from lingraft.pipeline.outline import peak_resident
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan


def measured(folder: str, steps: int, *, beside: bool) -> dict[str, float]:
    """Return seconds and bytes of one way."""
    model = made_model(folder, 0)
    ids = model.get_input_embeddings().weight.shape[0]
    loader = made_loader(ids, steps, sequences=4, length=128)
    half, times = steps // 2, []
    plan = StagePlan(
        name="benchmark", seed=0, num_steps=steps, micro_batch=4, dtype=torch.bfloat16, peak_rate=1e-4, warmup_steps=0,
        refuse_bad_start=False, checkpoint_at=frozenset({half}), saves_beside=beside,
    )  # fmt: skip
    told = StageCallbacks(on_step=lambda _: times.append(time.perf_counter()))
    with tempfile.TemporaryDirectory() as to:
        train_stage(
            model, head_of(model, ids), choose_trainable(model, "all", (), ids), loader, plan, Path(to), {}, told
        )
        ended = time.perf_counter()
        size = sum(file.stat().st_size for file in Path(to).rglob("*") if file.is_file())
    passed = [after - before for before, after in itertools.pairwise(times)]
    median = statistics.median(passed[1 : half - 1])
    behind = passed[half - 1 :]
    return {
        "step": median,
        "pause": behind[0] - median,
        "until the end": ended - times[half - 1] - median * len(behind),
        "checkpoint GB": size / 1e9,
        "peak GiB": peak_resident() / 2**30,
    }


def main() -> None:
    """Measure both ways and tell them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--one", choices=["before", "beside"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.folder, chosen.steps, beside=chosen.one == "beside")))
        return
    for way in ("before", "beside"):
        command = [sys.executable, __file__, *sys.argv[1:], "--one", way]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(told.strip().splitlines()[-1])
        print(way, ", ".join(f"{name} {value:.2f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
