"""What a stage does about a step that looks wrong: losses and gradients that are no numbers, and spikes."""

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lingraft.errors import TrainingError

__all__ = ["Alarm", "AlarmRules", "Alarms"]

_LEAST_SPREAD = 0.01


@dataclass(frozen=True)
class AlarmRules:
    """When a step is alarming, and what follows.

    Attributes:
        spikes: what follows a spike: ``log`` it, ``skip`` the update, or ``stop`` the stage.
        sigmas: a spike lies more than so many standard deviations above the mean of the window.
        window: how many finite values before a step it is held against; there is no judgement before there are so many.
        bad_steps: so many steps in a row whose loss or gradient is not finite stop the stage; before that each is
            skipped.
    """

    spikes: Literal["log", "skip", "stop"] = "log"
    sigmas: float = 6.0
    window: int = 128
    bad_steps: int = 3


@dataclass(frozen=True)
class Alarm:
    """What is wrong with a step: its kind, in words, and whether its update is left out."""

    kind: Literal["non_finite", "spike"]
    text: str
    skips: bool


class Alarms:
    """Watches the loss and the gradient's norm of every step.

    A value v is a spike where v > mean + sigmas · max(σ, 1 % of the mean) over the last ``window`` finite values; the
    least spread keeps a curve that hardly moves from alarming at nothing. A spike enters the window afterwards, so that
    a lasting change of level stops being one. What is not finite never enters it: one NaN there would make every later
    comparison false.

    An alarm is open until the losses are calm again: until ``window`` steps have passed without one and their mean lies
    no higher than a loss could lie before it without being a spike.
    """

    def __init__(self, rules: AlarmRules) -> None:
        self.rules = rules
        self._values: dict[str, deque[float]] = {name: deque(maxlen=rules.window) for name in ("loss", "norm")}
        self._bad_in_a_row = 0
        self._open: dict[str, Any] | None = None

    @property
    def is_calm(self) -> bool:
        """Whether no alarm is open."""
        return self._open is None

    def judge(self, loss: float, norm: float) -> Alarm | None:
        """Return what is wrong with a step, if anything, and remember it.

        Args:
            loss: nats per token over the whole step.
            norm: of the gradient, before clipping.

        Raises:
            TrainingError: the rules say to stop.
        """
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._bad_in_a_row += 1
            self._opened()
            text = f"the loss or the gradient is not finite (loss {loss:g}, norm {norm:g})"
            if self._bad_in_a_row >= self.rules.bad_steps:
                raise TrainingError(f"{text}, for {self._bad_in_a_row} steps in a row")
            return Alarm("non_finite", text, skips=True)
        self._bad_in_a_row = 0
        found = [self._spike("loss", "the loss", loss), self._spike("norm", "the gradient's norm", norm)]
        texts = [text for text in found if text]
        if texts:
            self._opened()
        self._values["loss"].append(loss)
        self._values["norm"].append(norm)
        if not texts:
            self._closed()
            return None
        if self.rules.spikes == "stop":
            raise TrainingError("; ".join(texts))
        return Alarm("spike", "; ".join(texts), skips=self.rules.spikes == "skip")

    def _opened(self) -> None:
        """Open an alarm, or count anew in the one that is open: it is the losses before that one that are asked for."""
        if self._open is None:
            window = self._values["loss"]
            mean, spread = _level(window) if len(window) >= self.rules.window else (None, 0.0)
            self._open = {"highest": None if mean is None else mean + self.rules.sigmas * spread}
        self._open["calm"] = 0

    def _closed(self) -> None:
        """Count a step without an alarm, and close the one that is open if the losses are calm again."""
        if self._open is None:
            return
        self._open["calm"] += 1
        highest, mean = self._open["highest"], statistics.fmean(self._values["loss"])
        if self._open["calm"] >= self.rules.window and (highest is None or mean <= highest):
            self._open = None

    def _spike(self, name: str, what: str, value: float) -> str | None:
        window = self._values[name]
        if len(window) < self.rules.window:
            return None
        mean, spread = _level(window)
        if value <= mean + self.rules.sigmas * spread:
            return None
        return f"{what} is {value:.4g}, {(value - mean) / spread:.1f}σ above the mean {mean:.4g} of {len(window)} steps"

    def state(self) -> dict[str, Any]:
        """Return everything remembered, as plain values."""
        values = {name: list(kept) for name, kept in self._values.items()}
        return {"values": values, "bad": self._bad_in_a_row, "open": self._open and dict(self._open)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what was remembered."""
        for name, values in self._values.items():
            values.extend(state["values"][name])
        self._bad_in_a_row = state["bad"]
        self._open = state["open"] and dict(state["open"])


def _level(window: deque[float]) -> tuple[float, float]:
    """Return the mean of a window and its spread, which is never less than a hundredth of the mean."""
    mean = statistics.fmean(window)
    return mean, max(statistics.pstdev(window, mean), _LEAST_SPREAD * abs(mean))
