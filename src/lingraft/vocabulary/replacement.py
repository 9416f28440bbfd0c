"""Replacement: rare old tokens give way to new ones, so that no matrix grows."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from lingraft.errors import VocabularyError
from lingraft.polling import poll
from lingraft.vocabulary.admission import LearnOptions
from lingraft.vocabulary.expansion import RemovedToken, VocabularyExpansion
from lingraft.vocabulary.growth import BpeStart, CountedTexts, grow
from lingraft.vocabulary.words import CountedText

__all__ = ["grow_or_replace", "rare_leaves"]


def grow_or_replace(start: BpeStart, texts: CountedTexts, options: LearnOptions) -> VocabularyExpansion:
    """Return the tokenizer grown, or with as many old tokens replaced as new ones were learned.

    What gives way is decided before anything is learned, and the words that held it are segmented anew. Where fewer
    tokens are learned than gave way, it is done again with as many.

    Raises:
        VocabularyError: no token was learned, or too few old tokens may give way.
    """
    if not options.replace:
        return grow(start, texts, options)
    wanted = options.num_tokens
    while True:
        removed = rare_leaves(start, texts, wanted, spare=options.min_count)
        reduced = replace(start, tokenizer=start.tokenizer.without(t.spelling for t in removed), removed=tuple(removed))
        gone = frozenset(token.id for token in removed)
        reduced = replace(reduced, token_bytes={i: raw for i, raw in start.token_bytes.items() if i not in gone})
        again = CountedTexts(
            {name: _resegmented(text, start, reduced, gone) for name, text in texts.targets.items()},
            _resegmented(texts.source, start, reduced, gone),
            {name: _resegmented(text, start, reduced, gone) for name, text in texts.watched.items()},
        )
        grown = grow(reduced, again, replace(options, num_tokens=wanted))
        if grown.num_new == wanted:
            return grown
        wanted = grown.num_new
        options = replace(options, min_saving=None)


def rare_leaves(start: BpeStart, texts: CountedTexts, count: int, *, spare: int | None = None) -> list[RemovedToken]:
    """Return the old tokens that give way: the rarest in source text first, then in target text, then by id.

    Only a *leaf*, a token that no merge uses, can go: then a text changes only if it holds the token itself. When a
    leaf goes, its parts may become leaves. Special and added tokens, bytes and single characters never go, nor does
    what occurs ``spare`` times in target text and would be learned again.

    Raises:
        VocabularyError: there are not that many.
    """
    leaves = _Leaves(start, texts, spare)
    removed: list[RemovedToken] = []
    while len(removed) < count:
        poll()
        token = leaves.pop()
        if token is None:
            raise VocabularyError(
                f"vocabulary.new_tokens: {count} old tokens would have to give way, but only {len(removed)} may "
                "(special, byte and single-character tokens never do)"
            )
        removed.append(token)
    return sorted(removed, key=lambda token: token.id)


class _Leaves:
    """The tokens that could go next, rarest first; the counts of a token that went pass on to its parts."""

    def __init__(self, start: BpeStart, texts: CountedTexts, spare: int | None) -> None:
        self.spare = spare
        self.ids = start.tokenizer.vocabulary
        self.source = texts.source.counts()
        self.target = sum((text.counts() for text in texts.targets.values()), Counter[int]())
        self.made: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for pair in start.tokenizer.merges:
            self.made[pair[0] + pair[1]].append(pair)
        self.uses = Counter(part for pairs in self.made.values() for pair in pairs for part in pair)
        kept = {entry["content"] for entry in start.tokenizer.raw.get("added_tokens") or ()}
        self.may_go = {
            token
            for token, token_id in self.ids.items()
            if token not in kept and self.made[token] and _characters(start.token_bytes.get(token_id)) > 1
        }
        self.heap = [self.key(token) for token in self.may_go if not self.uses[token]]
        heapq.heapify(self.heap)

    def key(self, token: str) -> tuple[int, int, int, str]:
        token_id = self.ids[token]
        return self.source[token_id], self.target[token_id], token_id, token

    def pop(self) -> RemovedToken | None:
        """Take the rarest leaf away and return it; None when none is left."""
        while self.heap:
            found = heapq.heappop(self.heap)
            token = found[3]
            if found != self.key(token):
                heapq.heappush(self.heap, self.key(token))
                continue
            if self.spare is not None and found[1] >= self.spare:
                continue
            self.fall_apart(token)
            return RemovedToken(found[2], token, found[0], found[1])
        return None

    def fall_apart(self, token: str) -> None:
        pairs = self.made.pop(token)
        # Where a token is made in several ways, the first listed stands for all: counts only decide the order.
        for part in pairs[0]:
            self.source[self.ids[part]] += self.source[self.ids[token]]
            self.target[self.ids[part]] += self.target[self.ids[token]]
        for part in (part for pair in pairs for part in pair):
            self.uses[part] -= 1
            if not self.uses[part] and part in self.may_go:
                heapq.heappush(self.heap, self.key(part))


def _characters(raw: bytes | None) -> int:
    """Return how many characters bytes hold, whole or not; 0 for what is no text."""
    return len(raw.decode(errors="replace")) if raw else 0


def _resegmented(text: CountedText, start: BpeStart, reduced: BpeStart, gone: frozenset[int]) -> CountedText:
    """Return counted words with those that held a token that went segmented anew."""
    words: Counter[tuple[int, ...]] = Counter()
    for word, count in text.words.items():
        words[word if gone.isdisjoint(word) else tuple(_segmented(word, start, reduced))] += count
    return replace(text, words=words)


def _segmented(word: Sequence[int], start: BpeStart, reduced: BpeStart) -> Iterator[int]:
    # What has no bytes, a byte of a fallback, stands between merges and is passed on as it is.
    for known, run in groupby(word, lambda token_id: token_id in start.token_bytes):
        if known:
            raw = b"".join(start.token_bytes[token_id] for token_id in run)
            yield from reduced.tokenizer.encode_by_merges(start.spell(raw))
        else:
            yield from run
