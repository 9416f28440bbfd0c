"""What a base tokenizer's normaliser does to text before it is cut: what it deletes, and what it replaces.

What a normaliser takes away no vocabulary can bring back. A rule that strips accents, harmless to the English it was
made for, takes the dependent vowels of Hindi with them: कु becomes क
(https://github.com/google-research/bert/issues/138).
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lingraft.polling import poll
from lingraft.vocabulary.pre_tokenizer import bare_pipeline
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["NormaliserAudit", "audit_normaliser"]

# One stray "café" in a text of another language is no reason to stop; a language that writes with marks has ten times
# as many and more: French 4 marks to 100 letters, Hindi 60.
_LOSSY = 0.001
_EXAMPLES = 5
_METASPACE = "▁"

Normalise = Callable[[str], str]


@dataclass(frozen=True)
class NormaliserAudit:
    """What happens to a text sample; characters are counted after canonical decomposition (NFD) on both sides.

    Attributes:
        documents: how many texts.
        changed: how many of them do not come back as they were; composing an accent (NFC) counts here.
        letters: letters of the sample.
        deleted: character → how often it vanishes: with nothing in its place, or as part of a longer string.
        folded: character and what takes its place → how often.
    """

    documents: int
    changed: int
    letters: int
    deleted: Mapping[str, int]
    folded: Mapping[tuple[str, str], int]

    @property
    def changed_fraction(self) -> float:
        """The share of documents that change."""
        return self.changed / self.documents if self.documents else 0.0

    @property
    def deleted_categories(self) -> dict[str, int]:
        """Unicode category (``Mn``, ``Cf``, …) → deleted characters of it."""
        counts: Counter[str] = Counter()
        for character, count in self.deleted.items():
            counts[unicodedata.category(character)] += count
        return dict(counts.most_common())

    @property
    def deleted_marks(self) -> dict[str, int]:
        """The deleted vowel signs, viramas, accents and other marks (category M), by code point and name."""
        marks = {one: n for one, n in self.deleted.items() if unicodedata.category(one)[0] == "M"}
        return {_named(mark): count for mark, count in marks.items()}

    @property
    def is_lossy_for_marks(self) -> bool:
        """Whether at least one mark is deleted to 1,000 letters: the text needs them, so the base cannot write it."""
        lost = sum(self.deleted_marks.values())
        return lost > 0 and lost >= _LOSSY * self.letters

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a report: counts, and the most frequent examples."""
        return {
            "documents": self.documents,
            "changed": self.changed,
            "changed_fraction": self.changed_fraction,
            "deleted": {
                category: {"count": count, "examples": self._examples(category)}
                for category, count in self.deleted_categories.items()
            },
            "folded": {
                "count": sum(self.folded.values()),
                "examples": [f"{old} → {new} ×{n}" for (old, new), n in list(self.folded.items())[:_EXAMPLES]],
            },
            "deleted_marks": self.deleted_marks,
            "is_lossy_for_marks": self.is_lossy_for_marks,
        }

    def _examples(self, category: str) -> list[str]:
        found = [(one, count) for one, count in self.deleted.items() if unicodedata.category(one) == category]
        return [f"{_named(character)} ×{count}" for character, count in found[:_EXAMPLES]]


def audit_normaliser(tokenizer: TokenizerFile, texts: Iterable[str]) -> NormaliserAudit:
    """Return what the tokenizer's normaliser deletes from a text sample and what it replaces.

    Spaces written as ``▁`` and a mark put in front of a text (SentencePiece) are undone first: they are a spelling, and
    decoding undoes them too. Then the characters of each text are counted before and after. What has become fewer was
    replaced if the normaliser turns this character, alone, into something else, and deleted if not, as the second of
    two spaces is, which vanishes only in company. Both sides are decomposed (NFD), so that a mark which was
    only composed with its letter is not missing.

    Args:
        tokenizer: the tokenizer; one without a normaliser changes nothing.
        texts: documents, read once.
    """
    normalise = _without_metaspace(tokenizer)
    alone = lru_cache(maxsize=None)(lambda character: _decomposed(normalise(character)))
    documents = changed = letters = 0
    deleted: Counter[str] = Counter()
    folded: Counter[tuple[str, str]] = Counter()
    for text in texts:
        poll()
        plain = text.replace(_METASPACE, " ")
        result = normalise(text)
        documents, changed, letters = documents + 1, changed + (result != plain), letters + sum(map(str.isalpha, text))
        missing = Counter(_decomposed(plain)) - Counter(_decomposed(result)) if result != plain else Counter()
        for character, count in missing.items():
            if (after := alone(character)) in ("", character):
                deleted[character] += count
            else:
                folded[character, after] += count
    return NormaliserAudit(documents, changed, letters, dict(deleted.most_common()), dict(folded.most_common()))


def _without_metaspace(tokenizer: TokenizerFile) -> Normalise:
    """Return the normaliser as a function that spells spaces as spaces and puts nothing in front of a text."""
    own = bare_pipeline(tokenizer).normalizer
    if own is None:
        return lambda text: text.replace(_METASPACE, " ")
    prefix = own.normalize_str("a").replace(_METASPACE, " ").removesuffix("a")
    return lambda text: own.normalize_str(text).replace(_METASPACE, " ").removeprefix(prefix)


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _named(character: str) -> str:
    """Return a character as ``U+0941 DEVANAGARI VOWEL SIGN U``."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'without a name')}"
