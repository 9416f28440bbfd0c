"""One stage: the loop, on one screen.

A stage is a run of its own that starts from a folder of weights. What it does at a step is a function of the step
number and the weights alone, so a killed stage goes on from its last checkpoint as if nothing had happened.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
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
from lingraft.model.shards import held
from lingraft.polling import poll
from lingraft.training.acceleration import accelerate, keep_freed_memory, uncompiled
from lingraft.training.background import Background, copied
from lingraft.training.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    optimizer_tensors,
    prune_checkpoints,
    restore_optimizer,
    save_checkpoint,
)
from lingraft.training.companion import Companion, StageStart, exchanged
from lingraft.training.distributed import ALONE, Ranks, clip_gradients, shard
from lingraft.training.learning_rate import learning_rate
from lingraft.training.loss import chunked_cross_entropy
from lingraft.training.multi_token import ExtraHeads
from lingraft.training.optimizer import optimizers
from lingraft.training.optimizer_state import carried_state, parameter_groups, take_over
from lingraft.training.spikes import Alarm, Alarms
from lingraft.training.stage_plan import SINGLE_PROCESS, StageCallbacks, StagePlan
from lingraft.training.step_report import StepReport, look_at_first_loss, step_report
from lingraft.training.stillness import STEPS_TO_MOVE, learning_rows, refuse_stillness

__all__ = ["train_stage"]


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
    ranks: Ranks
    within: Callable[..., Any]
    device: torch.device
    background: Background = field(default_factory=Background)
    holds_average: bool = False
    watched: dict[str, tuple[int, Tensor]] = field(default_factory=dict)
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
            "healthy": self.alarms.is_calm,
            "consumed": self.consumed,
            "loader": self.loader.state(step),
            "pending": pending,
        }

        if not self.alarms.is_calm:
            self.callbacks.on_note(
                f"stage {self.plan.name!r}, step {step}: saved before the losses are calm again; the newest checkpoint "
                "from before the alarm stays beside it"
            )

        def write(groups: Mapping[str, Mapping[str, Tensor]]) -> None:
            save_checkpoint(self.checkpoints, step, groups, self.fingerprints, state, self.ranks)
            self.ranks.first(lambda: prune_checkpoints(self.checkpoints, newest=step))

        if self.plan.saves_beside:
            self.background.begin(write, copied(groups))
        else:
            write(groups)

    def restore(self, accept: Collection[str]) -> int:
        """Go back to the newest sound checkpoint; return the steps done, 0 if there is none."""
        checkpoint, passed_over = latest_checkpoint(self.checkpoints, self.fingerprints, accept, self.ranks)
        for reason in passed_over:
            self.callbacks.on_note(f"checkpoint passed over: {reason}")
        if checkpoint is None:
            return 0
        self._refuse_another_stage(checkpoint)
        weights, state = checkpoint.tensors("model", self.parameters), checkpoint.state
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        restore_optimizer(self.optimizers, self.names, checkpoint.tensors("optimizer", self.parameters))
        for companion in self.companions:
            own = checkpoint.tensors(companion.group, self.parameters)
            companion.load(own, state["counters"][companion.group])
        self.alarms.load(state["alarms"])
        self.consumed = state["consumed"]
        read = [what for what in checkpoint.changed if what != "memory"]
        self.loader.go_on(checkpoint.step, state["loader"], changed=bool(read))
        if read:
            self.callbacks.on_note(
                f"from step {checkpoint.step + 1} on with another {' and '.join(read)}; every corpus is read on"
            )
        if checkpoint.versions:
            self.callbacks.on_note(
                f"from step {checkpoint.step + 1} on with other versions ({', '.join(checkpoint.versions)}): the bits "
                "need not be those of a run that was never stopped"
            )
        if "memory" in checkpoint.changed:
            self.callbacks.on_note(
                f"from step {checkpoint.step + 1} on with another micro_batch or checkpoint_activations: the same "
                "sequences, added up in another order"
            )
        self.callbacks.load_state({**state, "step": checkpoint.step})
        if state["pending"]:
            self.measure(checkpoint.step)
        return checkpoint.step

    def _refuse_another_stage(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        if state["stage"] != self.plan.name or state["trainable"] != self.trainable.describe():
            raise CheckpointError(f"{checkpoint.folder}: it trained other parameters than this stage does")
        if checkpoint.names("model") != self.parameters.keys():
            raise CheckpointError(f"{checkpoint.folder}: its weights are not those that this stage trains")

    def measure(self, step: int) -> None:
        """Measure the raw weights, and then the averaged ones in their place; if that is stopped, save and stop."""
        self.model.eval()
        try:
            with uncompiled():
                self.ranks.together(lambda: self.callbacks.measure(step))
                with self.averages() as any_averaged:
                    if any_averaged:
                        self.ranks.together(lambda: self.callbacks.measure_averaged(step))
        except InterruptedRunError as error:
            self.save(step, pending=True)
            self.background.wait()
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
    ranks: Ranks = ALONE,
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
        ranks: the processes that train together; each calls this with the same whole model, which is divided here.

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
    if ranks.count > 1:
        ranks.together(lambda: _refuse_undivided(plan, loader, ranks))
    if head.weight.device.type == "cpu":
        keep_freed_memory()
    accelerate(model, compile_body=plan.compile, checkpoint_activations=plan.checkpoint_activations)
    within = shard(model, ranks)
    head = _current(model, head) if ranks.count > 1 else head
    # A rank that stopped here by itself would leave the others waiting.
    still = frozen_digests(model, trainable, poll if ranks.count == 1 else None)
    loop = _start(
        model, head, trainable, loader, plan, checkpoints, fingerprints, callbacks, ranks=ranks, within=within
    )
    take_over(loop.optimizers, loop.parameters, trainable, carried or {})
    with loop.background:
        _train(loop, accept)
    model.eval()
    carried_on = carried_state(loop.optimizers, loop.parameters, trainable)
    ranks.together(lambda: callbacks.finish_optimizer(carried_on))
    with loop.averages() as any_averaged:
        if any_averaged:
            ranks.together(lambda: prove_frozen(model, trainable, still))
            ranks.together(callbacks.finish_averaged)
    return ranks.together(lambda: prove_frozen(model, trainable, still))


def _train(loop: _Loop, accept: Collection[str]) -> None:
    """Do the steps that are left, measure and save on the way, and stop where that is asked for."""
    plan, callbacks = loop.plan, loop.callbacks
    for step in range(loop.restore(accept), plan.num_steps):
        report = _step(loop, loop.loader.batch(step), step)
        callbacks.on_step(report)
        if step == 0:
            look_at_first_loss(report, loop.head.num_ids, refuse=plan.refuse_bad_start, note=callbacks.on_note)
        if step + 1 in plan.measure_at:
            loop.measure(step + 1)
        stopping = loop.ranks.any(callbacks.should_stop())
        if stopping or step + 1 in plan.checkpoint_at:
            loop.save(step + 1)
            stopping = loop.ranks.any(callbacks.should_stop())
        if stopping and step + 1 < plan.num_steps:
            loop.background.wait()
            raise InterruptedRunError(f"{loop.where(step + 1)}; it is saved")


def _refuse_undivided(plan: StagePlan, loader: SequenceLoader, ranks: Ranks) -> None:
    """Refuse what several ranks cannot do together: batches that are not equal parts, and what is not elementwise."""
    loader.batch(0, rank=ranks.rank, num_ranks=ranks.count)
    divides = optimizers.get(plan.optimizer, "optimizer.name").marks.get("divides", True)
    alone = [name for name in SINGLE_PROCESS if getattr(plan, name)]
    for what in alone + [f"the optimiser {plan.optimizer}"] * (not divides):
        raise TrainingError(f"stage {plan.name!r}: {what} works in one process only, and there are {ranks.count}")


def _current(model: nn.Module, head: Head) -> Head:
    """Return a head with the matrix that the model has now: divided, or gathered inside of its forward pass."""
    given: Any = model
    output = given.get_output_embeddings()
    return replace(head, weight=output.weight, bias=getattr(output, "bias", None))


def _start(
    model: nn.Module,
    head: Head,
    trainable: Trainable,
    loader: SequenceLoader,
    plan: StagePlan,
    checkpoints: Path,
    fingerprints: Mapping[str, str],
    callbacks: StageCallbacks,
    *,
    ranks: Ranks,
    within: Callable[..., Any],
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
        ranks=ranks,
        within=within,
        device=ranks.device if ranks.count > 1 else head.weight.device,
    )


def _step(loop: _Loop, batch: Batch, step: int) -> StepReport:
    """Do one optimiser step: every label of the batch weighs the same, however it is cut into forward passes.

    ``batch`` is that of all ranks; each computes an equal part of its rows.
    """
    plan, ranks = loop.plan, loop.ranks
    loop.model.train()
    # Dropout's noise is a function of the step, so that there is no generator state to save.
    place = f"{plan.seed}/{plan.name}/{step}" + (f"/{ranks.rank}" if ranks.rank else "")
    torch.manual_seed(int.from_bytes(hashlib.sha256(place.encode()).digest()[:7], "little"))
    rate = _set_rate(loop, step)
    size = len(batch.tokens) // ranks.count
    own, stop = ranks.rank * size, (ranks.rank + 1) * size
    pieces = [slice(start, min(start + plan.micro_batch, stop)) for start in range(own, stop, plan.micro_batch)]
    losses = ranks.gather(torch.cat([_accumulate(loop, batch, piece) for piece in pieces]))
    loop.trainable.mask_gradients(loop.parameters)
    loss = float(losses.sum()) / max(1, int(batch.counts.sum()))
    for companion in loop.companions if math.isfinite(loss) else ():
        companion.before_update(step + 1)
    norm = clip_gradients(list(loop.parameters.values()), plan.clip)
    alarm = _judge(loop, loss, norm, batch, step)
    makes_update = alarm is None or not alarm.skips
    if step == 0 and makes_update:
        loop.watched = learning_rows(loop.parameters, loop.trainable.tables)
    for optimizer in loop.optimizers if makes_update else ():
        optimizer.step()
    for parameter in loop.parameters.values():
        parameter.grad = None
    for companion in loop.companions if makes_update else ():
        companion.after_update(step + 1)
    if step + 1 == min(STEPS_TO_MOVE, plan.num_steps):
        ranks.together(lambda: refuse_stillness(loop.parameters, loop.watched, plan.name, step + 1))
    loop.consumed = hashlib.sha256(loop.consumed.encode() + batch.tokens.tobytes()).hexdigest()
    return step_report(batch, losses, rate, norm, step, alarm)


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
    """Add the gradients of some rows, weighted by the labels of the whole step; return the summed loss of each row."""
    device = loop.device
    tokens = torch.from_numpy(batch.tokens[rows]).to(device)
    documents = torch.from_numpy(batch.documents[rows]).to(device)
    counts = torch.from_numpy(batch.counts[rows]).to(device)
    total, losses = loop.within(_losses, loop, batch, tokens, documents, counts)
    # Ranks' gradients are averaged where they meet, and the sum over all labels is wanted.
    torch.autograd.backward(total * loop.ranks.count if loop.ranks.count > 1 else total)
    return torch.zeros(counts.shape, device=device).masked_scatter_(counts, losses).double().sum(dim=1).cpu()


def _losses(loop: _Loop, batch: Batch, tokens: Tensor, documents: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return what to descend on, and the loss of each label: what needs gathered parameters."""
    plan = loop.plan
    with _autocast(loop.device.type, plan.dtype):
        hidden = hidden_states(loop.model, tokens[:, :-1], documents=documents[:, :-1] if plan.isolate else None)
    head = _current(loop.model, loop.head) if loop.ranks.count > 1 else loop.head
    targets = tokens[:, 1:][counts]
    summed, losses = chunked_cross_entropy(
        hidden[counts], targets, head, dtype=plan.dtype, z_loss=plan.z_loss, learning=loop.trainable.output_rows
    )
    total = summed / max(1, int(batch.counts.sum()))
    if loop.extra.parameters:
        total = total + loop.extra.loss(hidden, tokens, documents, torch.from_numpy(batch.documents), plan.dtype)
    return total, losses


def _autocast(device: str, dtype: torch.dtype) -> AbstractContextManager[Any]:
    # A forward pass uses each matrix once: kept, its copy in the lower type would lie there unused.
    return nullcontext() if dtype == torch.float32 else torch.autocast(device, dtype=dtype, cache_enabled=False)


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
    heard = [p.grad is not None and bool(held(p.grad).any()) for p in loop.parameters.values()]
    flags = loop.ranks.gather(torch.tensor(heard)).view(-1, len(heard)).any(dim=0).tolist()
    learning = {name for name, flag in zip(loop.parameters, flags, strict=True) if flag}
    deaf = [name for name in loop.trainable.tables if name in loop.parameters and name not in learning]
    if not learning or deaf:
        raise TrainingError(f"stage {loop.plan.name!r}: no gradient reaches {deaf or 'anything that should train'}")
