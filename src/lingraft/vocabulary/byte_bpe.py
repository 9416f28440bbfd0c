"""Expansion of byte-level BPE tokenizers (GPT-2, SmolLM2, Qwen, Llama 3)."""

from collections.abc import Iterable

from lingraft.vocabulary.admission import LearnOptions, LearnTexts
from lingraft.vocabulary.expansion import VocabularyExpansion
from lingraft.vocabulary.growth import BpeStart, CountedTexts
from lingraft.vocabulary.replacement import grow_or_replace
from lingraft.vocabulary.tokenizer_file import TokenizerFile, bytes_to_spelling, spelling_to_bytes
from lingraft.vocabulary.words import CountedText, count_pieces, cut_before_words, segment_pieces

__all__ = ["expand_byte_bpe"]


def expand_byte_bpe(tokenizer: TokenizerFile, texts: LearnTexts, options: LearnOptions) -> VocabularyExpansion:
    """Return the tokenizer grown by tokens learned on target text; its own pre-tokenizer decides where words end.

    Args:
        tokenizer: a byte-level BPE.
        texts: target and source text, and what is watched.
        options: how many tokens, and which are admitted; with ``replace`` rare old tokens give way to them.

    Raises:
        VocabularyError: no token was learned, or too few old tokens may give way.
    """
    counted = CountedTexts(
        {name: _count(tokenizer, text) for name, text in texts.targets.items()},
        _count(tokenizer, texts.source, overlap=True),
        {name: _count(tokenizer, text) for name, text in texts.watched.items()},
    )
    start = BpeStart(tokenizer, tokenizer, _token_bytes(tokenizer), bytes_to_spelling)
    return grow_or_replace(start, counted, options)


def _count(tokenizer: TokenizerFile, texts: Iterable[str], *, overlap: bool = False) -> CountedText:
    cut, stream = cut_before_words(tokenizer, texts)
    return segment_pieces(count_pieces(stream, cut), tokenizer.encode_words, overlap=overlap)


def _token_bytes(tokenizer: TokenizerFile) -> dict[int, bytes]:
    """Return the bytes of every token that is spelled in the byte alphabet.

    Added tokens are among them: they stand alone in a text, so no merge can use one, but none may take their name.
    """
    spelled = {token_id: spelling_to_bytes(token) for token, token_id in tokenizer.vocabulary.items()}
    return {token_id: raw for token_id, raw in spelled.items() if raw}
