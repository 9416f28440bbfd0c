"""Training steps of lingraft beside those of other trainers: the same model, tokens, type and batch, in one run.

    python benchmarks/trainers.py FOLDER [--vocabulary 128256] [--train embeddings] [--trainers lingraft,transformers]

FOLDER is a Hugging Face causal LM. Every trainer gets a process of its own, one after another, in rounds, so that what
else the machine does falls on all of them; told are the median tokens per second over all measured steps, the peak
resident size, and both as ratios to the first trainer. Random tokens, AdamW with fp32 weights and moments, bf16
products by autocast. Nothing else should run on the machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lingraft.corpus.apportionment import apportion
from lingraft.corpus.loader import SequenceLoader
from lingraft.corpus.mixing import Schedule
from lingraft.model.base import head_of
from lingraft.model.freeze import choose_trainable
from lingraft.pipeline.outline import peak_resident
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan

WARM = 2
# Rows of new tokens, where only these learn; the other trainers have no such thing and train all rows.
NEW = 4000


def loaded(folder: str) -> Any:
    """Return the model in fp32."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def grow(folder: str, rows: int, grown: str) -> None:
    """Write the model with matrices of so many rows: every trainer loads it as a run loads its expanded model."""
    model = loaded(folder)
    model.resize_token_embeddings(rows, mean_resizing=False)
    model.save_pretrained(grown)


def freeze_body(model: Any, train: str) -> None:
    """Leave only the embedding matrices trainable where that is asked for."""
    if train != "all":
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for module in (model.get_input_embeddings(), model.get_output_embeddings()):
            module.weight.requires_grad_(True)


def tokens_of(ids: int, steps: int, sequences: int, length: int) -> np.ndarray:
    """Return random tokens for all steps, ``(sequence, position)``."""
    return np.random.default_rng(0).integers(ids, size=(steps * sequences, length + 1))


def random_rows(arguments: argparse.Namespace, model: Any) -> np.ndarray:
    """Return the same tokens for the others, which shift labels themselves."""
    ids = model.get_input_embeddings().weight.shape[0]
    return tokens_of(ids, arguments.steps, arguments.sequences, arguments.length)[:, :-1]


def made_loader(ids: int, steps: int, sequences: int, length: int) -> SequenceLoader:
    """Return a loader of random tokens in one document."""
    tokens = tokens_of(ids, steps, sequences, length).ravel()
    store = SimpleNamespace(tokens=tokens, document_ends=np.array([len(tokens)], dtype=np.uint64))
    mix = apportion(Schedule(lambda _: {"x": 1.0}), ["x"], steps * sequences, grain=sequences)
    return SequenceLoader({"x": store}, mix, sequences=sequences, sequence_length=length, seed=0)


def with_lingraft(arguments: argparse.Namespace, **settings: Any) -> list[float]:
    """Return the times at which steps ended."""
    model = loaded(arguments.folder)
    ids = model.get_input_embeddings().weight.shape[0]
    loader = made_loader(ids, arguments.steps, arguments.sequences, arguments.length)
    times: list[float] = []
    plan = StagePlan(
        name="benchmark", seed=0, num_steps=arguments.steps, micro_batch=arguments.micro_batch, dtype=torch.bfloat16,
        peak_rate=1e-4, warmup_steps=0, refuse_bad_start=False, **settings,
    )  # fmt: skip
    trainable = choose_trainable(model, arguments.train, range(ids - NEW, ids), ids)
    told = StageCallbacks(on_step=lambda _: times.append(time.perf_counter()))
    with tempfile.TemporaryDirectory() as folder:
        train_stage(model, head_of(model, ids), trainable, loader, plan, Path(folder) / "checkpoints", {}, told)
    return times


def with_transformers(arguments: argparse.Namespace, **settings: Any) -> list[float]:
    """Return the times at which the optimiser steps of transformers' Trainer ended."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    model = loaded(arguments.folder)
    freeze_body(model, arguments.train)
    rows = random_rows(arguments, model)
    data = [{"input_ids": torch.from_numpy(row), "labels": torch.from_numpy(row)} for row in rows]
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                output_dir=folder, max_steps=arguments.steps, per_device_train_batch_size=arguments.micro_batch,
                gradient_accumulation_steps=arguments.sequences // arguments.micro_batch, bf16=True, use_cpu=True,
                optim="adamw_torch_fused", learning_rate=1e-4, weight_decay=0.1, max_grad_norm=1.0, report_to=[],
                save_strategy="no", logging_strategy="no", disable_tqdm=True, **settings,
            ),
            train_dataset=data,
            callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    return times


def with_lightning(arguments: argparse.Namespace) -> list[float]:
    """Return the times at which the optimiser steps of Lightning's Trainer ended."""
    import lightning

    model = loaded(arguments.folder)
    freeze_body(model, arguments.train)
    rows = torch.from_numpy(random_rows(arguments, model))
    times: list[float] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.train()

        def training_step(self, ids: torch.Tensor, _: int) -> torch.Tensor:
            return self.model(input_ids=ids, labels=ids).loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            learning = [p for p in self.parameters() if p.requires_grad]
            return torch.optim.AdamW(learning, lr=1e-4, weight_decay=0.1, fused=True)

        def on_before_optimizer_step(self, _: torch.optim.Optimizer) -> None:
            # Lightning's own clipping refuses a fused optimiser.
            torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)

        def optimizer_step(self, *given: Any, **named: Any) -> None:
            super().optimizer_step(*given, **named)
            times.append(time.perf_counter())

    trainer = lightning.Trainer(
        accelerator="cpu", precision="bf16-mixed", max_steps=arguments.steps, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
        accumulate_grad_batches=arguments.sequences // arguments.micro_batch,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=arguments.micro_batch))
    return times


TRAINERS = {
    "transformers": with_transformers,
    "lightning": with_lightning,
    "lingraft": with_lingraft,
    "lingraft-compiled": lambda arguments: with_lingraft(arguments, compile=True),
    "lingraft-checkpointed": lambda arguments: with_lingraft(arguments, checkpoint_activations=True),
}


def measured(arguments: argparse.Namespace) -> dict[str, float]:
    """Return tokens per second of the steps behind the first two, and the peak resident size in bytes."""
    times = TRAINERS[arguments.one](arguments)
    steps = [after - before for before, after in zip(times[WARM - 1 :], times[WARM:], strict=False)]
    per_step = arguments.sequences * arguments.length
    return {
        "tokens_per_second": per_step / statistics.median(steps),
        "peak_bytes": peak_resident(),
    }


def main() -> None:
    """Measure every trainer in a process of its own and tell the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--trainers", default="transformers,lingraft,lingraft-compiled")
    parser.add_argument("--train", default="all", choices=["all", "embeddings", "new_embeddings"])
    parser.add_argument("--vocabulary", type=int, default=0, help="rows of the matrices; 0 leaves them as they are")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--sequences", type=int, default=8, help="per optimiser step")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments)))
        return
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as grown:
        words = sys.argv[1:]
        if arguments.vocabulary:
            grow(arguments.folder, arguments.vocabulary, grown)
            words = [grown if word == arguments.folder else word for word in words]
        for _ in range(arguments.rounds):
            for name in arguments.trainers.split(","):
                command = [sys.executable, __file__, *words, "--one", name]
                told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                found.setdefault(name, []).append(json.loads(told.strip().splitlines()[-1]))
    rates = {name: statistics.median(one["tokens_per_second"] for one in all_) for name, all_ in found.items()}
    peaks = {name: max(one["peak_bytes"] for one in all_) for name, all_ in found.items()}
    first = next(iter(found))
    print("| trainer | tokens/s | ratio | peak memory, GiB | ratio |\n| --- | --- | --- | --- | --- |")
    for name in found:
        print(
            f"| {name} | {rates[name]:.0f} | {rates[name] / rates[first]:.2f} | {peaks[name] / 2**30:.2f} "
            f"| {peaks[name] / peaks[first]:.2f} |"
        )


if __name__ == "__main__":
    main()
