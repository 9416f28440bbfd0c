"""Gates: what an expansion must prove before anything is trained on it.

Each check returns a :class:`Gate` with the evidence. T-numbers: see the list in docs/concepts.md.
"""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lingraft.batching import batches_of
from lingraft.errors import GateError
from lingraft.vocabulary.expansion import NewToken, VocabularyExpansion
from lingraft.vocabulary.fertility import measure_fertility
from lingraft.vocabulary.scripts import script_of
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = [
    "DIFFICULT",
    "AuditTexts",
    "Gate",
    "audit_expansion",
    "random_strings",
    "refuse_failed_gates",
    "segmentation_drift",
]

_EXAMPLES = 5
_MIN_GAIN = 0.01
_MAX_SLOWDOWN = 2.0

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
    """One check: its name, whether it passed, what was expected and found, and examples of what went wrong."""

    name: str
    passed: bool
    expected: str
    found: str
    evidence: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``gates.json``."""
        return asdict(self)


@dataclass(frozen=True)
class AuditTexts:
    """The texts that the gates read.

    Attributes:
        target: held-out target text.
        protected: source text that must not change at all (the sample that the veto saw, and the probes' prompts).
        source: held-out source text, of which at most ``max_source_drift`` of the documents may change.
        exact_protection: whether no protected document at all may change (with a veto of 0).
        pinned_scripts: scripts of the target alone; source documents that hold a character of them are mixed text,
            which is meant to change, and are not counted.
    """

    target: Sequence[str]
    protected: Sequence[str]
    source: Sequence[str]
    max_source_drift: float = 0.01
    exact_protection: bool = True
    pinned_scripts: frozenset[str] = frozenset()

    def unmixed(self, texts: Sequence[str]) -> list[str]:
        """Return the texts without a character of a pinned script."""
        if not self.pinned_scripts:
            return list(texts)
        return [
            text for text in texts if not any(script_of(character) in self.pinned_scripts for character in set(text))
        ]


def audit_expansion(expansion: VocabularyExpansion, texts: AuditTexts) -> list[Gate]:
    """Return every gate's verdict on an expansion; raising on failure is :func:`refuse_failed_gates`."""
    gates = [
        _old_ids_kept(expansion),
        _old_merges_are_a_prefix(expansion),
        _added_tokens_kept(expansion),
        _sizes_agree(expansion),
        _new_tokens_reachable(expansion),
        _pieces_are_what_the_old_tokenizer_says(expansion),
        _lossless(expansion, [*texts.target, *DIFFICULT, *random_strings(200)]),
        _protected_unchanged(expansion, texts),
        _source_drift(expansion, texts),
    ]
    if expansion.method == "expand":
        gates += [_fertility_fell(expansion, texts.target), _still_fast(expansion, texts.target)]
    return gates


def refuse_failed_gates(gates: Iterable[Gate]) -> None:
    """Raise a :class:`GateError` that lists every failed gate with its evidence; return if there is none."""
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        lines = [
            f"  {g.name}: expected {g.expected}, found {g.found} {' | '.join(g.evidence)}".rstrip() for g in failed
        ]
        raise GateError("the expanded tokenizer failed its checks; nothing was trained on it:\n" + "\n".join(lines))


def segmentation_drift(old: TokenizerFile, new: TokenizerFile, texts: Iterable[str]) -> tuple[int, int, list[str]]:
    """Return how many of the texts have other ids now, how many there are, and the first examples of what changed."""
    changed = total = 0
    examples: list[str] = []
    for batch in batches_of(texts, 256):
        for text, before, after in zip(batch, old.encode_batch(batch), new.encode_batch(batch), strict=True):
            total += 1
            if before != after:
                changed += 1
                if len(examples) < _EXAMPLES:
                    fresh = [new.decode([i]) for i in after if i >= old.num_ids][:3]
                    examples.append(f"{text[:40]!r} now holds {fresh}")
    return changed, total, examples


def random_strings(count: int, seed: int = 0) -> list[str]:
    """Return strings of random code points from the whole of Unicode (surrogates left out), always the same ones."""
    chooser = random.Random(seed)
    points = [range(0x20, 0x7F), range(0xA0, 0x3000), range(0x3000, 0xD800), range(0xE000, 0x110000)]
    return ["".join(chr(chooser.choice(chooser.choice(points))) for _ in range(24)) for _ in range(count)]


def _old_ids_kept(expansion: VocabularyExpansion) -> Gate:
    moved = [t for t, i in expansion.old.vocabulary.items() if expansion.new.vocabulary.get(t) != i]
    found = f"{len(moved)} moved; old vocabulary {_digest(sorted(expansion.old.vocabulary.items()))}"
    return Gate("T8 old ids kept", not moved, "every old token keeps its id", found, _quote(moved))


def _old_merges_are_a_prefix(expansion: VocabularyExpansion) -> Gate:
    old, new = expansion.old.merges, expansion.new.merges
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
    wanted = list(range(expansion.num_old, expansion.num_old + expansion.num_new))
    ids = [token.id for token in expansion.new_tokens]
    own = [expansion.new.raw["model"]["vocab"].get(t.spelling) for t in expansion.new_tokens] if ids else []
    good = ids == wanted == own and expansion.new.num_ids == expansion.num_old + expansion.num_new
    expected = f"{expansion.num_old} + {expansion.num_new} ids, the new ones part of the model's own vocabulary"
    return Gate("sizes agree", good, expected, f"{expansion.new.num_ids} ids")


def _new_tokens_reachable(expansion: VocabularyExpansion) -> Gate:
    """Merges alone, with no whole-word look-up, must build every new token from its own spelling (T1)."""
    dead = [t for t in expansion.new_tokens if expansion.new.encode_by_merges(t.spelling) != [t.id]]
    found = f"{len(dead)} of {expansion.num_new} unreachable"
    return Gate(
        "T1 new tokens reachable", not dead, "merges alone build every new token", found, _names(dead, expansion)
    )


def _pieces_are_what_the_old_tokenizer_says(expansion: VocabularyExpansion) -> Gate:
    wrong = [t for t in expansion.new_tokens if expansion.old.encode_by_merges(t.spelling) != list(t.pieces)]
    found = f"{len(wrong)} of {expansion.num_new} differ"
    return Gate("T5 decomposition exact", not wrong, "the old tokenizer splits each new token into its pieces", found)


def _lossless(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    """A text must come back as the old tokenizer brings it back, and no unknown id may appear (T3)."""
    lost: list[str] = []
    unknown = expansion.new.id_of(expansion.new.raw["model"].get("unk_token") or "")
    for batch in batches_of(texts, 256):
        for text, before, after in zip(
            batch, expansion.old.encode_batch(batch), expansion.new.encode_batch(batch), strict=True
        ):
            if expansion.new.decode(after) != expansion.old.decode(before) or (
                unknown in after and unknown not in before
            ):
                lost.append(text[:40])
    expected = "decode(encode(text)) as with the old tokenizer, no unknown ids"
    return Gate("T3 lossless", not lost, expected, f"{len(lost)} of {len(texts)} texts differ", _quote(lost))


def _protected_unchanged(expansion: VocabularyExpansion, texts: AuditTexts) -> Gate:
    changed, total, examples = segmentation_drift(expansion.old, expansion.new, texts.unmixed(texts.protected))
    good = changed == 0 if texts.exact_protection else changed <= texts.max_source_drift * total
    expected = "no document changed" if texts.exact_protection else f"at most {texts.max_source_drift:.1%} changed"
    return Gate(
        "T2 protected text unchanged", good, expected, f"{changed} of {total} documents changed", tuple(examples)
    )


def _source_drift(expansion: VocabularyExpansion, texts: AuditTexts) -> Gate:
    changed, total, examples = segmentation_drift(expansion.old, expansion.new, texts.unmixed(texts.source))
    # One document is always forgiven: in a small sample it is more than any sensible share.
    good = changed <= max(1, texts.max_source_drift * total)
    expected = f"at most {texts.max_source_drift:.1%} of held-out source documents (or one) change"
    found = f"{changed} of {total} documents changed"
    return Gate("T2 source drift", good, expected, found, tuple(examples))


def _fertility_fell(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    before, after = (measure_fertility(t, texts).tokens_per_word for t in (expansion.old, expansion.new))
    good = after <= before * (1 - _MIN_GAIN)
    return Gate(
        "T9 fertility fell", good, "at least 1 % fewer tokens a word", f"{before:.3f} → {after:.3f} tokens a word"
    )


def _still_fast(expansion: VocabularyExpansion, texts: Sequence[str]) -> Gate:
    """Encoding must not become slow, which is what thousands of added tokens do; the best of three rounds counts."""
    before, after = (min(_timed(t.encode_batch, texts) for _ in range(3)) for t in (expansion.old, expansion.new))
    ratio = after / max(before, 1e-9)
    # Below a few milliseconds the clock measures the machine, not the tokenizer.
    good = ratio <= _MAX_SLOWDOWN or after < 0.05
    return Gate("encoding still fast", good, f"at most {_MAX_SLOWDOWN} times the old time", f"{ratio:.2f} times")


def _timed(action: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    start = time.perf_counter()
    action(texts)
    return time.perf_counter() - start


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:16]


def _quote(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(repr, texts[:_EXAMPLES]))


def _names(tokens: Sequence[NewToken], expansion: VocabularyExpansion) -> tuple[str, ...]:
    return tuple(repr(token.text(expansion.new)) for token in tokens[:_EXAMPLES])
