"""What may become a new token: the rules of every family, and the texts that new tokens are learned on."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lingraft.corpus.scripts import WIDESPREAD_SCRIPTS, script_of
from lingraft.vocabulary.scripts import partial_character_range

__all__ = ["LearnOptions", "LearnTexts", "is_pinned", "is_well_formed"]

_JOINERS = "\u200c\u200d"


@dataclass(frozen=True)
class LearnTexts:
    """The texts of an expansion.

    Attributes:
        targets: language → text to shorten; with several languages growth is parity-aware.
        source: text that must stay as it is.
        watched: name → text whose tokens are counted as the vocabulary grows, for the fertility curve; all but
            ``parallel`` are held-out target texts, on which ``auto`` decides.
    """

    targets: Mapping[str, Iterable[str]]
    source: Iterable[str]
    watched: Mapping[str, Iterable[str]] = field(default_factory=dict)


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
        min_saving: with ``auto``, growth stops where a further thousand tokens save less than this share of the
            held-out target tokens; None takes all of ``num_tokens``.
        candidates: where given, only these strings (as bytes, a leading space being a space) may become tokens, and
            what lies on the way to them: the tokens of a second tokenizer.
        scripts: other scripts of the target, half characters of which may be tokens on the way to whole ones.
        pinned_only: whether only pinned tokens are admitted: for a target whose scripts the source does not use at all,
            whose new tokens then cannot occur in source text.
        replace: whether rare old tokens give way to the new ones.
        letters_only: whether a token may hold nothing but letters, marks and joiners of one script, behind at most one
            space: what a pre-tokenizer would see to, for families that have none.
        reserved: names that plain text must never reach: those of added tokens.
    """

    num_tokens: int
    min_count: int = 10
    max_characters: int = 24
    veto_per_million: float = 0.0
    allow_digits: bool = False
    pinned_scripts: frozenset[str] = frozenset()
    min_saving: float | None = None
    candidates: frozenset[bytes] | None = None
    scripts: frozenset[str] = frozenset()
    pinned_only: bool = False
    replace: bool = False
    letters_only: bool = False
    reserved: frozenset[bytes] = frozenset()


def is_pinned(raw: bytes, scripts: frozenset[str]) -> bool:
    """Whether the bytes hold a whole, or fixed though unfinished, character of one of the scripts."""
    text, rest = _split_unfinished(raw)
    if any(script_of(character) in scripts for character in text):
        return True
    return bool(rest) and _all_in_scripts(rest, scripts)


def is_well_formed(raw: bytes, options: LearnOptions) -> bool:
    """Whether bytes may become a token: they start at a character's border, hold a letter or mark, are not too long.

    An unfinished last character is allowed only where its first bytes already fix one of the target's scripts.
    """
    if not raw or 0x80 <= raw[0] <= 0xBF or raw in options.reserved:
        return False
    if options.pinned_only and not is_pinned(raw, options.pinned_scripts):
        return False
    text, rest = _split_unfinished(raw)
    if rest and not _all_in_scripts(rest, options.pinned_scripts | options.scripts):
        return False
    bare = text.removeprefix(" ")
    if len(bare) > options.max_characters or "\ufffd" in text:
        return False
    if not options.allow_digits and any(character.isdigit() for character in bare):
        return False
    if options.letters_only and not _is_one_script(bare):
        return False
    return bool(rest) or any(script_of(character) is not None for character in bare)


def _is_one_script(text: str) -> bool:
    """Whether a text is letters, marks and joiners, all of one script."""
    if not all(character in _JOINERS or unicodedata.category(character)[0] in "LM" for character in text):
        return False
    return len({script_of(character) for character in text} - {None}) <= 1


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
    """Whether the bytes can become no letter of another widespread script, and more of these scripts than signs of all.

    Rare scripts are let through: above U+FFFF many of them share their first two bytes, so each would bar the others.
    """
    span = partial_character_range(unfinished)
    if span is None or span[1] - span[0] > 0xFFF:
        return False
    found = Counter(script_of(chr(point)) for point in range(span[0], span[1] + 1) if not 0xD800 <= point <= 0xDFFF)
    own = sum(found[script] for script in scripts)
    return own > found[None] and not found.keys() & WIDESPREAD_SCRIPTS - scripts
