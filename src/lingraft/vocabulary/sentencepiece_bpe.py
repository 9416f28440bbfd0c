"""Expansion of SentencePiece-type BPE tokenizers (Llama 2, Mistral, Gemma): `▁` for a space, bytes for the unknown."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from lingraft.corpus.scripts import script_of
from lingraft.vocabulary.admission import LearnOptions, LearnTexts
from lingraft.vocabulary.expansion import NewToken, VocabularyExpansion
from lingraft.vocabulary.growth import BpeStart, CountedTexts
from lingraft.vocabulary.replacement import grow_or_replace
from lingraft.vocabulary.tokenizer_file import TokenizerFile
from lingraft.vocabulary.words import CountedPieces, CountedText, count_pieces, segment_pieces

__all__ = ["expand_sentencepiece_bpe"]

_SPACE = "▁"
_WORD = re.compile(r"▁*[^▁\s]+|▁+|\s+")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_MIN_CHARACTER_COUNT = 5


def expand_sentencepiece_bpe(tokenizer: TokenizerFile, texts: LearnTexts, options: LearnOptions) -> VocabularyExpansion:
    """Return the tokenizer grown by tokens learned on target text, with real merges behind each of them.

    Characters of the target that have no token, and would be spelled in bytes, become tokens first: a merge needs its
    parts. Only letters and marks do so that the source sample does not hold; a new token is one script's letters and
    marks behind at most one space, as sentencepiece's own trainer has it.

    Args:
        tokenizer: a BPE of this family.
        texts: target and source text, and what is watched.
        options: how many tokens, and which are admitted; with ``replace`` rare old tokens give way to them.

    Raises:
        VocabularyError: no token was learned, or too few old tokens may give way.
    """

    def cut(text: str) -> list[str]:
        return [word for piece in tokenizer.pre_tokenize(text) for word in _WORD.findall(piece)]

    if options.candidates is not None:
        options = replace(options, candidates=frozenset(filter(_is_text, options.candidates)))
    targets = {name: count_pieces(text, cut) for name, text in texts.targets.items()}
    source = count_pieces(texts.source, cut)
    watched = {name: count_pieces(text, cut) for name, text in texts.watched.items()}
    # Under replacement every new token needs an id that was freed; characters without a token stay bytes then.
    seeds = [] if options.replace else _missing_characters(tokenizer, targets.values(), source, options)
    start = _with_characters(tokenizer, seeds)
    counted = CountedTexts(
        {name: _segmented(start, pieces) for name, pieces in targets.items()},
        _segmented(start, source, overlap=True),
        {name: _segmented(start, pieces) for name, pieces in watched.items()},
    )
    return grow_or_replace(start, counted, replace(options, letters_only=True))


def _missing_characters(
    tokenizer: TokenizerFile, targets: Iterable[CountedPieces], source: CountedPieces, options: LearnOptions
) -> list[tuple[str, int]]:
    """Return the letters and marks of the target that have no token, with their counts, the most frequent first."""
    counts: Counter[str] = Counter()
    for pieces in targets:
        for piece, count in pieces.pieces.items():
            for character in piece:
                counts[character] += count
    foreign = {character for piece in source.pieces for character in piece}
    wanted = None if options.candidates is None else {c for raw in options.candidates for c in raw.decode()}
    found = [
        (character, count)
        for character, count in counts.items()
        if count >= _MIN_CHARACTER_COUNT
        and tokenizer.id_of(character) is None
        and unicodedata.category(character)[0] in "LM"
        and (wanted is None or character in wanted)
        and (character not in foreign or script_of(character) in options.pinned_scripts)
    ]
    return sorted(found, key=lambda item: (-item[1], item[0]))[: options.num_tokens]


def _with_characters(tokenizer: TokenizerFile, characters: list[tuple[str, int]]) -> BpeStart:
    pieces = tokenizer.encode_all_by_merges([character for character, _ in characters])
    first = tokenizer.num_ids
    seeds = tuple(
        NewToken(first + n, character, tuple(own), count)
        for n, ((character, count), own) in enumerate(zip(characters, pieces, strict=True))
    )
    grown = tokenizer.extended([seed.spelling for seed in seeds], []) if seeds else tokenizer
    return BpeStart(tokenizer, grown, _token_bytes(grown), _spell, seeds)


def _token_bytes(tokenizer: TokenizerFile) -> dict[int, bytes]:
    """Return the bytes of every token that is text; the bytes of the fallback are not: no merge uses them."""
    return {i: t.replace(_SPACE, " ").encode() for t, i in tokenizer.vocabulary.items() if not _BYTE.fullmatch(t)}


def _is_text(raw: bytes) -> bool:
    """Whether bytes are whole characters; tokens of a byte-level BPE may not be."""
    return raw.decode(errors="ignore").encode() == raw


def _spell(raw: bytes) -> str:
    return raw.decode().replace(" ", _SPACE)


def _segmented(start: BpeStart, counted: CountedPieces, *, overlap: bool = False) -> CountedText:
    def segment(pieces: list[str]) -> list[list[tuple[int, ...]]]:
        return [[tuple(ids)] for ids in start.tokenizer.encode_all_by_merges(pieces)]

    text = segment_pieces(counted, segment, overlap=overlap)
    if not start.seeds:
        return text
    spelled = {seed.id: len(seed.pieces) for seed in start.seeds}
    more = sum(count * sum(spelled.get(i, 1) - 1 for i in word) for word, count in text.words.items())
    return replace(text, base_tokens=text.base_tokens + more)
