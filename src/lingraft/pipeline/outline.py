"""A stage in numbers before it runs: mix and rate over time, weights that learn, memory, time. Loads no torch."""

import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lingraft.model.locate import BaseDescription
from lingraft.pipeline.guard_plan import deeper_base, guard_copies
from lingraft.pipeline.rates import StageRates, stage_rates
from lingraft.pipeline.settings import average_in_words, stage_schedule
from lingraft.recipe import TRAIN_WORDS, Recipe, Stage
from lingraft.training.chunks import WORKED, chunk_positions
from lingraft.training.optimizer import optimizers

__all__ = ["StageOutline", "StepCost", "outline_stage", "path_length", "peak_resident", "product_rate", "stage_memory"]

_POINTS = tuple(n / 10 for n in range(10))
# Bytes that a layer keeps per token and hidden unit for the backward pass. Of SmolLM2-135M the tensors that autograd
# saves come to 53 and 78 where all weights learn, to 30 and 51 where the body is frozen; benchmarks/plan_estimates.py
# holds the whole estimate against a process's peak.
_KEPT_BYTES = {"bf16": 60, "fp32": 90}
_KEPT_BYTES_FROZEN = {"bf16": 35, "fp32": 60}
# Of the loss, in the type of its products: a logit, and a weight of the matrix where that is not the one it is held in.
_LOGIT_BYTES, _LOW_BYTES = {"bf16": 2, "fp32": 4}, {"bf16": 2, "fp32": 0}
# What a training step reaches of the fp32 matrix-product rate, measured with SmolLM2-135M on two AVX-512 cores.
_REACHED = {"bf16": 1.2, "fp32": 0.55}


@dataclass(frozen=True)
class StepCost:
    """What one optimiser step of a stage takes.

    Attributes:
        seconds: the median of three.
        peak_bytes: most memory held at once: of the process on a CPU, of tensors on a GPU.
        product_rate: FLOP per second of a product of two large square matrices in the type that the run computes in.
    """

    seconds: float
    peak_bytes: int
    product_rate: float


@dataclass(frozen=True)
class StageOutline:
    """A stage in numbers: the mix and the rates at ten points of it, the weights that learn, peak bytes and seconds.

    ``table_rates`` are those of the embedding matrices; ``averaging`` is the average, its half-life, and what of the
    start is left at the end, in words; ``path`` the sum of the rates of all steps, which is about the farthest that
    AdamW can carry a weight. ``flops`` are those of all its matrix products; ``cost`` is there once a few steps have
    been tried (:mod:`lingraft.pipeline.calibrating`), and then time and memory are what they took.
    """

    stage: Stage
    num_steps: int
    tokens: int
    mix: tuple[dict[str, float], ...]
    rates: tuple[float, ...]
    table_rates: tuple[float, ...]
    trainable: int
    memory_bytes: int
    seconds: float
    averaging: tuple[str, str, str]
    path: float
    flops: float = 0.0
    cost: StepCost | None = None

    @property
    def is_most(self) -> bool:
        """Whether ``trainable`` is what learns at most: what a pattern stands for is not counted without the model."""
        return "all" not in self.stage.trains and any(map(_is_pattern, self.stage.trains))

    @property
    def utilisation(self) -> float | None:
        """Model FLOP utilisation (arXiv 2204.02311, app. B): of a tried step, the share of the product rate it reaches.

        Activations that are made again count once: they are no work of the model's.
        """
        if self.cost is None:
            return None
        return self.flops / self.num_steps / self.cost.seconds / self.cost.product_rate


def outline_stage(
    recipe: Recipe, base: BaseDescription, index: int, rows: int, rate: float, sizes: Mapping[str, int]
) -> StageOutline:
    """Return a stage in numbers.

    Args:
        recipe: the recipe.
        base: its base model.
        index: of the stage.
        rows: of each embedding matrix, once the vocabulary has grown.
        rate: of this machine, see :func:`product_rate`.
        sizes: corpus → training tokens, for mixes that ask for them.
    """
    stage, schedule = recipe.stages[index], stage_schedule(recipe, index, sizes)
    base, in_blocks = deeper_base(recipe, base)
    tables = base.hidden_size * (1 if base.is_tied else 2)
    parameters = base.num_parameters + (rows - base.num_rows) * tables
    learning = _learning(recipe, base, stage, parameters, rows, in_blocks)
    rates, steps = stage_rates(recipe, index), stage.num_steps
    course = tuple(rates.at(int(point * steps)) for point in _POINTS)
    tokens = steps * stage.batch.tokens
    # A frozen body needs no gradients of its own, but the backward pass still runs through it to the input rows.
    work = 6 if "all" in stage.trains else 4
    passes = work + (2 if stage.batch.checkpoint_activations else 0)
    # Queries against keys and weights against values: half of all pairs, since none looks ahead.
    attention = work * base.num_layers * base.hidden_size * stage.batch.sequence_length
    looked_up = 0 if base.is_tied else rows * base.hidden_size
    # Gradients and moments are of whole matrices, even where only some of their rows learn.
    stepped = rows * tables if learning <= rows * tables else learning
    return StageOutline(
        stage=stage,
        num_steps=steps,
        tokens=tokens,
        mix=tuple(dict(schedule(point)) for point in _POINTS),
        rates=course,
        table_rates=tuple(value * rates.table_factor for value in course),
        trainable=learning,
        memory_bytes=stage_memory(recipe, base, stage, parameters, stepped, rows),
        seconds=passes * parameters * tokens / (rate * _REACHED[recipe.precision]),
        averaging=average_in_words(stage),
        path=path_length(stage, rates),
        flops=float(tokens * (work * (parameters - looked_up) + attention)),
    )


def path_length(stage: Stage, rates: StageRates) -> float:
    """Return Σ rate over the steps, from a hundred of them, times what a live average keeps of every movement."""
    points = sorted({step * stage.num_steps // 100 for step in range(100)})
    ema = stage.ema
    kept = 1 - (ema.decay or 0) if ema is not None and ema.kind in ("live", "lookahead") else 1.0
    return kept * stage.num_steps * sum(map(rates.at, points)) / len(points)


def _is_pattern(word: str) -> bool:
    name, _, count = word.partition(":")
    return name not in TRAIN_WORDS and not count


def _learning(recipe: Recipe, base: BaseDescription, stage: Stage, parameters: int, rows: int, in_blocks: int) -> int:
    """Return how many weights learn: by words exactly but for layers, which count alike; by patterns at most all."""
    sides = ("input", "output")
    body = parameters - rows * base.hidden_size * (1 if base.is_tied else 2)
    whole: set[str] = set()
    new: set[str] = set()
    share = 0.0
    for word in stage.trains:
        name, _, count = word.partition(":")
        if word == "all" or _is_pattern(word):
            return parameters
        if name == "blocks" and in_blocks:
            share = min(1.0, share + in_blocks / body)
        elif name in ("body", "blocks"):
            share = 1.0
        elif count:
            share = min(1.0, share + int(count) / base.num_layers)
        else:
            reached = {side for side in sides if side in name} or set(sides)
            (new if name.startswith("new_") else whole).update(["shared"] if base.is_tied else reached)
    table_rows = len(whole) * rows + len(new - whole) * recipe.vocabulary.most_new_tokens
    return round(share * body) + table_rows * base.hidden_size


def stage_memory(recipe: Recipe, base: BaseDescription, stage: Stage, parameters: int, stepped: int, rows: int) -> int:
    """Return peak bytes: fp32 weights, gradients, moments, the average's copy, activations, a chunk of logits.

    Heads that look further ahead have weights, gradients and moments like any other.
    """
    extra = stage.extra_heads * rows * base.hidden_size
    copies = 1 + float(optimizers.get(stage.optimizer.name, "optimizer.name").marks.get("copies", 2))
    # Gradients, moments and averages; the copy that is written beside training has weights in the place of gradients.
    moving = round(4 * (stepped + extra) * copies) + 4 * stepped * (stage.ema.copies if stage.ema else 0)
    weights = (
        4 * (parameters + extra)
        + 4 * stepped * (guard_copies(stage) + _held_branches(stage))
        + moving * (2 if stage.saves_beside else 1)
    )
    tokens = stage.batch.micro_batch * stage.batch.sequence_length
    has_frozen_body = all("embeddings" in word for word in stage.trains)
    kept = (_KEPT_BYTES_FROZEN if has_frozen_body else _KEPT_BYTES)[recipe.precision]
    # Made again layer by layer, each keeps its fp32 input, and one at a time keeps all.
    per_unit = 4 * base.num_layers + kept if stage.batch.checkpoint_activations else base.num_layers * kept
    activations = tokens * base.hidden_size * per_unit
    logits, low_matrix = rows * chunk_positions(rows, tokens), rows * base.hidden_size * _LOW_BYTES[recipe.precision]
    loss = logits * _LOGIT_BYTES[recipe.precision] + 4 * min(logits, WORKED["cpu"]) + low_matrix
    return weights + activations + loss


def _held_branches(stage: Stage) -> int:
    """Return how many copies of what learns are held for a merge: the round's start and its branches."""
    return 1 + stage.slices.width if stage.slices else 0


def peak_resident() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def product_rate(size: int = 1024) -> float:
    """Return the machine's fp32 matrix-product rate in FLOP per second, best of ten."""
    matrix = np.ones((size, size), dtype=np.float32)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
