"""Learns new tokens by going on where the base tokenizer's own training stopped.

Text is segmented by the base tokenizer once; then, again and again, the neighbouring pair that occurs most
often in target text is merged (continued BPE: arXiv 2512.03989; in-place expansion: arXiv 2607.15232). Since every
new merge ranks below every old one, encoding first reaches the old segmentation and then joins some of it; so a text
changes only if its old segmentation holds two neighbours whose join is a new token. Two rules keep the source
language as it was:

* a *pinned* merge holds a character of a script that the source does not use: it cannot occur in source text;
* any other merge must pass the *veto*: it occurs at most τ times per million tokens of the source sample.

Two styles of merge list exist. In a *pair* list (GPT-2, SmolLM2, Qwen) a rank belongs to one pair, and a token is made
in one way. In a *concat* list (Llama 2 and 3, Gemma: what sentencepiece and tiktoken do) it belongs to the result:
every split of a token into two tokens is a merge. Growth keeps the style that it finds.

With several target languages each step serves the one that pays most tokens for a word (parity-aware BPE, arXiv
2508.04796), so that the largest corpus does not take all new tokens.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Literal

from lingraft.polling import poll
from lingraft.vocabulary.admission import LearnOptions, is_pinned, is_well_formed

__all__ = ["LearnedMerge", "Learning", "MergeStyle", "WordTable", "learn_merges"]

MergeStyle = Literal["pair", "concat"]
Pair = tuple[int, int]
Words = Mapping[tuple[int, ...], int]


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
    """The learned merges in order, how many tokens each text has before and after each of them, and what was vetoed.

    ``target_tokens`` counts all targets together; ``watched`` has one such list per watched text.
    """

    merges: list[LearnedMerge]
    target_tokens: list[int]
    watched: dict[str, list[int]]
    vetoed: set[bytes] = field(default_factory=set)


class WordTable:
    """Word types, segmented, with how often each occurs in every text; pairs are counted over targets and source.

    Args:
        targets: language → word → count.
        source: word → count in text that must stay as it is.
        watched: name → word → count, for texts whose tokens are only counted.
        units: language → what its tokens are held against for parity, its number of words.

    Counts are Python integers: they cannot overflow. ``num_tokens`` follows the merges.
    """

    def __init__(
        self,
        targets: Mapping[str, Words],
        source: Words,
        watched: Mapping[str, Words] | None = None,
        units: Mapping[str, int] | None = None,
    ) -> None:
        watch = watched or {}
        types = list(dict.fromkeys(chain(*targets.values(), source, *watch.values())))
        self.words = [list(word) for word in types]
        self.targets = {name: [words.get(word, 0) for word in types] for name, words in targets.items()}
        self.source = [source.get(word, 0) for word in types]
        self.watched = {name: [words.get(word, 0) for word in types] for name, words in watch.items()}
        self.units = dict(units or dict.fromkeys(targets, 1))
        self.target_pairs: dict[str, Counter[Pair]] = {name: Counter() for name in targets}
        self.source_pairs: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, set[int]] = defaultdict(set)
        self.num_tokens = {name: self._total(counts) for name, counts in self._columns()}
        self.num_source_tokens = self._total(self.source)
        for index in range(len(self.words)):
            self._count(index, +1)

    def _columns(self) -> Iterator[tuple[tuple[str, str], list[int]]]:
        yield from ((("target", name), counts) for name, counts in self.targets.items())
        yield from ((("watched", name), counts) for name, counts in self.watched.items())

    def _total(self, counts: Sequence[int]) -> int:
        return sum(len(word) * count for word, count in zip(self.words, counts, strict=True))

    @property
    def num_target_tokens(self) -> int:
        """Tokens of all target texts as they are segmented now."""
        return sum(self.num_tokens["target", name] for name in self.targets)

    def cost(self, language: str) -> float:
        """Return the tokens that a language pays for a unit of its text."""
        return self.num_tokens["target", language] / max(1, self.units[language])

    def _count(self, index: int, sign: int) -> None:
        word = self.words[index]
        if len(word) < 2:
            return
        pairs = list(pairwise(word))
        for name, counts in self.targets.items():
            if count := counts[index]:
                table = self.target_pairs[name]
                for pair in pairs:
                    table[pair] += sign * count
        if count := self.source[index]:
            for pair in pairs:
                self.source_pairs[pair] += sign * count
        if sign > 0:
            for pair in pairs:
                self.places[pair].add(index)

    def merge(self, pair: Pair, joined: int) -> set[Pair]:
        """Join a pair everywhere, leftmost first; return the pairs whose counts may have changed."""
        touched: set[Pair] = set()
        for index in sorted(self.places.pop(pair, ())):
            touched |= self.rewrite(index, _join(self.words[index], pair, joined))
        for table in (*self.target_pairs.values(), self.source_pairs):
            if not table.get(pair, 1):
                del table[pair]
        return touched

    def rewrite(self, index: int, word: list[int]) -> set[Pair]:
        """Segment a word otherwise; return the pairs whose counts may have changed, none if it is as it was."""
        old = self.words[index]
        if len(old) == len(word):
            return set()
        self._count(index, -1)
        for key, counts in self._columns():
            self.num_tokens[key] -= (len(old) - len(word)) * counts[index]
        self.words[index] = word
        self._count(index, +1)
        return {*pairwise(old), *pairwise(word)}


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
    """Joins by their count in one language, largest first; ties go to the smaller ids, never to an order of hashing."""

    counts: Counter[Pair]
    ways: Mapping[bytes, set[Pair]] | None
    heap: list[tuple[int, Pair, bytes]] = field(default_factory=list)

    def count(self, pair: Pair, raw: bytes) -> int:
        """Return how often a join occurs: this pair, or in concat style every pair that makes the same."""
        if self.ways is None:
            return self.counts.get(pair, 0)
        return sum(self.counts.get(way, 0) for way in self.ways.get(raw, ()))

    def push(self, pair: Pair, raw: bytes, min_count: int) -> None:
        """Add a join, or add it again under its present count; what is too rare stays out."""
        count = self.count(pair, raw)
        if count >= min_count:
            heapq.heappush(self.heap, (-count, pair, raw))

    def pop(self) -> tuple[int, Pair, bytes] | None:
        """Return the most frequent join, passing over entries whose count is no longer true."""
        while self.heap:
            negative, pair, raw = heapq.heappop(self.heap)
            if self.count(pair, raw) == -negative:
                return -negative, pair, raw
        return None


class _Learner:
    """The state of one learning run: what is known, what is refused for good, and a queue per target language."""

    def __init__(
        self, table: WordTable, token_bytes: Mapping[int, bytes], options: LearnOptions, style: MergeStyle
    ) -> None:
        self.table, self.options, self.style = table, options, style
        self.known = dict(token_bytes)
        self.ids = {raw: token_id for token_id, raw in token_bytes.items()}
        self.order: dict[int, int] = {}
        self.refused: set[bytes] = set()
        self.allowed_in_source = options.veto_per_million * table.num_source_tokens / 1e6
        self.ways: defaultdict[bytes, set[Pair]] | None = defaultdict(set) if style == "concat" else None
        self.queues = {name: _Queue(counts, self.ways) for name, counts in table.target_pairs.items()}
        self.result = Learning([], [], {name: [] for name in table.watched})
        self.offer(set(chain(*table.target_pairs.values(), table.source_pairs)))
        self.tally()

    def tally(self) -> None:
        """Note how many tokens every text has now."""
        self.result.target_tokens.append(self.table.num_target_tokens)
        for name, tokens in self.result.watched.items():
            tokens.append(self.table.num_tokens["watched", name])

    def offer(self, pairs: Iterable[Pair]) -> None:
        """Queue the pairs that could become a token; in concat style, those that make an old token do so at once."""
        for pair in self.close(set(pairs)) if self.style == "concat" else set(pairs):
            raw = self.joined(pair)
            if raw is None or raw in self.refused or raw in self.ids or not self.is_admissible(raw):
                continue
            if self.ways is not None:
                self.ways[raw].add(pair)
            for queue in self.queues.values():
                queue.push(pair, raw, self.options.min_count)

    def joined(self, pair: Pair) -> bytes | None:
        """Return the bytes of a pair; None where one of it can be no part of a merge."""
        left, right = self.known.get(pair[0]), self.known.get(pair[1])
        return None if left is None or right is None else left + right

    def close(self, pairs: set[Pair]) -> set[Pair]:
        """Merge what stands side by side and makes a token that exists; return the pairs with those that came of it."""
        places = (self.table.places.get(pair, set()) for pair in pairs if self.joined(pair) in self.ids)
        for index in sorted(set().union(*places)):
            word = list(self.table.words[index])
            # One at a time, the lowest rank first: a merge may make room for one that ranks before the others.
            while found := [(rank, at) for at, pair in enumerate(pairwise(word)) if (rank := self.rank(pair))]:
                (*_, own, _), at = min(found)
                word[at : at + 2] = [own]
            pairs |= self.table.rewrite(index, word)
        return pairs

    def rank(self, pair: Pair) -> tuple[int, bool, int, int] | None:
        """Return the place among all merges of one that makes a token which exists; None for any other pair.

        A merge belongs to the latest of its parts and its result; among those of one token its own come first.
        """
        raw = self.joined(pair)
        own = None if raw is None else self.ids.get(raw)
        if own is None:
            return None
        last = max(self.order.get(token_id, -1) for token_id in (*pair, own))
        return last, last != self.order.get(own, -1), own, len(self.known[pair[0]])

    def is_admissible(self, raw: bytes) -> bool:
        """Whether bytes may be a token as far as they alone tell; what may not is remembered."""
        candidates = self.options.candidates
        good = is_well_formed(raw, self.options) and (candidates is None or raw in candidates)
        if not good:
            self.refused.add(raw)
        return good

    def is_vetoed(self, pair: Pair, raw: bytes) -> bool:
        """Whether a join that is not pinned occurs too often in source text, as it is segmented now."""
        ways = (pair,) if self.ways is None else self.ways[raw]
        if sum(self.table.source_pairs.get(way, 0) for way in ways) <= self.allowed_in_source:
            return False
        if is_pinned(raw, self.options.pinned_scripts):
            return False
        self.result.vetoed.add(raw)
        return True

    def next_join(self) -> tuple[int, Pair, bytes] | None:
        """Return the best join for the language that pays most; a language that has none left is passed over."""
        poll()
        for name in sorted(self.queues, key=self.table.cost, reverse=True):
            while best := self.queues[name].pop():
                if best[2] not in self.ids and not self.is_vetoed(best[1], best[2]):
                    return best
        return None

    def add(self, token_id: int, count: int, pair: Pair, raw: bytes) -> None:
        """Make a join a token: in every word, by every way that its style knows."""
        self.known[token_id] = raw
        self.ids[raw] = token_id
        self.order[token_id] = len(self.order)
        ways = (pair,) if self.ways is None else sorted(self.ways.pop(raw), key=lambda way: len(self.known[way[0]]))
        touched: set[Pair] = set()
        for way in ways:
            touched |= self.table.merge(way, token_id)
        self.offer(touched - set(ways))
        self.result.vetoed.discard(raw)
        self.result.merges.append(LearnedMerge(token_id, *pair, raw, count))
        self.tally()


def learn_merges(
    table: WordTable,
    token_bytes: Mapping[int, bytes],
    new_ids: Iterable[int],
    options: LearnOptions,
    style: MergeStyle = "pair",
) -> Learning:
    """Return the merges that shorten the target text most, one after another.

    Args:
        table: word types of all texts, segmented by the base tokenizer; changed in place.
        token_bytes: the bytes of every id that can be part of a merge.
        new_ids: the ids of the new tokens, in order; when they end, so does growth.
        options: what is admitted, and how many.
        style: whether a rank belongs to a pair or to a result.

    In pair style a pair whose join is already a token is left alone: the old merges reach that token by another way,
    and a second way could let old merges fire that were not simulated here. In concat style it is a merge like any
    other.
    """
    learner = _Learner(table, token_bytes, options, style)
    for token_id, _ in zip(new_ids, range(options.num_tokens), strict=False):
        best = learner.next_join()
        if best is None:
            break
        learner.add(token_id, *best)
    return learner.result
