"""Bits per byte: the one loss that can be compared across tokenizers.

    −Σ log₂ p(token | what stands before it) / Σ UTF-8 bytes of the text

Rules, each closing a trap: the start token conditions and is never scored; the end of a document is not scored;
documents are independent; text is cut into segments of equal bytes, so that a tokenizer that packs more text into a
window gains no context by it; rows that no token owns are masked; bytes are those of the original text, and a document
that does not come back from its own tokens is left out and counted. Only the canonical tokenization is scored, so the
number is an upper bound.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lingraft.errors import MeasurementError
from lingraft.measure.scoring import Scorer
from lingraft.measure.statistics import bootstrap_ratio
from lingraft.vocabulary import TokenizerFile

__all__ = ["BitsPerByte", "EvaluationText", "choose_documents", "measure_bits_per_byte", "segments", "split_lossless"]


@dataclass(frozen=True)
class BitsPerByte:
    """The result over a set of documents.

    Attributes:
        value: bits per byte, summed over all documents before dividing.
        low: lower end of the 95 % interval over documents.
        high: upper end.
        documents: documents scored.
        bytes: their UTF-8 bytes.
        tokens: tokens scored.
        document_bits: bits of each document, for paired comparisons.
        watched: how many of the tokens were among the watched ids.
        watched_nats: mean −ln p of those, whose rows have most to learn; NaN if there were none.
    """

    value: float
    low: float
    high: float
    documents: int
    bytes: int
    tokens: int
    document_bits: tuple[float, ...]
    watched: int = 0
    watched_nats: float = math.nan


@dataclass(frozen=True)
class EvaluationText:
    """Documents that every tokenizer in a comparison returns as they were, and how many did not come back."""

    documents: tuple[str, ...]
    lossy: int
    empty: int


def choose_documents(texts: Iterable[str], max_bytes: int) -> list[str]:
    """Return documents of a held-out set up to about ``max_bytes``; a longer last one is cut at a character.

    They are taken in the order of a hash of their content: a fair sample, whatever order the corpus has.
    """
    chosen: list[str] = []
    room = max_bytes
    for text in sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest()):
        if room <= 0:
            break
        piece = text.encode()[:room].decode(errors="ignore")
        if text and not piece:
            break
        chosen.append(piece)
        room -= len(piece.encode()) or 1
    return chosen


def split_lossless(texts: Sequence[str], tokenizers: Sequence[TokenizerFile]) -> EvaluationText:
    """Return the documents that survive encoding and decoding with each of the tokenizers, byte for byte."""
    whole = [text for text in texts if text.strip()]
    kept = []
    for text in whole:
        if all(tokenizer.decode(tokenizer.encode(text)) == text for tokenizer in tokenizers):
            kept.append(text)
    return EvaluationText(tuple(kept), lossy=len(whole) - len(kept), empty=len(texts) - len(whole))


def segments(text: str, max_bytes: int) -> list[str]:
    """Return the text cut into pieces of at most ``max_bytes``, at the last white space that fits, else at a character.

    The cut is a function of the text alone, so both sides of a comparison score the same pieces.
    """
    pieces: list[str] = []
    rest = text
    while len(rest.encode()) > max_bytes:
        fitting = rest.encode()[:max_bytes].decode(errors="ignore")
        cut = max(fitting.rfind(" "), fitting.rfind("\n"))
        piece = rest[: cut if cut > 0 else len(fitting)]
        if not piece:
            raise MeasurementError(f"segments of {max_bytes} bytes cannot hold the character {rest[0]!r}")
        pieces.append(piece)
        rest = rest[len(piece) :]
    return [*pieces, rest] if rest else pieces


def measure_bits_per_byte(
    scorer: Scorer,
    tokenizer: TokenizerFile,
    documents: Sequence[str],
    *,
    segment_bytes: int = 2048,
    watched: Collection[int] = (),
) -> BitsPerByte:
    """Return the bits per byte of a model on documents.

    Args:
        scorer: the model.
        tokenizer: its tokenizer.
        documents: texts that :func:`split_lossless` let through.
        segment_bytes: longest segment.
        watched: ids whose own loss is told as well: those of new tokens.

    Raises:
        MeasurementError: there is no document.
    """
    if not documents:
        raise MeasurementError("bits per byte needs at least one document that comes back from its tokens unchanged")
    pieces = [(index, piece) for index, text in enumerate(documents) for piece in segments(text, segment_bytes)]
    encoded = tokenizer.encode_batch([piece for _, piece in pieces])
    bits = [0.0] * len(documents)
    chosen, count, nats = frozenset(watched), 0, 0.0
    for (index, _), ids, scored in zip(pieces, encoded, scorer.score(encoded), strict=True):
        bits[index] -= scored.log_probabilities.double().sum().item() / math.log(2)
        places = [place for place, token_id in enumerate(ids) if token_id in chosen]
        count += len(places)
        nats -= scored.log_probabilities[places].double().sum().item()
    sizes = [len(text.encode()) for text in documents]
    low, high = bootstrap_ratio(bits, sizes)
    tokens = sum(map(len, encoded))
    return BitsPerByte(
        value=sum(bits) / sum(sizes),
        low=low,
        high=high,
        documents=len(documents),
        bytes=sum(sizes),
        tokens=tokens,
        document_bits=tuple(bits),
        watched=count,
        watched_nats=nats / count if count else math.nan,
    )
