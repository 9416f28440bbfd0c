"""A trial: one tiny stage on random tokens, with everything that a test may want to look at afterwards."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lingraft.corpus.apportionment import apportion
from lingraft.corpus.loader import SequenceLoader
from lingraft.corpus.mixing import Schedule
from lingraft.model.base import Head, head_of, load_model
from lingraft.model.freeze import choose_trainable
from lingraft.training.averaging import LiveEma
from lingraft.training.distributed import ALONE, Ranks
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan
from lingraft.training.step_report import StepReport

# Two threads on a model this small only wait for each other, and for everything else on the machine.
torch.set_num_threads(1)

STEPS, NUM_OLD, NUM_IDS = 7, 380, 410
PLAN = StagePlan(
    name="trial", seed=1, num_steps=STEPS, micro_batch=2, dtype=torch.float32, peak_rate=1e-2, warmup_steps=2,
    checkpoint_at=frozenset({2, 4, 6, STEPS}),
)  # fmt: skip


@dataclass
class Store:
    """Random tokens in place of a token store, in documents of any lengths (one, if none are given)."""

    tokens: np.ndarray
    lengths: tuple[int, ...] = ()

    @property
    def document_ends(self) -> np.ndarray:
        """Where the documents end; the last one takes what is left."""
        ends = np.cumsum(np.array(self.lengths, dtype=np.uint64))
        return np.append(ends[ends < len(self.tokens)], np.uint64(len(self.tokens))).astype(np.uint64)


@dataclass
class Trial:
    """One stage, which can be run again and again over the same checkpoints."""

    base: Path
    checkpoints: Path
    train: str | list[str] = "all"
    plan: StagePlan = PLAN
    new_ids: tuple[int, ...] = tuple(range(NUM_OLD, NUM_IDS))
    tokens: Mapping[str, np.ndarray] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=lambda: {"recipe": "r"})
    reports: list[StepReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    carried: Mapping[str, torch.Tensor] | None = None
    accept: tuple[str, ...] = ()
    ranks: Ranks = ALONE
    model: Any = None
    still: int = -1

    def run(
        self,
        on_step: Callable[[Any, StepReport], None] | None = None,
        measure: Callable[[Any, int], None] | None = None,
        head: Callable[[nn.Module, Head], Head] = lambda _, head: head,
        **callbacks: Any,
    ) -> "Trial":
        """Train from the base, or from the newest checkpoint."""
        model = self.model = load_model(self.base)

        def stepped(report: StepReport) -> None:
            self.reports.append(report)
            if on_step:
                on_step(model, report)

        told = StageCallbacks(on_step=stepped, on_note=self.notes.append, **callbacks)
        if measure:
            told.measure = lambda step: measure(model, step)
        trainable = choose_trainable(model, self.train, self.new_ids, NUM_IDS)
        self.still = train_stage(
            model, head(model, head_of(model, NUM_IDS)), trainable, self.loader(), self.plan, self.checkpoints,
            self.fingerprints, told, carried=self.carried, accept=self.accept, ranks=self.ranks,
        )  # fmt: skip
        return self

    def loader(self) -> SequenceLoader:
        """Return batches of four sequences of 16 tokens, three of corpus eu and one of en."""
        generator = np.random.default_rng(0)
        made = {name: generator.integers(NUM_IDS, size=500) for name in ("eu", "en")}
        stores = {name: Store(tokens, self.lengths) for name, tokens in (made | dict(self.tokens)).items()}
        mix = apportion(Schedule(lambda _: {"eu": 0.75, "en": 0.25}), ["eu", "en"], 4 * self.plan.num_steps, grain=4)
        return SequenceLoader(stores, mix, sequences=4, sequence_length=16, seed=0)

    def with_plan(self, ema: tuple[float, int] | None = None, **changes: Any) -> "Trial":
        """Return the same trial with other numbers; ``ema`` is the decay and interval of a live average."""
        if ema:
            changes["companions"] = (lambda start: LiveEma(start.parameters, decay=ema[0], every=ema[1]),)
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, **changes))

    def digest(self) -> str:
        """Return the hash of all weights now."""
        return digest_of(self.model)

    def last_save(self) -> dict[str, str]:
        """Return the hash of every file of the checkpoint of the last step: weights, optimiser, average, consumed."""
        folder = self.checkpoints / f"step-{self.plan.num_steps:08d}"
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def digest_of(model: nn.Module) -> str:
    content = b"".join(p.detach().numpy().tobytes() for _, p in sorted(model.named_parameters()))
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def trial(tied_folder: Path, tmp_path: Path) -> Trial:
    """A stage that trains everything of a tied model."""
    return Trial(tied_folder, tmp_path / "checkpoints")


@pytest.fixture
def make_trial(tied_folder: Path, untied_folder: Path, tmp_path: Path) -> Callable[..., Trial]:
    """Return a maker of trials, each with checkpoints of its own."""
    made: list[Trial] = []

    def make(*, tied: bool = True, train: str | list[str] = "all", **changes: Any) -> Trial:
        base = tied_folder if tied else untied_folder
        made.append(Trial(base, tmp_path / f"checkpoints-{len(made)}", train).with_plan(**changes))
        return made[-1]

    return make
