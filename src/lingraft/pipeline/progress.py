"""What a run tells while it works; the terminal's version is in the command line."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lingraft.measurement import Measurement

__all__ = ["Progress", "Silent"]


@runtime_checkable
class Progress(Protocol):
    """A listener. Every method may be called often and must return soon."""

    def phase(self, title: str) -> None:
        """A new part of the run begins."""

    def part(self, title: str) -> None:
        """A part of measuring begins that may take minutes; the stage goes on behind it."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        """A stage begins, or goes on after ``done`` steps."""

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        """A step is done; losses are nats per token by corpus, the speed is of training alone."""

    def measured(self, rows: Sequence[Measurement]) -> None:
        """Something was measured."""


class Silent:
    """A listener that does nothing."""

    def phase(self, title: str) -> None:
        """Say nothing."""

    def part(self, title: str) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        """Say nothing."""

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        """Say nothing."""

    def measured(self, rows: Sequence[Measurement]) -> None:
        """Say nothing."""
