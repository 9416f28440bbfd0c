"""One row, one number: the only thing that training writes and the report reads."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from lingraft.errors import MeasurementError

__all__ = ["Measurement", "append_lines", "prompts_gate", "read_lines", "read_measurements", "write_measurements"]

T = TypeVar("T")


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


def prompts_gate(probe: str) -> str:
    """Return the name of the row that counts a probe's prompts which became other tokens with the new tokenizer."""
    return f"probe/{probe}/prompts_tokenised_differently"


def write_measurements(path: Path, rows: Iterable[Measurement]) -> None:
    """Append rows to a JSON-lines file; a last line that a killed process left torn is dropped first.

    Raises:
        MeasurementError: a value is not a finite number; nothing of the batch is written then.
    """
    made = []
    for row in rows:
        if not all(math.isfinite(number) for number in (row.value, row.low, row.high) if number is not None):
            raise MeasurementError(
                f"{row.name} at {row.stage}, {row.tokens} tokens, is {row.value}: not a finite number"
            )
        made.append({k: v for k, v in asdict(row).items() if v is not None})
    append_lines(path, made)


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append JSON objects to a file, one a line; a last line that a killed process left torn is dropped first."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with path.open("ab+") as file:
        _drop_torn_line(file)
        file.write(text.encode())


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
    return read_lines(path, Measurement, "a measurement")


def read_lines(path: Path, kind: Callable[..., T], what: str) -> Iterator[T]:
    """Yield ``kind(**line)`` for each whole line of a JSON-lines file, and nothing where there is no file.

    Raises:
        MeasurementError: a line is not ``what`` it should be; the message names file and line.
    """
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            yield kind(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise MeasurementError(f"{path}:{number}: not {what}: {line[:60]!r}") from error
