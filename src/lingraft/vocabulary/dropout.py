"""Encoding with merges left out at random (BPE dropout): a word is spelled in other pieces each time it is read.

A frequent new token hides the pieces that it is made of, and the model, who never sees them again in target text, knows
them worse. Leaving out merges now and then keeps both in use (arXiv 1910.13267). The library's own dropout draws from a
generator that cannot be seeded, so the loop is written out here.
"""

import hashlib
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from lingraft.errors import VocabularyError
from lingraft.vocabulary.expansion import VocabularyExpansion

__all__ = ["BPE_FAMILIES", "DroppedMerges"]

BPE_FAMILIES = ("byte_bpe", "sentencepiece_bpe")
"""Families of tokenizers that have merges."""

Pair = tuple[int, int]


class DroppedMerges:
    """An expanded tokenizer that leaves out merges.

    A word begins in pieces. As long as merges apply, each of them is left out with probability ``rate``, and of the
    others the one learned first is made; where all are left out, the word stays as it is (algorithm 1 of the paper).
    With the merges of new tokens only, it begins in old tokens, so that text without new tokens is never changed. With
    all merges, it begins in the smallest pieces that the vocabulary has.

    Args:
        expansion: the tokenizer.
        rate: in [0, 1).
        only_new: whether only merges of new tokens may be left out.
        seed: what is drawn is a function of it and of the text.

    Raises:
        VocabularyError: the tokenizer has no merges.
    """

    def __init__(self, expansion: VocabularyExpansion, *, rate: float, only_new: bool, seed: str) -> None:
        if expansion.new.family not in BPE_FAMILIES:
            raise VocabularyError(f"BPE dropout needs merges, which a tokenizer of kind {expansion.new.family} has not")
        self._new = expansion.new
        self._rate = rate
        self._seed = seed
        self._only_new = only_new
        self._pieces = {token.id: token.pieces for token in expansion.new_tokens}

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, as the tokenizer's own method does; equal texts are drawn alike."""
        return [
            [token for word in words for token in self._respelled(word, generator)]
            for words, generator in zip(self._new.encode_words(texts), map(self._generator, texts), strict=True)
        ]

    def _generator(self, text: str) -> random.Random:
        return random.Random(hashlib.sha256(f"{self._seed}/{text}".encode("utf-8", "surrogatepass")).digest())

    def _respelled(self, word: tuple[int, ...], generator: random.Random) -> list[int]:
        begin = [piece for token in word for piece in self._begin(token)]
        if len(begin) == len(word):
            return list(word)
        return _merged(begin, self._merges, self._rate, generator)

    def _begin(self, token: int) -> tuple[int, ...]:
        """Return the pieces that a token begins in."""
        if self._only_new:
            return self._pieces.get(token, (token,))
        return self._smallest.get(token, (token,))

    @cached_property
    def _merges(self) -> dict[Pair, tuple[int, int]]:
        """Two tokens → when their merge was learned, and what it makes."""
        ids = self._new.model_vocabulary
        known: dict[Pair, tuple[int, int]] = {}
        for rank, (left, right) in enumerate(self._new.merges):
            made = ids.get(left + right)
            if made is not None and left in ids and right in ids and (not self._only_new or made in self._pieces):
                known.setdefault((ids[left], ids[right]), (rank, made))
        return known

    @cached_property
    def _smallest(self) -> dict[int, tuple[int, ...]]:
        """Token that a merge makes → its characters, where each of them is a token."""
        ids = self._new.model_vocabulary
        made = {token for _, token in self._merges.values()}
        spelled = {token: name for name, token in ids.items() if token in made}
        return {
            token: tuple(ids[character] for character in name)
            for token, name in spelled.items()
            if all(character in ids for character in name)
        }


def _merged(
    pieces: list[int], merges: Mapping[Pair, tuple[int, int]], rate: float, generator: random.Random
) -> list[int]:
    word = list(pieces)
    while True:
        found = [(merges[pair], at) for at, pair in enumerate(pairwise(word)) if pair in merges]
        kept = [entry for entry in found if generator.random() >= rate]
        if not kept:
            return word
        (_, made), at = min(kept)
        word[at : at + 2] = [made]
