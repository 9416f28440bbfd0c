"""What makes a line or a row unfit to be a document, and what happens to it then."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lingraft.corpus.document import Rejects, RejectSample, escape
from lingraft.corpus.streams import MAX_LINE_BYTES
from lingraft.errors import CorpusError, nearest

__all__ = ["BadLines", "BadValueError", "BadValues", "check_row"]

BadLines = Literal["error", "skip"]


class BadValueError(Exception):
    """One line or row that is no document: the reason, and where in the line (in bytes) it lies.

    It never leaves this room: the policy turns it into a :class:`CorpusError` or counts it.
    """

    def __init__(self, reason: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.hint = hint


@dataclass
class BadValues:
    """The policy on lines that cannot be read, and its count.

    Attributes:
        policy: ``error`` stops at the first one, ``skip`` counts them.
        max_fraction: the largest share of lines that may be skipped.
        rejects: where they are counted.
        where: the recipe path of the corpus, such as ``corpora.eu``.
    """

    policy: BadLines
    max_fraction: float
    rejects: Rejects
    where: str
    num_seen: int = 0
    num_bad: int = 0

    def refuse(self, sample: RejectSample, hint: str = "") -> None:
        """Count one line, or stop at it.

        Raises:
            CorpusError: the policy is ``error``; the message gives file, line, byte, reason and how the line
                begins.
        """
        if self.policy == "error":
            raise CorpusError(
                f"{sample}{hint} ({self.where}.bad_lines: skip would leave it out); it begins: {sample.text}"
            )
        self.num_bad += 1
        self.rejects.add(sample)

    def settle(self) -> None:
        """Check the share of bad lines, after the last one.

        Raises:
            CorpusError: it is above the limit.
        """
        if self.num_bad > self.max_fraction * self.num_seen:
            share = self.num_bad / self.num_seen
            raise CorpusError(
                f"{self.where}: {self.num_bad} of {self.num_seen} lines ({share:.2%}) cannot be read, more "
                f"than max_bad_fraction {self.max_fraction:.2%} allows ({self.rejects.reasons()})"
            )


def check_row(row: Mapping[str, Any], text_field: str) -> tuple[str, str | None]:
    """Return the text of a row, and its id where ``id`` is a text or a whole number.

    Raises:
        BadValueError: the field is missing, null or no text, longer than 16 MiB, or holds a NUL or a lone
            surrogate (half of a UTF-16 pair: JSON can spell it, UTF-8 cannot); or the id holds one of those.
    """
    if text_field not in row:
        known = ", ".join(escape(str(name)) for name in list(row)[:8])
        raise BadValueError(
            f"no field {text_field!r}",
            hint=f"{nearest(text_field, map(str, row))} (fields: {known or 'none'})",
        )
    text, name = row[text_field], row.get("id")
    if text is None:
        raise BadValueError(f"field {text_field!r} is null")
    if not isinstance(text, str):
        raise BadValueError(f"field {text_field!r} is of type {type(text).__name__}, not text")
    _check_characters(text)
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        return text, None
    _check_characters(str(name))
    return text, str(name)


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise BadValueError("NUL character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadValueError("lone surrogate") from error
    if size > MAX_LINE_BYTES:
        raise BadValueError(f"longer than {MAX_LINE_BYTES} bytes")
