"""Expansion of byte-level BPE tokenizers (GPT-2, SmolLM2, Qwen, Llama 3)."""

from collections import Counter
from collections.abc import Iterable

from lingraft.batching import batches_of
from lingraft.errors import VocabularyError
from lingraft.vocabulary.expansion import NewToken, VocabularyExpansion
from lingraft.vocabulary.learn import Learning, LearnOptions, WordTable, learn_merges
from lingraft.vocabulary.tokenizer_file import TokenizerFile, bytes_to_spelling, spelling_to_bytes

__all__ = ["count_words_as_tokens", "expand_byte_bpe"]

_FAMILY_NAMES = {
    "sentencepiece_bpe": "a SentencePiece-type BPE",
    "unigram": "a Unigram",
    "wordpiece": "a WordPiece",
    "other": "an unknown kind of",
}


def expand_byte_bpe(
    tokenizer: TokenizerFile,
    target_texts: Iterable[str],
    source_texts: Iterable[str],
    options: LearnOptions,
) -> VocabularyExpansion:
    """Return the tokenizer grown by tokens learned on target text, with real merges behind each of them.

    Args:
        tokenizer: a byte-level BPE; its own pre-tokenizer decides where words end.
        target_texts: text to shorten.
        source_texts: text that must stay as it is (with τ = 0, token for token).
        options: how many tokens, and which are admitted.

    Raises:
        VocabularyError: the tokenizer is of another family or merges at random (BPE dropout), or no token was learned.
    """
    _refuse_other_families(tokenizer)
    table = WordTable(count_words_as_tokens(tokenizer, target_texts), count_words_as_tokens(tokenizer, source_texts))
    learning = learn_merges(table, _token_bytes(tokenizer), tokenizer.num_ids, options)
    if not learning.merges:
        raise VocabularyError(
            f"no new token could be learned: of {table.num_target_tokens} target tokens no pair occurs "
            f"{options.min_count} times and is admitted ({learning.vetoed} were vetoed by source text)"
        )
    return _expansion_from(tokenizer, learning)


def count_words_as_tokens(tokenizer: TokenizerFile, texts: Iterable[str]) -> Counter[tuple[int, ...]]:
    """Return how often each pre-token occurs, as the ids that the tokenizer gives it."""
    counts: Counter[tuple[int, ...]] = Counter()
    for batch in batches_of(texts, 512):
        counts.update(tokenizer.encode_words(batch))
    return counts


def _refuse_other_families(tokenizer: TokenizerFile) -> None:
    if tokenizer.family != "byte_bpe":
        kind = _FAMILY_NAMES[tokenizer.family]
        raise VocabularyError(
            f"{tokenizer.source}: this is {kind} tokenizer; only byte-level BPE can be expanded so far "
            "(use vocabulary.method: keep)"
        )
    model = tokenizer.raw["model"]
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise VocabularyError(f"{tokenizer.source}: model.{key} is {model[key]!r}; expansion is not exact with it")


def _token_bytes(tokenizer: TokenizerFile) -> dict[int, bytes]:
    """Return the bytes of every token that is spelled in the byte alphabet.

    Added tokens are among them: they stand alone in a text, so no merge can use one, but none may take their name.
    """
    spelled = {token_id: spelling_to_bytes(token) for token, token_id in tokenizer.vocabulary.items()}
    return {token_id: raw for token_id, raw in spelled.items() if raw}


def _expansion_from(tokenizer: TokenizerFile, learning: Learning) -> VocabularyExpansion:
    spelling = {token_id: token for token, token_id in tokenizer.raw["model"]["vocab"].items()}
    pieces: dict[int, tuple[int, ...]] = {}
    tokens: list[NewToken] = []
    merges: list[tuple[str, str]] = []
    for merge in learning.merges:
        spelling[merge.token_id] = bytes_to_spelling(merge.raw)
        left, right = merge.left, merge.right
        pieces[merge.token_id] = pieces.get(left, (left,)) + pieces.get(right, (right,))
        merges.append((spelling[left], spelling[right]))
        tokens.append(NewToken(merge.token_id, spelling[merge.token_id], pieces[merge.token_id], merge.count))
    grown = tokenizer.extended([token.spelling for token in tokens], merges)
    return VocabularyExpansion("expand", tokenizer, grown, tuple(tokens), tuple(learning.target_tokens))
