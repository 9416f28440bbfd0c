"""Continued BPE for both of its families: from counted words to a grown tokenizer."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from lingraft.errors import VocabularyError
from lingraft.vocabulary.admission import LearnOptions
from lingraft.vocabulary.curve import CurvePoint, FertilityCurve, curve_sizes
from lingraft.vocabulary.expansion import NewToken, RemovedToken, VocabularyExpansion
from lingraft.vocabulary.learn import LearnedMerge, Learning, MergeStyle, WordTable, learn_merges
from lingraft.vocabulary.tokenizer_file import TokenizerFile
from lingraft.vocabulary.words import CountedText

__all__ = ["BpeStart", "CountedTexts", "grow", "merge_style"]

_COMPARED_WORDS = 3000


@dataclass(frozen=True)
class BpeStart:
    """What growth starts from.

    Attributes:
        base: the tokenizer as it was.
        tokenizer: the one that grows: the base, without the tokens that gave way and with the characters of ``seeds``.
        token_bytes: the bytes of every id of it that can be part of a merge.
        spell: from bytes to a token's spelling in the file.
        seeds: single characters that had to become tokens before anything could be merged.
        removed: the tokens that gave way; new tokens take their ids.
    """

    base: TokenizerFile
    tokenizer: TokenizerFile
    token_bytes: Mapping[int, bytes]
    spell: Callable[[bytes], str]
    seeds: tuple[NewToken, ...] = ()
    removed: tuple[RemovedToken, ...] = ()

    def mergeable(self) -> dict[int, bytes]:
        """Return the bytes of every id but those of added tokens, which stand alone in a text."""
        added = {entry["id"] for entry in self.base.raw.get("added_tokens") or ()}
        return {token_id: raw for token_id, raw in self.token_bytes.items() if token_id not in added}

    def new_ids(self, count: int) -> list[int]:
        """Return the ids for that many new tokens, those of the seeds left out."""
        first = self.base.num_ids
        ids = sorted(token.id for token in self.removed) or list(range(first, first + count))
        return ids[len(self.seeds) :]


@dataclass(frozen=True)
class CountedTexts:
    """The texts of an expansion (:class:`lingraft.vocabulary.LearnTexts`) as words that the start's tokenizer made."""

    targets: Mapping[str, CountedText]
    source: CountedText
    watched: Mapping[str, CountedText]

    def table(self) -> WordTable:
        """Return the table that merges are learned on."""
        return WordTable(
            {name: text.words for name, text in self.targets.items()},
            self.source.words,
            {name: text.words for name, text in self.watched.items()},
            {name: text.size.words for name, text in self.targets.items()},
        )


def merge_style(tokenizer: TokenizerFile) -> MergeStyle:
    """Return whether a rank belongs to a pair or to a result.

    A list is of the second kind exactly if it holds every split of every token into two tokens; only those of added
    tokens may be missing.
    """
    vocabulary = tokenizer.raw["model"]["vocab"]
    listed = set(tokenizer.merges)
    # Cheap first: a pair list makes every token in one way.
    if len(listed) == len({left + right for left, right in listed}):
        return "pair"
    added = {entry["content"] for entry in tokenizer.raw.get("added_tokens") or ()}
    splits = ((token[:at], token[at:]) for token in vocabulary.keys() - added for at in _cuts(token))
    every = all(
        (left not in vocabulary or right not in vocabulary or (left, right) in listed) for left, right in splits
    )
    return "concat" if every else "pair"


def _cuts(token: str | bytes) -> range:
    return range(1, len(token))


def grow(start: BpeStart, texts: CountedTexts, options: LearnOptions) -> VocabularyExpansion:
    """Return a tokenizer grown by tokens learned on counted words, with real merges behind each of them.

    Args:
        start: the tokenizer that grows, and how its family writes tokens.
        texts: words segmented by it.
        options: how many tokens, and which are admitted.

    Raises:
        VocabularyError: no token was learned.
    """
    style = merge_style(start.base)
    table, learning = _learned(start, texts, options, style)
    before = learning.target_tokens[0]
    if not (learning.merges or start.seeds):
        raise VocabularyError(
            f"vocabulary.new_tokens: no new token could be learned: of {before} target tokens no pair occurs "
            f"{options.min_count} times (vocabulary.min_count) and is admitted; {len(learning.vetoed)} were vetoed by "
            "protected text (vocabulary.veto_per_million)"
        )
    curve = _curve(learning, texts, len(start.seeds))
    whole = _assembled(start, learning.merges, style)
    chosen = _chosen_merges(curve, texts, options, len(start.seeds), len(learning.merges))
    kept = learning.merges[:chosen]
    if _idle(kept, options):
        return grow(start, texts, replace(options, num_tokens=chosen + len(start.seeds), min_saving=None))
    tokens = (*start.seeds, *_new_tokens(kept, start))
    record: dict[str, Any] = {
        "style": style,
        "learned": len(start.seeds) + len(learning.merges),
        "vetoed": len(learning.vetoed),
        "simulation": _compare_with_simulation(whole, table, start, learning),
        "sample_bytes": {name: text.size.bytes for name, text in texts.targets.items()},
    }
    if options.candidates is not None:
        added = [*_seed_bytes(start), *(merge.raw for merge in kept)]
        record["on_the_way"] = sum(raw not in options.candidates for raw in added)
    return VocabularyExpansion(
        method="replace" if start.removed else "expand",
        old=start.base,
        new=whole if chosen == len(learning.merges) else _assembled(start, kept, style),
        new_tokens=tokens,
        removed=start.removed,
        curve=curve.until(len(tokens)),
        record=record,
    )


def _learned(
    start: BpeStart, texts: CountedTexts, options: LearnOptions, style: MergeStyle
) -> tuple[WordTable, Learning]:
    """Return what was learned; what lay on the way to candidates that were never made is not, and it is done again."""
    given = _with_names(_with_ways(options, start), start)
    while True:
        table = texts.table()
        learning = learn_merges(table, start.mergeable(), start.new_ids(options.num_tokens), given, style)
        idle = _idle(learning.merges, options)
        if given.candidates is None or not idle:
            return table, learning
        given = replace(given, candidates=given.candidates - idle)


def _idle(merges: Sequence[LearnedMerge], options: LearnOptions) -> set[bytes]:
    """Return what is no candidate itself and part of none that was made."""
    idle: set[bytes] = set()
    parts: set[int] = set()
    for merge in reversed(merges):
        if options.candidates is None or merge.raw in options.candidates or merge.token_id in parts:
            parts |= {merge.left, merge.right}
        else:
            idle.add(merge.raw)
    return idle


def _with_ways(options: LearnOptions, start: BpeStart) -> LearnOptions:
    """Return the options with what lies on the way to the candidates: of three pieces, two must be joined first."""
    if options.candidates is None:
        return options
    known = start.mergeable()
    ways: set[bytes] = set()
    for pieces in start.tokenizer.encode_all_by_merges([start.spell(raw) for raw in sorted(options.candidates)]):
        if all(piece in known for piece in pieces):
            ways.update(list(accumulate(known[piece] for piece in pieces))[1:])
    return replace(options, candidates=options.candidates | ways)


def _with_names(options: LearnOptions, start: BpeStart) -> LearnOptions:
    known = start.mergeable()
    names = {raw for token_id, raw in start.token_bytes.items() if token_id not in known}
    return replace(options, reserved=frozenset(names) - set(known.values()))


def _curve(learning: Learning, texts: CountedTexts, num_seeds: int) -> FertilityCurve:
    names = list(texts.watched)
    points = [CurvePoint(0, {name: texts.watched[name].base_tokens for name in names})]
    for size in curve_sizes(num_seeds + len(learning.merges)):
        if size >= max(1, num_seeds):
            points.append(CurvePoint(size, {name: learning.watched[name][size - num_seeds] for name in names}))
    return FertilityCurve({name: texts.watched[name].size for name in names}, tuple(points))


def _chosen_merges(
    curve: FertilityCurve, texts: CountedTexts, options: LearnOptions, num_seeds: int, learned: int
) -> int:
    if options.min_saving is None or not texts.watched:
        return learned
    return max(0 if num_seeds else 1, curve.choose(options.min_saving) - num_seeds)


def _new_tokens(merges: Sequence[LearnedMerge], start: BpeStart) -> list[NewToken]:
    # The base itself says what it made of them: a part may be an old token that it never reached by its own merges.
    spellings = [start.spell(merge.raw) for merge in merges]
    pieces = start.base.encode_all_by_merges(spellings)
    return [
        NewToken(merge.token_id, spelling, tuple(own), merge.count)
        for merge, spelling, own in zip(merges, spellings, pieces, strict=True)
    ]


def _assembled(start: BpeStart, merges: Sequence[LearnedMerge], style: MergeStyle) -> TokenizerFile:
    known = dict(start.token_bytes) | {merge.token_id: merge.raw for merge in merges}
    if style == "pair":
        pairs = [(known[merge.left], known[merge.right]) for merge in merges]
    else:
        pairs = _all_splits(start, merges)
    spelled = [(start.spell(left), start.spell(right)) for left, right in pairs]
    return start.tokenizer.extended(
        [start.spell(merge.raw) for merge in merges], spelled, [merge.token_id for merge in merges]
    )


def _all_splits(start: BpeStart, merges: Sequence[LearnedMerge]) -> list[tuple[bytes, bytes]]:
    """Return every split that has a new part or a new result, token by token.

    A split belongs to the later of its two parts or its result, so a tokenizer grown in two goes is the one grown in
    one. (Where an old token gets a new split, sentencepiece would rank it with the old token; here old merges stay a
    prefix, and it comes right behind the part that made it possible.)
    """
    known = start.mergeable()
    order = dict.fromkeys(known.values(), -1)
    order |= {seed_bytes: n for n, seed_bytes in enumerate(_seed_bytes(start))}
    first = len(start.seeds)
    order |= {merge.raw: first + n for n, merge in enumerate(merges)}
    ids = {raw: token_id for token_id, raw in known.items()} | {m.raw: m.token_id for m in merges}
    splits: defaultdict[int, list[tuple[bool, int, bytes, bytes]]] = defaultdict(list)
    for raw, own in order.items():
        for at in _cuts(raw):
            left, right = order.get(raw[:at]), order.get(raw[at:])
            if left is None or right is None or (last := max(own, left, right)) < 0:
                continue
            splits[last].append((last != own, ids[raw], raw[:at], raw[at:]))
    ordered = (sorted(splits[n], key=lambda s: (s[0], s[1], len(s[2]))) for n in sorted(splits))
    return [(left, right) for block in ordered for _, _, left, right in block]


def _seed_bytes(start: BpeStart) -> Iterator[bytes]:
    return (start.token_bytes[seed.id] for seed in start.seeds)


def _compare_with_simulation(
    grown: TokenizerFile, table: WordTable, start: BpeStart, learning: Learning
) -> dict[str, int]:
    """Return in how many of some words the tokenizer and the learner disagree, and how many were compared.

    A word that the base looks up whole is one token, whatever merges make of it.
    """
    known = start.mergeable() | {merge.token_id: merge.raw for merge in learning.merges}
    shortest = 2 if start.base.raw["model"].get("ignore_merges") else 1
    words = [word for word in table.words if len(word) >= shortest and all(i in known for i in word)]
    words = words[:: max(1, len(words) // _COMPARED_WORDS)]
    made = grown.encode_all_by_merges([start.spell(b"".join(known[i] for i in word)) for word in words])
    return {"compared": len(words), "different": sum(a != b for a, b in zip(made, words, strict=True))}
