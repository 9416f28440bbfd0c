"""Where the time of a training step goes: batch, forward pass, loss, backward pass, clipping, update, average.

    python benchmarks/step_shares.py FOLDER [--train new_embeddings] [--vocabulary 128256] [--steps 6]

FOLDER is a Hugging Face causal LM. Random tokens, AdamW, bf16 products, the live average of every step (α 0.92). Parts
are timed where the loop calls them, on the CPU; shares are of the median step. The loss makes its gradients in the
forward pass, so its line holds what other trainers do in the backward pass of the head. Nothing else should run on the
machine.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from trainers import NEW, made_loader, made_model

from lingraft.model.base import head_of
from lingraft.model.freeze import choose_trainable
from lingraft.training import stage as loop
from lingraft.training.averaging import LiveEma
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan

WARM = 2


class Watch:
    """Seconds by part, step after step."""

    def __init__(self) -> None:
        self.now: dict[str, float] = defaultdict(float)
        self.steps: list[dict[str, float]] = []
        self._last = time.perf_counter()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.now[part] += time.perf_counter() - began

        return call

    def next_step(self) -> None:
        """End a step."""
        ended = time.perf_counter()
        self.now["whole"], self._last = ended - self._last, ended
        self.steps.append(dict(self.now))
        self.now.clear()


def watched(watch: Watch) -> None:
    """Put the watch around what the loop calls."""
    loop.hidden_states = watch.timed("forward pass of the body", loop.hidden_states)
    loop.chunked_cross_entropy = watch.timed("loss with its gradients", loop.chunked_cross_entropy)
    loop.clip_gradients = watch.timed("clipping", loop.clip_gradients)
    torch.autograd.backward = watch.timed("backward pass of the body", torch.autograd.backward)
    torch.optim.AdamW.step = watch.timed("update", torch.optim.AdamW.step)
    LiveEma.after_update = watch.timed("live average", LiveEma.after_update)


def main() -> None:
    """Train a few steps and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--train", default="all", choices=["all", "embeddings", "new_embeddings"])
    parser.add_argument("--vocabulary", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    chosen = parser.parse_args()
    model = made_model(chosen.folder, chosen.vocabulary)
    ids = model.get_input_embeddings().weight.shape[0]
    loader, watch = made_loader(ids, chosen.steps, chosen.sequences, chosen.length), Watch()
    loader.batch = watch.timed("batch", loader.batch)
    watched(watch)
    plan = StagePlan(
        name="benchmark", seed=0, num_steps=chosen.steps, micro_batch=chosen.micro_batch, dtype=torch.bfloat16,
        peak_rate=1e-4, warmup_steps=0, refuse_bad_start=False,
        companions=(lambda start: LiveEma(start.parameters, decay=0.92),),
    )  # fmt: skip
    trainable = choose_trainable(model, chosen.train, range(ids - NEW, ids), ids)
    told = StageCallbacks(on_step=lambda _: watch.next_step())
    with tempfile.TemporaryDirectory() as folder:
        train_stage(model, head_of(model, ids), trainable, loader, plan, Path(folder) / "none", {}, told)
    whole = statistics.median(step["whole"] for step in watch.steps[WARM:])
    print(f"a step of {chosen.sequences * chosen.length:,} tokens: {whole:.2f} s")
    for part in watch.steps[-1]:
        seconds = statistics.median(step[part] for step in watch.steps[WARM:])
        print(f"{part:26} {seconds:8.3f} s {seconds / whole:7.1%}")


if __name__ == "__main__":
    main()
