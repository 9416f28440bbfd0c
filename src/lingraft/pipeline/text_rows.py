"""Rows and items of bits per byte: the number, what is told beside it, and the bits of each document."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from lingraft.item_records import ItemRecord
from lingraft.measure.bits_per_byte import BitsPerByte, EvaluationText, segments, token_perplexity
from lingraft.measure.mass import probability_mass
from lingraft.measure.scoring import Scorer
from lingraft.measurement import Measurement
from lingraft.vocabulary import TokenizerFile

__all__ = ["bits_items", "bits_rows", "dead_mass_rows", "full_window_row", "secondary_rows"]

_MASS_SEGMENTS = 8
_MASS_BYTES = 512


def bits_rows(stage: str, tokens: int, language: str, bits: BitsPerByte, text: EvaluationText) -> Iterator[Measurement]:
    """Yield bits per byte with its interval over documents, and what is measured with it at every point."""
    yield Measurement(stage, tokens, "bits_per_byte", bits.value, language, bits.low, bits.high, bits.documents)
    nats = bits.value * math.log(2) * bits.bytes / max(1, bits.tokens)
    yield Measurement(stage, tokens, "nats_per_token", nats, language, count=bits.tokens)
    if bits.watched:
        yield Measurement(stage, tokens, "new_token_nats", bits.watched_nats, language, count=bits.watched)
    yield Measurement(stage, tokens, "bits_per_byte/lossy_documents", text.lossy, language)


def secondary_rows(
    stage: str, tokens: int, language: str, bits: BitsPerByte, tokenizer: TokenizerFile, other: TokenizerFile
) -> Iterator[Measurement]:
    """Yield the same bits by other units; perplexity per token only where both tokenizers are the same file."""
    for name, value, count in (
        ("bits_per_byte/per_character", bits.per_character, bits.characters),
        ("bits_per_byte/per_word", bits.per_word, bits.words),
        ("bits_per_byte/with_end", bits.with_end, bits.documents),
        ("token_perplexity", token_perplexity(bits, tokenizer, other), bits.tokens),
    ):
        if value is not None and math.isfinite(value):
            yield Measurement(stage, tokens, name, value, language, count=count)


def full_window_row(stage: str, tokens: int, language: str, bits: BitsPerByte) -> Measurement:
    """Return bits per byte of whole documents, each token behind as much text as the window holds."""
    name = "bits_per_byte/full_window"
    return Measurement(stage, tokens, name, bits.value, language, bits.low, bits.high, bits.documents)


def dead_mass_rows(
    scorer: Scorer, tokenizer: TokenizerFile, stage: str, tokens: int, language: str, documents: Sequence[str]
) -> Iterator[Measurement]:
    """Yield the probability on rows that no token owns, where there are such rows; they take no part in other numbers.

    On a trained model it is next to nothing; a large value says that tokenizer and matrix do not belong together.
    """
    num_rows = scorer.head.weight.shape[0]
    if num_rows <= scorer.num_ids:
        return
    pieces = [piece for text in documents for piece in segments(text, _MASS_BYTES)][:_MASS_SEGMENTS]
    mass = probability_mass(
        scorer.model,
        tokenizer.encode_batch(pieces),
        condition_id=scorer.condition_id,
        ids=range(scorer.num_ids, num_rows),
        num_ids=num_rows,
    )
    yield Measurement(stage, tokens, "bits_per_byte/dead_mass", mass, language)


def bits_items(
    stage: str, tokens: int, language: str, bits: BitsPerByte, documents: Sequence[str], *, averaged: bool
) -> Iterator[ItemRecord]:
    """Yield bits and bytes of each document, which is named by the hash of its text, a repeated one by its number too.

    Paired comparisons of models stand on these, within a run and between runs that hold out the same text.
    """
    seen: Counter[str] = Counter()
    for text, spent in zip(documents, bits.document_bits, strict=True):
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        seen[name] += 1
        item = name if seen[name] == 1 else f"{name}-{seen[name]}"
        scores = {"bits": spent, "bytes": float(len(text.encode()))}
        yield ItemRecord(stage, tokens, "bits_per_byte", item, scores, language, averaged=averaged)
