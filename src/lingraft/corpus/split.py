"""What is held out for validation, and whether the training text gives it away."""

import hashlib
import heapq
from collections.abc import Iterable
from typing import Literal

import numpy as np
import regex
from numpy.typing import NDArray

from lingraft.corpus.cleaning import normal_form, words
from lingraft.corpus.document import Document

__all__ = ["find_leakage", "is_held_out"]

_MAX_NGRAMS = 2**23
_SIGNS = regex.compile(r"[\p{P}\p{S}]+")
# Any odd numbers do; these make the sum depend on the order of the words.
_FACTORS = np.random.default_rng(0x11A6).integers(1, 2**63, size=64, dtype=np.uint64) | np.uint64(1)


def is_held_out(document: Document, fraction: float, by: Literal["content", "id"]) -> bool:
    """Return whether a document belongs to the validation set.

    Its SHA-256, read as a number in [0, 1), is below ``fraction``. So the answer depends on the document
    alone: not on the order of the files, the machine, the seed or the other documents; and a larger fraction
    only adds documents. ``content`` hashes the text (in :func:`normal_form`, so that equal texts fall on one
    side), ``id`` the id, so that a page and its translation, whose ids are equal, fall on one side.
    """
    key = normal_form(document.text) if by == "content" else document.id
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2**64


def find_leakage(train: Iterable[Document], held_out: Iterable[Document], n: int = 13) -> float:
    """Return the share of held-out documents that have ``n`` words in a row in common with the training text.

    The test of GPT-3 (arXiv 2005.14165, appendix C): 13 words, case and punctuation aside. A document of
    fewer than ``n`` words has no such row and counts as clean; equal documents are the business of removing
    duplicates.

    Memory: 8 bytes for each row of words, for at most 8 million of them. A larger held-out set is represented
    by a sample of its documents, those with the smallest hashes of their content.
    """
    sample = _sample(held_out, n)
    if not sample:
        return 0.0
    rows = np.unique(np.concatenate(sample))
    if not len(rows):
        return 0.0
    is_seen = np.zeros(len(rows), dtype=np.bool_)
    for document in train:
        found = _hash_ngrams(document.text, n)
        position = np.minimum(np.searchsorted(rows, found), len(rows) - 1)
        is_seen[position[rows[position] == found]] = True
    leaked = sum(bool(is_seen[np.searchsorted(rows, hashes)].any()) for hashes in sample)
    return leaked / len(sample)


def _sample(documents: Iterable[Document], n: int) -> list[NDArray[np.uint64]]:
    """Return the hashed n-grams of each document, without those of the largest hash beyond the limit."""
    kept: list[tuple[int, int, NDArray[np.uint64]]] = []
    size = 0
    for number, document in enumerate(documents):
        order = int.from_bytes(hashlib.sha256(document.text.encode()).digest()[:8], "big")
        hashes = _hash_ngrams(document.text, n)
        heapq.heappush(kept, (-order, number, hashes))
        size += len(hashes)
        while size > _MAX_NGRAMS and len(kept) > 1:
            size -= len(heapq.heappop(kept)[2])
    return [hashes for _, _, hashes in kept]


def _hash_ngrams(text: str, n: int) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every n words in a row: the sum of word hash times factor of the place."""
    spelled = words(_SIGNS.sub(" ", text.casefold()))
    hashes = np.fromiter(map(hash, spelled), dtype=np.int64, count=len(spelled)).view(np.uint64)
    count = max(len(hashes) - n + 1, 0)
    total = np.zeros(count, dtype=np.uint64)
    for place in range(n):
        total += hashes[place : place + count] * _FACTORS[place]
    return total
