"""Every exception that lingraft raises on purpose.

    LingraftError
    ├── RecipeError            a recipe, or a value set over it, cannot be used
    ├── CorpusError            text that cannot be read, or too little of it
    ├── VocabularyError        a tokenizer that cannot be expanded safely
    │   └── GateError          an expansion was made and failed one of its checks
    ├── ModelError             weights, configuration and tokenizer do not fit together
    ├── TrainingError          a stage cannot go on
    │   ├── FrozenMovedError   something that was frozen has changed
    │   └── ForgettingError    too much was forgotten, and the recipe says to stop then
    ├── CheckpointError        a checkpoint cannot be trusted, or none can
    ├── RunFolderError         the run folder is in use, or belongs to another recipe
    ├── MeasurementError       a measurement cannot be made or compared
    ├── ServingError           a live page cannot be served at that address
    ├── MissingExtraError      an optional dependency is needed; the message is the pip line
    └── InterruptedRunError    the user stopped the run; what was done is saved

A message names the recipe path or the file and line, the value, what is allowed, and the nearest match.
"""

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "CorpusError",
    "ForgettingError",
    "FrozenMovedError",
    "GateError",
    "InterruptedRunError",
    "LingraftError",
    "MeasurementError",
    "MissingExtraError",
    "ModelError",
    "RecipeError",
    "RunFolderError",
    "ServingError",
    "TrainingError",
    "VocabularyError",
    "nearest",
]


class LingraftError(Exception):
    """The root of the tree: everything that a user can act on."""


class RecipeError(LingraftError):
    """A recipe, or a value set over it, cannot be used."""


class CorpusError(LingraftError):
    """Text that cannot be read, or too little of it."""


class VocabularyError(LingraftError):
    """A tokenizer that cannot be expanded safely."""


class GateError(VocabularyError):
    """An expansion was made and failed one of its checks; nothing was trained on it."""


class ModelError(LingraftError):
    """Weights, configuration and tokenizer do not fit together."""


class TrainingError(LingraftError):
    """A stage cannot go on."""


class FrozenMovedError(TrainingError):
    """A weight that the stage had frozen is not the same, bit for bit, as before."""


class ForgettingError(TrainingError):
    """The alarm on forgetting stopped the run; a checkpoint is kept."""


class CheckpointError(LingraftError):
    """A checkpoint cannot be trusted, or none can."""


class RunFolderError(LingraftError):
    """The run folder is in use by another process, or belongs to another recipe."""


class MeasurementError(LingraftError):
    """A measurement cannot be made, or two cannot be compared."""


class ServingError(LingraftError):
    """A live page cannot be served at the address that was asked for."""


class MissingExtraError(LingraftError):
    """An optional dependency is needed.

    Args:
        purpose: what the user wanted, as in "reading parquet files".
        extra: the extra that brings it, as in "parquet".
    """

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs the [{extra}] extra: pip install 'lingraft[{extra}]'")


class InterruptedRunError(LingraftError):
    """The user stopped the run; what was done is saved and the same command goes on."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the closest known name, or an empty string when none is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""
