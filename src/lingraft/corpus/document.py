"""The document, which flows through the whole room, and the account of what was changed or not let through."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

__all__ = ["Document", "RejectSample", "Rejects", "escape"]

_SAMPLES_PER_REASON = 3
_SAMPLE_CHARACTERS = 80


@dataclass(frozen=True)
class Document:
    """A text of one piece: a page, an article, a row.

    Attributes:
        text: what the model is to read, without markup.
        corpus: the name that the recipe gives the corpus.
        id: the name of the document in its source, such as a page's path; ``file:line`` where it has none.
    """

    text: str
    corpus: str
    id: str


@dataclass(frozen=True)
class RejectSample:
    """One rejected document or line: where it stands, why it was rejected, and how it begins, escaped.

    ``file`` is ``corpus/id`` for a document that was read and then found unfit; it has no line, and no byte.
    """

    file: str
    line: int | None
    byte: int | None
    reason: str
    text: str

    def place(self) -> str:
        """Return the same as ``str`` does, the file named without its folder: reports are shown around."""
        file = PurePath(self.file).name if PurePath(self.file).is_absolute() else self.file
        return str(replace(self, file=file))

    def __str__(self) -> str:
        """``file:line: byte N: reason``; rows of a table have no byte."""
        line = "" if self.line is None else f":{self.line}"
        byte = "" if self.byte is None else f" byte {self.byte}:"
        return f"{self.file}{line}:{byte} {self.reason}"


@dataclass
class Rejects:
    """Counts, by reason, what was rejected or repaired, with up to three samples each; and what was only noticed.

    Attributes:
        counts: reason → documents or lines that were rejected.
        repairs: reason → lines that were kept with U+FFFD in place of what cannot be text.
        findings: what was found in documents that were kept (a script that was not expected, …) → how many.
        samples: reason or finding → the first three of them.
        notes: what was let through and is worth knowing (blank lines, bidi marks, …) → how often.
    """

    counts: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[RejectSample]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, sample: RejectSample) -> None:
        """Count one reject under its reason, and keep it if it is among the first three."""
        self._count(self.counts, sample)

    def repair(self, sample: RejectSample) -> None:
        """Count one line that was repaired, and keep how it looked before."""
        self._count(self.repairs, sample)

    def find(self, sample: RejectSample) -> None:
        """Count one document that is kept although something is odd about it."""
        self._count(self.findings, sample)

    def _count(self, counts: Counter[str], sample: RejectSample) -> None:
        counts[sample.reason] += 1
        kept = self.samples.setdefault(sample.reason, [])
        if len(kept) < _SAMPLES_PER_REASON:
            kept.append(sample)

    def note(self, what: str, times: int = 1) -> None:
        """Count something that does not lead to rejection; zero times leaves no trace."""
        if times:
            self.notes[what] += times

    def absorb(self, other: "Rejects") -> None:
        """Add the account of a later part of the same corpus."""
        for mine, theirs in (
            (self.counts, other.counts),
            (self.repairs, other.repairs),
            (self.findings, other.findings),
            (self.notes, other.notes),
        ):
            mine.update(theirs)
        for reason, samples in other.samples.items():
            kept = self.samples.setdefault(reason, [])
            kept += samples[: _SAMPLES_PER_REASON - len(kept)]

    @property
    def total(self) -> int:
        """How much was rejected, over all reasons."""
        return self.counts.total()

    def reasons(self) -> str:
        """Return the reasons, the most frequent first, as one line for a message: ``not UTF-8: 3, …``."""
        return ", ".join(f"{reason}: {count}" for reason, count in self.counts.most_common()) or "none"

    def as_json(self) -> dict[str, Any]:
        """Return ``rejects``, ``repairs`` and ``findings``, each with counts and samples, and ``notes``."""
        return {
            "rejects": self._entries(self.counts),
            "repairs": self._entries(self.repairs),
            "findings": self._entries(self.findings),
            "notes": dict(sorted(self.notes.items())),
        }

    def _entries(self, counts: Counter[str]) -> list[dict[str, Any]]:
        return [
            {"reason": reason, "count": counts[reason], "samples": [_shown(each) for each in self.samples[reason]]}
            for reason in sorted(counts)
        ]


def _shown(sample: RejectSample) -> dict[str, str]:
    return {"at": sample.place(), "text": sample.text}


def escape(text: str | bytes) -> str:
    """Return the beginning of a text (80 characters) in visible ASCII.

    Corpus text can carry control codes and bidi marks, which must reach neither a terminal nor a page.
    """
    if isinstance(text, bytes):
        text = text[: 4 * _SAMPLE_CHARACTERS].decode("utf-8", "backslashreplace")
    cut = text[:_SAMPLE_CHARACTERS]
    return json.dumps(cut)[1:-1].replace("\x7f", "\\u007f") + ("..." if len(text) > len(cut) else "")
