"""One row, one number: the only thing that training writes and the report reads."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from lingraft.errors import MeasurementError

__all__ = ["Measurement", "read_measurements", "write_measurements"]


@dataclass(frozen=True)
class Measurement:
    """A number with everything needed to read it.

    Attributes:
        stage: ``base`` (untouched base model), ``expanded`` (new rows, untrained), or a stage's name.
        tokens: training tokens seen since the first stage began.
        name: what was measured, as in ``bits_per_byte`` or ``probe/copain/min/exact_match``.
        value: the number.
        language: the language it is about, if it is about one.
        low: lower end of the 95 % interval, if there is one.
        high: upper end.
        count: how many items, documents or tokens stand behind it.
    """

    stage: str
    tokens: int
    name: str
    value: float
    language: str | None = None
    low: float | None = None
    high: float | None = None
    count: int | None = None


def write_measurements(path: Path, rows: Iterable[Measurement]) -> None:
    """Append rows to a JSON-lines file.

    Raises:
        MeasurementError: a value is not a finite number; nothing of the batch is written then.
    """
    lines = []
    for row in rows:
        if not math.isfinite(row.value):
            raise MeasurementError(
                f"{row.name} at {row.stage}, {row.tokens} tokens, is {row.value}: not a finite number"
            )
        lines.append(json.dumps({k: v for k, v in asdict(row).items() if v is not None}, ensure_ascii=False))
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def read_measurements(path: Path) -> Iterator[Measurement]:
    """Yield the rows of a measurements file in the order they were made; a torn last line is left out."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield Measurement(**json.loads(line))
