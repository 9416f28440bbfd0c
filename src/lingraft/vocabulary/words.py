"""Texts as word types and how often each occurs: what learning and the fertility curve count over.

A large text holds few different words. It is cut where no token can cross, the pieces are counted, and only the
different ones are tokenised, so memory follows the number of different words and not the length of the text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from lingraft.batching import batches_of
from lingraft.corpus.characters import count_words
from lingraft.polling import poll
from lingraft.vocabulary.curve import TextSize
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["CountedPieces", "CountedText", "Cut", "Segment", "count_pieces", "cut_before_words", "segment_pieces"]

_BORDER = re.compile(r"(?<=\S)(?= [^\W\d_])")
_CHECKED_TEXTS = 64
_LONGEST_WORD = 200

Cut = Callable[[str], list[str]]
Segment = Callable[[list[str]], list[list[tuple[int, ...]]]]


@dataclass(frozen=True)
class CountedPieces:
    """The different pieces of a text and how often each occurs, with the size of the whole."""

    pieces: Counter[str]
    size: TextSize


@dataclass(frozen=True)
class CountedText:
    """A text as counted words (tuples of ids), with its size, and its tokens by the base tokenizer."""

    words: Counter[tuple[int, ...]]
    size: TextSize
    base_tokens: int

    def counts(self) -> Counter[int]:
        """Return how often each id occurs."""
        found: Counter[int] = Counter()
        for word, count in self.words.items():
            for token_id in word:
                found[token_id] += count
        return found


def count_pieces(texts: Iterable[str], cut: Cut) -> CountedPieces:
    """Return the pieces of a text, which is read once, document after document.

    Args:
        texts: documents.
        cut: cuts a document into pieces that tokens never cross.
    """
    pieces: Counter[str] = Counter()
    words = characters = size = 0
    for text in texts:
        poll()
        pieces.update(cut(text))
        words += count_words(text)
        characters += len(text)
        size += len(text.encode())
    return CountedPieces(pieces, TextSize(words, characters, size))


def segment_pieces(counted: CountedPieces, segment: Segment, *, overlap: bool = False) -> CountedText:
    """Return how often each word occurs in counted pieces, as ids.

    Args:
        counted: the pieces.
        segment: gives the words of each of some pieces: what merges cannot cross within a piece.
        overlap: whether the parts of an overlong word share a token, so that no pair of it is missed (for source text);
            without it the count of tokens stays exact.
    """
    words: Counter[tuple[int, ...]] = Counter()
    for batch in batches_of(iter(counted.pieces.items()), 2048):
        for (_, count), found in zip(batch, segment([piece for piece, _ in batch]), strict=True):
            for word in found:
                for part in _parts(word, overlap):
                    words[part] += count
    return CountedText(words, counted.size, sum(len(word) * count for word, count in words.items()))


def cut_before_words(tokenizer: TokenizerFile, texts: Iterable[str]) -> tuple[Cut, Iterator[str]]:
    """Return how to cut documents for a tokenizer, and the documents again.

    The safe point is a single space between a character and a letter: every pre-tokenizer pattern in use starts a word
    there. That is checked on the first documents; if one is tokenised otherwise in pieces, documents are left whole.
    """
    stream = iter(texts)
    first = list(islice(stream, _CHECKED_TEXTS))
    cut: Cut = _BORDER.split
    for text in first:
        if tokenizer.encode(text) != [i for ids in tokenizer.encode_batch(cut(text)) for i in ids]:
            cut = _whole
            break
    return cut, chain(first, stream)


def _whole(text: str) -> list[str]:
    return [text]


def _parts(word: tuple[int, ...], overlap: bool) -> Iterator[tuple[int, ...]]:
    if len(word) <= _LONGEST_WORD:
        yield word
        return
    for start in range(0, len(word) - overlap, _LONGEST_WORD - overlap):
        yield word[start : start + _LONGEST_WORD]
