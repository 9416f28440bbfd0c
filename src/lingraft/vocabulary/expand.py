"""One way in to every family: which tokenizer can be expanded, and by whom."""

import re
from collections.abc import Callable, Iterable, Mapping

from lingraft.errors import VocabularyError
from lingraft.vocabulary.admission import LearnOptions, LearnTexts
from lingraft.vocabulary.byte_bpe import expand_byte_bpe
from lingraft.vocabulary.expansion import VocabularyExpansion
from lingraft.vocabulary.sentencepiece_bpe import expand_sentencepiece_bpe
from lingraft.vocabulary.tokenizer_file import TokenizerFile, spelling_to_bytes
from lingraft.vocabulary.unigram import expand_unigram

__all__ = ["candidates_from", "expand_vocabulary", "refuse_unexpandable"]

_FAMILIES: dict[str, Callable[[TokenizerFile, LearnTexts, LearnOptions], VocabularyExpansion]] = {
    "byte_bpe": expand_byte_bpe,
    "sentencepiece_bpe": expand_sentencepiece_bpe,
    "unigram": expand_unigram,
}
_FAMILY_NAMES = {"wordpiece": "a WordPiece", "other": "an unknown kind of"}
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def expand_vocabulary(
    tokenizer: TokenizerFile,
    targets: Iterable[str] | Mapping[str, Iterable[str]],
    source: Iterable[str],
    options: LearnOptions,
    watched: Mapping[str, Iterable[str]] | None = None,
) -> VocabularyExpansion:
    """Return a tokenizer of any supported family grown by tokens learned on target text.

    Args:
        tokenizer: the base tokenizer; old ids keep their places.
        targets: target text, or language → text; with several languages growth is parity-aware.
        source: text that must stay as it is (with τ = 0, token for token).
        options: how many tokens, and which are admitted.
        watched: name → text to draw the fertility curve on; all but ``parallel`` decide where ``auto`` stops.

    Raises:
        VocabularyError: the tokenizer cannot be expanded, or no token was learned.
    """
    refuse_unexpandable(tokenizer)
    by_language = targets if isinstance(targets, Mapping) else {"target": targets}
    return _FAMILIES[tokenizer.family](tokenizer, LearnTexts(by_language, source, watched or {}), options)


def refuse_unexpandable(tokenizer: TokenizerFile) -> None:
    """Raise a VocabularyError for a tokenizer whose family or settings make an exact expansion impossible."""
    if tokenizer.family not in _FAMILIES:
        raise VocabularyError(
            f"{tokenizer.source}: this is {_FAMILY_NAMES[tokenizer.family]} tokenizer; byte-level BPE, "
            "SentencePiece-type BPE and Unigram can be expanded (use vocabulary.method: keep)"
        )
    model = tokenizer.raw["model"]
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise VocabularyError(f"{tokenizer.source}: model.{key} is {model[key]!r}; expansion is not exact with it")


def candidates_from(tokenizer: TokenizerFile) -> frozenset[bytes]:
    """Return the tokens of a second tokenizer as bytes, whatever its family: `▁kaixo`, `Ġkaixo` → `b" kaixo"`.

    Control tokens and single bytes are left out.

    Raises:
        VocabularyError: its tokens cannot be read as text (WordPiece).
    """
    added = {entry["content"] for entry in tokenizer.raw.get("added_tokens") or ()}
    tokens = [token for token in tokenizer.vocabulary if token not in added and not _BYTE.fullmatch(token)]
    if tokenizer.family == "byte_bpe":
        return frozenset(raw for token in tokens if (raw := spelling_to_bytes(token)) and len(raw) > 1)
    if tokenizer.family in ("sentencepiece_bpe", "unigram"):
        return frozenset(token.replace("▁", " ").encode() for token in tokens)
    raise VocabularyError(f"{tokenizer.source}: the tokens of {_FAMILY_NAMES[tokenizer.family]} tokenizer are no text")
