"""What an expansion is: the old and the new tokenizer, and how every new token is made of old ones."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lingraft.errors import VocabularyError
from lingraft.vocabulary.curve import FertilityCurve
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["NewToken", "RemovedToken", "VocabularyExpansion", "keep_vocabulary", "open_expansion"]


@dataclass(frozen=True)
class NewToken:
    """A new token: its id, its spelling in the file, the old ids that spelled it before, and its count when learned."""

    id: int
    spelling: str
    pieces: tuple[int, ...]
    count: int

    def text(self, tokenizer: TokenizerFile) -> str:
        """Return the token as people read it."""
        return tokenizer.decode([self.id])


@dataclass(frozen=True)
class RemovedToken:
    """An old token that gave way: its id, which a new token took over, its spelling, and its counts in both texts."""

    id: int
    spelling: str
    source_count: int
    target_count: int


@dataclass(frozen=True)
class VocabularyExpansion:
    """An old tokenizer, a new one, and the decomposition of each new token.

    Old ids are unchanged in the new tokenizer, but for those that gave way (``removed``), whose ids new tokens took.

    Attributes:
        method: ``keep``, ``expand`` or ``replace``.
        new_tokens: in the order in which they were learned, most useful first.
        removed: what gave way under ``replace``.
        curve: how the tokens of the watched texts fell as the vocabulary grew.
        record: facts of how it came about, for the run record: bytes seen, vetoed merges, digests.
    """

    method: str
    old: TokenizerFile
    new: TokenizerFile
    new_tokens: tuple[NewToken, ...]
    removed: tuple[RemovedToken, ...] = ()
    curve: FertilityCurve = field(default_factory=FertilityCurve)
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_old(self) -> int:
        """Ids of the old tokenizer."""
        return self.old.num_ids

    @property
    def num_new(self) -> int:
        """How many tokens are new."""
        return len(self.new_tokens)

    @property
    def new_ids(self) -> tuple[int, ...]:
        """The ids of the new tokens, ascending. After ``replace`` they lie among the old ids."""
        return tuple(sorted(token.id for token in self.new_tokens))

    def summary(self) -> dict[str, Any]:
        """Return everything but the tokenizers, as plain values for ``expansion.json``."""
        tokens = [
            {"id": t.id, "text": t.text(self.new), "spelling": t.spelling, "count": t.count, "pieces": list(t.pieces)}
            for t in self.new_tokens
        ]
        return {
            "method": self.method,
            "family": self.old.family,
            "num_old": self.num_old,
            "num_new": self.num_new,
            "old_sha256": self.old.sha256,
            "new_sha256": self.new.sha256,
            "record": dict(self.record),
            "curve": self.curve.as_dict(),
            "removed": [asdict(token) for token in self.removed],
            "new_tokens": tokens,
        }

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``expansion.json``."""
        (folder / "tokenizer.json").write_text(self.new.text, encoding="utf-8")
        text = json.dumps(self.summary(), ensure_ascii=False, indent=1)
        (folder / "expansion.json").write_text(text, encoding="utf-8")


def keep_vocabulary(tokenizer: TokenizerFile) -> VocabularyExpansion:
    """Return the expansion by nothing: the control arm, in which the new tokenizer is the old one."""
    return VocabularyExpansion("keep", tokenizer, tokenizer, ())


def open_expansion(folder: Path, old: TokenizerFile) -> VocabularyExpansion:
    """Return the expansion that was saved in a folder.

    Raises:
        VocabularyError: it was made from another tokenizer than ``old``, or one of the two files was changed since.
    """
    new, path = TokenizerFile.open(folder), folder / "expansion.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        made = _from_summary(stored, old, new)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise VocabularyError(
            f"{path}: missing or damaged ({error!r}); delete {folder}, and the same command makes it again"
        ) from error
    if (stored["old_sha256"], stored["new_sha256"]) != (old.sha256, new.sha256):
        raise VocabularyError(
            f"{folder}: this expansion does not belong to {old.source}, or tokenizer.json was changed"
        )
    return made


def _from_summary(stored: dict[str, Any], old: TokenizerFile, new: TokenizerFile) -> VocabularyExpansion:
    """Return the expansion that :meth:`VocabularyExpansion.summary` describes."""
    return VocabularyExpansion(
        stored["method"],
        old,
        new,
        tuple(NewToken(t["id"], t["spelling"], tuple(t["pieces"]), t["count"]) for t in stored["new_tokens"]),
        tuple(RemovedToken(**token) for token in stored["removed"]),
        FertilityCurve.from_dict(stored["curve"]),
        stored["record"],
    )
