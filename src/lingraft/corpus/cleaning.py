"""Which documents are fit to learn from; every decision has a reason, and every reason is counted."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Literal

import regex

from lingraft.corpus.document import Document, Rejects, RejectSample, escape
from lingraft.corpus.scripts import script_of

__all__ = ["clean", "count_words", "normal_form", "script_histogram", "words"]

# Tab and newline are text; a carriage return becomes a newline before this is looked at. The rest of C0, DEL
# and C1 is what terminals, printers and broken decoders leave behind.
_CONTROL = regex.compile(r"[^\P{Cc}\t\n]")
_NOTED = {
    "bidi marks (kept)": regex.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]"),
    "zero-width joiners and non-joiners (kept)": regex.compile("[\u200c\u200d]"),
    "byte order marks inside a text (kept)": regex.compile("\ufeff"),
    "kashidas (kept)": regex.compile("\u0640"),
    "Arabic presentation forms (kept)": regex.compile("[\ufb50-\ufdff\ufe70-\ufefc]"),
}
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|[^\s{_UNSPACED}]+")


def clean(
    documents: Iterable[Document],
    *,
    normalise: Literal["none", "nfc"],
    deduplicate: bool,
    min_characters: int,
    max_documents: int | None,
    rejects: Rejects,
) -> Iterator[Document]:
    r"""Yield the documents that are fit to learn from, in their order, at most ``max_documents`` of them.

    ``\r\n`` and ``\r`` become ``\n``, which is counted; with ``nfc`` the text is put into Unicode's form C,
    never into KC. Nothing else is changed: zero-width joiners spell Sinhala and Persian, bidi marks order
    Hebrew; they are counted.

    Rejected, each under its reason: a text of white space alone, one of fewer than ``min_characters``
    characters, one with a control character other than tab and newline (it comes from a terminal, a printer
    or a wrong decoding, and cutting it out would hide that), and, with ``deduplicate``, one that equals an
    earlier one in :func:`normal_form`.
    Memory: a 16-byte digest for each document.
    """
    seen: set[bytes] = set()

    def kept() -> Iterator[Document]:
        for document in documents:
            document = replace(document, text=_standard_text(document.text, normalise, rejects))
            reason = _unfit(document.text, min_characters)
            if reason is None and _is_repeated(document.text, seen):
                rejects.note("exact duplicates")
                reason = "exact duplicate of an earlier document" if deduplicate else None
            if reason is None:
                _note_marks(document.text, rejects)
                yield document
            else:
                rejects.add(RejectSample(f"{document.corpus}/{document.id}", None, None, reason, escape(document.text)))

    return islice(kept(), max_documents)


def _standard_text(text: str, normalise: str, rejects: Rejects) -> str:
    if "\r" in text:
        rejects.note("documents with \\r line ends, made \\n")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    composed = unicodedata.normalize("NFC", text)
    if composed != text:
        rejects.note("documents put into NFC" if normalise == "nfc" else "documents not in NFC (kept)")
    return composed if normalise == "nfc" else text


def _unfit(text: str, min_characters: int) -> str | None:
    if not text.strip():
        return "white space only"
    if len(text) < min_characters:
        return f"shorter than {min_characters} characters"
    if found := _CONTROL.search(text):
        return f"control character U+{ord(found[0]):04X}"
    return None


def _is_repeated(text: str, seen: set[bytes]) -> bool:
    """Whether the text was seen before; it is taken down as seen."""
    digest = hashlib.blake2b(normal_form(text).encode(), digest_size=16).digest()
    if digest in seen:
        return True
    seen.add(digest)
    return False


def _note_marks(text: str, rejects: Rejects) -> None:
    if not text.isascii():
        for what, pattern in _NOTED.items():
            rejects.note(what, len(pattern.findall(text)))


def normal_form(text: str) -> str:
    """Return the text in NFC with every run of white space as one space: two texts are the same if these are.

    Case, punctuation and script are kept, so unrelated texts of any script stay apart.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def words(text: str) -> list[str]:
    """Return the words: what white space separates; single characters in scripts without spaces.

    Those are Han, kana, Thai, Lao, Khmer, Myanmar and Tibetan. A vowel sign stays with its letter.
    """
    found: list[str] = _WORD.findall(text)
    return found


def count_words(text: str) -> int:
    """Return how many :func:`words` a text has; fertility is tokens per word."""
    return len(words(text))


def script_histogram(texts: Iterable[str]) -> dict[str, int]:
    """Return how many letters of each Unicode script the texts hold, the most frequent script first.

    Letters that belong to no one script (ー) are counted as ``Common``; digits, signs and punctuation are not counted.
    """
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if character.isalpha():
            scripts[script_of(character) or "Common"] += count
    return dict(scripts.most_common())
