"""Gates: what an expansion must prove before anything is trained on it.

Each check returns a :class:`Gate` with the evidence. T-numbers: see the list in docs/concepts.md.
"""

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lingraft.batching import batches_of, first_bytes
from lingraft.corpus.scripts import script_of
from lingraft.errors import GateError
from lingraft.vocabulary.expansion import NewToken, VocabularyExpansion
from lingraft.vocabulary.fertility import measure_fertility
from lingraft.vocabulary.normaliser import audit_normaliser
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = [
    "DIFFICULT",
    "AuditTexts",
    "Drift",
    "Gate",
    "audit_expansion",
    "random_strings",
    "refuse_failed_gates",
    "segmentation_drift",
]

_EXAMPLES = 5
_MIN_GAIN = 0.01
_MAX_SLOWDOWN = 1.2
_MAX_LOAD_SECONDS = 20.0
_MAX_UNUSED = 0.05
# Texts that a gate reads only to time something, or to look for uses of the new tokens, end here.
_TIMED_BYTES = 1_000_000
_USES_BYTES = 20_000_000

DIFFICULT = (
    "a\n\n  b\tc",
    "  two  spaces  and trailing ",
    "naïve café — “quoted” … ½ ﬁ Å ß İ ı",
    "e\u0301 e\u0323\u0302 \u1e69",
    "\u202bעברית\u202c \u061c\u200e\u200f",
    "हिन्दी क्षत्रिय श्रीमान् क\u200dष क\u200cष",
    "مَرْحَبًا ﻻ ﷲ ـــ",
    "👩‍👩‍👧‍👦 🇪🇺 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "北京大观园 음악 ไทย ქართული",
    "1234567890 3.14159 1e-4 0x1F",
    "<|endoftext|> <s> </s> [UNK] <pad>",
    "\u0000\u0001\u001b[31m\u007f\u0085\u2028\u2029\ufeff",
    "\U0010ffff\ue000\ufffd",
    "def f(x):\n\treturn {k: v for k, v in x.items() if k != 'metadata'}\r\n",
)


@dataclass(frozen=True)
class Gate:
    """One check: its name, whether it passed, what was expected and found, and examples of what went wrong.

    ``stops`` tells whether a failure ends the run, or is only a warning.
    """

    name: str
    passed: bool
    expected: str
    found: str
    evidence: tuple[str, ...] = field(default=())
    stops: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``gates.json``."""
        return asdict(self)


@dataclass(frozen=True)
class Drift:
    """How a text is tokenised otherwise than before.

    Attributes:
        documents: how many there are.
        changed_documents: those with other ids now.
        tokens: old tokens of all documents.
        changed_tokens: old tokens that are not among a document's tokens any more.
        joined: what the changes made, as text, and how often; the most frequent first.
        examples: the beginnings of some changed documents with what they hold now.
    """

    documents: int
    changed_documents: int
    tokens: int
    changed_tokens: int
    joined: tuple[tuple[str, int], ...]
    examples: tuple[str, ...]

    @property
    def document_share(self) -> float:
        """The share of documents that changed."""
        return self.changed_documents / max(1, self.documents)

    @property
    def token_share(self) -> float:
        """The share of tokens that changed; unlike the share of documents it does not depend on their length."""
        return self.changed_tokens / max(1, self.tokens)

    def __str__(self) -> str:
        """Return the counts in words."""
        return (
            f"{self.changed_tokens} of {self.tokens} tokens ({self.token_share:.4%}) in {self.changed_documents} of "
            f"{self.documents} documents changed"
        )

    def evidence(self) -> tuple[str, ...]:
        """Return what the changes made, with counts, and examples."""
        made = ", ".join(f"{text!r} {count}x" for text, count in self.joined[:20])
        return (f"made: {made}", *self.examples) if made else self.examples


@dataclass(frozen=True)
class AuditTexts:
    """The texts that the gates read.

    Attributes:
        target: held-out target text.
        protected: source text that must not change at all (the sample that the veto saw, and the probes' prompts).
        source: held-out source text, of whose tokens at most ``max_source_drift`` may change.
        max_source_drift: that share.
        exact_protection: whether no protected document at all may change (with a veto of 0).
        pinned_scripts: scripts of the target alone; source documents that hold a character of them are mixed text,
            which is meant to change, and are not counted.
        learning: the text that the tokens were learned on.
    """

    target: Sequence[str]
    protected: Sequence[str]
    source: Sequence[str]
    max_source_drift: float = 0.001
    exact_protection: bool = True
    pinned_scripts: frozenset[str] = frozenset()
    learning: Sequence[str] = ()

    def unmixed(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without a character of a pinned script."""
        if not self.pinned_scripts:
            return list(texts)
        return [
            text for text in texts if not any(script_of(character) in self.pinned_scripts for character in set(text))
        ]


def audit_expansion(expansion: VocabularyExpansion, texts: AuditTexts) -> list[Gate]:
    """Return every gate's verdict on an expansion; raising on failure is :func:`refuse_failed_gates`."""
    uses = _uses(expansion, texts)
    gates = [
        _old_ids_kept(expansion),
        _old_ranks_kept(expansion),
        _added_tokens_kept(expansion),
        _sizes_agree(expansion),
        _new_tokens_reachable(expansion, uses),
        _pieces_are_what_the_old_tokenizer_says(expansion),
        _learner_and_tokenizer_agree(expansion),
        _lossless(expansion, [*texts.target, *DIFFICULT, *random_strings(200)]),
        _marks_kept(expansion, texts.target),
        _protected_unchanged(expansion, texts),
        _source_drift(expansion, texts),
    ]
    if expansion.num_new:
        gates += [
            _new_tokens_used(expansion, uses),
            _fertility_fell(expansion, texts.target),
            _still_fast(expansion, list(first_bytes(texts.target, _TIMED_BYTES))),
            _loads_fast(expansion),
        ]
    return gates


def refuse_failed_gates(gates: Iterable[Gate]) -> None:
    """Raise a :class:`GateError` that lists every failed gate with its evidence; return if there is none."""
    failed = [gate for gate in gates if gate.stops and not gate.passed]
    if failed:
        lines = [
            f"  {g.name}: expected {g.expected}, found {g.found} {' | '.join(g.evidence)}".rstrip() for g in failed
        ]
        raise GateError("the expanded tokenizer failed its checks; nothing was trained on it:\n" + "\n".join(lines))


def segmentation_drift(old: TokenizerFile, new: TokenizerFile, texts: Iterable[str]) -> Drift:
    """Return how texts are tokenised otherwise by the new tokenizer."""
    documents = changed = tokens = gone = 0
    joined: Counter[int] = Counter()
    examples: list[str] = []
    for batch in batches_of(texts, 256):
        for text, before, after in zip(batch, old.encode_batch(batch), new.encode_batch(batch), strict=True):
            documents += 1
            tokens += len(before)
            if before != after:
                changed += 1
                fresh = Counter(after) - Counter(before)
                gone += max(1, (Counter(before) - Counter(after)).total())
                joined.update(fresh)
                if len(examples) < _EXAMPLES:
                    examples.append(f"{text[:40]!r} now holds {[new.decode([i]) for i in list(fresh)[:3]]}")
    made = tuple((new.decode([i]), count) for i, count in joined.most_common(100))
    return Drift(documents, changed, tokens, gone, made, tuple(examples))


def random_strings(count: int, seed: int = 0) -> list[str]:
    """Return strings of random code points from the whole of Unicode (surrogates left out), always the same ones."""
    chooser = random.Random(seed)
    points = [range(0x20, 0x7F), range(0xA0, 0x3000), range(0x3000, 0xD800), range(0xE000, 0x110000)]
    return ["".join(chr(chooser.choice(chooser.choice(points))) for _ in range(24)) for _ in range(count)]


def _uses(expansion: VocabularyExpansion, texts: AuditTexts) -> Counter[int]:
    """Return how often each id is produced on the text that was learned from (its beginning, where it is long)."""
    found: Counter[int] = Counter()
    if expansion.num_new:
        plain = expansion.new.without_look_up()
        for batch in batches_of(first_bytes(texts.learning or texts.target, _USES_BYTES), 256):
            for ids in plain.encode_batch(batch):
                found.update(ids)
    return found


def _old_ids_kept(expansion: VocabularyExpansion) -> Gate:
    gone = {token.spelling for token in expansion.removed}
    kept = {token: i for token, i in expansion.old.vocabulary.items() if token not in gone}
    moved = [token for token, i in kept.items() if expansion.new.vocabulary.get(token) != i]
    found = f"{len(moved)} moved; old vocabulary {_digest(sorted(expansion.old.vocabulary.items()))}"
    if gone:
        found += f"; {len(gone)} gave way"
    return Gate("T8 old ids kept", not moved, "every old token keeps its id", found, _quote(moved))


def _old_ranks_kept(expansion: VocabularyExpansion) -> Gate:
    """Old merges, or what a replacement left of them, are an exact prefix; old Unigram scores are as before."""
    gone = {token.spelling for token in expansion.removed}
    if expansion.old.family == "unigram":
        before = [entry for entry in expansion.old.pieces if entry[0] not in gone]
        kept = {piece for piece, _ in before}
        after = [entry for entry in expansion.new.pieces if entry[0] in kept]
        found = f"{len(before)} old pieces, digest {_digest(before)}; now {_digest(after)}"
        return Gate("T8 old scores kept", before == after, "every old piece keeps its score", found)
    old = [pair for pair in expansion.old.merges if "".join(pair) not in gone]
    new = expansion.new.merges
    same = new[: len(old)] == old
    digests = _digest(old), _digest(new[: len(old)])
    found = f"{len(old)} old merges, digest {digests[0]}; the first {len(old)} of {len(new)} have {digests[1]}"
    return Gate("T8 old merges are a prefix", same, "the old merge list is an exact prefix of the new", found)


def _added_tokens_kept(expansion: VocabularyExpansion) -> Gate:
    """Added tokens keep ids and flags, and a name that was plain text within a text still is (T4)."""
    old, new = expansion.old, expansion.new
    added = [(entry["content"], entry["id"]) for entry in old.raw.get("added_tokens") or ()]
    names = [name for name, _ in added]
    texts = zip(added, old.encode_batch(names), new.encode_batch(names), strict=True)
    moved = [name for name, i in added if new.id_of(name) != i]
    moved += [name for (name, i), before, after in texts if i in after and i not in before]
    same = all((old.raw.get(part) or []) == (new.raw.get(part) or []) for part in ("added_tokens", "post_processor"))
    expected = "added tokens and post-processor as before"
    found = f"{len(moved)} moved" if same else f"{len(moved)} moved; the definitions differ"
    return Gate("T4 added tokens kept", same and not moved, expected, found, _quote(moved))


def _sizes_agree(expansion: VocabularyExpansion) -> Gate:
    """New ids follow the old ones, or are those that were given up, and belong to the model's own vocabulary."""
    freed = sorted(token.id for token in expansion.removed)
    wanted = freed or list(range(expansion.num_old, expansion.num_old + expansion.num_new))
    own = expansion.new.model_vocabulary
    good = list(expansion.new_ids) == wanted and all(own.get(t.spelling) == t.id for t in expansion.new_tokens)
    good = good and expansion.new.num_ids == expansion.num_old + expansion.num_new - len(freed)
    grown = f"{expansion.num_old} + {expansion.num_new - len(freed)} ids"
    expected = f"{grown}, the new ones part of the model's own vocabulary"
    return Gate("sizes agree", good, expected, f"{expansion.new.num_ids} ids")


def _new_tokens_reachable(expansion: VocabularyExpansion, uses: Counter[int]) -> Gate:
    """The model alone, with no whole-word look-up, must build every new token from its own spelling (T1).

    A token that is not built from its bare spelling, but is in a text, inside a word or behind a space, is not dead.
    """
    built = expansion.new.encode_all_by_merges([token.spelling for token in expansion.new_tokens])
    lone = [t for t, ids in zip(expansion.new_tokens, built, strict=True) if ids != [t.id]]
    plain = expansion.new.without_look_up() if lone else expansion.new
    dead = [t for t in lone if not uses[t.id] and not _is_produced(plain, t)]
    found = f"{len(dead)} of {expansion.num_new} unreachable"
    if len(lone) > len(dead):
        found += f"; {len(lone) - len(dead)} only within text"
    expected = "every new token is built from its own spelling"
    return Gate("T1 new tokens reachable", not dead, expected, found, _names(dead, expansion))


def _is_produced(tokenizer: TokenizerFile, token: NewToken) -> bool:
    """Whether a token comes out of its text alone, behind a space, or inside a word."""
    text = token.text(tokenizer)
    return any(
        token.id in ids for ids in tokenizer.encode_batch([text, f" {text}", f"a{text}", f"{text}a", f"a {text}"])
    )


def _pieces_are_what_the_old_tokenizer_says(expansion: VocabularyExpansion) -> Gate:
    split = expansion.old.encode_all_by_merges([token.spelling for token in expansion.new_tokens])
    wrong = [t for t, ids in zip(expansion.new_tokens, split, strict=True) if ids != list(t.pieces)]
    found = f"{len(wrong)} of {expansion.num_new} differ"
    expected = "the old tokenizer splits each new token into its pieces"
    return Gate("T5 decomposition exact", not wrong, expected, found, _names(wrong, expansion))


def _learner_and_tokenizer_agree(expansion: VocabularyExpansion) -> Gate:
    seen = expansion.record.get("simulation") or {"compared": 0, "different": 0}
    found = f"{seen['different']} of {seen['compared']} words differ"
    expected = "the tokenizer segments words as the learner left them"
    return Gate("T5 simulation exact", not seen["different"], expected, found)


def _lossless(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    """A text must come back as the old tokenizer brings it back, or nearer to what it was; no new unknown ids (T3)."""
    lost: list[str] = []
    unknown = expansion.old.unknown_id
    for batch in batches_of(texts, 256):
        encoded = zip(batch, expansion.old.encode_batch(batch), expansion.new.encode_batch(batch), strict=True)
        for text, before, after in encoded:
            # A run of unknown characters may be one id, so their numbers do not compare; their text is lost anyway.
            if unknown in before:
                continue
            if unknown in after or expansion.new.decode(after) != expansion.old.decode(before):
                lost.append(text[:40])
    expected = "decode(encode(text)) as with the old tokenizer, no more unknown ids"
    return Gate("T3 lossless", not lost, expected, f"{len(lost)} of {len(texts)} texts differ", _quote(lost))


def _marks_kept(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    """The base's normaliser must not delete the marks that the target's script is written with."""
    seen = audit_normaliser(expansion.old, first_bytes(texts, _TIMED_BYTES))
    lost = sum(seen.deleted_marks.values())
    evidence = tuple(f"{name} {count}x" for name, count in list(seen.deleted_marks.items())[:_EXAMPLES])
    expected = "the normaliser deletes no mark of the target's script"
    return Gate("marks kept", not seen.is_lossy_for_marks, expected, f"{lost} marks deleted", evidence)


def _protected_unchanged(expansion: VocabularyExpansion, texts: AuditTexts) -> Gate:
    drift = segmentation_drift(expansion.old, expansion.new, texts.unmixed(texts.protected))
    exact = texts.exact_protection
    good = not drift.changed_documents if exact else drift.token_share <= texts.max_source_drift
    expected = "no document changed" if exact else f"at most {texts.max_source_drift:.2%} of tokens changed"
    return Gate("T2 protected text unchanged", good, expected, str(drift), drift.evidence())


def _source_drift(expansion: VocabularyExpansion, texts: AuditTexts) -> Gate:
    drift = segmentation_drift(expansion.old, expansion.new, texts.unmixed(texts.source))
    # One document is always forgiven: in a small sample it is more than any sensible share.
    good = drift.changed_documents <= 1 or drift.token_share <= texts.max_source_drift
    expected = f"at most {texts.max_source_drift:.2%} of the tokens of held-out source text (or one document) change"
    return Gate("T2 source drift", good, expected, str(drift), drift.evidence())


def _new_tokens_used(expansion: VocabularyExpansion, uses: Counter[int]) -> Gate:
    """Tokens that never come up have rows that never learn (T7); a few do where a token served only on the way."""
    unused = [token for token in expansion.new_tokens if not uses[token.id] and len(token.text(expansion.new)) > 1]
    good = len(unused) <= _MAX_UNUSED * expansion.num_new
    found = f"{len(unused)} of {expansion.num_new} unused on the text they were learned from"
    expected = f"at most {_MAX_UNUSED:.0%} unused"
    return Gate("T7 new tokens used", good, expected, found, _names(unused, expansion), stops=False)


def _fertility_fell(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    before, after = (measure_fertility(t, texts).tokens_per_word for t in (expansion.old, expansion.new))
    good = after <= before * (1 - _MIN_GAIN)
    found = f"{before:.3f} → {after:.3f} tokens a word"
    if not good and expansion.old.unknown_id is not None:
        # A run of unknown characters may be one token: what becomes known is gained though tokens become more.
        lost, still = (t.unknown_characters(texts) for t in (expansion.old, expansion.new))
        good = still < lost * (1 - _MIN_GAIN)
        found += f", {lost:,} → {still:,} unknown characters"
    return Gate("T9 fertility fell", good, "at least 1 % fewer tokens a word, or unknown characters", found)


def _still_fast(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    """Encoding must not become slow, which is what thousands of added tokens do; the best of some rounds counts.

    Old and new take turns, so that a busy machine slows both; a round more is taken while the answer is no.
    """
    best = [float("inf"), float("inf")]
    for _ in range(10):
        for n, tokenizer in enumerate((expansion.old, expansion.new)):
            best[n] = min(best[n], _timed(tokenizer.encode_batch, texts))
        if best[1] <= _MAX_SLOWDOWN * best[0]:
            break
    ratio = best[1] / max(best[0], 1e-9)
    # Below a few milliseconds the clock measures the machine, not the tokenizer.
    good = ratio <= _MAX_SLOWDOWN or best[1] < 0.02
    return Gate("encoding still fast", good, f"at most {_MAX_SLOWDOWN} times the old time", f"{ratio:.2f} times")


def _loads_fast(expansion: VocabularyExpansion) -> Gate:
    seconds = _timed(lambda text: TokenizerFile(text, "again"), expansion.new.text)
    good = seconds <= _MAX_LOAD_SECONDS
    return Gate("loads fast", good, f"loaded within {_MAX_LOAD_SECONDS:.0f} s", f"{seconds:.1f} s")


def _timed(action: Callable[[Any], object], given: Any) -> float:
    start = time.perf_counter()
    action(given)
    return time.perf_counter() - start


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:16]


def _quote(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(repr, texts[:_EXAMPLES]))


def _names(tokens: Sequence[NewToken], expansion: VocabularyExpansion) -> tuple[str, ...]:
    return tuple(repr(token.text(expansion.new)) for token in tokens[:_EXAMPLES])
