r"""Where a base tokenizer cuts words apart before any merge, and a pattern that keeps them whole.

A pre-tokenizer cuts text into pieces, and no token reaches over a cut. Patterns made for English cut at every vowel
sign of Hindi, so that no vocabulary, however large, can make one token of हिन्दी. (Seen on Llama 3, Qwen 3, and all
that use the pattern of GPT-2; https://github.com/openai/tiktoken/issues/292.)
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise, zip_longest
from typing import Any

import regex
from tokenizers import Tokenizer

from lingraft.corpus.characters import words
from lingraft.corpus.scripts import script_of
from lingraft.errors import VocabularyError
from lingraft.polling import poll
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["WordCuts", "audit_words", "bare_pipeline", "needs_patch", "patch_marks", "sum_cuts"]

# llama.cpp takes a patched pattern for the unpatched one and cuts target text wrongly, so it must be worth it. Text
# with stray accents or vowel points stays below this share of its words, a script that needs its marks is far above.
_WORTH_A_PATCH = 0.05
_EXAMPLES = 5
_JOINERS = "\u200c\u200d"
_APOSTROPHES = "'’"
# Of two causes in one word the first here is counted.
_CAUSES = ("mark", "joiner", "apostrophe", "other")
_WORD = regex.compile(rf"\p{{L}}(?:[\p{{L}}\p{{M}}{_JOINERS}]|[{_APOSTROPHES}](?=\p{{L}}))*")
_MARK = regex.compile(r"\p{M}")

# What `ByteLevel` with `use_regex` does, spelled out.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CLASS = r"(?<class>\[\^?\]?(?:\\[pP]\{[^}]*\}|\\.|[^\[\]\\]|(?&class))*\])"
_PART = regex.compile(
    rf"{_CLASS}|(?<run>\\p\{{L\}}(?<times>[+*]\+?)(?![?{{]))|(?<letter>\\p\{{L\}})|\\.|.", regex.DOTALL
)
# The alphabets whose marks are the general ones; elsewhere these are left to the languages that write with them.
_GENERAL_MARKS = r"\u0300-\u036F"
_WITH_GENERAL_MARKS = frozenset({"Latin", "Greek", "Cyrillic"})


@dataclass(frozen=True)
class WordCuts:
    """How many words of a text the pre-tokenizer cuts apart.

    Attributes:
        words: words with a letter, each counted as often as it occurs.
        cut: those of them that come as more than one piece.
        pre_tokens: the pieces of all the words.
        causes: cause → cut words: ``mark`` (a vowel sign, a harakat, any combining mark), ``joiner`` (ZWJ, ZWNJ),
            ``apostrophe`` or ``other``. A word counts once, under the first of these that applies.
        examples: the most frequent cut words, as in ``हिन्दी → ह|ि|न|्|द|ी``.
    """

    words: int
    cut: int
    pre_tokens: int
    causes: Mapping[str, int]
    examples: tuple[str, ...]

    @property
    def cut_fraction(self) -> float:
        """The share of words that no single token can cover."""
        return self.cut / self.words

    @property
    def floor(self) -> float:
        """Pieces per word: what words themselves cost with the best of vocabularies; punctuation comes on top."""
        return self.pre_tokens / self.words

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a report."""
        counts = {"words": self.words, "cut": self.cut, "pre_tokens": self.pre_tokens}
        shares = {"cut_fraction": self.cut_fraction, "floor": self.floor}
        return counts | shares | {"causes": dict(self.causes), "examples": list(self.examples)}


def bare_pipeline(tokenizer: TokenizerFile) -> Tokenizer:
    """Return the normaliser and the pre-tokenizer of a file without its vocabulary, which takes long to load."""
    empty: dict[str, Any] = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    empty |= {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    own = {part: tokenizer.raw.get(part) for part in ("normalizer", "pre_tokenizer")}
    return Tokenizer.from_str(json.dumps(empty | own))


def audit_words(tokenizer: TokenizerFile, texts: Iterable[str]) -> WordCuts:
    """Return how many words of a text are cut apart before merging begins, so that no token can be one of them.

    A word is what fertility counts (:func:`~lingraft.corpus.characters.words`: what white space separates, a single
    character with its marks in scripts without spaces), reduced to its longest run of letters, marks, joiners, and
    apostrophes that stand before a letter. So quotes, digits and hyphens are no cuts, and words without a letter do not
    count. Each is normalised and pre-tokenised as it stands in a text, behind a space. A tokenizer that does not split
    words (SentencePiece BPE, Unigram) has no cuts.

    Raises:
        VocabularyError: the texts hold no word.
    """
    counts = _count_bare_words(texts)
    if not counts:
        raise VocabularyError(f"{tokenizer.source}: cuts cannot be counted on texts without a word")
    pipeline = bare_pipeline(tokenizer)
    cuts: Counter[str] = Counter()
    pre_tokens, examples = 0, []
    for word, count in counts.most_common():
        pieces = _pieces(pipeline, word)
        pre_tokens += count * max(1, len(pieces))
        if len(pieces) > 1:
            cuts[_cause(pieces)] += count
            examples.append(f"{word} → {'|'.join(pieces)}")
    causes = {cause: cuts[cause] for cause in _CAUSES}
    return WordCuts(counts.total(), cuts.total(), pre_tokens, causes, tuple(examples[:_EXAMPLES]))


def sum_cuts(parts: Iterable[WordCuts]) -> WordCuts:
    """Return the cuts of several texts together; their examples take turns, so that each text shows its own."""
    found = list(parts)
    causes = {cause: sum(part.causes[cause] for part in found) for cause in _CAUSES}
    turns = chain.from_iterable(zip_longest(*(part.examples for part in found)))
    examples = list(dict.fromkeys(example for example in turns if example is not None))
    return WordCuts(
        words=sum(part.words for part in found),
        cut=sum(part.cut for part in found),
        pre_tokens=sum(part.pre_tokens for part in found),
        causes=causes,
        examples=tuple(examples[:_EXAMPLES]),
    )


def needs_patch(cuts: WordCuts) -> bool:
    """Whether marks or joiners cut so many words, 5 % at least, that the pattern should keep them."""
    return cuts.causes["mark"] + cuts.causes["joiner"] >= _WORTH_A_PATCH * cuts.words


def _count_bare_words(texts: Iterable[str]) -> Counter[str]:
    raw: Counter[str] = Counter()
    for text in texts:
        poll()
        raw.update(words(text))
    bare: Counter[str] = Counter()
    for word, count in raw.items():
        if runs := _WORD.findall(word):
            bare[max(runs, key=len)] += count
    return bare


def _pieces(pipeline: Tokenizer, word: str) -> list[str]:
    """Return the pieces of a word behind a space; pieces that are nothing but that space are left out."""
    text = f" {word}"
    if pipeline.normalizer is not None:
        text = pipeline.normalizer.normalize_str(text)
    if pipeline.pre_tokenizer is None:
        return [word]
    spans = [span for _, span in pipeline.pre_tokenizer.pre_tokenize_str(text)]
    pieces = (text[start:end].strip(" ▁") for start, end in spans)
    return [piece for piece in pieces if piece]


def _cause(pieces: list[str]) -> str:
    """Return why a word is cut, by the characters on both sides of its cuts."""
    beside = {character for left, right in pairwise(pieces) for character in (left[-1], right[0])}
    if any(_MARK.match(character) for character in beside):
        return "mark"
    if beside & set(_JOINERS):
        return "joiner"
    return "apostrophe" if beside & set(_APOSTROPHES) else "other"


def patch_marks(tokenizer: TokenizerFile, scripts: frozenset[str]) -> TokenizerFile:
    r"""Return the same tokenizer with a pattern that keeps the marks of these scripts, and joiners, inside words.

    Each run of letters in the pattern, ``\p{L}+``, becomes ``(?:\p{L}[…]*)+``. The class lists U+200C, U+200D and the
    marks (category M) of the scripts: those that Unicode names for the script in Script_Extensions, and those in the
    block of its name, since vowel points of Arabic and accents of the Veda belong to no one script. Of the general
    accents U+0300 to U+036F, Latin, Greek and Cyrillic have all and the others none.

    **What stays.** In a text where no letter has one of these characters right behind it, ``[…]*`` can only match
    nothing, so both expressions match the same strings in the same order at every place, and so does all that is built
    from them: the pieces, hence the tokens, are the same. This holds for any such text in any language, after the
    tokenizer's own normaliser. Emoji sequences stay as well, since a joiner counts behind a letter only.

    The pattern built into ``ByteLevel`` (GPT-2, SmolLM2) is first spelled out as a ``Split``, which gives the same
    pieces. The tokenizer itself comes back where it cuts none of these characters, and where its pattern has ``\p{M}``
    in a class of letters (o200k); the latter still cuts at joiners.

    Args:
        tokenizer: the tokenizer; vocabulary and merges are not looked at.
        scripts: Unicode names as :func:`~lingraft.corpus.scripts.script_of` gives them, as in ``Devanagari``.

    Raises:
        VocabularyError: a name is no script, or the pre-tokenizer is of no kind that can be patched in this way.
    """
    if not scripts:
        raise VocabularyError(f"{tokenizer.source}: no script is named whose marks are to be kept")
    before = tokenizer.raw.get("pre_tokenizer")
    if before is None or _holds_marks(before) or not _cuts_marks(tokenizer, scripts):
        return tokenizer
    marks = _character_class(character for script in scripts for character in _kept_in_words(script)[1])
    parts = _patched(before, marks, tokenizer.source)
    after = parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}
    text = json.dumps(tokenizer.raw | {"pre_tokenizer": after}, ensure_ascii=False, indent=1)
    patched = TokenizerFile(text, f"{tokenizer.source} (marks kept in words)")
    if _cuts_marks(patched, scripts):
        raise VocabularyError(
            f"{tokenizer.source}: the pre-tokenizer cuts words at marks and cannot be patched: "
            f"{json.dumps(before, ensure_ascii=False)}; a Split with \\p{{L}}+ in its pattern can be, and ByteLevel"
        )
    return patched


def _patched(part: dict[str, Any], marks: str, source: str) -> list[dict[str, Any]]:
    """Return the parts that a pre-tokenizer becomes: itself if it has no run of letters, two if it is spelled out."""
    if part["type"] == "Sequence":
        inner = [new for old in part["pretokenizers"] for new in _patched(old, marks, source)]
        return [part | {"pretokenizers": inner}]
    if part["type"] == "ByteLevel" and part.get("use_regex", True):
        return _spelled_out(part, marks, source)
    if pattern := _pattern_of(part):
        return [part | {"pattern": {"Regex": _patched_pattern(pattern, marks, source)}}]
    return [part]


def _spelled_out(part: dict[str, Any], marks: str, source: str) -> list[dict[str, Any]]:
    if part.get("add_prefix_space", True):
        raise VocabularyError(
            f"{source}: the pattern of a ByteLevel pre-tokenizer with add_prefix_space: true cannot be changed without "
            "putting a space in front of every piece; a base with add_prefix_space: false is needed"
        )
    pattern = _patched_pattern(_GPT2, marks, source)
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return [split, part | {"use_regex": False}]


def _patched_pattern(pattern: str, marks: str, source: str) -> str:
    def replaced(found: Any) -> str:
        if found["run"]:
            return rf"(?:\p{{L}}{marks}*){found['times']}"
        if found["letter"]:
            raise VocabularyError(rf"{source}: only \p{{L}}+ and \p{{L}}* can be patched in the pattern {pattern!r}")
        return str(found[0])

    return str(_PART.sub(replaced, pattern))


def _pattern_of(part: dict[str, Any]) -> str:
    """Return the regular expression of a split, or nothing."""
    return str(part["pattern"].get("Regex", "")) if part["type"] == "Split" else ""


def _holds_marks(part: dict[str, Any]) -> bool:
    r"""Whether a pattern has a class of letters with ``\p{M}`` in it, as that of o200k."""
    if part["type"] == "Sequence":
        return any(_holds_marks(member) for member in part["pretokenizers"])
    classes = (found["class"] or "" for found in _PART.finditer(_pattern_of(part)))
    return any(r"\p{M}" in it and r"\p{L" in it and not it.startswith("[^") for it in classes)


@lru_cache(maxsize=64)
def _kept_in_words(script: str) -> tuple[str, str]:
    """Return a letter of a script, and the characters that belong inside its words: its marks and the joiners."""
    characters = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    try:
        letter = regex.search(rf"[\p{{sc={script}}}&&\p{{L}}]", characters, regex.V1)
    except regex.error as error:
        raise VocabularyError(f"{script!r} is not the Unicode name of a script, as 'Devanagari' is") from error
    if letter is None or script_of(letter[0]) is None:
        raise VocabularyError(f"{script!r} is not a script with letters of its own, as 'Devanagari' is")
    marks = rf"[[\p{{scx={script}}}{_block_of(script)}]&&\p{{M}}]"
    general = _GENERAL_MARKS if script in _WITH_GENERAL_MARKS else ""
    kept = regex.compile(rf"[[{marks}--[{_GENERAL_MARKS}]]{general}{_JOINERS}]", regex.V1)
    return letter[0], "".join(kept.findall(characters))


def _block_of(script: str) -> str:
    """Return the property of the block named as a script, or nothing where no block has that name."""
    found = rf"\p{{blk={script}}}"
    try:
        regex.compile(found)
    except regex.error:
        found = ""
    return found


def _character_class(characters: Iterable[str]) -> str:
    r"""Return a class in the spelling that Oniguruma, Rust and JavaScript share: ``\u0900``; above U+FFFF as it is."""
    runs: list[list[int]] = []
    for point in sorted({ord(character) for character in characters}):
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    spelled = (_spelled(first) + (f"-{_spelled(last)}" if last > first else "") for first, last in runs)
    return f"[{''.join(spelled)}]"


def _spelled(point: int) -> str:
    return f"\\u{point:04X}" if point <= 0xFFFF else chr(point)


def _cuts_marks(tokenizer: TokenizerFile, scripts: frozenset[str]) -> bool:
    """Whether a word is cut in which a letter stands on both sides of each mark and joiner."""
    splitter = bare_pipeline(tokenizer).pre_tokenizer
    words_of_all = (letter + "".join(mark + letter for mark in kept) for letter, kept in map(_kept_in_words, scripts))
    return any(len(splitter.pre_tokenize_str(word)) > 1 for word in words_of_all)
