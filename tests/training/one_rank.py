"""What one rank of the tests does: every task of a file, one after the other. test_distributed.py starts it."""

import dataclasses
import json
import multiprocessing
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from safetensors.torch import load_file, save_file

from conftest import PLAN, Trial
from lingraft.errors import LingraftError
from lingraft.model.shards import held, whole
from lingraft.training.averaging import LiveEma, ShadowEma
from lingraft.training.averaging.lookahead import Lookahead
from lingraft.training.averaging.to_start import ToStart
from lingraft.training.averaging.uniform import UniformAverage
from lingraft.training.distributed import ALONE, Ranks, joined_ranks
from lingraft.training.spikes import AlarmRules

AVERAGES = {
    "live": partial(LiveEma, decay=0.5, every=1),
    "shadow": partial(ShadowEma, decay=0.5, every=1),
    "lookahead": partial(Lookahead, decay=0.5, every=2),
    "to_start": partial(ToStart, decay=0.1, every=1),
    "uniform": partial(UniformAverage, every=1, after=1),
}


def trial_of(task: dict[str, Any], ranks: Ranks = ALONE) -> Trial:
    """Return the trial that a task of plain values describes; eps is large, so that rounding is not blown up."""
    options = {"optimizer_options": {"eps": 1e-2}, "weight_decay": 0.5, "alarms": AlarmRules(bad_steps=1)}
    options |= task.get("plan", {})
    for name in ("checkpoint_at", "measure_at"):
        options[name] = frozenset(options.get(name, ()))
    if made := AVERAGES.get(task.get("average", "")):
        options["companions"] = (lambda start: made(start.parameters),)
    trial = Trial(Path(task["base"]), Path(task["checkpoints"]), task.get("train", "all"), ranks=ranks)
    trial.plan = dataclasses.replace(PLAN, **options)
    if "new_ids" in task:
        trial.new_ids = tuple(task["new_ids"])
    if "carried" in task:
        trial.carried = load_file(task["carried"])
    if "lengths" in task:
        trial.lengths = tuple(task["lengths"])
    return trial


def carried_out(task: dict[str, Any], ranks: Ranks = ALONE) -> dict[str, Any]:
    """Run a task; return what can be compared, and write the whole weights to ``task["out"]``."""
    trial = trial_of(task, ranks)
    averaged: dict[str, torch.Tensor] = {}
    moments: dict[str, torch.Tensor] = {}

    def gathered() -> dict[str, torch.Tensor]:
        return {name: whole(p.detach()).clone() for name, p in trial.model.named_parameters()}

    found: dict[str, Any] = {"error": None}
    stop_after = task.get("stop_after")
    try:
        trial.run(
            finish_averaged=lambda: averaged.update(gathered()),
            finish_optimizer=lambda state: moments.update({name: whole(t).clone() for name, t in state.items()}),
            # Only the last rank is told to stop: one of them is enough.
            should_stop=lambda: len(trial.reports) == stop_after and ranks.rank == ranks.count - 1,
        )
    except LingraftError as error:
        found["error"] = [type(error).__name__, str(error)]
    weights = gathered()
    found["held"] = sum(held(p).numel() for p in trial.model.parameters())
    found["still"], found["notes"] = trial.still, trial.notes
    found["reports"] = [dataclasses.asdict(report) for report in trial.reports]
    if ranks.is_first:
        for name, tensors in (("weights", weights), ("averaged", averaged), ("moments", moments)):
            save_file(
                {n: t.contiguous().clone() for n, t in tensors.items()}, Path(f"{task['out']}-{name}.safetensors")
            )
    return found


def one_rank(rank: int, count: int, port: int, tasks: list[dict[str, Any]]) -> None:
    """Be one rank and carry the tasks out."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{count}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    with joined_ranks("cpu") as ranks:
        for task in tasks:
            found = carried_out(task, ranks)
            Path(f"{task['out']}-{ranks.rank}.json").write_text(json.dumps(found))


def main() -> None:
    """Start the ranks for each list of tasks, one list after the other; they share what is imported here."""
    for count, port, tasks in json.loads(Path(sys.argv[1]).read_text()):
        made = multiprocessing.get_context("fork")
        ranks = [made.Process(target=one_rank, args=(rank, count, port, tasks)) for rank in range(count)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(1)


if __name__ == "__main__":
    main()
