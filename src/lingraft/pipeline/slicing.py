"""A stage in slices: branches that are trained from one start on different slices of its data, and merged (BaM)."""

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lingraft.corpus.loader import Batch, SequenceLoader
from lingraft.model.base import Head
from lingraft.model.freeze import Trainable
from lingraft.model.interpolate import merge_weights
from lingraft.recipe import Slices
from lingraft.run import fingerprint, publish_folder
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan
from lingraft.training.step_report import StepReport

__all__ = ["SliceLoader", "SlicedTraining", "slice_plan"]


class SliceLoader(SequenceLoader):
    """Some consecutive steps of another loader, counted from 0.

    Args:
        whole: the loader.
        first: its step that is step 0 here.
        num_steps: how many steps.
    """

    def __init__(self, whole: SequenceLoader, first: int, num_steps: int) -> None:
        self._whole, self._first_step, self._num_steps = whole, first, num_steps

    @property
    def num_steps(self) -> int:
        """Steps of the slice."""
        return self._num_steps

    def batch(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> Batch:
        """Return the batch of a step."""
        return self._whole.batch(self._first_step + step, rank=rank, num_ranks=num_ranks)

    def consumed(self, step: int) -> dict[str, int]:
        """Return corpus → tokens taken when ``step`` steps of the slice are done."""
        return self._whole.consumed(self._first_step + step)

    def state(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint keeps of the loader after ``step`` steps."""
        return self._whole.state(self._first_step + step)

    def go_on(self, step: int, state: Mapping[str, Any], *, changed: bool = False) -> None:
        """Go on from a checkpoint; raises CorpusError as the whole loader does."""
        self._whole.go_on(self._first_step + step, state, changed=changed)


def slice_plan(plan: StagePlan, number: int, count: int) -> StagePlan:
    """Return the numbers of slice ``number`` (from 0) of ``count``: its own warm-up and decay, over its own steps."""
    size = plan.num_steps // count
    first, warmup = number * size, plan.warmup_steps
    return replace(
        plan,
        name=f"{plan.name}/slice-{number + 1}",
        num_steps=size,
        warmup_steps=min(size, max(1, round(warmup / count))) if warmup else 0,
        checkpoint_at=frozenset(step - first for step in plan.checkpoint_at if first < step < first + size),
        measure_at=frozenset(),
        refuse_bad_start=plan.refuse_bad_start and number == 0,
    )


@dataclass(frozen=True)
class SlicedTraining:
    """Branch-and-Merge (arXiv 2407.08699): in every round ``width`` branches start from the same weights.

    Each trains on a slice of its own; their merge is where the next round starts. A finished branch is a file, and the
    merge a function of such files, so a killed stage goes on with the same bits.

    Attributes:
        spec: how many slices, how many branches at a time, how they are merged.
        model: with the stage's starting weights; changed in place.
        head: of the model.
        trainable: what trains.
        loader: the batches of the whole stage, of which slice n is the n-th part.
        plan_of: round → the numbers of the whole stage; a guard looks at the round's start.
        folder: for finished branches and checkpoints.
        fingerprints: what both must agree with; a finished branch does with all but ``memory``, as its weights do.
        callbacks: the outside, told of steps of the whole stage and asked to measure after every merge.
        forget_after: is told the step of the whole stage that a branch begins behind.
        accept: the fingerprints in which a checkpoint may differ.
    """

    spec: Slices
    model: nn.Module
    head: Head
    trainable: Trainable
    loader: SequenceLoader
    plan_of: Callable[[int], StagePlan]
    folder: Path
    fingerprints: Mapping[str, str]
    callbacks: StageCallbacks
    forget_after: Callable[[int], None]
    accept: Collection[str] = ()

    def run(self) -> int:
        """Train and merge all slices; return how many frozen pieces stood still in the last of them.

        Raises:
            InterruptedRunError: a stop was asked for; finished branches and a checkpoint are kept.
        """
        still = 0
        for turn in range(self.spec.count // self.spec.width):
            plan, start = self.plan_of(turn), self._weights()
            branches = []
            for number in range(turn * self.spec.width, (turn + 1) * self.spec.width):
                weights, stood = self._branch(plan, number, start)
                branches.append(weights)
                still = max(still, stood)
            self._put(merge_weights(branches, self.spec.merge, "slices.merge"))
            self.model.eval()
            self.callbacks.measure((turn + 1) * self.spec.width * (plan.num_steps // self.spec.count))
        return still

    def _weights(self) -> dict[str, Tensor]:
        every = dict(self.model.named_parameters())
        return {name: every[name].detach().cpu().clone() for name in self.trainable.names}

    @torch.no_grad()
    def _put(self, weights: Mapping[str, Tensor]) -> None:
        every = dict(self.model.named_parameters())
        for name, tensor in weights.items():
            every[name].copy_(tensor)

    def _branch(self, plan: StagePlan, number: int, start: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """Return the weights of one branch, trained or as they were kept, and how many frozen pieces stood still."""
        fingerprints = {**self.fingerprints, "slice": str(number)}
        made_of = {what: of for what, of in fingerprints.items() if what != "memory"}
        done = self.folder / f"slice-{number + 1}-{fingerprint(made_of)}"
        if (done / "weights.safetensors").is_file():
            return load_file(done / "weights.safetensors"), 0
        checkpoints, size = self.folder / f"slice-{number + 1}", plan.num_steps // self.spec.count
        if not any(checkpoints.glob("step-*")):
            self.forget_after(number * size)
        self._put(start)
        still = train_stage(
            self.model,
            self.head,
            self.trainable,
            SliceLoader(self.loader, number * size, size),
            slice_plan(plan, number, self.spec.count),
            checkpoints,
            fingerprints,
            self._told(number * size),
            accept=self.accept,
        )
        weights = self._weights()
        publish_folder(done, lambda to: save_file(weights, to / "weights.safetensors"))
        shutil.rmtree(checkpoints, ignore_errors=True)
        return weights, still

    def _told(self, before: int) -> StageCallbacks:
        """Return the callbacks of a slice: the outside counts steps of the whole stage."""
        outside = self.callbacks

        def on_step(report: StepReport) -> None:
            outside.on_step(replace(report, step=before + report.step))

        def load_state(state: Mapping[str, Any]) -> None:
            outside.load_state({**state, "step": before + int(state["step"])})

        return replace(outside, on_step=on_step, load_state=load_state, finish_optimizer=lambda _state: None)
