"""Learns new tokens by going on where the base tokenizer's own training stopped.

Text is segmented by the base tokenizer once; then, again and again, the neighbouring pair that occurs most
often in target text is merged (continued BPE: arXiv 2512.03989; in-place expansion: arXiv 2607.15232). Since every
new merge ranks below every old one, encoding first reaches the old segmentation and then refines it; so a text
changes only if its old segmentation holds two neighbours whose join is a new token. Two rules keep the source
language as it was:

* a *pinned* merge holds a character of a script that the source does not use: it cannot occur in source text;
* any other merge must pass the *veto*: it occurs at most τ times per million tokens of the source sample.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from lingraft.vocabulary.scripts import partial_character_range, script_of

__all__ = ["LearnOptions", "LearnedMerge", "Learning", "WordTable", "is_pinned", "is_well_formed", "learn_merges"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class LearnOptions:
    """What a new token may look like, and how many there may be.

    Attributes:
        num_tokens: at most this many.
        min_count: occurrences in the target text, at the time of the merge, that a token must have.
        max_characters: longest token, its leading space not counted.
        veto_per_million: τ, per million source tokens.
        allow_digits: whether a token may hold a digit.
        pinned_scripts: scripts of the target that the source does not use.
    """

    num_tokens: int
    min_count: int = 10
    max_characters: int = 24
    veto_per_million: float = 0.0
    allow_digits: bool = False
    pinned_scripts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LearnedMerge:
    """One new token: its id, the two ids it joins, its bytes, and how often the join occurred in target text."""

    token_id: int
    left: int
    right: int
    raw: bytes
    count: int


@dataclass
class Learning:
    """The learned merges in order, and how many target tokens the sample has before and after each of them."""

    merges: list[LearnedMerge]
    target_tokens: list[int]
    vetoed: int


def is_pinned(raw: bytes, scripts: frozenset[str]) -> bool:
    """Whether the bytes hold a whole, or fixed though unfinished, character of one of the scripts."""
    text, rest = _split_unfinished(raw)
    if any(script_of(character) in scripts for character in text):
        return True
    return bool(rest) and _all_in_scripts(rest, scripts)


def is_well_formed(raw: bytes, options: LearnOptions) -> bool:
    """Whether bytes may become a token: they start at a character's border, hold a letter or mark, are not too long.

    An unfinished last character is allowed only where its first bytes already fix one of the pinned scripts.
    """
    if not raw or 0x80 <= raw[0] <= 0xBF:
        return False
    text, rest = _split_unfinished(raw)
    if rest and not _all_in_scripts(rest, options.pinned_scripts):
        return False
    bare = text.removeprefix(" ")
    if len(bare) > options.max_characters or "\ufffd" in text:
        return False
    if not options.allow_digits and any(character.isdigit() for character in bare):
        return False
    return bool(rest) or any(script_of(character) is not None for character in bare)


def _split_unfinished(raw: bytes) -> tuple[str, bytes]:
    """Split bytes into the text of their whole characters and an unfinished last character."""
    for size in range(4):
        try:
            return raw[: len(raw) - size].decode(), raw[len(raw) - size :]
        except UnicodeDecodeError:
            continue
    return raw.decode(errors="replace"), b""


@lru_cache(maxsize=4096)
def _all_in_scripts(unfinished: bytes, scripts: frozenset[str]) -> bool:
    """Whether the bytes can become no letter of another script, and more of these scripts than signs of all scripts."""
    span = partial_character_range(unfinished)
    if span is None or span[1] - span[0] > 0xFFF:
        return False
    found = Counter(script_of(chr(point)) for point in range(span[0], span[1] + 1) if not 0xD800 <= point <= 0xDFFF)
    own = sum(found[script] for script in scripts)
    return own > found[None] and found.keys() <= scripts | {None, "Other"}


class WordTable:
    """Word types, segmented, with how often each occurs in target and in source text; pairs are counted over them.

    ``num_target_tokens`` and ``num_source_tokens`` are the sizes of the two texts; the first follows the merges.
    """

    def __init__(self, target: Mapping[tuple[int, ...], int], source: Mapping[tuple[int, ...], int]) -> None:
        types = list(dict.fromkeys([*target, *source]))
        self.words = [list(word) for word in types]
        self.target = [target.get(word, 0) for word in types]
        self.source = [source.get(word, 0) for word in types]
        self.target_pairs: Counter[Pair] = Counter()
        self.source_pairs: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, set[int]] = defaultdict(set)
        self.num_target_tokens = sum(len(w) * n for w, n in zip(self.words, self.target, strict=True))
        self.num_source_tokens = sum(len(w) * n for w, n in zip(self.words, self.source, strict=True))
        for index in range(len(self.words)):
            self._count(index, +1)

    def _count(self, index: int, sign: int) -> set[Pair]:
        word = self.words[index]
        pairs = list(pairwise(word))
        for pair in pairs:
            self.target_pairs[pair] += sign * self.target[index]
            self.source_pairs[pair] += sign * self.source[index]
            if sign > 0:
                self.places[pair].add(index)
        return set(pairs)

    def merge(self, pair: Pair, joined: int) -> set[Pair]:
        """Join a pair everywhere, leftmost first; return the pairs whose counts may have changed."""
        touched: set[Pair] = set()
        for index in sorted(self.places.pop(pair, ())):
            word = self.words[index]
            merged = _join(word, pair, joined)
            if len(merged) == len(word):
                continue
            touched |= self._count(index, -1)
            self.num_target_tokens -= (len(word) - len(merged)) * self.target[index]
            self.words[index] = merged
            touched |= self._count(index, +1)
        return touched


def _join(word: Sequence[int], pair: Pair, joined: int) -> list[int]:
    merged: list[int] = []
    position = 0
    while position < len(word):
        if position + 1 < len(word) and (word[position], word[position + 1]) == pair:
            merged.append(joined)
            position += 2
        else:
            merged.append(word[position])
            position += 1
    return merged


@dataclass
class _Queue:
    """Pairs by target count, largest first; ties go to the smaller ids, so that order never depends on hashing."""

    table: WordTable
    heap: list[tuple[int, Pair]] = field(default_factory=list)

    def push(self, pairs: Iterable[Pair], min_count: int) -> None:
        """Add pairs, or add them again under their present count; those that are too rare stay out."""
        for pair in pairs:
            if (count := self.table.target_pairs[pair]) >= min_count:
                heapq.heappush(self.heap, (-count, pair))

    def pop(self) -> tuple[int, Pair] | None:
        """Return the most frequent pair, passing over entries whose count is no longer true."""
        while self.heap:
            negative, pair = heapq.heappop(self.heap)
            if self.table.target_pairs[pair] == -negative:
                return -negative, pair
        return None


def learn_merges(table: WordTable, token_bytes: Mapping[int, bytes], first_id: int, options: LearnOptions) -> Learning:
    """Return the merges that shorten the target text most, one after another.

    Args:
        table: word types of both languages, segmented by the base tokenizer; changed in place.
        token_bytes: the bytes of every id that can be part of a merge.
        first_id: the id of the first new token.
        options: what is admitted.

    A pair whose join is already a token is left alone: the old merges reach that token by another way, and a second way
    could let old merges fire that were not simulated here.
    """
    known = dict(token_bytes)
    taken = set(known.values())
    allowed_in_source = options.veto_per_million * table.num_source_tokens / 1e6
    result = Learning([], [table.num_target_tokens], vetoed=0)
    queue = _Queue(table)
    queue.push(table.target_pairs, options.min_count)
    while len(result.merges) < options.num_tokens and (best := queue.pop()):
        count, pair = best
        if pair[0] not in known or pair[1] not in known:
            continue
        raw = known[pair[0]] + known[pair[1]]
        if raw in taken or not is_well_formed(raw, options):
            continue
        if table.source_pairs[pair] > allowed_in_source and not is_pinned(raw, options.pinned_scripts):
            result.vetoed += 1
            continue
        token_id = first_id + len(result.merges)
        queue.push(table.merge(pair, token_id), options.min_count)
        known[token_id] = raw
        taken.add(raw)
        result.merges.append(LearnedMerge(token_id, *pair, raw, count))
        result.target_tokens.append(table.num_target_tokens)
    return result
