"""What the probes of a set cost beside training, and from which length of a run that is 3 % of it or less.

    python benchmarks/probe_cost.py FOLDER [--sets short full] [--stages 2]

FOLDER is a Hugging Face causal LM. Seconds of a whole set and of its light part are measured as a run asks them,
in bf16, and those of full training steps beside them, in one process. A run asks the whole set of the base and at each
stage's end, the light part at every other point of ``measure.at``. Nothing else should run on the machine.
"""

import argparse
import statistics
import time
from types import SimpleNamespace
from typing import Any

import torch
from probe_damage import CountingScorer
from trainers import WARM, with_lingraft

from lingraft.measure.probes import ProbeContext
from lingraft.pipeline.inspecting import OpenedModel, open_model
from lingraft.pipeline.probing import BoundProbe, bind_probes, run_probes
from lingraft.recipe_measure import Measure

SHARE = 0.03


def asked(opened: OpenedModel, bound: list[BoundProbe], *, heavy: bool) -> tuple[int, float]:
    """Return the tokens that go through the model, and the seconds."""
    scorer = CountingScorer(
        opened.model, num_ids=opened.tokenizer.num_ids, condition_id=opened.condition_id, batch_size=8,
        dtype=torch.bfloat16,
    )  # fmt: skip
    context = ProbeContext(scorer, opened.tokenizer, frozenset(opened.tokenizer.vocabulary.values()))
    began = time.perf_counter()
    run_probes(bound, context, "base", 0, heavy=heavy)
    return scorer.tokens, time.perf_counter() - began


def training_rate(folder: str) -> float:
    """Return tokens per second of a full step: 8 sequences of 512, 4 to a forward pass."""
    arguments: Any = SimpleNamespace(
        folder=folder, vocabulary=0, steps=5, sequences=8, length=512, micro_batch=4, train="all"
    )
    times = with_lingraft(arguments)
    steps = [after - before for before, after in zip(times[WARM - 1 :], times[WARM:], strict=False)]
    return 8 * 512 / statistics.median(steps)


def main() -> None:
    """Print a row for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sets", nargs="+", default=["short", "full"])
    parser.add_argument("--stages", type=int, default=2)
    chosen = parser.parse_args()
    opened, points = open_model(chosen.folder), len(Measure().at)
    rows = []
    for name in chosen.sets:
        bound = bind_probes(SimpleNamespace(measure=Measure(probes=name)))  # type: ignore[arg-type]
        whole, light = asked(opened, bound, heavy=True), asked(opened, bound, heavy=False)
        rows.append((name, whole, light, (1 + chosen.stages) * whole[1] + chosen.stages * (points - 1) * light[1]))
    del opened
    rate = training_rate(chosen.folder)
    print(f"training: {rate:.0f} tokens/s; {chosen.stages} stages with {points} points each")
    print("| set | whole, tokens | whole, s | light, tokens | light, s | of a run, s | 3 % of a run from, tokens |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, whole, light, seconds in rows:
        told = " | ".join(f"{tokens:,} | {spent:.1f}" for tokens, spent in (whole, light))
        print(f"| `{name}` | {told} | {seconds:.0f} | {rate * seconds / SHARE:,.0f} |")


if __name__ == "__main__":
    main()
