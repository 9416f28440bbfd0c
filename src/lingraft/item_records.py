"""What a model did on each single item: what paired comparisons stand on.

A mean tells how good a model is; whether two models differ can only be said from the same items, one by one. So each
item of a probe or task and each document of bits per byte leaves a line in the run's ``items.jsonl``.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lingraft.errors import MeasurementError
from lingraft.measurement import append_lines, read_lines

__all__ = ["ItemRecord", "read_items", "write_items"]


@dataclass(frozen=True)
class ItemRecord:
    """The scores of one item.

    Attributes:
        stage: as in :class:`lingraft.measurement.Measurement`.
        tokens: training tokens seen since the first stage began.
        name: the measurement that the item is part of, without the score: ``probe/copain/min``, ``bits_per_byte``,
            ``task/xstorycloze_eu``.
        item: what names the item in every run: an index in a set that is the same everywhere, or a hash of its text.
        scores: score → value, as in ``{"exact_match": 1.0, "gold_log_probability": -0.4}``; for bits per byte ``bits``
            and ``bytes``.
        language: the language it is about, if it is about one.
        cluster: what it shares with other items, as the passage that several questions are about.
        averaged: whether the averaged weights were asked.
        beside: whether it is told beside the number that it is named for, and takes no part in comparisons.
    """

    stage: str
    tokens: int
    name: str
    item: str
    scores: Mapping[str, float]
    language: str | None = None
    cluster: str | None = None
    averaged: bool = False
    beside: bool = False

    def __post_init__(self) -> None:
        """Refuse what no model left there; a file may be damaged and still be JSON.

        Raises:
            TypeError: a field is of another kind than it says.
        """
        words = (self.stage, self.name, self.item, self.language or "", self.cluster or "")
        numbers = (self.tokens, *(self.scores.values() if isinstance(self.scores, Mapping) else ("no scores",)))
        if not (all(isinstance(one, str) for one in words) and all(isinstance(one, int | float) for one in numbers)):
            raise TypeError(f"not an item's record: {self}")


def write_items(path: Path, records: Iterable[ItemRecord]) -> None:
    """Append records to a JSON-lines file.

    Raises:
        MeasurementError: a score is not a finite number; nothing of the batch is written then.
    """
    made = []
    for record in records:
        for score, value in record.scores.items():
            if not math.isfinite(value):
                raise MeasurementError(f"{record.name}, item {record.item}: {score} is {value}, not a finite number")
        made.append({k: v for k, v in asdict(record).items() if v is not None and v is not False})
    append_lines(path, made)


def read_items(path: Path) -> Iterator[ItemRecord]:
    """Yield the records of a file in the order they were made; a torn last line is left out.

    Raises:
        MeasurementError: a line is not a record; the message names file and line.
    """
    return read_lines(path, ItemRecord, "an item's record")
