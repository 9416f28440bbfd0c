"""Writes checkpoints beside the training, one at a time."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from torch import Tensor

__all__ = ["Background", "copied"]

Groups = Mapping[str, Mapping[str, Tensor]]


def copied(groups: Groups) -> dict[str, dict[str, Tensor]]:
    """Return groups of tensors as they are now, in memory of their own on the CPU."""
    return {
        group: {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        for group, tensors in groups.items()
    }


class Background:
    """Does one piece of work after another in a thread of its own, while the caller goes on.

    Only the copy of what is saved is waited for, as in CheckFreq (Mohan et al., 2021, FAST, sec. 4). A piece begins
    when the one before has ended, and what it raised is raised then, or at the end of the ``with`` block, which waits:
    so no failure is lost, no two checkpoints are written at once, and memory holds one copy at the most. Where the
    block ends by an error, that error is told and the work is waited for all the same.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._begun: Future[None] | None = None

    def begin(self, work: Callable[[Any], None], given: Any) -> None:
        """Wait for the piece before, then begin ``work(given)``.

        Raises:
            BaseException: what the piece before has raised.
        """
        self.wait()
        self._begun = self._thread.submit(work, given)

    def wait(self) -> None:
        """Wait until nothing is being done.

        Raises:
            BaseException: what it has raised.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def __enter__(self) -> "Background":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._thread:
            if error is None:
                self.wait()
            elif self._begun is not None and (failure := self._begun.exception()) is not None:
                error.add_note(f"and a checkpoint could not be written: {failure}")
