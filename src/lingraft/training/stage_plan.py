"""What a stage is told before it runs: its numbers, and whom it tells what it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lingraft.training.companion import MakeCompanion
from lingraft.training.spikes import AlarmRules
from lingraft.training.step_report import StepReport

__all__ = ["SINGLE_PROCESS", "StageCallbacks", "StagePlan"]

# What looks at whole matrices, traces one process or writes beside it: fields of a plan, and options of a recipe.
SINGLE_PROCESS = ("extra_heads", "compile", "saves_beside")


@dataclass(frozen=True)
class StagePlan:
    """The numbers of a stage, in steps.

    Attributes:
        name: of the stage.
        seed: for what is random inside the model (dropout).
        num_steps: optimiser steps.
        micro_batch: sequences per forward pass.
        dtype: the type of matrix products; weights and their updates are fp32 in any case.
        peak_rate: see :func:`lingraft.training.learning_rate.learning_rate`.
        warmup_steps: see there.
        floor: see there.
        schedule: see there.
        schedule_options: see there.
        table_factor: the learning rate of embedding matrices over that of the body.
        optimizer: name of the optimiser, see :mod:`lingraft.training.optimizer`.
        optimizer_options: its own.
        weight_decay: on matrices; vectors are not decayed, nor tables of which only some rows learn.
        clip: largest norm of the gradient.
        isolate: whether documents of one sequence are kept from seeing each other.
        compile: whether the body's forward and backward pass are compiled, see :mod:`lingraft.training.acceleration`.
        checkpoint_activations: whether activations are made again in the backward pass, see there.
        z_loss: see :func:`lingraft.training.loss.chunked_cross_entropy`.
        extra_heads: heads of :class:`lingraft.training.multi_token.ExtraHeads`.
        alarms: what follows a step that looks wrong.
        refuse_bad_start: whether a first loss far worse than guessing ends the stage.
        companions: what makes the averages and guards that run beside the optimiser, in the order they are called.
        checkpoint_at: steps after which a checkpoint is made.
        saves_beside: whether training goes on while a checkpoint is written, see
            :class:`lingraft.training.background.Background`.
        measure_at: steps after which ``measure`` is called.
    """

    name: str
    seed: int
    num_steps: int
    micro_batch: int
    dtype: torch.dtype
    peak_rate: float
    warmup_steps: int
    floor: float = 0.0
    schedule: str = "cosine"
    schedule_options: Mapping[str, float] = field(default_factory=dict)
    table_factor: float = 1.0
    optimizer: str = "adamw"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    weight_decay: float = 0.1
    clip: float = 1.0
    isolate: bool = False
    compile: bool = False
    checkpoint_activations: bool = False
    z_loss: float = 0.0
    extra_heads: int = 0
    alarms: AlarmRules = field(default_factory=AlarmRules)
    refuse_bad_start: bool = True
    companions: tuple[MakeCompanion, ...] = ()
    checkpoint_at: frozenset[int] = frozenset()
    saves_beside: bool = False
    measure_at: frozenset[int] = frozenset()


@dataclass
class StageCallbacks:
    """What the loop tells, and asks, the outside.

    Where several ranks train together, every rank calls its own: what is told is the same on all of them.

    Attributes:
        on_step: called after every step.
        measure: called with the step after which to measure, the model being in evaluation mode. It may raise
            InterruptedRunError: the stage is saved with the measurement still due.
        measure_averaged: called likewise while the model holds averaged weights, if a companion makes any.
        finish_averaged: called at the stage's end while the model holds averaged weights, to keep them.
        finish_optimizer: called at the stage's end with the moments that a next stage may go on from.
        should_stop: asked after every step; true means save and stop.
        save_state: plain values to keep with a checkpoint.
        load_state: is given them back when the stage goes on from that checkpoint.
        on_note: one-line remarks for the user.
    """

    on_step: Callable[[StepReport], None] = lambda _: None
    measure: Callable[[int], None] = lambda _: None
    measure_averaged: Callable[[int], None] = lambda _: None
    finish_averaged: Callable[[], None] = lambda: None
    finish_optimizer: Callable[[dict[str, Tensor]], None] = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    save_state: Callable[[], dict[str, Any]] = dict
    load_state: Callable[[Mapping[str, Any]], None] = lambda _: None
    on_note: Callable[[str], None] = lambda _: None
