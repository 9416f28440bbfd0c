"""Expansion of Unigram tokenizers (XLM-R, T5, ALBERT type)."""

from lingraft.errors import VocabularyError
from lingraft.vocabulary.admission import LearnOptions, LearnTexts
from lingraft.vocabulary.expansion import VocabularyExpansion
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["expand_unigram"]


def expand_unigram(tokenizer: TokenizerFile, texts: LearnTexts, options: LearnOptions) -> VocabularyExpansion:
    """Return the tokenizer grown by pieces."""
    raise VocabularyError(f"{tokenizer.source}: not yet")
