"""One stage: the loop, on one screen.

A stage is a run of its own that starts from a folder of weights. What it does at a step is a function of the step
number and the weights alone, so a killed stage goes on from its last checkpoint as if nothing had happened.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.corpus.loader import Batch, SequenceLoader
from lingraft.errors import CheckpointError, InterruptedRunError, TrainingError
from lingraft.model.base import Head, hidden_states
from lingraft.model.freeze import Trainable, frozen_digests, prove_frozen
from lingraft.model.isolation import refuse_leaks
from lingraft.training.checkpoint import (
    latest_checkpoint,
    optimizer_tensors,
    prune_checkpoints,
    restore_optimizer,
    save_checkpoint,
)
from lingraft.training.companion import Companion, MakeCompanion, StageStart, exchanged
from lingraft.training.learning_rate import learning_rate
from lingraft.training.loss import chunked_cross_entropy

__all__ = ["StageCallbacks", "StagePlan", "StepReport", "train_stage"]


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
        betas: AdamW's.
        eps: AdamW's.
        weight_decay: AdamW's, on matrices; vectors are not decayed, nor tables of which only some rows learn.
        clip: largest norm of the gradient.
        isolate: whether documents of one sequence are kept from seeing each other.
        companions: what makes the averages and guards that run beside the optimiser, in the order they are called.
        checkpoint_at: steps after which a checkpoint is made.
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
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    isolate: bool = False
    companions: tuple[MakeCompanion, ...] = ()
    checkpoint_at: frozenset[int] = frozenset()
    measure_at: frozenset[int] = frozenset()


@dataclass(frozen=True)
class StepReport:
    """What one step did: losses are nats per label, by corpus.

    ``tokens`` were read, ``read`` of them from each corpus; ``counts`` are the labels that were learned from, which are
    fewer, because no document has to foretell how the next one begins.
    """

    step: int
    tokens: int
    learning_rate: float
    gradient_norm: float
    losses: Mapping[str, float]
    counts: Mapping[str, int]
    read: Mapping[str, int]


@dataclass
class StageCallbacks:
    """What the loop tells, and asks, the outside.

    Attributes:
        on_step: called after every step.
        measure: called with the step after which to measure, the model being in evaluation mode.
        measure_averaged: called likewise while the model holds averaged weights, if a companion makes any.
        finish_averaged: called at the stage's end while the model holds averaged weights, to keep them.
        should_stop: asked after every step; true means save and stop.
        save_state: plain values to keep with a checkpoint.
        load_state: is given them back when the stage goes on from that checkpoint.
        on_note: one-line remarks for the user.
    """

    on_step: Callable[[StepReport], None] = lambda _: None
    measure: Callable[[int], None] = lambda _: None
    measure_averaged: Callable[[int], None] = lambda _: None
    finish_averaged: Callable[[], None] = lambda: None
    should_stop: Callable[[], bool] = lambda: False
    save_state: Callable[[], dict[str, Any]] = dict
    load_state: Callable[[Mapping[str, Any]], None] = lambda _: None
    on_note: Callable[[str], None] = lambda _: None


@dataclass
class _Loop:
    """The moving parts of a stage: what a checkpoint saves and restores."""

    model: nn.Module
    head: Head
    trainable: Trainable
    plan: StagePlan
    optimizer: torch.optim.AdamW
    companions: list[Companion]
    parameters: dict[str, nn.Parameter]
    holds_average: bool = False
    consumed: str = field(default_factory=lambda: hashlib.sha256(b"").hexdigest())

    @property
    def names(self) -> dict[Tensor, str]:
        return {parameter: name for name, parameter in self.parameters.items()}

    @contextmanager
    def averages(self) -> Iterator[bool]:
        """Put the averaged weights into the model inside; whether there are any. No checkpoint can be made there."""
        found = [average for companion in self.companions if (average := companion.averaged()) is not None]
        with ExitStack() as stack:
            for average in found[:1]:
                stack.enter_context(exchanged(self.parameters, average))
                stack.callback(setattr, self, "holds_average", False)
                self.holds_average = True
            yield bool(found)

    def save(self, folder: Path, step: int, fingerprints: Mapping[str, str], state: dict[str, Any]) -> None:
        if self.holds_average:
            raise CheckpointError(f"{folder}: a checkpoint while the model holds averaged weights would mix them up")
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": self.parameters,
            "optimizer": optimizer_tensors(self.optimizer, self.names),
            **{companion.group: companion.state() for companion in self.companions},
        }
        counters = {companion.group: companion.counters() for companion in self.companions}
        state = state | {"consumed": self.consumed, "counters": counters}
        save_checkpoint(folder, step, groups, fingerprints, state)
        prune_checkpoints(folder, newest=step)

    def restore(self, folder: Path, fingerprints: Mapping[str, str], callbacks: StageCallbacks) -> int:
        """Go back to the newest sound checkpoint; return the steps done, 0 if there is none."""
        checkpoint, passed_over = latest_checkpoint(folder, fingerprints)
        for reason in passed_over:
            callbacks.on_note(f"checkpoint passed over: {reason}")
        if checkpoint is None:
            return 0
        weights = checkpoint.tensors("model")
        if weights.keys() != self.parameters.keys():
            raise TrainingError(f"{checkpoint.folder}: it trained other parameters than this stage does")
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        restore_optimizer(self.optimizer, self.names, checkpoint.tensors("optimizer"))
        for companion in self.companions:
            companion.load(checkpoint.tensors(companion.group), checkpoint.state["counters"][companion.group])
        self.consumed = checkpoint.state["consumed"]
        callbacks.load_state({**checkpoint.state, "step": checkpoint.step})
        return checkpoint.step


def train_stage(
    model: nn.Module,
    head: Head,
    trainable: Trainable,
    loader: SequenceLoader,
    plan: StagePlan,
    checkpoints: Path,
    fingerprints: Mapping[str, str],
    callbacks: StageCallbacks,
) -> int:
    """Train a stage to its end, from its newest checkpoint if there is one; return how many frozen pieces stood still.

    Args:
        model: the stage's starting weights, in fp32, with ``requires_grad`` set by
            :func:`lingraft.model.freeze.choose_trainable`; changed in place.
        head: of the model.
        trainable: what trains.
        loader: the batches.
        plan: the numbers.
        checkpoints: the folder for checkpoints.
        fingerprints: what a checkpoint must agree with to be resumed from.
        callbacks: the outside.

    Raises:
        InterruptedRunError: ``should_stop`` said so; a checkpoint was made.
        TrainingError: a loss or gradient is not finite, or nothing learns.
        ModelError: documents are to be kept apart, and the model does not do it.
        FrozenMovedError: something frozen moved.
    """
    if plan.isolate:
        refuse_leaks(model, head.num_ids, f"stage {plan.name!r}, batch.isolate")
    still = frozen_digests(model, trainable)
    loop = _start(model, head, trainable, plan)
    done = loop.restore(checkpoints, fingerprints, callbacks)
    for step in range(done, plan.num_steps):
        report = _step(loop, loader.batch(step), step)
        callbacks.on_step(report)
        if step == 0:
            _remark_on_first_loss(report, head, callbacks)
        if step + 1 in plan.measure_at:
            _measure(loop, callbacks, step + 1)
        stopping = callbacks.should_stop()
        if stopping or step + 1 in plan.checkpoint_at:
            loop.save(checkpoints, step + 1, fingerprints, callbacks.save_state())
        if stopping and step + 1 < plan.num_steps:
            raise InterruptedRunError(
                f"stopped in stage {plan.name!r} after step {step + 1} of {plan.num_steps}; it is saved"
            )
    model.eval()
    with loop.averages() as any_averaged:
        if any_averaged:
            prove_frozen(model, trainable, still)
            callbacks.finish_averaged()
    return prove_frozen(model, trainable, still)


def _measure(loop: _Loop, callbacks: StageCallbacks, step: int) -> None:
    """Measure the raw weights, and then the averaged ones in their place."""
    loop.model.eval()
    callbacks.measure(step)
    with loop.averages() as any_averaged:
        if any_averaged:
            callbacks.measure_averaged(step)


def _start(model: nn.Module, head: Head, trainable: Trainable, plan: StagePlan) -> _Loop:
    every = dict(model.named_parameters())
    parameters = {name: every[name] for name in trainable.names}
    partial = set(trainable.tables) if trainable.new_rows else set()
    decayed = [p for name, p in parameters.items() if p.ndim >= 2 and name not in partial]
    plain = [p for name, p in parameters.items() if p.ndim < 2 or name in partial]
    groups = [{"params": decayed, "weight_decay": plan.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=plan.peak_rate, betas=plan.betas, eps=plan.eps)
    start = StageStart(model, head, parameters, plan.num_steps)
    return _Loop(model, head, trainable, plan, optimizer, [make(start) for make in plan.companions], parameters)


def _step(loop: _Loop, batch: Batch, step: int) -> StepReport:
    """Do one optimiser step: every label of the batch weighs the same, however it is cut into forward passes."""
    plan = loop.plan
    loop.model.train()
    # Dropout's noise is a function of the step, so that there is no generator state to save.
    torch.manual_seed(int.from_bytes(hashlib.sha256(f"{plan.seed}/{plan.name}/{step}".encode()).digest()[:7], "little"))
    rate = learning_rate(
        step,
        num_steps=plan.num_steps,
        warmup_steps=plan.warmup_steps,
        peak=plan.peak_rate,
        floor=plan.floor,
        schedule=plan.schedule,
    )
    for group in loop.optimizer.param_groups:
        group["lr"] = rate
    starts = range(0, len(batch.tokens), plan.micro_batch)
    losses = torch.cat([_accumulate(loop, batch, slice(start, start + plan.micro_batch)) for start in starts])
    loop.trainable.mask_gradients(loop.parameters)
    for companion in loop.companions:
        companion.before_update(step + 1)
    norm = torch.nn.utils.clip_grad_norm_(list(loop.parameters.values()), plan.clip).item()
    _refuse_a_bad_step(loop, losses, norm, batch, step)
    loop.optimizer.step()
    loop.optimizer.zero_grad(set_to_none=True)
    for companion in loop.companions:
        companion.after_update(step + 1)
    loop.consumed = hashlib.sha256(loop.consumed.encode() + batch.tokens.tobytes()).hexdigest()
    return _report(batch, losses, rate, norm, step)


def _accumulate(loop: _Loop, batch: Batch, rows: slice) -> Tensor:
    """Add the gradients of some rows, weighted by the labels of the whole step; return their losses, 0 where none."""
    device = loop.head.weight.device
    tokens = torch.from_numpy(batch.tokens[rows]).to(device)
    documents = torch.from_numpy(batch.documents[rows, :-1]).to(device) if loop.plan.isolate else None
    counts = torch.from_numpy(batch.counts[rows]).to(device)
    with _autocast(device.type, loop.plan.dtype):
        hidden = hidden_states(loop.model, tokens[:, :-1], documents=documents)
    total, losses = chunked_cross_entropy(hidden[counts], tokens[:, 1:][counts], loop.head, dtype=loop.plan.dtype)
    torch.autograd.backward(total / max(1, int(batch.counts.sum())))
    return torch.zeros(counts.shape, device=device).masked_scatter_(counts, losses).cpu()


def _autocast(device: str, dtype: torch.dtype) -> AbstractContextManager[Any]:
    return nullcontext() if dtype == torch.float32 else torch.autocast(device, dtype=dtype)


def _refuse_a_bad_step(loop: _Loop, losses: Tensor, norm: float, batch: Batch, step: int) -> None:
    if not (math.isfinite(norm) and torch.isfinite(losses).all()):
        raise TrainingError(
            f"stage {loop.plan.name!r}, step {step + 1}: the loss or the gradient is not finite (norm {norm}; corpora "
            f"{sorted(set(batch.corpora))}); the step was not made, the last checkpoint is sound"
        )
    if step == 0:
        learning = {name for name, p in loop.parameters.items() if p.grad is not None and bool(p.grad.any())}
        deaf = [name for name in loop.trainable.tables if name in loop.parameters and name not in learning]
        if not learning or deaf:
            raise TrainingError(f"stage {loop.plan.name!r}: no gradient reaches {deaf or 'anything that should train'}")


def _report(batch: Batch, losses: Tensor, rate: float, norm: float, step: int) -> StepReport:
    sums: dict[str, float] = dict.fromkeys(sorted(set(batch.corpora)), 0.0)
    counts = dict.fromkeys(sums, 0)
    for name, loss, labels in zip(batch.corpora, losses.double().sum(dim=1).tolist(), batch.counts, strict=True):
        sums[name] += loss
        counts[name] += int(labels.sum())
    means = {name: sums[name] / counts[name] for name in sums if counts[name]}
    read = {name: batch.corpora.count(name) * losses.shape[1] for name in sums}
    return StepReport(step + 1, losses.numel(), rate, norm, means, counts, read)


def _remark_on_first_loss(report: StepReport, head: Head, callbacks: StageCallbacks) -> None:
    guessing = math.log(head.num_ids)
    for corpus, loss in report.losses.items():
        if loss > guessing:
            callbacks.on_note(
                f"the first loss on {corpus} is {loss:.2f} nats a token, worse than guessing ({guessing:.2f}): look at "
                "the initial embeddings, or whether tokenizer and weights belong together"
            )
