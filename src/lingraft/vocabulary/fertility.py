"""How many tokens a text costs."""

from collections.abc import Iterable
from dataclasses import dataclass

from lingraft.batching import batches_of
from lingraft.corpus.characters import count_words
from lingraft.errors import MeasurementError
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["Fertility", "measure_fertility"]


@dataclass(frozen=True)
class Fertility:
    """Tokens, words (:func:`~lingraft.corpus.characters.words`), characters and UTF-8 bytes of one text."""

    tokens: int
    words: int
    characters: int
    bytes: int

    @property
    def tokens_per_word(self) -> float:
        """Fertility in its usual sense; whitespace words undercount languages that write clitics together."""
        return self.tokens / self.words

    @property
    def tokens_per_byte(self) -> float:
        """Tokens per UTF-8 byte: needs no notion of a word."""
        return self.tokens / self.bytes

    @property
    def tokens_per_character(self) -> float:
        """Tokens per code point."""
        return self.tokens / self.characters


def measure_fertility(tokenizer: TokenizerFile, texts: Iterable[str]) -> Fertility:
    """Return the fertility of a tokenizer on a text sample.

    Raises:
        MeasurementError: the sample has no words.
    """
    tokens = words = characters = size = 0
    for batch in batches_of(texts, 256):
        tokens += sum(map(len, tokenizer.encode_batch(batch)))
        words += sum(map(count_words, batch))
        characters += sum(map(len, batch))
        size += sum(len(text.encode()) for text in batch)
    if not words:
        raise MeasurementError("fertility needs at least one word of text")
    return Fertility(tokens, words, characters, size)
