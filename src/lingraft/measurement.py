"""One row, one number: the only thing that training writes and the report reads."""

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

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
    value: int | float
    language: str | None = None
    low: int | float | None = None
    high: int | float | None = None
    count: int | None = None


def write_measurements(path: Path, rows: Iterable[Measurement]) -> None:
    """Append rows to a JSON-lines file; a last line that a killed process left torn is dropped first.

    Raises:
        MeasurementError: a value is not a finite number; nothing of the batch is written then.
    """
    lines = []
    for row in rows:
        if not all(math.isfinite(number) for number in (row.value, row.low, row.high) if number is not None):
            raise MeasurementError(
                f"{row.name} at {row.stage}, {row.tokens} tokens, is {row.value}: not a finite number"
            )
        lines.append(json.dumps({k: v for k, v in asdict(row).items() if v is not None}, ensure_ascii=False))
    with path.open("ab+") as file:
        _drop_torn_line(file)
        file.write("".join(line + "\n" for line in lines).encode())


def _drop_torn_line(file: IO[bytes]) -> None:
    """Cut a file off behind its last line end, looking only at what follows it."""
    end = position = file.seek(0, os.SEEK_END)
    while position:
        start = max(0, position - 4096)
        file.seek(start)
        found = file.read(position - start).rfind(b"\n")
        if found >= 0:
            position = start + found + 1
            break
        position = start
    if position < end:
        file.truncate(position)


def read_measurements(path: Path) -> Iterator[Measurement]:
    """Yield the rows of a measurements file in the order they were made; a torn last line is left out.

    Raises:
        MeasurementError: a line is not a row; the message names file and line.
    """
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            yield Measurement(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise MeasurementError(f"{path}:{number}: not a measurement: {line[:60]!r}") from error
