"""What a pre-tokenizer cuts apart, and a pattern that keeps marks in words and changes nothing else."""

import io
import json
from pathlib import Path

import pytest
import regex
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import VocabularyError
from lingraft.vocabulary.audit import DIFFICULT, random_strings
from lingraft.vocabulary.pre_tokenizer import WordCuts, audit_words, bare_pipeline, needs_patch, patch_marks, sum_cuts
from lingraft.vocabulary.tokenizer_file import TokenizerFile

SAMPLE = Path(__file__).parents[2] / "recipes" / "sample" / "en.jsonl.zst"
ZWJ, ZWNJ = "\u200d", "\u200c"
INDIC = frozenset({"Devanagari"})
BOTH = frozenset({"Devanagari", "Arabic"})

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def byte_level(use_regex, add_prefix_space=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


DIGITS = {"type": "Digits", "individual_digits": True}
PATCHABLE = {
    "llama3": sequence(split(LLAMA3), byte_level(False)),
    "qwen": sequence(split(LLAMA3.replace("{1,3}", "")), byte_level(False)),
    "cl100k, removed and inverted": sequence(split(CL100K, "Removed", True), byte_level(False)),
    "deepseek coder": sequence(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), DIGITS, byte_level(False)),
    "gpt2": byte_level(True),
    "smollm2": sequence(DIGITS, byte_level(True)),
    "letters or nothing": sequence(split(r"\p{N}\p{L}*|\p{L}+|\s+|[^\p{L}\p{N}\s]+"), byte_level(False)),
}
WHOLE_WORDS = {
    "llama2": (
        {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        None,
    ),
    "gemma": (
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    ),
    "unigram": (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
    "bloom": (None, sequence(split(BLOOM), byte_level(False))),
}


@pytest.fixture(scope="module")
def made(tokenizer_text):
    """Return a function: pre-tokenizer (and normaliser) → the tiny tokenizer with them."""
    raw = json.loads(tokenizer_text)

    def make(pre_tokenizer, normalizer=None, source="base"):
        return TokenizerFile(json.dumps(raw | {"pre_tokenizer": pre_tokenizer, "normalizer": normalizer}), source)

    return make


def pieces(tokenizer, text):
    return bare_pipeline(tokenizer).pre_tokenizer.pre_tokenize_str(text)


def cut(tokenizer, text):
    """Return the pieces of a text as they stand in it."""
    return [text[start:end] for _, (start, end) in pieces(tokenizer, text)]


# The audit ------------------------------------------------------------------------------------------------------------


def test_whole_english_words_are_not_cut(made):
    cuts = audit_words(made(PATCHABLE["llama3"]), ["The quick (brown) fox, 42 times; twenty-five.", "e-mail"])
    assert (cuts.words, cuts.cut, cuts.pre_tokens, cuts.floor, cuts.cut_fraction) == (7, 0, 7, 1.0, 0.0)
    assert cuts.examples == ()
    assert not needs_patch(cuts)


def test_cuts_of_several_texts_add_up_and_their_examples_take_turns(made):
    texts = (["हिन्दी word हिन्दी"], ["don't", "can't can't"])
    tokenizer = made(PATCHABLE["gpt2"])
    parts = [audit_words(tokenizer, text) for text in texts]
    both, whole = sum_cuts(parts), audit_words(tokenizer, [*texts[0], *texts[1]])
    assert both.as_dict() | {"examples": None} == whole.as_dict() | {"examples": None}
    assert both.examples == ("हिन्दी → ह|ि|न|्|द|ी", "can't → can|'t", "don't → don|'t")
    assert sum_cuts(parts[:1]) == parts[0]


def test_vowel_signs_cut_hindi_words_as_the_pattern_says(made):
    cuts = audit_words(made(PATCHABLE["gpt2"]), ["हिन्दी word हिन्दी"])
    assert cuts.as_dict() == {
        "words": 3,
        "cut": 2,
        "pre_tokens": 13,
        "cut_fraction": 2 / 3,
        "floor": 13 / 3,
        "causes": {"mark": 2, "joiner": 0, "apostrophe": 0, "other": 0},
        "examples": ["हिन्दी → ह|ि|न|्|द|ी"],
    }
    assert audit_words(made(PATCHABLE["llama3"]), ["हिन्दी"]).examples == ("हिन्दी → ह|िन|्द|ी",)
    assert needs_patch(cuts)


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("कि", "mark"),
        ("مَرْحَبًا", "mark"),
        ("می\u200cخواهم", "joiner"),
        ("क\u200dष", "joiner"),
        ("क्\u200dष", "mark"),
        ("dugu'la", "apostrophe"),
        ("l’homme", "apostrophe"),
    ],
)
def test_each_cut_word_has_one_cause(made, word, cause):
    cuts = audit_words(made(PATCHABLE["gpt2"]), [f"a {word}."])
    assert {name: n for name, n in cuts.causes.items() if n} == {cause: 1}
    assert (cuts.words, cuts.cut) == (2, 1)


def test_other_causes_are_told_apart_from_marks(made):
    cuts = audit_words(made(sequence(split(O200K), byte_level(False))), ["LibreOffice हिन्दी"])
    assert cuts.causes == {"mark": 0, "joiner": 0, "apostrophe": 0, "other": 1}
    assert cuts.examples == ("LibreOffice → Libre|Office",)


def test_quotes_digits_and_hyphens_around_a_word_are_no_cuts(made):
    cuts = audit_words(made(PATCHABLE["smollm2"]), ["«'dugu'», 'etxe' 3.5 a4-paper ---"])
    assert (cuts.words, cuts.cut) == (3, 0)


def test_a_word_is_its_longest_run_and_stands_behind_a_space(made):
    cuts = audit_words(made(split(r" \p{L}+|\p{L}")), ["x-paper e.हिन्दी"])
    assert (cuts.words, cuts.cut) == (2, 1)
    assert cuts.examples == ("हिन्दी → ह|ि|न|्|द|ी",)


def test_a_character_with_its_marks_is_the_word_of_scripts_without_spaces(made):
    cuts = audit_words(made(PATCHABLE["gpt2"]), ["北京 ที่"])
    assert (cuts.words, cuts.cut, cuts.pre_tokens) == (3, 1, 4)


@pytest.mark.parametrize("name", WHOLE_WORDS)
def test_tokenizers_that_split_no_words_cut_nothing(made, name):
    normaliser, pre_tokenizer = WHOLE_WORDS[name]
    tokenizer = made(pre_tokenizer, normaliser)
    cuts = audit_words(tokenizer, ["हिन्दी क्षत्रिय l'homme می\u200cخواهم مَرْحَبًا"])
    assert (cuts.words, cuts.cut, cuts.pre_tokens) == (5, 0, 5)
    assert patch_marks(tokenizer, BOTH) is tokenizer


def test_words_are_audited_as_the_normaliser_leaves_them(made):
    composed = "caf\u00e9"
    decomposed = "cafe\u0301"
    assert audit_words(made(PATCHABLE["llama3"]), [decomposed]).cut == 1
    assert audit_words(made(PATCHABLE["llama3"], {"type": "NFC"}), [decomposed]).cut == 0
    assert audit_words(made(PATCHABLE["llama3"]), [composed]).cut == 0


def test_examples_are_the_most_frequent_cut_words(made):
    text = "कि " * 3 + "की " * 2 + " ".join(f"क{mark}" for mark in "ुूृेैोौ")
    examples = audit_words(made(PATCHABLE["gpt2"]), [text]).examples
    assert examples[:2] == ("कि → क|ि", "की → क|ी")
    assert len(examples) == 5


def test_a_text_without_words_is_refused(made):
    with pytest.raises(VocabularyError, match="base: cuts cannot be counted on texts without a word"):
        audit_words(made(PATCHABLE["gpt2"]), ["12 -- ☃", ""])


@pytest.mark.parametrize(("marks", "joiners", "others", "expected"), [(3, 2, 0, True), (3, 1, 90, False)])
def test_a_patch_is_worth_five_percent_of_the_words(marks, joiners, others, expected):
    causes = {"mark": marks, "joiner": joiners, "apostrophe": 0, "other": others}
    assert needs_patch(WordCuts(100, marks + joiners + others, 200, causes, ())) is expected


# The patch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PATCHABLE)
def test_patched_patterns_keep_marks_and_joiners_inside_words(made, name):
    old = made(PATCHABLE[name])
    new = patch_marks(old, BOTH)
    words = ["हिन्दी", "क्षत्रिय", "क्\u200dष", "مَرْحَبًا", "می\u200cخواهم", "ॐ॒", "ف\u0670"]
    assert audit_words(old, words).cut == len(words)
    assert audit_words(new, words).cut == 0
    assert (new.vocabulary, new.merges) == (old.vocabulary, old.merges)
    assert new.raw["added_tokens"] == old.raw["added_tokens"]
    for text in DIFFICULT:
        assert new.decode(new.encode(text)) == old.decode(old.encode(text))


def test_only_the_named_scripts_are_kept(made):
    new = patch_marks(made(PATCHABLE["llama3"]), INDIC)
    assert cut(new, "हिन्दी") == ["हिन्दी"]
    assert cut(new, "هُم") == ["ه", "ُم"]
    assert cut(new, "cafe\u0301s") == ["cafe", "\u0301s"]
    assert cut(patch_marks(made(PATCHABLE["llama3"]), frozenset({"Latin"})), "cafe\u0301s") == ["cafe\u0301s"]


def test_general_accents_are_left_to_the_alphabets_that_write_with_them(made):
    """Unicode names Thai among the scripts of the tilde above, for minority languages; Portuguese must stay as it is."""
    for script in ("Thai", "Hebrew"):
        new = patch_marks(made(PATCHABLE["llama3"]), frozenset({script}))
        assert cut(new, "na\u0303o e\u0308") == ["na", "\u0303o", " e", "\u0308"]
    assert cut(patch_marks(made(PATCHABLE["llama3"]), frozenset({"Thai"})), "ที่นี่") == ["ที่นี่"]
    assert cut(patch_marks(made(PATCHABLE["llama3"]), frozenset({"Cyrillic"})), "за\u0301мок") == ["за\u0301мок"]


def test_marks_that_belong_to_no_one_script_are_found_by_their_block_and_extensions(made):
    pattern = patch_marks(made(PATCHABLE["llama3"]), BOTH).raw["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    kept = regex.search(r"\\p\{L\}(\[[^\]]*\])\*", pattern)[1]
    for mark in "\u064b\u065f\u0670\u06dc\u0951\u0953\u1cd0\u094d\u200c\u200d":
        assert regex.fullmatch(kept, mark), f"U+{ord(mark):04X}"
    for other in "\u0300\u0640\u0904\u0e34\u200b\u200e\ufe0f aकا१":
        assert not regex.fullmatch(kept, other), f"U+{ord(other):04X}"
    assert len(kept) < 400
    assert r"\u093E-\u094F" in kept


def test_a_pattern_is_changed_at_its_runs_of_letters_only(made):
    new = patch_marks(made(PATCHABLE["llama3"]), frozenset({"Georgian"}))
    pattern = new.raw["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    assert pattern == LLAMA3.replace(r"\p{L}+", r"(?:\p{L}[\u200C-\u200D]*)+")
    possessive = patch_marks(made(split(CL100K)), frozenset({"Georgian"})).raw["pre_tokenizer"]["pattern"]["Regex"]
    assert possessive == CL100K.replace(r"\p{L}++", r"(?:\p{L}[\u200C-\u200D]*)++")


def test_the_pattern_of_byte_level_is_spelled_out_before_it(made):
    new = patch_marks(made(PATCHABLE["smollm2"]), INDIC).raw["pre_tokenizer"]["pretokenizers"]
    assert [part["type"] for part in new] == ["Digits", "Split", "ByteLevel"]
    assert new[2]["use_regex"] is False
    alone = patch_marks(made(PATCHABLE["gpt2"]), INDIC).raw["pre_tokenizer"]
    assert [part["type"] for part in alone["pretokenizers"]] == ["Split", "ByteLevel"]


@pytest.mark.parametrize("name", PATCHABLE)
def test_patching_again_changes_nothing(made, name):
    new = patch_marks(made(PATCHABLE[name]), BOTH)
    assert patch_marks(new, BOTH) is new
    assert patch_marks(new, INDIC) is new


def test_a_pattern_with_marks_among_its_letters_is_left_alone(made):
    old = made(sequence(split(O200K), byte_level(False)))
    assert patch_marks(old, INDIC) is old
    assert cut(old, "हिन्दी") == ["हिन्दी"]


# What stays -----------------------------------------------------------------------------------------------------------

AFTER_LETTER = "ािुेंः़्ँَُِّْ\u0670\u0951\u0953" + ZWJ + ZWNJ
SIGNS = "aZéßकमابя京ﬁ 0१٣½'’.,-_(\n\r\t\u00a0\u3000\u0301\u0e34👩❤\ufe0f" + AFTER_LETTER
CONTRACTIONS = st.sampled_from(
    ["'s", "'LL", "'ve", " don't", "  ", "\r\n", " \n ", "!!\n", "abc", "123456", f"👩{ZWJ}👧"]
)


def without_marks_behind_letters(text):
    """Take out what stands behind a letter and would be kept with it."""
    kept = rf"(?<=\p{{L}})[\u0900-\u0903\u093A-\u093C\u093E-\u094F\u0951-\u0957\u064B-\u065F\u0670{ZWJ}{ZWNJ}]+"
    return regex.sub(kept, "", text)


@pytest.mark.parametrize("name", PATCHABLE)
@settings(deadline=None, max_examples=150)
@given(parts=st.lists(st.text(SIGNS, max_size=8) | CONTRACTIONS, max_size=8))
def test_text_without_marks_behind_letters_has_the_same_pieces(made, name, parts):
    text = without_marks_behind_letters("".join(parts))
    old, new = pair(made, name)
    assert old.pre_tokenize_str(text) == new.pre_tokenize_str(text)


@pytest.mark.parametrize("name", PATCHABLE)
@settings(deadline=None, max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["M", "Cs"], exclude_characters=ZWJ + ZWNJ), max_size=60))
def test_text_of_all_unicode_without_marks_has_the_same_pieces(made, name, text):
    old, new = pair(made, name)
    assert old.pre_tokenize_str(text) == new.pre_tokenize_str(text)


def test_the_property_above_would_see_a_difference(made):
    old, new = pair(made, "llama3")
    assert old.pre_tokenize_str("aि") != new.pre_tokenize_str("aि")
    assert old.pre_tokenize_str("1ि") == new.pre_tokenize_str("1ि")


_PAIRS = {}


def pair(made, name):
    """Return the pre-tokenizers before and after the patch, made once."""
    if name not in _PAIRS:
        old = made(PATCHABLE[name])
        _PAIRS[name] = [bare_pipeline(one).pre_tokenizer for one in (old, patch_marks(old, BOTH))]
    return _PAIRS[name]


PLAIN = [
    "Don't we'll they've I'm it's he'd you're; DON'T WE'LL 'tis 'quoted' rock'n'roll",
    "a\n\n\n  b\t\tc   \n d \r\n\r\n e  ",
    "1 12 123 1234 3.14159 1e-4 ½ ² x² v1.2.3 ١٢٣ १२३",
    "   leading,  inner and trailing   ",
    "def f(x):\n    return {k: v for k, v in x.items() if k != '_id'}  # ok\n\n\n",
    "naïve café ÅÄÖ ﬁ ß Straße ЁЖ 北京 ქართული",
    f"👩{ZWJ}👩{ZWJ}👧 ❤\ufe0f{ZWJ}🔥 🇪🇺 family: 👨{ZWJ}👩{ZWJ}👦.",
    "\u00a0\u2003 \u3000x\u0085y\u2028z",
    "",
]


@pytest.mark.parametrize("name", PATCHABLE)
@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_and_emoji_keep_their_pieces_and_ids(made, name, text):
    old, new = pair(made, name)
    assert old.pre_tokenize_str(text) == new.pre_tokenize_str(text)
    base = made(PATCHABLE[name])
    assert base.encode(text) == patch_marks(base, BOTH).encode(text)


@pytest.mark.parametrize("name", ["llama3", "smollm2"])
def test_real_english_keeps_its_pieces(made, name):
    """Of the English sample one document explains Arabic vowel points, with examples; it alone may change."""
    with SAMPLE.open("rb") as raw, io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(raw), "utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    old, new = pair(made, name)
    arabic = [text for text in texts if regex.search(r"\p{L}[\u064B-\u065F]", text)]
    assert (len(texts) > 1000, len(arabic)) == (True, 1)
    assert [t for t in texts if old.pre_tokenize_str(t) != new.pre_tokenize_str(t)] == arabic


@pytest.mark.parametrize("name", PATCHABLE)
def test_o07_every_text_comes_back_with_the_patched_pattern(made, name):
    """Only cuts move, so bytes are regrouped and none is lost."""
    base = made(PATCHABLE[name])
    new = patch_marks(base, BOTH)
    for text in [*DIFFICULT, *random_strings(50), "Bác"]:
        assert new.decode(new.encode(text)) == base.decode(base.encode(text))


def test_o04_white_space_is_cut_as_before(made):
    for name in PATCHABLE:
        old, new = pair(made, name)
        assert old.pre_tokenize_str("a\n\n  b\tc") == new.pre_tokenize_str("a\n\n  b\tc")


def test_long_runs_take_no_more_than_linear_time(made):
    new = patch_marks(made(PATCHABLE["llama3"]), INDIC)
    for text in ("क" * 200_000, "कि" * 100_000, "ि" * 200_000, f"a{ZWJ}" * 100_000):
        assert len(pieces(new, text)) == 1


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_prefix_space_cannot_be_moved(made):
    with pytest.raises(VocabularyError, match=r"base: .*add_prefix_space: true cannot be changed"):
        patch_marks(made(byte_level(True, add_prefix_space=True)), INDIC)


@pytest.mark.parametrize("letters", [r"\p{L}", r"\p{L}{1,8}", r"\p{L}+?", r"\p{L}?"])
def test_other_uses_of_letters_are_refused_by_pattern(made, letters):
    pattern = rf"\s+|{letters}|[^\s\p{{L}}]+"
    with pytest.raises(VocabularyError, match="base: only ") as caught:
        patch_marks(made(sequence(split(pattern), byte_level(False))), INDIC)
    assert repr(pattern) in str(caught.value)


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        {"type": "UnicodeScripts"},
        sequence(split(r"\s?[\p{L}\p{N}]+|\s+|[^\p{L}\p{N}\s]+"), byte_level(False)),
        sequence(split(LLAMA3), split(r"[\p{Mn}\p{Mc}]"), byte_level(False)),
    ],
)
def test_what_still_cuts_marks_is_refused_and_named(made, pre_tokenizer):
    with pytest.raises(VocabularyError, match="base: the pre-tokenizer cuts words at marks and cannot be patched") as e:
        patch_marks(made(pre_tokenizer), INDIC)
    assert pre_tokenizer["type"] in str(e.value)


@pytest.mark.parametrize("name", ["Other", "Klingon", "Common", "Inherited", "hi]"])
def test_names_that_are_no_scripts_are_refused(made, name):
    with pytest.raises(VocabularyError, match="as 'Devanagari' is"):
        patch_marks(made(PATCHABLE["gpt2"]), frozenset({name}))


def test_no_script_is_refused(made):
    with pytest.raises(VocabularyError, match="no script is named"):
        patch_marks(made(PATCHABLE["gpt2"]), frozenset())
