"""Expansion of Unigram tokenizers (XLM-R, T5, ALBERT type): pieces with scores on the base's own scale.

A Unigram tokenizer cuts a word into the pieces whose scores (log-probabilities) have the greatest sum. So a text that
holds no new piece is cut as before, exactly, whatever the new scores are. Three things can go wrong, and are seen to
here: scores that are too high take over the text they occur in, scores that are too low are never used, and one below
all old ones changes what an unknown character costs (the lowest score − 10) and with it old text.
"""

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import Tokenizer, models, trainers

from lingraft.batching import batches_of
from lingraft.errors import VocabularyError
from lingraft.polling import poll
from lingraft.vocabulary.admission import LearnOptions, LearnTexts, is_pinned, is_well_formed
from lingraft.vocabulary.curve import CurvePoint, FertilityCurve, curve_sizes
from lingraft.vocabulary.expansion import NewToken, RemovedToken, VocabularyExpansion
from lingraft.vocabulary.tokenizer_file import TokenizerFile
from lingraft.vocabulary.words import CountedPieces, count_pieces

__all__ = ["expand_unigram"]

_SPACE = "▁"
_WORD = re.compile(r"▁*[^▁\s]+|▁+|\s+")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_UNKNOWN_PENALTY = 10.0  # what the tokenizers library and sentencepiece put between the lowest score and an unknown
_MARGIN = 0.01
_TRAINING_TYPES = 300_000
_TRAINING_WORDS = 2_000_000
# The fresh tokenizer is not much larger than what is taken of it, or its uses are spread over too many pieces.
_FRESH_PER_TOKEN = 2
_MIN_FRESH = 2000
_KEPT_EACH_ROUND = 0.75
_FITTING_ROUNDS = 4

Scores = dict[str, float]


def expand_unigram(tokenizer: TokenizerFile, texts: LearnTexts, options: LearnOptions) -> VocabularyExpansion:
    """Return the tokenizer grown by pieces that a fresh Unigram finds in the target text, most useful first.

    A piece is admitted if it holds a pinned script, or if its string occurs in the source words at most τ times per
    million tokens. Its score is that of the fresh tokenizer plus the median difference over the pieces that both have,
    raised to the best other split of its own string + 0.01 where it is below, and never below the lowest old score.
    Pieces stand in the order of the tokens that they save, count · (old length − 1), behind the characters that were
    unknown; with several target languages the one that pays most tokens a word gets the next piece.

    The first n new tokens, and nothing else, make the tokenizer at n of the fertility curve; scores can rise from one n
    to the next. Two expansions in a row are not one by the sum: what is learned depends on the number asked for.

    Args:
        tokenizer: a Unigram tokenizer.
        texts: target and source text, and what is watched.
        options: how many tokens, and which are admitted; with ``replace`` rare old pieces give way to them.

    Raises:
        VocabularyError: no token was learned; too few old pieces may give way; or an added token lies behind the list
            of pieces and cannot be given a place in it without a change of old text.

    Source: Kudo, 2018 (arXiv 1804.10959) for the model; scores on one scale: sentencepiece issue 822.
    """
    options = replace(options, letters_only=True)
    base = _Base.of(tokenizer)

    def cut(text: str) -> list[str]:
        return [word for piece in tokenizer.pre_tokenize(text) for word in _WORD.findall(piece)]

    targets = {name: count_pieces(text, cut) for name, text in texts.targets.items()}
    source = count_pieces(texts.source, cut)
    watched = {name: count_pieces(text, cut) for name, text in texts.watched.items()}
    pool, record = _candidates(base, targets, options)
    admitted, vetoed = _admitted(pool, source.pieces, base, options)
    ranked = _ranked(base, admitted, targets, options)
    if not ranked:
        raise VocabularyError(
            f"vocabulary.new_tokens: no new token could be learned: of {len(pool)} pieces none occurs "
            f"{options.min_count} times (vocabulary.min_count), saves tokens and is admitted; {vetoed} were vetoed by "
            "protected text (vocabulary.veto_per_million)"
        )
    giving_way = _giving_way(base, targets, source, len(ranked)) if options.replace else ()
    growth, whole = _reachable(_Growth(base, ranked, admitted, giving_way))
    curve = growth.curve(watched)
    chosen = growth.chosen(curve, options)
    record |= {"learned": len(growth.counts), "vetoed": vetoed, "raised": growth.num_raised(chosen)}
    record["unreachable_dropped"] = len(ranked) - len(growth.counts)
    record["sample_bytes"] = {name: text.size.bytes for name, text in targets.items()}
    new = whole if chosen == len(growth.counts) else growth.tokenizer(chosen)
    removed = giving_way[:chosen]
    method = "replace" if removed else "expand"
    return VocabularyExpansion(method, tokenizer, new, growth.new_tokens(chosen), removed, curve.until(chosen), record)


@dataclass(frozen=True)
class _Base:
    """The tokenizer to expand, with a row of the list for every id, and what its scores say."""

    tokenizer: TokenizerFile
    rows: tuple[tuple[str, float], ...]
    lowest: float

    @classmethod
    def of(cls, tokenizer: TokenizerFile) -> "_Base":
        rows = [*tokenizer.pieces, *_rows_behind(tokenizer, tokenizer.pieces)]
        return cls(tokenizer, tuple(rows), min(score for _, score in rows))

    def with_pieces(self, scores: Mapping[str, float], gone: Sequence[RemovedToken] = ()) -> list[tuple[str, float]]:
        """Return the rows with new pieces, in their order: behind the old ones, or in the places of those that go."""
        rows, ids = list(self.rows), sorted(token.id for token in gone)
        for token_id, row in zip(ids, scores.items(), strict=bool(ids)):
            rows[token_id] = row
        return rows if ids else rows + list(scores.items())

    def raised(self, wanted: Mapping[str, float], gone: Sequence[RemovedToken] = ()) -> Scores:
        """Return scores that make every piece the best split of its own string, in the order of the pieces given.

        A split of a piece has shorter pieces only, so pieces are taken in order of length and each is final at once.
        The result depends on the set of pieces, not on their order.
        """
        lattice = _Lattice(self.rows, self.lowest)
        for token in gone:
            del lattice.scores[token.spelling]
        found: Scores = {}
        for piece in sorted(wanted, key=lambda piece: (len(piece), piece)):
            found[piece] = max(wanted[piece], lattice.best(piece) + _MARGIN, self.lowest)
            lattice.add(piece, found[piece])
        return {piece: found[piece] for piece in wanted}

    def segment(self, rows: Sequence[tuple[str, float]], words: Iterable[str]) -> Iterator[list[int]]:
        """Return the ids of each word by some rows, without normaliser and pre-tokenizer."""
        model = self.tokenizer.raw["model"]
        return _segment(list(rows), model.get("unk_id"), bool(model.get("byte_fallback")), words)


class _Lattice:
    """The score of the best split of a string, as the tokenizers library finds it."""

    def __init__(self, rows: Iterable[tuple[str, float]], lowest: float) -> None:
        self.scores = dict(rows)
        self.longest = max(map(len, self.scores))
        self.unknown = lowest - _UNKNOWN_PENALTY

    def add(self, piece: str, score: float) -> None:
        self.scores[piece] = score
        self.longest = max(self.longest, len(piece))

    def best(self, text: str) -> float:
        best = [0.0] + [-math.inf] * len(text)
        for start in range(len(text)):
            for end in range(start + 1, min(len(text), start + self.longest) + 1):
                score = self.scores.get(text[start:end])
                # A character counts as unknown only where it is no piece itself.
                if score is None and end == start + 1:
                    score = self.unknown
                if score is not None:
                    best[end] = max(best[end], best[start] + score)
        return best[-1]


def _rows_behind(tokenizer: TokenizerFile, rows: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return a row for each added token whose id lies behind the list, with a score at which no text produces it.

    A piece's id is its place in the list, so without these rows the added tokens would move when the list grows.
    """
    entries = {entry["id"]: entry["content"] for entry in tokenizer.raw.get("added_tokens") or ()}
    names = [entries[token_id] for token_id in sorted(entries) if token_id >= len(rows)]
    if not names:
        return []
    lowest = min(score for _, score in rows)
    lattice = _Lattice(rows, lowest)
    score = min(lattice.best(name) for name in names) - 1.0
    # A new lowest score makes unknown characters dearer. That changes no text if each split of a text has the same
    # unknown characters: if a character that occurs in any piece is a piece itself.
    if score < lowest and (alone := _not_alone([*_text_pieces(tokenizer, rows), *names], lattice.scores)):
        raise VocabularyError(
            f"{tokenizer.source}: the added token {names[0]!r} lies behind the list of pieces, and a place in the list "
            f"would change how texts with the character {alone!r} are cut (use vocabulary.method: keep)"
        )
    return [(name, score) for name in names]


def _not_alone(pieces: Iterable[str], known: Mapping[str, float]) -> str:
    return next((character for character in sorted(set().union(*pieces)) if character not in known), "")


def _text_pieces(tokenizer: TokenizerFile, rows: Sequence[tuple[str, float]]) -> list[str]:
    """Return the pieces that are text: neither bytes, nor added tokens, nor the unknown one."""
    added = {entry["content"] for entry in tokenizer.raw.get("added_tokens") or ()}
    return [
        piece
        for i, (piece, _) in enumerate(rows)
        if i != tokenizer.unknown_id and piece not in added and not _BYTE.fullmatch(piece)
    ]


def _segment(
    rows: list[tuple[str, float]], unknown: int | None, byte_fallback: bool, words: Iterable[str]
) -> Iterator[list[int]]:
    model = Tokenizer(models.Unigram(rows, unk_id=unknown, byte_fallback=byte_fallback))
    for batch in batches_of(words, 4096):
        for encoding in model.encode_batch_fast(list(batch), add_special_tokens=False):
            yield list(encoding.ids)


def _candidates(
    base: _Base, targets: Mapping[str, CountedPieces], options: LearnOptions
) -> tuple[Scores, dict[str, Any]]:
    """Return the pieces outside the old vocabulary with scores on its scale, and how the scales compare."""
    old = dict(base.rows)
    given = None
    if options.candidates is not None:
        given = {raw.decode(errors="replace").replace(" ", _SPACE) for raw in options.candidates} - {""}
    pool: Scores = {}
    record: dict[str, Any] = {"offset": {}, "shared_pieces": {}}
    for name, text in targets.items():
        fresh = _fresh(text.pieces, options) if given is None else _fitted(text.pieces, given)
        shared = [piece for piece in fresh if piece in old]
        offset = statistics.median(old[piece] - fresh[piece] for piece in shared) if shared else 0.0
        record["offset"][name], record["shared_pieces"][name] = round(offset, 4), len(shared)
        for piece, score in fresh.items():
            if (
                piece not in old
                and (given is None or piece in given)
                and _may_be_a_token(piece, base.tokenizer, options)
            ):
                pool[piece] = max(pool.get(piece, -math.inf), score + offset)
    return pool, record


def _fresh(words: Counter[str], options: LearnOptions) -> Scores:
    """Return pieces and scores of a Unigram trained on counted words; the rarest words of a large text are left out."""
    kept = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:_TRAINING_TYPES]
    share = min(1.0, _TRAINING_WORDS / max(1, sum(count for _, count in kept)))
    made = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=_MIN_FRESH + _FRESH_PER_TOKEN * options.num_tokens,
        max_piece_length=options.max_characters + 1,
        unk_token="<unk>",
        special_tokens=["<unk>"],
        show_progress=False,
    )
    made.train_from_iterator((word for word, count in kept for _ in range(max(1, round(count * share)))), trainer)
    # The trainer sums in no fixed order; what is left of that is far behind the fourth digit.
    return {piece: round(score, 4) for piece, score in json.loads(made.to_str())["model"]["vocab"] if piece != "<unk>"}


def _fitted(words: Counter[str], candidates: set[str]) -> Scores:
    """Return scores for given pieces: the logarithm of how often each is used when words are cut by these scores."""
    characters = {character for word in words for character in word}
    pieces = candidates | characters
    counts = _occurrences(words, pieces)
    for _ in range(_FITTING_ROUNDS):
        poll()
        total = counts.total()
        # A piece that is not used keeps half a count: it may be needed when the others change.
        rows = [(piece, math.log(max(counts[piece], 0.5) / total)) for piece in sorted(pieces)]
        used: Counter[str] = Counter()
        for count, ids in zip(words.values(), _segment(rows, None, False, words), strict=True):
            for i in ids:
                used[rows[i][0]] += count
        # Without its characters a word could not be cut at all.
        pieces, counts = set(used) | characters, used
    total = counts.total()
    return {piece: round(math.log(counts[piece] / total), 4) for piece in sorted(counts)}


def _may_be_a_token(piece: str, tokenizer: TokenizerFile, options: LearnOptions) -> bool:
    text = piece.replace(_SPACE, " ")
    if not is_well_formed(text.encode(), options):
        return False
    return tokenizer.normalise(text).replace(_SPACE, " ").strip() == text.strip()


def _occurrences(words: Mapping[str, int], wanted: Iterable[str]) -> Counter[str]:
    """Return how often each wanted string occurs in counted words, anywhere within them."""
    wanted, found = set(wanted), Counter[str]()
    longest = max(map(len, wanted), default=0)
    for word, count in words.items():
        poll()
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + longest) + 1):
                if (part := word[start:end]) in wanted:
                    found[part] += count
    return found


def _admitted(pool: Scores, source: Counter[str], base: _Base, options: LearnOptions) -> tuple[Scores, int]:
    """Return the pieces that are pinned or hardly occur in source words, and how many are not."""
    pinned = {piece for piece in pool if is_pinned(piece.replace(_SPACE, " ").encode(), options.pinned_scripts)}
    tokens = sum(len(ids) * n for ids, n in zip(base.segment(base.rows, source), source.values(), strict=True))
    found = _occurrences(source, pool.keys() - pinned)
    limit = options.veto_per_million * tokens / 1e6
    admitted = {piece: score for piece, score in pool.items() if piece in pinned or found[piece] <= limit}
    return admitted, len(pool) - len(admitted)


def _ranked(
    base: _Base, admitted: Scores, targets: Mapping[str, CountedPieces], options: LearnOptions
) -> dict[str, int]:
    """Return at most ``num_tokens`` pieces in order, single characters first, with their counts in the target text.

    How often a piece is used depends on the others. So pieces are given up a quarter at a time, the poorest first, and
    the text is cut anew in between.
    """
    characters = _frequent_characters(admitted, targets, options)
    plain = base.with_pieces(base.raised({piece: admitted[piece] for piece in characters}))
    costs = {name: _num_tokens(base, plain, text.pieces) / max(1, text.size.words) for name, text in targets.items()}
    longer = [piece for piece in admitted if len(piece) > 1]
    lengths = dict(zip(longer, map(len, base.segment(plain, longer)), strict=True))
    wanted = options.num_tokens - len(characters)
    while True:
        used = _used(base, {piece: admitted[piece] for piece in (*characters, *longer)}, targets)
        total = {piece: sum(counts[piece] for counts in used.values()) for piece in longer}
        saved = {
            name: {
                piece: counts[piece] * (lengths[piece] - 1) / max(1, targets[name].size.words)
                for piece in longer
                if total[piece] >= options.min_count
            }
            for name, counts in used.items()
        }
        order = _interleaved(saved, costs)
        if len(order) == len(longer) <= wanted:
            return characters | {piece: total[piece] for piece in order}
        longer = order[: max(wanted, int(_KEPT_EACH_ROUND * len(longer)))]


def _frequent_characters(
    admitted: Scores, targets: Mapping[str, CountedPieces], options: LearnOptions
) -> dict[str, int]:
    """Return the admitted single characters with their counts: what was unknown, or spelled in bytes."""
    wanted = {piece for piece in admitted if len(piece) == 1}
    found: Counter[str] = Counter()
    for text in targets.values():
        found.update(_occurrences(text.pieces, wanted))
    frequent = [(piece, count) for piece, count in found.items() if count >= options.min_count]
    return dict(sorted(frequent, key=lambda item: (-item[1], item[0]))[: options.num_tokens])


def _used(base: _Base, scores: Scores, targets: Mapping[str, CountedPieces]) -> dict[str, Counter[str]]:
    """Return how often each new piece is used in the text of each language."""
    rows = base.with_pieces(base.raised(scores))
    first = len(base.rows)
    found = {}
    for name, text in targets.items():
        counts = _id_counts(base, rows, text.pieces)
        found[name] = Counter({rows[i][0]: count for i, count in counts.items() if i >= first})
    return found


def _interleaved(saved: Mapping[str, Mapping[str, float]], costs: Mapping[str, float]) -> list[str]:
    """Return the pieces that save tokens: the language that pays most tokens a word takes its best one, over and over.

    Args:
        saved: language → piece → tokens a word that it saves.
        costs: language → tokens a word without new pieces.
    """
    queues = {
        name: iter(
            sorted((piece for piece, gain in gains.items() if gain > 0), key=lambda piece: (-gains[piece], piece))
        )
        for name, gains in saved.items()
    }
    left = dict(costs)
    taken: dict[str, None] = {}
    while queues:
        name = max(queues, key=lambda name: left[name])
        piece = next((piece for piece in queues[name] if piece not in taken), None)
        if piece is None:
            del queues[name]
            continue
        taken[piece] = None
        for other, gains in saved.items():
            left[other] -= gains.get(piece, 0.0)
    return list(taken)


def _id_counts(base: _Base, rows: Sequence[tuple[str, float]], words: Mapping[str, int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for ids, count in zip(base.segment(rows, words), words.values(), strict=True):
        for token_id in ids:
            found[token_id] += count
    return found


def _num_tokens(base: _Base, rows: Sequence[tuple[str, float]], words: Mapping[str, int]) -> int:
    return sum(len(ids) * count for ids, count in zip(base.segment(rows, words), words.values(), strict=True))


@dataclass(frozen=True)
class _Growth:
    """Ranked pieces with their counts, what each should score, and what gives way: one tokenizer for each beginning."""

    base: _Base
    counts: dict[str, int]
    wanted: Scores
    giving_way: tuple[RemovedToken, ...]

    def scores(self, size: int) -> Scores:
        """Return the first pieces with their scores. Those depend on no later piece."""
        wanted = {piece: self.wanted[piece] for piece in [*self.counts][:size]}
        return self.base.raised(wanted, self.giving_way[:size])

    def rows(self, size: int) -> list[tuple[str, float]]:
        return self.base.with_pieces(self.scores(size), self.giving_way[:size])

    def num_raised(self, size: int) -> int:
        return sum(score > self.wanted[piece] for piece, score in self.scores(size).items())

    def tokenizer(self, size: int) -> TokenizerFile:
        old = self.base.tokenizer
        model = old.raw["model"] | {"vocab": [list(row) for row in self.rows(size)]}
        return TokenizerFile(
            json.dumps(old.raw | {"model": model}, ensure_ascii=False, indent=1), f"{old.source} (expanded)"
        )

    def new_tokens(self, size: int) -> tuple[NewToken, ...]:
        first = len(self.base.rows)
        ids = sorted(token.id for token in self.giving_way[:size]) or range(first, first + size)
        spellings = [*self.counts][:size]
        before = self.base.tokenizer.encode_all_by_merges(spellings)
        found = zip(ids, spellings, before, strict=True)
        return tuple(NewToken(i, spelling, tuple(own), self.counts[spelling]) for i, spelling, own in found)

    def curve(self, watched: Mapping[str, CountedPieces]) -> FertilityCurve:
        """Return the tokens of the watched texts along the list; nothing is measured among the characters."""
        first = self.num_characters
        sizes = {0, first, *(size for size in curve_sizes(len(self.counts)) if size >= first)}
        points = []
        for size in sorted(sizes) if watched else ():
            rows = self.rows(size)
            tokens = {name: _num_tokens(self.base, rows, text.pieces) for name, text in watched.items()}
            points.append(CurvePoint(size, tokens))
        return FertilityCurve({name: text.size for name, text in watched.items()}, tuple(points))

    def chosen(self, curve: FertilityCurve, options: LearnOptions) -> int:
        """Return how many pieces are kept: all, or up to where growth stops paying."""
        if options.min_saving is None or not curve.sizes:
            return len(self.counts)
        # A run of unknown characters is one token, so a text may grow when its characters become known.
        known = replace(curve, points=curve.points[1:] if self.num_characters else curve.points)
        return max(1, known.choose(options.min_saving))

    @property
    def num_characters(self) -> int:
        return sum(len(piece) == 1 for piece in self.counts)


def _reachable(growth: _Growth) -> tuple[_Growth, TokenizerFile]:
    """Return the growth without pieces that the tokenizer does not produce from their own text, and its tokenizer.

    By their scores all are produced by the model; an added token, or a pre-tokenizer that cuts a foreign candidate
    apart, may still stand in the way.
    """
    while True:
        new = growth.tokenizer(len(growth.counts))
        ids = new.model_vocabulary
        spellings = list(growth.counts)
        dead = {p for p, own in zip(spellings, new.encode_all_by_merges(spellings), strict=True) if own != [ids[p]]}
        starting = [piece for piece in spellings if piece.startswith(_SPACE) and len(piece) > 1]
        for piece, own in zip(starting, new.encode_batch([f"a {p[1:]}" for p in starting]), strict=True):
            if own[-1:] != [ids[piece]]:
                dead.add(piece)
        if not dead:
            return growth, new
        growth = replace(growth, counts={p: count for p, count in growth.counts.items() if p not in dead})
        if not growth.counts:
            raise VocabularyError(f"{new.source}: no new piece can be produced from its own text")


def _giving_way(
    base: _Base, targets: Mapping[str, CountedPieces], source: CountedPieces, count: int
) -> tuple[RemovedToken, ...]:
    """Return the old pieces that give way: the rarest in source text first, then in target text, then by id.

    A text that is not cut into any of them is cut as before. One piece with the lowest score stays, since an unknown
    character costs by it, and so do those with score 0: no learned piece has it, but user-defined symbols do.
    """
    in_source = _id_counts(base, base.rows, source.pieces)
    in_target = sum((_id_counts(base, base.rows, text.pieces) for text in targets.values()), Counter[int]())
    ids = base.tokenizer.vocabulary
    lowest = next(i for i, (_, score) in enumerate(base.rows) if score == base.lowest)
    may_go = [
        RemovedToken(ids[piece], piece, in_source[ids[piece]], in_target[ids[piece]])
        for piece in _text_pieces(base.tokenizer, base.rows)
        if len(piece) > 1 and ids[piece] != lowest and base.rows[ids[piece]][1] < 0
    ]
    if len(may_go) < count:
        raise VocabularyError(
            f"vocabulary.new_tokens: {count} old tokens would have to give way, but only {len(may_go)} may "
            "(special, byte and single-character tokens never do)"
        )
    return tuple(sorted(may_go, key=lambda token: (token.source_count, token.target_count, token.id))[:count])
