"""What makes a line or a row unfit to be a document, and what happens to it then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import regex

from lingraft.corpus.document import Rejects, RejectSample, escape
from lingraft.corpus.streams import MAX_LINE_BYTES
from lingraft.errors import CorpusError, nearest

__all__ = ["BadLines", "BadValueError", "BadValues", "FitRow", "Reading", "check_row"]

BadLines = Literal["error", "skip", "replace"]
_NO_TEXT = regex.compile("[\0\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_REPARABLE = ("NUL character", "lone surrogate", "not UTF-8")


@dataclass(frozen=True)
class Reading:
    """How the lines and rows of a corpus are read: the options of a recipe's corpus.

    Attributes:
        text_field: the field or column that holds the text.
        bad_lines: what happens to a line that is no document: ``error`` stops at the first one, ``skip`` leaves it
            out, ``replace`` puts U+FFFD where a byte or character cannot be text and leaves out what is no document
            even so.
        max_bad_fraction: the largest share of lines that may be left out or repaired.
        max_line_bytes: a longer line is a bad one; no more than it is ever held.
        tolerate_truncated_tail: whether a file may end in the middle of a line, or of its compression: a file that is
            still being written does. What was cut is left out and counted.
    """

    text_field: str = "text"
    bad_lines: BadLines = "error"
    max_bad_fraction: float = 0.001
    max_line_bytes: int = MAX_LINE_BYTES
    tolerate_truncated_tail: bool = False


class BadValueError(Exception):
    """One line or row that is no document: the reason, and where in the line (in bytes) it lies.

    It never leaves this room: the policy turns it into a :class:`CorpusError` or counts it.
    """

    def __init__(self, reason: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.hint = hint


class FitRow(NamedTuple):
    """What is taken from a row that was found fit.

    Attributes:
        texts: one for each field that holds text.
        name: the row's ``id``, where that is a text or a whole number.
        repair: what was repaired in the texts, if anything.
    """

    texts: tuple[str, ...]
    name: str | None
    repair: str | None = None


@dataclass
class BadValues:
    """The policy on lines that cannot be read, and its count.

    Attributes:
        reading: the policy.
        rejects: where they are counted.
        where: the recipe path of the corpus, such as ``corpora.eu``.
        num_seen: lines, rows or pairs so far.
        num_bad: how many of them were left out or repaired.
        fields: those that hold the text; by default, that of the reading.
    """

    reading: Reading
    rejects: Rejects
    where: str
    num_seen: int = 0
    num_bad: int = 0
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take the field of the reading where no others are given."""
        self.option = f"{self.where}.{'pairs.fields' if self.fields else 'text'}"
        self.fields = self.fields or (self.reading.text_field,)

    @property
    def mends(self) -> bool:
        """Whether U+FFFD may stand for what cannot be text."""
        return self.reading.bad_lines == "replace"

    def refuse(self, sample: RejectSample, hint: str = "") -> None:
        """Count one line, or stop at it.

        Raises:
            CorpusError: the policy is ``error``; the message gives file, line, byte, reason and how the line
                begins.
        """
        if self.reading.bad_lines == "error":
            # Text that no recipe names has no such option.
            way = f" ({self.where}.bad_lines: skip would leave it out)" if self.where.startswith("corpora.") else ""
            raise CorpusError(f"{sample}{hint}{way}; it begins: {sample.text}")
        self.num_bad += 1
        self.rejects.add(sample)

    def repaired(self, sample: RejectSample) -> None:
        """Count one line in which U+FFFD was put."""
        self.num_bad += 1
        self.rejects.repair(sample)

    def check(self, row: Mapping[str, Any]) -> FitRow:
        """Return what is taken from a row; BadValueError where it is not fit, see :func:`check_row`."""
        return check_row(row, self.fields, self.reading.max_line_bytes, mends=self.mends)

    def table_row(self, row: Mapping[str, Any], label: str, number: int) -> FitRow | None:
        """Return what is taken from a table's row; None where it is not fit and was counted."""
        self.num_seen += 1
        try:
            fit = self.check(row)
        except BadValueError as error:
            self.refuse(RejectSample(label, number, None, error.reason, escape(repr(dict(row)))), error.hint)
            return None
        if fit.repair:
            self.repaired(RejectSample(label, number, None, fit.repair, escape("\n".join(fit.texts))))
        return fit

    def settle(self) -> None:
        """Check the share of bad lines, after the last one.

        Raises:
            CorpusError: it is above the limit.
        """
        limit = self.reading.max_bad_fraction
        if self.num_bad > limit * self.num_seen:
            share = self.num_bad / self.num_seen
            what = "cannot be read or were repaired" if self.mends else "cannot be read"
            reasons = ", ".join(
                f"{reason}: {count}" for reason, count in (self.rejects.counts + self.rejects.repairs).most_common()
            )
            raise CorpusError(
                f"{self.where}: {self.num_bad} of {self.num_seen} lines ({share:.2%}) {what}, more "
                f"than max_bad_fraction {limit:.2%} allows ({reasons})"
            )


def check_row(row: Mapping[str, Any], fields: Sequence[str], max_bytes: int, *, mends: bool) -> FitRow:
    """Return the texts of a row, its id where ``id`` is a text or a whole number, and what was repaired in the texts.

    Args:
        row: field → value.
        fields: those that hold text. A text of white space alone is left to the cleaning of documents; among several
            it is bad, for nothing beside it would be its translation.
        max_bytes: a longer text is bad.
        mends: whether U+FFFD may stand for what cannot be text.

    Raises:
        BadValueError: a field is missing, null or no text, longer than the largest line, or holds a NUL or a lone
            surrogate (half of a UTF-16 pair: JSON can spell it, UTF-8 cannot) and nothing is mended; or the id holds
            one of those.
    """
    texts: list[str] = []
    repair = None
    for field in fields:
        text: Any = row.get(field)
        fault = _fault(text, max_bytes)
        if fault:
            text, fault = _mended_field(row, field, fault, mends=mends)
            repair = repair or fault
        if len(fields) > 1 and not text.strip():
            raise BadValueError(f"field {field!r} is blank")
        texts.append(text)
    return FitRow(tuple(texts), _name(row.get("id"), max_bytes), repair)


def _name(value: Any, max_bytes: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    name = str(value)
    if fault := _fault(name, max_bytes):
        raise BadValueError(fault)
    return name


def _mended_field(row: Mapping[str, Any], field: str, fault: str, *, mends: bool) -> tuple[str, str]:
    """Return the text of a field with what was repaired in it; BadValueError where it is not to be repaired."""
    if field not in row:
        known = ", ".join(escape(str(name)) for name in list(row)[:8])
        raise BadValueError(
            f"no field {field!r}",
            hint=f"{nearest(field, map(str, row))} (fields: {known or 'none'}){_nested_hint(field)}",
        )
    text = row[field]
    if text is None:
        raise BadValueError(f"field {field!r} is null")
    if not mends or fault not in _REPARABLE:
        raise BadValueError(f"field {field!r} {fault}" if fault.startswith("is ") else fault)
    return _mended(text), fault


def _nested_hint(field: str) -> str:
    return "; the text field must be at the top of a row, not inside another" if "." in field else ""


def _fault(text: Any, max_bytes: int) -> str | None:
    if not isinstance(text, str):
        is_damaged = isinstance(text, bytes) and "\ufffd" in text.decode(errors="replace")
        return "not UTF-8" if is_damaged else f"is of type {type(text).__name__}, not text"
    if "\0" in text:
        return "NUL character"
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        return "lone surrogate"
    return f"longer than {max_bytes} bytes" if size > max_bytes else None


def _mended(text: str | bytes) -> str:
    """Return text in which U+FFFD stands for what cannot be text."""
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
    return str(_NO_TEXT.sub(_REPLACEMENT, decoded))
