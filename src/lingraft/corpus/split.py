"""What is held out for validation."""

import hashlib
from typing import Literal

from lingraft.corpus.cleaning import content_digest
from lingraft.corpus.document import Document

__all__ = ["is_held_out"]


def is_held_out(document: Document, fraction: float, by: Literal["content", "id"]) -> bool:
    """Return whether a document belongs to the validation set.

    Its SHA-256, read as a number in [0, 1), is below ``fraction``. So the answer depends on the document
    alone: not on the order of the files, the machine, the seed or the other documents; and a larger fraction
    only adds documents. ``content`` hashes the text (in :func:`normal_form`, so that equal texts fall on one
    side), ``id`` the id, so that a page and its translation, whose ids are equal, fall on one side.
    """
    digest = content_digest(document.text) if by == "content" else hashlib.sha256(document.id.encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2**64
