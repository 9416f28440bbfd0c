"""Tries a few real steps of every stage, so that a plan's time and memory are those of this machine and this model.

What is tried has the run's shapes and random weights and tokens: they take as long and as much as real ones. Nothing is
read but the base's configuration, and nothing is kept.
"""

import multiprocessing
import queue
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.corpus.loader import Batch, SequenceLoader
from lingraft.errors import LingraftError, ModelError
from lingraft.model.locate import describing_folder, locate_base
from lingraft.pipeline.outline import StepCost, peak_resident
from lingraft.pipeline.plan import Plan

__all__ = ["calibrate"]

# The first steps make the optimiser's state and warm caches up, or compile.
_WARM, _TIMED = 2, 3
_SQUARE = 2048
_PATIENCE = 2.0
# What a step may end with; anything else ends the process, and its status is told.
_FAILURES = (LingraftError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def calibrate(plan: Plan) -> Plan:
    """Return a plan whose times and peaks are measured: each stage's, in a process of its own that does five steps.

    Guards against forgetting that read source text take part in no step here, so what they cost is not in it.

    Raises:
        ModelError: a stage's steps cannot be done, as where memory does not suffice.
    """
    costs = [_in_another_process(plan, index) for index in range(len(plan.stages))]
    stages = [
        replace(outline, seconds=cost.seconds * outline.num_steps, memory_bytes=cost.peak_bytes, cost=cost)
        for outline, cost in zip(plan.stages, costs, strict=True)
    ]
    return replace(plan, stages=tuple(stages))


def _in_another_process(plan: Plan, index: int) -> StepCost:
    """Do a stage's steps where their peak is all that is measured, and whose end frees everything."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    process = context.Process(target=_tell, args=(plan, index, told), daemon=True)
    process.start()
    try:
        while True:
            try:
                found = told.get(timeout=_PATIENCE)
                break
            except queue.Empty:
                if not process.is_alive():
                    found = f"its process ended with status {process.exitcode} (out of memory?)"
                    break
    finally:
        process.terminate()
        process.join()
    if isinstance(found, StepCost):
        return found
    raise ModelError(f"stages.{index}: no step of {plan.stages[index].stage.name!r} can be done here: {found}")


def _tell(plan: Plan, index: int, told: Any) -> None:
    """Put the cost of a stage's steps, or why there is none, into a queue."""
    try:
        told.put(_step_cost(plan, index))
    except _FAILURES as error:
        # Whatever it is, the process that waits has to be told.
        told.put(f"{type(error).__name__}: {error}")


def _step_cost(plan: Plan, index: int) -> StepCost:
    import torch

    from lingraft.model.base import head_of
    from lingraft.model.blocks import block_names
    from lingraft.model.freeze import choose_trainable
    from lingraft.pipeline.training import choose_device, stage_plan
    from lingraft.training.stage import train_stage
    from lingraft.training.stage_plan import StageCallbacks

    recipe, stage = plan.recipe, plan.recipe.stages[index]
    torch.manual_seed(0)
    model = _untrained(plan).to(choose_device(recipe))
    old, ids = plan.base.tokenizer.num_ids, min(plan.num_rows, _num_ids(plan))
    blocks = block_names(model, recipe.blocks.where) if recipe.blocks else ()
    trainable = choose_trainable(model, stage.trains, range(old, ids), ids, blocks=blocks)
    rates = stage_plan(recipe, index)
    steps = replace(
        rates, num_steps=_WARM + _TIMED, warmup_steps=0, checkpoint_at=frozenset(), measure_at=frozenset(),
        refuse_bad_start=False,
    )  # fmt: skip
    times: list[float] = []
    callbacks = StageCallbacks(on_step=lambda _: times.append(time.perf_counter()))
    with tempfile.TemporaryDirectory() as folder:
        loader = _RandomTokens(ids, stage.batch.sequences, stage.batch.sequence_length)
        train_stage(model, head_of(model, ids), trainable, loader, steps, Path(folder) / "none", {}, callbacks)
    seconds = statistics.median(
        after - before for before, after in zip(times[_WARM - 1 :], times[_WARM:], strict=False)
    )
    return StepCost(seconds, _peak(model), _product_rate(model, rates.dtype))


def _num_ids(plan: Plan) -> int:
    """Return the ids that the tokenizer will have; with ``auto``, at most."""
    base, vocabulary = plan.base.tokenizer.num_ids, plan.recipe.vocabulary
    return base + vocabulary.most_new_tokens if vocabulary.method == "expand" else base


def _untrained(plan: Plan) -> Any:
    """Return a model of the run's shape with random weights in fp32."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from lingraft.model.base import quiet_transformers
    from lingraft.model.blocks import expand_blocks

    location = locate_base(plan.recipe.base_model, plan.recipe.revision)
    with quiet_transformers():
        if location.kind == "gguf":
            assert location.path is not None
            config = AutoConfig.from_pretrained(location.path.parent, gguf_file=location.path.name)
            vars(config).pop("quantization_config", None)
        else:
            config = AutoConfig.from_pretrained(describing_folder(location), local_files_only=True)
        text = config.get_text_config()
        text.vocab_size = config.vocab_size = plan.num_rows
        text.tie_word_embeddings = config.tie_word_embeddings = plan.base.is_tied
        config.dtype = torch.float32
        model = AutoModelForCausalLM.from_config(config)
    return expand_blocks(model.eval(), plan.recipe.blocks.where) if plan.recipe.blocks else model


class _RandomTokens(SequenceLoader):
    """Batches of the shapes that a stage reads, of tokens that are none of a text."""

    def __init__(self, ids: int, sequences: int, length: int) -> None:
        self._ids, self._shape = ids, (sequences, length + 1)

    def batch(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> Batch:  # noqa: ARG002 - one process reads it
        """Return the batch of a step; it is all one document."""
        tokens = np.random.default_rng(step).integers(self._ids, size=self._shape)
        return Batch(tokens, np.zeros(self._shape, dtype=np.int64), ("random",) * self._shape[0])


def _peak(model: Any) -> int:
    import torch

    device = next(model.parameters()).device
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return peak_resident()


def _product_rate(model: Any, dtype: Any) -> float:
    """Return the best of five products, in FLOP per second: what a step could reach if it did nothing else."""
    import torch

    device = next(model.parameters()).device
    matrix = torch.ones((_SQUARE, _SQUARE), dtype=dtype, device=device)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        matrix @ matrix
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * _SQUARE**3 / best
