"""Expansion of SentencePiece-type BPE: missing characters first, bytes never, one script's letters in a token."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.vocabulary import (
    AuditTexts,
    LearnOptions,
    audit_expansion,
    candidates_from,
    expand_vocabulary,
    segmentation_drift,
)
from lingraft.vocabulary.scripts import script_of

KINDS = ["llama", "gemma", "metaspace"]
HAN = [
    "筹款 筹备 筹集资金 和 筹",
    "筹备会议 在 北京 召开 筹款",
    "资金 筹集 完成 后 召开 会议",
] * 8
HINDI = [
    "यह एक छोटा दस्तावेज़ है और इसमें हिन्दी के कुछ शब्द हैं",
    "दस्तावेज़ खोलने के लिए फ़ाइल चुनें और फिर खोलें पर क्लिक करें",
    "हिन्दी के शब्द इस दस्तावेज़ में बार बार आते हैं १२३ 123 x५",
] * 8


def pinned(script, num_tokens=60, **options):
    return LearnOptions(**({"min_count": 5, "pinned_scripts": frozenset({script})} | options), num_tokens=num_tokens)


@pytest.fixture(scope="module")
def han(bases, english_lines):
    return {kind: expand_vocabulary(bases[kind], HAN, english_lines[:200], pinned("Han")) for kind in KINDS}


@pytest.fixture(scope="module")
def hindi(bases, english_lines):
    return {
        kind: expand_vocabulary(bases[kind], HINDI, english_lines[:200], pinned("Devanagari"), {"hi": HINDI[:6]})
        for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_o01_new_character_is_found_at_every_position(bases, kind):
    grown = expand_vocabulary(bases[kind], ["筹"] * 9, [], pinned("Han", 1))
    new = grown.new
    ((own, spelling),) = [(token.id, token.spelling) for token in grown.new_tokens]
    assert (spelling, grown.old.id_of("筹")) == ("筹", None)
    for text, times in {
        "筹": 1, "筹筹": 2, '"筹': 1, "(筹)筹。筹": 3, "x筹y": 1, "a 筹": 1, "\n筹\n": 1, "1筹2": 1, "  筹": 1,
    }.items():  # fmt: skip
        assert new.encode(text).count(own) == times, text
        assert new.decode(new.encode(text)) == grown.old.decode(grown.old.encode(text))


def test_missing_characters_come_first_and_the_most_frequent_of_them_first(han, hindi):
    for expansions in (han, hindi):
        spellings = [token.spelling for token in expansions["llama"].new_tokens]
        singles = [len(spelling) == 1 for spelling in spellings]
        assert singles == sorted(singles, reverse=True)
        counts = [token.count for token in expansions["llama"].new_tokens if len(token.spelling) == 1]
        assert counts == sorted(counts, reverse=True)
        assert min(counts) >= 5
    text = "".join(HAN)
    assert [token.count for token in han["llama"].new_tokens[:5]] == [
        text.count(t.spelling) for t in han["llama"].new_tokens[:5]
    ]


def test_character_of_four_occurrences_stays_bytes(bases):
    grown = expand_vocabulary(bases["llama"], ["筹款"] * 5 + ["备"] * 4, [], pinned("Han"))
    assert grown.new.id_of("筹") is not None
    assert grown.new.id_of("备") is None
    assert grown.new.encode("备") == grown.old.encode("备")


def test_at_most_as_many_characters_as_tokens(bases):
    grown = expand_vocabulary(bases["llama"], HAN, [], pinned("Han", 3))
    assert [len(token.spelling) for token in grown.new_tokens] == [1, 1, 1]


def test_only_letters_and_marks_become_characters(bases):
    """Digits, punctuation, signs and joiners stay what they were; a newline stays a byte."""
    texts = ["यह १ ५ । … “यह” ☃ क\u200dष\n"] * 9
    grown = expand_vocabulary(bases["llama"], texts, [], pinned("Devanagari"))
    made = {token.spelling for token in grown.new_tokens}
    assert {"य", "ह", "क", "ष"} <= made
    assert not made & set("१५।…“”☃\n\u200d")
    assert grown.new.encode("a\nb").count(grown.new.id_of("<0x0A>")) == 1


def test_character_of_the_source_becomes_no_token_unless_it_is_pinned(bases):
    texts = ["ñandú ñoño ñu"] * 9
    free = expand_vocabulary(bases["llama"], texts, [], LearnOptions(9, min_count=5))
    texts = [f"{text} qzak" for text in texts]
    tied = expand_vocabulary(bases["llama"], texts, ["jalapeño and ú"], LearnOptions(9, min_count=5))
    assert "ñ" in {token.spelling for token in free.new_tokens}
    assert not any("ñ" in token.spelling or "ú" in token.spelling for token in tied.new_tokens)
    kept = expand_vocabulary(bases["llama"], ["यह"] * 9, ["so यह"], pinned("Devanagari"))
    assert "य" in {token.spelling for token in kept.new_tokens}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_a_new_token_are_the_bytes_that_spelled_it(hindi, kind):
    old = hindi[kind].old
    for token in hindi[kind].new_tokens:
        raw = token.spelling.removeprefix("▁").encode()
        bytes_of = [old.id_of(f"<0x{byte:02X}>") for byte in raw]
        assert list(token.pieces) == [old.id_of("▁")] * token.spelling.startswith("▁") + bytes_of


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_never_merged_and_tokens_are_one_script_without_digits(hindi, kind):
    new, old = hindi[kind].new, hindi[kind].old
    assert not any(part.startswith("<0x") for pair in new.merges[len(old.merges) :] for part in pair)
    for token in hindi[kind].new_tokens:
        bare = token.spelling.removeprefix("▁")
        assert "▁" not in bare
        assert not any(character.isdigit() for character in bare)
        assert len({script_of(character) for character in bare} - {None}) == 1


def test_letters_of_two_scripts_stay_two_tokens(bases):
    grown = expand_vocabulary(bases["llama"], ["kक kक"] * 20, [], pinned("Devanagari"))
    assert {token.spelling for token in grown.new_tokens} == {"क", "▁k"}


@pytest.mark.parametrize("kind", KINDS)
def test_o13_no_text_has_an_unknown_id(han, hindi, kind):
    @settings(max_examples=80, deadline=None)
    @given(text=st.text(max_size=40))
    def check(text):
        for grown in (han[kind], hindi[kind]):
            ids = grown.new.encode(text)
            assert grown.new.unknown_id == grown.new.id_of("<unk>") not in ids
            assert grown.new.decode(ids) == grown.old.decode(grown.old.encode(text))

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_every_gate_that_stops_passes(han, hindi, english_lines, kind):
    for expansion, target in ((han[kind], HAN), (hindi[kind], HINDI)):
        texts = AuditTexts(target, english_lines, english_lines, learning=target)
        gates = [gate for gate in audit_expansion(expansion, texts) if gate.stops and not gate.passed]
        assert [gate.name for gate in gates if gate.name != "encoding still fast"] == []
        assert segmentation_drift(expansion.old, expansion.new, english_lines).changed_documents == 0


@pytest.mark.parametrize("kind", ["llama", "metaspace"])
def test_curve_with_new_characters_is_what_the_real_tokenizers_say(hindi, kind):
    expansion = hindi[kind]
    points = {point.num_new: point.tokens["hi"] for point in expansion.curve.points}
    assert points[0] == sum(map(len, expansion.old.encode_batch(HINDI[:6])))
    assert points[expansion.num_new] == sum(map(len, expansion.new.encode_batch(HINDI[:6])))
    seeds = sum(len(token.spelling) == 1 for token in expansion.new_tokens)
    assert all(size == 0 or size >= seeds for size in points)


def test_characters_and_merges_in_two_goes_are_one(bases):
    """The alphabet is completed by the first; the second goes on, and the file is the same, to the letter."""
    whole = expand_vocabulary(bases["llama"], HINDI, [], pinned("Devanagari", 50))
    seeds = sum(len(token.spelling) == 1 for token in whole.new_tokens)
    assert 0 < seeds < 45
    for size in (seeds, seeds + 4):
        first = expand_vocabulary(bases["llama"], HINDI, [], pinned("Devanagari", size))
        second = expand_vocabulary(first.new, HINDI, [], pinned("Devanagari", 50 - size))
        assert second.new.text == whole.new.text


def test_gemma_keeps_its_added_tokens(hindi):
    old, new = hindi["gemma"].old, hindi["gemma"].new
    text = "a\n\nb  यह\n    x"
    assert old.id_of("\n\n") in new.encode(text)
    assert old.id_of("▁▁") is not None
    assert new.decode(new.encode(text)) == text
    assert new.raw["added_tokens"] == old.raw["added_tokens"]


def test_o10_tokenizer_json_alone_is_enough(bases, tmp_path):
    """Neither sentencepiece nor a slow class nor transformers is loaded on the way."""
    (tmp_path / "tokenizer.json").write_text(bases["llama"].text, encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from lingraft.vocabulary import *\n"
        f"base = TokenizerFile.open(Path({str(tmp_path)!r}))\n"
        "grown = expand_vocabulary(base, ['筹款 筹备'] * 9, [], LearnOptions(9, pinned_scripts=frozenset({'Han'})))\n"
        "assert grown.num_new and not {'sentencepiece', 'transformers', 'torch'} & set(sys.modules)\n"
        "print(grown.num_new)"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(source)}
    )
    assert (done.stdout.strip(), done.returncode) == ("4", 0), done.stderr


def test_o10_o77_grown_file_loads_in_the_fast_class(hindi, tmp_path):
    from transformers import PreTrainedTokenizerFast

    new = hindi["llama"].new
    (tmp_path / "tokenizer.json").write_text(new.text, encoding="utf-8")
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in [*HINDI[:3], "the cell"]:
        assert theirs.encode(text, add_special_tokens=False) == new.encode(text)
    assert len(theirs) == new.num_ids


@pytest.mark.parametrize("kind", KINDS)
def test_o12_tokens_of_a_byte_level_donor_are_spelled_anew(bases, basque_lines, kind):
    """A byte-level donor holds halves of characters, which are no text: they are no candidates here."""
    donor = expand_vocabulary(bases["pair"], [*basque_lines[:300], *HAN], [], pinned("Han", 200)).new
    candidates = candidates_from(donor)
    assert any(raw.decode(errors="ignore").encode() != raw for raw in candidates)
    grown = expand_vocabulary(bases[kind], [*basque_lines[:300], *HAN], [], pinned("Han", 100, candidates=candidates))
    spelled = {raw.decode(errors="ignore").replace(" ", "▁") for raw in candidates}
    made = [token.spelling for token in grown.new_tokens]
    assert sum(spelling not in spelled for spelling in made) == grown.record["on_the_way"]
    assert sum(spelling in spelled for spelling in made) > 50


def test_o12_missing_characters_are_candidates_too(bases):
    grown = expand_vocabulary(
        bases["llama"], HAN, [], pinned("Han", candidates=frozenset({"筹款".encode(), " 会议".encode()}))
    )
    made = {token.spelling for token in grown.new_tokens}
    assert made == {"筹", "款", "会", "议", "筹款", "▁会", "▁会议"}
    assert grown.record["on_the_way"] == 5


def test_replacement_keeps_the_number_of_ids_and_adds_no_character(bases, basque_lines, english_lines):
    base = bases["llama"]
    grown = expand_vocabulary(
        base, basque_lines[:300], english_lines[:300], LearnOptions(40, min_count=5, replace=True)
    )
    assert grown.new.num_ids == base.num_ids
    assert all(len(token.spelling) > 1 for token in grown.new_tokens)
    assert not any(token.spelling.startswith("<0x") or len(token.spelling) == 1 for token in grown.removed)
