"""One stage: the loop, on one screen.

A stage is a run of its own that starts from a folder of weights. What it does at a step is a function of the step
number and the weights alone, so a killed stage goes on from its last checkpoint as if nothing had happened.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lingraft.corpus.loader import Batch, SequenceLoader
from lingraft.errors import CheckpointError, InterruptedRunError, TrainingError
from lingraft.model.base import Head, hidden_states
from lingraft.model.freeze import Trainable, frozen_digests, prove_frozen
from lingraft.model.isolation import refuse_leaks
from lingraft.training.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    optimizer_tensors,
    prune_checkpoints,
    restore_optimizer,
    save_checkpoint,
)
from lingraft.training.companion import Companion, MakeCompanion, StageStart, exchanged
from lingraft.training.learning_rate import learning_rate
from lingraft.training.loss import chunked_cross_entropy
from lingraft.training.multi_token import ExtraHeads
from lingraft.training.optimizer import optimizers
from lingraft.training.optimizer_state import carried_state, parameter_groups, take_over
from lingraft.training.spikes import Alarm, AlarmRules, Alarms

__all__ = ["StageCallbacks", "StagePlan", "StepReport", "train_stage"]

# A little above guessing is where an untrained model stands; far above, something does not belong together.
_WORSE_THAN_GUESSING = 1.1


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
        z_loss: see :func:`lingraft.training.loss.chunked_cross_entropy`.
        extra_heads: heads of :class:`lingraft.training.multi_token.ExtraHeads`.
        alarms: what follows a step that looks wrong.
        refuse_bad_start: whether a first loss far worse than guessing ends the stage.
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
    schedule_options: Mapping[str, float] = field(default_factory=dict)
    table_factor: float = 1.0
    optimizer: str = "adamw"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    weight_decay: float = 0.1
    clip: float = 1.0
    isolate: bool = False
    z_loss: float = 0.0
    extra_heads: int = 0
    alarms: AlarmRules = field(default_factory=AlarmRules)
    refuse_bad_start: bool = True
    companions: tuple[MakeCompanion, ...] = ()
    checkpoint_at: frozenset[int] = frozenset()
    measure_at: frozenset[int] = frozenset()


@dataclass(frozen=True)
class StepReport:
    """What one step did: losses are nats per label, by corpus, where finite.

    ``tokens`` were read, ``read`` of them from each corpus; ``counts`` are the labels that were learned from, which are
    fewer, because no document has to foretell how the next one begins.
    ``alarm`` is what looked wrong, if anything.
    """

    step: int
    tokens: int
    learning_rate: float
    gradient_norm: float
    losses: Mapping[str, float]
    counts: Mapping[str, int]
    read: Mapping[str, int]
    alarm: Alarm | None = None


@dataclass
class StageCallbacks:
    """What the loop tells, and asks, the outside.

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


@dataclass
class _Loop:
    """The moving parts of a stage: what a checkpoint saves and restores."""

    model: nn.Module
    head: Head
    trainable: Trainable
    loader: SequenceLoader
    plan: StagePlan
    optimizers: list[Optimizer]
    companions: list[Companion]
    extra: ExtraHeads
    parameters: dict[str, nn.Parameter]
    alarms: Alarms
    checkpoints: Path
    fingerprints: Mapping[str, str]
    callbacks: StageCallbacks
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

    def save(self, step: int, *, pending: bool = False) -> None:
        """Make a checkpoint, with a measurement ``pending`` or not, and then let old ones go."""
        if self.holds_average:
            raise CheckpointError(
                f"{self.checkpoints}: a checkpoint while the model holds averaged weights would mix them up"
            )
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": self.parameters,
            "optimizer": optimizer_tensors(self.optimizers, self.names),
            **{companion.group: companion.state() for companion in self.companions},
        }
        state = self.callbacks.save_state() | {
            "stage": self.plan.name,
            "trainable": self.trainable.describe(),
            "counters": {companion.group: companion.counters() for companion in self.companions},
            "alarms": self.alarms.state(),
            "consumed": self.consumed,
            "loader": self.loader.state(step),
            "pending": pending,
        }
        save_checkpoint(self.checkpoints, step, groups, self.fingerprints, state)
        prune_checkpoints(self.checkpoints, newest=step)

    def restore(self, accept: Collection[str]) -> int:
        """Go back to the newest sound checkpoint; return the steps done, 0 if there is none."""
        checkpoint, passed_over = latest_checkpoint(self.checkpoints, self.fingerprints, accept)
        for reason in passed_over:
            self.callbacks.on_note(f"checkpoint passed over: {reason}")
        if checkpoint is None:
            return 0
        self._refuse_another_stage(checkpoint)
        weights, state = checkpoint.tensors("model"), checkpoint.state
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        restore_optimizer(self.optimizers, self.names, checkpoint.tensors("optimizer"))
        for companion in self.companions:
            companion.load(checkpoint.tensors(companion.group), state["counters"][companion.group])
        self.alarms.load(state["alarms"])
        self.consumed = state["consumed"]
        self.loader.go_on(checkpoint.step, state["loader"], changed=bool(checkpoint.changed))
        if checkpoint.changed:
            changed = " and ".join(checkpoint.changed)
            self.callbacks.on_note(
                f"from step {checkpoint.step + 1} on with another {changed}; every corpus is read on"
            )
        self.callbacks.load_state({**state, "step": checkpoint.step})
        if state["pending"]:
            self.measure(checkpoint.step)
        return checkpoint.step

    def _refuse_another_stage(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        if state["stage"] != self.plan.name or state["trainable"] != self.trainable.describe():
            raise CheckpointError(f"{checkpoint.folder}: it trained other parameters than this stage does")
        if checkpoint.tensors("model").keys() != self.parameters.keys():
            raise CheckpointError(f"{checkpoint.folder}: its weights are not those that this stage trains")

    def measure(self, step: int) -> None:
        """Measure the raw weights, and then the averaged ones in their place; if that is stopped, save and stop."""
        self.model.eval()
        try:
            self.callbacks.measure(step)
            with self.averages() as any_averaged:
                if any_averaged:
                    self.callbacks.measure_averaged(step)
        except InterruptedRunError as error:
            self.save(step, pending=True)
            raise InterruptedRunError(f"{self.where(step)}, before it was measured; it is saved") from error

    def where(self, step: int) -> str:
        """Return where a stop came."""
        return f"stopped in stage {self.plan.name!r} after step {step} of {self.plan.num_steps}"


def train_stage(
    model: nn.Module,
    head: Head,
    trainable: Trainable,
    loader: SequenceLoader,
    plan: StagePlan,
    checkpoints: Path,
    fingerprints: Mapping[str, str],
    callbacks: StageCallbacks,
    *,
    carried: Mapping[str, Tensor] | None = None,
    accept: Collection[str] = (),
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
        carried: moments that the stage before left, see :func:`lingraft.training.optimizer_state.take_over`.
        accept: the names of fingerprints that may differ; the new mix or data hold from the checkpoint on.

    Raises:
        CheckpointError: there are checkpoints, and none can be gone on from.
        CorpusError: the next batch is not the one that the checkpoint expects.
        InterruptedRunError: ``should_stop`` said so; a checkpoint was made.
        TrainingError: losses or gradients go on being not finite, the rules say to stop at a spike, nothing learns, or
            the first loss is far worse than guessing.
        ModelError: documents are to be kept apart, and the model does not do it.
        FrozenMovedError: something frozen moved.
    """
    if plan.isolate:
        with _autocast(head.weight.device.type, plan.dtype):
            refuse_leaks(model, head.num_ids, f"stage {plan.name!r}, batch.isolate")
    still = frozen_digests(model, trainable)
    loop = _start(model, head, trainable, loader, plan, checkpoints, fingerprints, callbacks)
    take_over(loop.optimizers, loop.parameters, trainable, carried or {})
    done = loop.restore(accept)
    for step in range(done, plan.num_steps):
        report = _step(loop, loader.batch(step), step)
        callbacks.on_step(report)
        if step == 0:
            _look_at_first_loss(report, head, plan, callbacks)
        if step + 1 in plan.measure_at:
            loop.measure(step + 1)
        stopping = callbacks.should_stop()
        if stopping or step + 1 in plan.checkpoint_at:
            loop.save(step + 1)
            stopping = callbacks.should_stop()
        if stopping and step + 1 < plan.num_steps:
            raise InterruptedRunError(f"{loop.where(step + 1)}; it is saved")
    model.eval()
    callbacks.finish_optimizer(carried_state(loop.optimizers, loop.parameters, trainable))
    with loop.averages() as any_averaged:
        if any_averaged:
            prove_frozen(model, trainable, still)
            callbacks.finish_averaged()
    return prove_frozen(model, trainable, still)


def _start(
    model: nn.Module,
    head: Head,
    trainable: Trainable,
    loader: SequenceLoader,
    plan: StagePlan,
    checkpoints: Path,
    fingerprints: Mapping[str, str],
    callbacks: StageCallbacks,
) -> _Loop:
    every, extra = dict(model.named_parameters()), ExtraHeads(head, plan.extra_heads)
    own = {name: every[name] for name in trainable.names}
    parameters = own | extra.parameters
    groups = parameter_groups(parameters, trainable, weight_decay=plan.weight_decay, table_factor=plan.table_factor)
    made = optimizers.get(plan.optimizer, "optimizer.name").bind(plan.optimizer_options, "optimizer")(groups)
    start = StageStart(model, head, own, plan.num_steps)
    return _Loop(
        model=model,
        head=head,
        trainable=trainable,
        loader=loader,
        plan=plan,
        optimizers=made,
        companions=[make(start) for make in plan.companions],
        extra=extra,
        parameters=parameters,
        alarms=Alarms(plan.alarms),
        checkpoints=checkpoints,
        fingerprints=fingerprints,
        callbacks=callbacks,
    )


def _step(loop: _Loop, batch: Batch, step: int) -> StepReport:
    """Do one optimiser step: every label of the batch weighs the same, however it is cut into forward passes."""
    plan = loop.plan
    loop.model.train()
    # Dropout's noise is a function of the step, so that there is no generator state to save.
    torch.manual_seed(int.from_bytes(hashlib.sha256(f"{plan.seed}/{plan.name}/{step}".encode()).digest()[:7], "little"))
    rate = _set_rate(loop, step)
    starts = range(0, len(batch.tokens), plan.micro_batch)
    losses = torch.cat([_accumulate(loop, batch, slice(start, start + plan.micro_batch)) for start in starts])
    loop.trainable.mask_gradients(loop.parameters)
    loss = float(losses.double().sum()) / max(1, int(batch.counts.sum()))
    for companion in loop.companions if math.isfinite(loss) else ():
        companion.before_update(step + 1)
    norm = torch.nn.utils.clip_grad_norm_(list(loop.parameters.values()), plan.clip).item()
    alarm = _judge(loop, loss, norm, batch, step)
    makes_update = alarm is None or not alarm.skips
    for optimizer in loop.optimizers if makes_update else ():
        optimizer.step()
    for parameter in loop.parameters.values():
        parameter.grad = None
    for companion in loop.companions if makes_update else ():
        companion.after_update(step + 1)
    loop.consumed = hashlib.sha256(loop.consumed.encode() + batch.tokens.tobytes()).hexdigest()
    return _report(batch, losses, rate, norm, step, alarm)


def _set_rate(loop: _Loop, step: int) -> float:
    """Give every group of parameters its learning rate; return that of the body."""
    plan = loop.plan
    rate = learning_rate(
        step,
        num_steps=plan.num_steps,
        warmup_steps=plan.warmup_steps,
        peak=plan.peak_rate,
        floor=plan.floor,
        schedule=plan.schedule,
        options=plan.schedule_options,
    )
    for optimizer in loop.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]
    return rate


def _accumulate(loop: _Loop, batch: Batch, rows: slice) -> Tensor:
    """Add the gradients of some rows, weighted by the labels of the whole step; return their losses, 0 where none."""
    plan, device = loop.plan, loop.head.weight.device
    tokens = torch.from_numpy(batch.tokens[rows]).to(device)
    documents = torch.from_numpy(batch.documents[rows]).to(device)
    counts = torch.from_numpy(batch.counts[rows]).to(device)
    with _autocast(device.type, plan.dtype):
        hidden = hidden_states(loop.model, tokens[:, :-1], documents=documents[:, :-1] if plan.isolate else None)
    targets = tokens[:, 1:][counts]
    summed, losses = chunked_cross_entropy(hidden[counts], targets, loop.head, dtype=plan.dtype, z_loss=plan.z_loss)
    total = summed / max(1, int(batch.counts.sum()))
    if loop.extra.parameters:
        total = total + loop.extra.loss(hidden, tokens, documents, torch.from_numpy(batch.documents), plan.dtype)
    torch.autograd.backward(total)
    return torch.zeros(counts.shape, device=device).masked_scatter_(counts, losses).cpu()


def _autocast(device: str, dtype: torch.dtype) -> AbstractContextManager[Any]:
    return nullcontext() if dtype == torch.float32 else torch.autocast(device, dtype=dtype)


def _judge(loop: _Loop, loss: float, norm: float, batch: Batch, step: int) -> Alarm | None:
    """Return what is wrong with a step, if anything; what goes on being wrong ends the stage before the update."""
    at = f"stage {loop.plan.name!r}, step {step + 1}"
    try:
        alarm = loop.alarms.judge(loss, norm)
    except TrainingError as error:
        raise TrainingError(
            f"{at}: {error}; sequences {batch.describe()}; the update was not made, the last checkpoint is sound"
        ) from error
    if alarm:
        done = "the update is left out" if alarm.skips else "the update is made"
        loop.callbacks.on_note(f"{at}: {alarm.text}; sequences {batch.describe()}; {done}")
    elif step == 0:
        _refuse_deafness(loop)
    return alarm


def _refuse_deafness(loop: _Loop) -> None:
    learning = {name for name, p in loop.parameters.items() if p.grad is not None and bool(p.grad.any())}
    deaf = [name for name in loop.trainable.tables if name in loop.parameters and name not in learning]
    if not learning or deaf:
        raise TrainingError(f"stage {loop.plan.name!r}: no gradient reaches {deaf or 'anything that should train'}")


def _report(batch: Batch, losses: Tensor, rate: float, norm: float, step: int, alarm: Alarm | None) -> StepReport:
    sums: dict[str, float] = dict.fromkeys(sorted(set(batch.corpora)), 0.0)
    counts = dict.fromkeys(sums, 0)
    for name, loss, labels in zip(batch.corpora, losses.double().sum(dim=1).tolist(), batch.counts, strict=True):
        sums[name] += loss
        counts[name] += int(labels.sum())
    means = {name: sums[name] / counts[name] for name in sums if counts[name] and math.isfinite(sums[name])}
    read = {name: batch.corpora.count(name) * losses.shape[1] for name in sums}
    return StepReport(step + 1, losses.numel(), rate, norm, means, counts, read, alarm)


def _look_at_first_loss(report: StepReport, head: Head, plan: StagePlan, callbacks: StageCallbacks) -> None:
    """Remark on a corpus that is predicted worse than by guessing; refuse to train where the whole step is, by far.

    Raises:
        TrainingError: training from there would first have to undo what is wrong, if it ever did.
    """
    guessing, count = math.log(head.num_ids), sum(report.counts[name] for name in report.losses)
    advice = "look at the initial embeddings, or whether tokenizer, head and weights belong together"
    whole = sum(loss * report.counts[name] for name, loss in report.losses.items()) / max(1, count)
    if plan.refuse_bad_start and whole > _WORSE_THAN_GUESSING * guessing:
        raise TrainingError(
            f"the first loss is {whole:.2f} nats a token, far worse than guessing among the {head.num_ids} tokens "
            f"({guessing:.2f}): {advice}"
        )
    for corpus, loss in report.losses.items():
        if loss > guessing:
            callbacks.on_note(
                f"the first loss on {corpus} is {loss:.2f} nats a token, worse than guessing ({guessing:.2f}): {advice}"
            )
