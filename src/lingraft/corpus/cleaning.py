"""Which documents are fit to learn from; every decision has a reason, and every reason is counted.

There are two kinds of decision. Most look at one document alone (:class:`Judge`): they can be made anywhere, in any
order. Whether a document repeats an earlier one depends on those before it (:class:`Repetitions`).
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Literal

import numpy as np
import regex
from numpy.typing import NDArray

from lingraft.corpus.characters import NOTED, count_noted, script_counts, top_script
from lingraft.corpus.document import Document, Rejects, RejectSample, escape
from lingraft.corpus.language_id import Guess, identifier
from lingraft.corpus.near_duplicates import NearDuplicates, NearIndex, signatures
from lingraft.corpus.quality import QualityFilter

__all__ = ["Cleaning", "Judge", "LanguageCheck", "Repetitions", "clean", "content_digest", "normal_form", "reject"]

_CONTROL = regex.compile(NOTED["control characters"])
_BIDI = regex.compile(NOTED["bidi marks"])
_EXACT = "exact duplicate of an earlier document"
_NEAR = "near-duplicate of an earlier document"


@dataclass(frozen=True)
class LanguageCheck:
    """Whether documents are in the language that they should be in.

    Attributes:
        labels: what an identifier may answer, such as ``eu`` or ``eus_Latn``.
        model: see :func:`~lingraft.corpus.language_id.identifier`.
        min_probability: a guess with less is no answer.
        is_required: whether documents in another language are rejected; else they are counted.
    """

    labels: tuple[str, ...]
    model: str = "small"
    min_probability: float = 0.5
    is_required: bool = False


@dataclass(frozen=True)
class Cleaning:
    """What documents must be like: the options of a recipe's corpus.

    Attributes:
        normalise: with ``nfc`` the text is put into Unicode's form C.
        strip_bidi: whether bidi marks (U+200E, U+200F, U+061C, embeddings, overrides, isolates) are taken out. Joiners
            and non-joiners never are: they spell Sinhala and Persian.
        min_characters: shorter documents are rejected.
        max_characters: longer ones, too.
        quality: filters with their thresholds.
        language: the check by an identifier, if any.
        scripts: the scripts that letters should be of; documents in another are counted.
        deduplicate: whether exact repetitions are rejected; else they are counted.
        near_duplicates: when a document is rejected as nearly an earlier one, if ever.
        max_documents: no more are kept, nor read.
    """

    normalise: Literal["none", "nfc"] = "none"
    strip_bidi: bool = False
    min_characters: int = 1
    max_characters: int | None = None
    quality: tuple[QualityFilter, ...] = ()
    language: LanguageCheck | None = None
    scripts: frozenset[str] = frozenset()
    deduplicate: bool = True
    near_duplicates: NearDuplicates | None = None
    max_documents: int | None = None

    def refuse_unusable(self, where: str) -> None:
        """Make the checks ready once, so that what is not installed or not there is found out before any text is read.

        Raises:
            MissingExtraError: a check needs a package that is not installed.
            CorpusError: the language model cannot be used.
        """
        if self.language is not None:
            identifier(self.language.model, f"{where}.language_id.model")("A short text.")
        if self.near_duplicates is not None:
            signatures(["A short text."], self.near_duplicates)


def clean(documents: Iterable[Document], cleaning: Cleaning, rejects: Rejects, where: str) -> Iterator[Document]:
    r"""Yield the documents that are fit to learn from, in their order, at most ``max_documents`` of them.

    ``\r\n`` and ``\r`` become ``\n``, which is counted; with ``nfc`` the text is put into Unicode's form C,
    never into KC. Nothing else is changed unless it was asked for: zero-width joiners spell Sinhala and Persian, bidi
    marks order Hebrew; they are counted.

    Rejected, each under its reason: what :class:`Judge` finds unfit, and what :class:`Repetitions` has seen.

    Args:
        documents: as they were read.
        cleaning: the rules.
        rejects: where all is counted.
        where: the recipe path of the corpus, such as ``corpora.eu``, for messages.

    Raises:
        MissingExtraError: a check needs a package that is not installed.
        CorpusError: the language model cannot be used.
    """
    judge, repetitions = Judge(cleaning, rejects, where), Repetitions(cleaning, rejects)

    def kept() -> Iterator[Document]:
        for document in documents:
            fit = judge(document)
            if fit is not None and repetitions.is_new(fit):
                yield fit

    return islice(kept(), cleaning.max_documents)


@dataclass
class Judge:
    """Decides on a document by itself, and counts what it finds.

    Rejected are a text of white space alone, one shorter or longer than allowed, one with a control character other
    than tab and newline (it comes from a terminal, a printer or a wrong decoding, and cutting it out would hide that),
    what a quality filter gives a reason for, and, where that is asked for, another language.

    Attributes:
        cleaning: the rules.
        rejects: where all is counted.
        where: the recipe path of the corpus, for messages.
    """

    cleaning: Cleaning
    rejects: Rejects
    where: str
    _identify: Callable[[str], Guess] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check = self.cleaning.language
        if check is not None:
            self._identify = identifier(check.model, f"{self.where}.language_id.model")

    def __call__(self, document: Document) -> Document | None:
        """Return the document as it is to be learned from, or None where it is not fit."""
        document = replace(document, text=_standard_text(document.text, self.cleaning, self.rejects))
        reason = self._unfit(document.text) or self._of_other_language(document)
        if reason is not None:
            reject(document, reason, self.rejects)
            return None
        _note_marks(document.text, self.rejects)
        self._check_script(document)
        return document

    def _unfit(self, text: str) -> str | None:
        if not text.strip():
            return "white space only"
        if len(text) < self.cleaning.min_characters:
            return f"shorter than {self.cleaning.min_characters} characters"
        if self.cleaning.max_characters is not None and len(text) > self.cleaning.max_characters:
            return f"longer than {self.cleaning.max_characters} characters"
        if (text.isascii() or "control characters" in count_noted(text)) and (found := _CONTROL.search(text)):
            return f"control character U+{ord(found[0]):04X}"
        return next((reason for judge in self.cleaning.quality if (reason := judge(text)) is not None), None)

    def _of_other_language(self, document: Document) -> str | None:
        """Return the reason for which a document is rejected as another language's; count every guess."""
        check = self.cleaning.language
        if check is None or self._identify is None:
            return None
        guess = self._identify(document.text)
        self.rejects.note(f"language: {guess.label}" if guess.is_plausible else "language: none that fits the script")
        if not guess.is_plausible:
            reason = "identified as a language that is not written in its script"
        elif guess.probability < check.min_probability:
            reason = f"language not certain (below {check.min_probability:g})"
        elif any(guess.label.matches(label) for label in check.labels):
            return None
        else:
            reason = "identified as another language"
        if check.is_required:
            return reason
        sample = _sample(document, reason)
        self.rejects.find(replace(sample, text=f"[{guess.label} {guess.probability:.2f}] {sample.text}"))
        return None

    def _check_script(self, document: Document) -> None:
        expected = self.cleaning.scripts
        script = top_script(script_counts(document.text)) if expected else None
        if script is not None and script not in expected:
            self.rejects.find(_sample(document, f"most letters are {script}"))


class Repetitions:
    """Knows the documents kept so far, and decides whether one repeats another.

    Exact: equal in :func:`normal_form`. Memory: a 16-byte digest for each document, and with near-duplicates what
    :class:`NearIndex` holds.
    """

    def __init__(self, cleaning: Cleaning, rejects: Rejects) -> None:
        self._cleaning = cleaning
        self._rejects = rejects
        self._seen: set[bytes] = set()
        self._near = NearIndex(cleaning.near_duplicates) if cleaning.near_duplicates else None

    def is_new(self, document: Document) -> bool:
        """Return whether a document is to be kept; if not, it is counted under its reason."""
        near = self._cleaning.near_duplicates
        signature = signatures([document.text], near)[0] if near else None
        reason = self.reason_against(content_digest(document.text), signature)
        if reason is not None:
            reject(document, reason, self._rejects)
        return reason is None

    def reason_against(self, digest: bytes, signature: NDArray[np.uint32] | None) -> str | None:
        """Return the reason for which a document is a repetition, or None; a new one is held against later ones.

        Args:
            digest: its :func:`content_digest`.
            signature: its row of :func:`~lingraft.corpus.near_duplicates.signatures`, where these are looked for.
        """
        short = digest[:16]
        if short in self._seen:
            self._rejects.note("exact duplicates")
            return _EXACT if self._cleaning.deduplicate else None
        self._seen.add(short)
        is_near = self._near is not None and signature is not None and self._near.is_repeated(signature)
        return _NEAR if is_near else None


def reject(document: Document, reason: str, rejects: Rejects) -> None:
    """Count a document that was read and is not kept."""
    rejects.add(_sample(document, reason))


def _sample(document: Document, reason: str) -> RejectSample:
    return RejectSample(f"{document.corpus}/{document.id}", None, None, reason, escape(document.text))


def _standard_text(text: str, cleaning: Cleaning, rejects: Rejects) -> str:
    if "\r" in text:
        rejects.note("documents with \\r line ends, made \\n")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text
    if cleaning.strip_bidi:
        text, count = _BIDI.subn("", text)
        rejects.note("bidi marks (taken out)", count)
    if unicodedata.is_normalized("NFC", text):
        return text
    rejects.note("documents put into NFC" if cleaning.normalise == "nfc" else "documents not in NFC (kept)")
    return unicodedata.normalize("NFC", text) if cleaning.normalise == "nfc" else text


def _note_marks(text: str, rejects: Rejects) -> None:
    if not text.isascii():
        for what, count in count_noted(text).items():
            rejects.note(f"{what} (kept)", count)


def normal_form(text: str) -> str:
    """Return the text in NFC with every run of white space as one space: two texts are the same if these are.

    Case, punctuation and script are kept, so unrelated texts of any script stay apart.
    """
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


@lru_cache(maxsize=1)
def content_digest(text: str) -> bytes:
    """Return the SHA-256 of the :func:`normal_form`; asked again for the text asked last, it is not made again."""
    return hashlib.sha256(normal_form(text).encode()).digest()
