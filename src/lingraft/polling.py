"""Where long loops ask whether to stop: one line in each, and no argument handed through all the rooms.

A signal only sets a flag, because an exception thrown wherever the program happens to be could tear anything. So every
loop that can run for more than a few seconds polls: reading, hashing and cleaning text, tokenising, learning a
vocabulary, filling rows, what guards learn from source text, checking weights and stores, measuring, writing samples.
Training has its own way to stop, behind a checkpoint; and between the last step of a stage and the record of it nothing
polls, nor while a checkpoint is written: a stop there would lose what it is asked to keep.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lingraft.errors import InterruptedRunError

__all__ = ["poll", "polled"]

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("asked", default=None)


def poll() -> None:
    """Stop here if a stop was asked for; outside of :func:`polled` it never was.

    Raises:
        InterruptedRunError: it was.
    """
    asked = _asked.get()
    if asked is not None and asked():
        raise InterruptedRunError("stopped in the middle of a step, which is done again; what was finished is kept")


@contextmanager
def polled(asked: Callable[[], bool]) -> Iterator[None]:
    """Let :func:`poll` ask ``asked`` inside."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)
