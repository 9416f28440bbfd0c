"""Bits per byte: the one loss that can be compared across tokenizers.

    −Σ log₂ p(token | what stands before it) / Σ UTF-8 bytes of the text

Rules, each closing a trap: the start token conditions and is never scored; the end of a document is not scored (what it
would add is told beside it); documents are independent; text is cut into segments of equal bytes that fit the window of
every tokenizer in the comparison, so that a tokenizer that packs more text into a window gains no context by it; rows
that no token owns are masked; bytes are those of the original text, and a document that does not come back from its own
tokens is left out and counted. Only the canonical tokenization is scored, so the number is an upper bound.

Bytes are comparable for the same text only: an Arabic letter has two of them, a Devanagari letter three.
"""

import hashlib
import math
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lingraft.errors import MeasurementError
from lingraft.measure.scoring import Scorer
from lingraft.measure.statistics import bootstrap_ratio
from lingraft.vocabulary import TokenizerFile

__all__ = [
    "BitsPerByte",
    "EvaluationText",
    "choose_documents",
    "fitting_segments",
    "measure_bits_per_byte",
    "segments",
    "split_lossless",
    "token_perplexity",
]


@dataclass(frozen=True)
class BitsPerByte:
    """The result over a set of documents.

    Attributes:
        value: bits per byte, summed over all documents before dividing.
        low: lower end of the 95 % interval over documents; None with one document.
        high: upper end, likewise.
        documents: documents scored.
        bytes: their UTF-8 bytes.
        tokens: tokens scored.
        document_bits: bits of each document, for paired comparisons.
        watched: how many of the tokens were among the watched ids.
        watched_nats: mean −ln p of those, whose rows have most to learn; NaN if there were none.
        characters: code points of the documents after NFC.
        words: their pieces between white space.
        end_bits: bits of the documents' ends; None where they were not scored.
        lossy: how many others were left out, as they do not come back from their tokens; where it was counted.
    """

    value: float
    low: float | None
    high: float | None
    documents: int
    bytes: int
    tokens: int
    document_bits: tuple[float, ...]
    watched: int = 0
    watched_nats: float = math.nan
    characters: int = 0
    words: int = 0
    end_bits: float | None = None
    lossy: int = 0

    @property
    def bits(self) -> float:
        """Bits of all documents."""
        return sum(self.document_bits)

    @property
    def per_character(self) -> float:
        """Bits per character; NaN without characters."""
        return self.bits / self.characters if self.characters else math.nan

    @property
    def per_word(self) -> float:
        """Bits per word between white space, which some scripts hardly have; NaN without words."""
        return self.bits / self.words if self.words else math.nan

    @property
    def with_end(self) -> float | None:
        """Bits per byte, the end of every document being scored too; None where it was not asked for."""
        return None if self.end_bits is None else (self.bits + self.end_bits) / self.bytes


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


def fitting_segments(text: str, max_bytes: int, tokenizers: Sequence[TokenizerFile], room: int) -> list[str]:
    """Return :func:`segments` of the text, those halved that have more than ``room`` tokens by one of the tokenizers.

    A segment that is longer than the window would give its tail less context by the tokenizer that needs more tokens
    for it; a single character is never cut.
    """
    pieces: list[str] = []
    for piece in segments(text, max_bytes):
        if len(piece) == 1 or all(len(tokenizer.encode(piece)) <= room for tokenizer in tokenizers):
            pieces.append(piece)
            continue
        halves = segments(piece, max(4, (len(piece.encode()) + 1) // 2))
        if len(halves) == 1:
            halves = [piece[: len(piece) // 2], piece[len(piece) // 2 :]]
        for half in halves:
            pieces += fitting_segments(half, max_bytes, tokenizers, room)
    return pieces


def measure_bits_per_byte(
    scorer: Scorer,
    tokenizer: TokenizerFile,
    documents: Sequence[str],
    *,
    segment_bytes: int | None = 2048,
    others: Sequence[TokenizerFile] = (),
    stride: int | None = None,
    disjoint: bool = False,
    end_id: int | None = None,
    watched: Collection[int] = (),
) -> BitsPerByte:
    """Return the bits per byte of a model on documents.

    Args:
        scorer: the model.
        tokenizer: its tokenizer.
        documents: texts that :func:`split_lossless` let through.
        segment_bytes: longest segment, or None to score documents whole, in windows of the model's length.
        others: further tokenizers of the comparison: segments fit the window by each of them.
        stride: as in :meth:`lingraft.measure.scoring.Scorer.score`.
        disjoint: likewise.
        end_id: the token at a document's end, where it is to be scored too; it takes no part in ``value``.
        watched: ids whose own loss is told as well: those of new tokens.

    Raises:
        MeasurementError: there is no document.
    """
    if not documents:
        raise MeasurementError("bits per byte needs at least one document that comes back from its tokens unchanged")
    judges = {judge.sha256: judge for judge in (tokenizer, *others)}
    pieces = _pieces(documents, segment_bytes, list(judges.values()), scorer.window - 1)
    encoded = tokenizer.encode_batch([piece for _, piece in pieces])
    lasts = {len(pieces) - 1} | {n - 1 for n in range(1, len(pieces)) if pieces[n][0] != pieces[n - 1][0]}
    ends = [end_id] if end_id is not None else []
    asked = [[*ids, *(ends if n in lasts else [])] for n, ids in enumerate(encoded)]
    bits = [0.0] * len(documents)
    chosen, count, nats, end_bits = frozenset(watched), 0, 0.0, 0.0
    scored = scorer.score(asked, stride=stride, disjoint=disjoint)
    for (index, _), ids, found in zip(pieces, encoded, scored, strict=True):
        told = found.log_probabilities.double()
        bits[index] -= told[: len(ids)].sum().item() / math.log(2)
        end_bits -= told[len(ids) :].sum().item() / math.log(2)
        places = [place for place, token_id in enumerate(ids) if token_id in chosen]
        count += len(places)
        nats -= told[places].sum().item()
    sizes = [len(text.encode()) for text in documents]
    low, high = bootstrap_ratio(bits, sizes)
    return BitsPerByte(
        value=sum(bits) / sum(sizes),
        low=low,
        high=high,
        documents=len(documents),
        bytes=sum(sizes),
        tokens=sum(map(len, encoded)),
        document_bits=tuple(bits),
        watched=count,
        watched_nats=nats / count if count else math.nan,
        characters=sum(len(unicodedata.normalize("NFC", text)) for text in documents),
        words=sum(len(text.split()) for text in documents),
        end_bits=end_bits if ends else None,
    )


def _pieces(
    documents: Sequence[str], segment_bytes: int | None, tokenizers: Sequence[TokenizerFile], room: int
) -> list[tuple[int, str]]:
    """Return ``(number of the document, piece)`` of everything that is scored by itself."""
    if segment_bytes is None:
        return [(index, text) for index, text in enumerate(documents) if text]
    return [
        (index, piece)
        for index, text in enumerate(documents)
        for piece in fitting_segments(text, segment_bytes, tokenizers, room)
    ]


def token_perplexity(bits: BitsPerByte, tokenizer: TokenizerFile, other: TokenizerFile) -> float | None:
    """Return exp(mean −ln p of a token), or None where the two tokenizers of the comparison differ.

    With other tokens the mean is over other things: a model that needs twice as many tokens has the lower perplexity.
    """
    if tokenizer.sha256 != other.sha256 or not bits.tokens:
        return None
    return math.exp(bits.bits * math.log(2) / bits.tokens)
