"""Ctrl-C and other signals: the first asks the run to save and stop, the second stops at once."""

import signal
import threading
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any

from lingraft.errors import InterruptedRunError
from lingraft.polling import polled

__all__ = ["Stopper"]

# SIGUSR1 is what batch systems send before they end a job; Windows has none.
_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1")


class Stopper:
    """A flag that signals set, polled wherever a run can stop; use it as a context manager.

    Inside, :func:`lingraft.polling.poll` hears it too. Outside the main thread no signal can be caught, and the flag
    stays down.
    """

    def __init__(self) -> None:
        self.requested = False
        self._former: dict[int, Any] = {}
        self._inside = ExitStack()

    def __enter__(self) -> "Stopper":
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
                self._former[number] = signal.signal(number, self._caught)
        self._inside.enter_context(polled(lambda: self.requested))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.close()
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the interface of signal
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def check(self, done: str) -> None:
        """Raise InterruptedRunError if a stop was asked for; ``done`` says what is finished and kept."""
        if self.requested:
            raise InterruptedRunError(f"stopped after {done}; what was done is kept")
