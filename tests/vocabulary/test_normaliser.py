"""What normalisers delete and replace, told from what they only spell in another way."""

import json
import unicodedata

import pytest

from lingraft.vocabulary.normaliser import NormaliserAudit, audit_normaliser
from lingraft.vocabulary.tokenizer_file import TokenizerFile

NFC, NFD, NFKC, LOWER = ({"type": name} for name in ("NFC", "NFD", "NFKC", "Lowercase"))
STRIP_ACCENTS = {"type": "StripAccents"}
BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": True,
    "lowercase": True,
}


def sequence(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def replace(old, new):
    return {"type": "Replace", "pattern": old if isinstance(old, dict) else {"String": old}, "content": new}


LLAMA2 = sequence({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
STRIPPING = {"nfd and strip": sequence(NFD, STRIP_ACCENTS), "bert": BERT}
U = "U+0941 DEVANAGARI VOWEL SIGN U"


@pytest.fixture(scope="module")
def audit(tokenizer_text):
    """Return a function: normaliser and texts → the audit of the tiny tokenizer with it."""
    raw = json.loads(tokenizer_text)

    def run(normaliser, *texts):
        return audit_normaliser(TokenizerFile(json.dumps(raw | {"normalizer": normaliser}), "base"), texts)

    return run


def test_no_normaliser_changes_nothing(audit):
    found = audit(None, "Hello  कु\n▁", "")
    assert found == NormaliserAudit(documents=2, changed=0, letters=6, deleted={}, folded={})
    assert (found.deleted_marks, found.is_lossy_for_marks, found.changed_fraction) == ({}, False, 0.0)
    assert not audit(None, "12").is_lossy_for_marks
    assert audit(None).changed_fraction == 0.0


@pytest.mark.parametrize("name", STRIPPING)
def test_o06_stripping_accents_deletes_dependent_vowels(audit, name):
    found = audit(STRIPPING[name], "कु")
    assert found.deleted == {"\u0941": 1}
    assert found.deleted_categories == {"Mn": 1}
    assert found.deleted_marks == {U: 1}
    assert found.folded == {}
    assert found.is_lossy_for_marks


@pytest.mark.parametrize("name", STRIPPING)
@pytest.mark.parametrize(("text", "marks"), [("مَرْحَبًا", 4), ("й ё", 2), ("が", 1), ("أ", 1), ("à̂é", 3), ("हिन्दी", None)])
def test_o06_marks_of_other_scripts_are_missed_as_well(audit, name, text, marks):
    lost = sum(audit(STRIPPING[name], text).deleted_marks.values())
    assert lost > 0
    assert marks is None or lost == marks


def test_o06_a_rule_for_one_letter_is_seen_to_take_its_mark(audit):
    found = audit(replace("ё", "е"), "ёлка")
    assert found.deleted_marks == {"U+0308 COMBINING DIAERESIS": 1}


def test_o06_stripping_without_decomposition_spares_composed_letters(audit):
    assert audit(STRIP_ACCENTS, "café").changed == 0
    assert audit(STRIP_ACCENTS, "cafe\u0301").deleted == {"\u0301": 1}


@pytest.mark.parametrize("form", [NFC, NFD])
def test_o06_composition_and_decomposition_delete_no_mark(audit, form):
    composed = "caf\u00e9 हिन्दी \u304c"
    found = audit(form, composed, unicodedata.normalize("NFD", composed), "plain")
    assert (found.deleted, found.folded, found.is_lossy_for_marks) == ({}, {}, False)
    assert (found.documents, found.changed) == (3, 1)


def test_o06_a_nukta_that_nfc_takes_apart_is_not_deleted(audit):
    found = audit(NFC, "\u0958")
    assert (found.changed, found.deleted, found.folded) == (1, {}, {})


def test_nfc_counts_as_a_change_of_the_document(audit):
    found = audit(NFC, "cafe\u0301", "café", "cafe", "x")
    assert (found.documents, found.changed, found.changed_fraction) == (4, 1, 0.25)


def test_nfkc_folds_and_deletes_nothing(audit):
    found = audit(NFKC, "ﬁn ﬁn ① ½ ﻻ", "abc")
    assert found.deleted == {}
    assert found.folded == {("ﬁ", "fi"): 2, ("①", "1"): 1, ("½", "1⁄2"): 1, ("ﻻ", "لا"): 1}
    assert found.changed == 1
    assert not found.is_lossy_for_marks


def test_lowercase_folds_letters_and_keeps_their_accents(audit):
    found = audit(LOWER, "ÉTÉ Été", "été")
    assert found.deleted == {}
    assert found.folded == {("E", "e"): 3, ("T", "t"): 1}
    assert found.changed == 1


def test_bert_folds_white_space_and_deletes_controls(audit):
    found = audit(BERT, "A\tb\nc\u0000\u200bd")
    assert found.folded == {("A", "a"): 1, ("\t", " "): 1, ("\n", " "): 1}
    assert found.deleted_categories == {"Cc": 1, "Cf": 1}
    assert found.deleted_marks == {}
    assert not found.is_lossy_for_marks


@pytest.mark.parametrize(
    "normaliser",
    [LLAMA2, replace(" ", "▁"), sequence(replace(" ", "▁"), {"type": "Prepend", "prepend": "▁"})],
)
def test_spaces_in_another_spelling_are_no_change(audit, normaliser):
    found = audit(normaliser, "Hello world", " leading", "two  spaces ", "a\n\n  b\tc", "", "literal ▁ mark", "कु")
    assert (found.changed, found.deleted, found.folded) == (0, {}, {})


def test_what_happens_besides_the_spelling_of_spaces_is_seen(audit):
    found = audit(sequence({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"), LOWER), "A b", "c d")
    assert (found.changed, found.folded) == (1, {("A", "a"): 1})


def test_o04_runs_of_spaces_and_newlines_that_vanish_are_deletions(audit):
    squeezed = audit(replace({"Regex": " {2,}"}, " "), "a   b c")
    assert (squeezed.deleted, squeezed.changed) == ({" ": 2}, 1)
    stripped = audit({"type": "Strip", "strip_left": True, "strip_right": True}, "\n a b\n", "a b")
    assert (stripped.deleted, stripped.changed) == ({"\n": 2, " ": 1}, 1)
    assert stripped.deleted_categories == {"Cc": 2, "Zs": 1}


@pytest.mark.parametrize(("letters", "lossy"), [(996, True), (997, False)])
def test_a_stray_accent_is_no_reason_to_stop(audit, letters, lossy):
    found = audit(STRIPPING["nfd and strip"], "x" * letters + " café")
    assert sum(found.deleted_marks.values()) == 1
    assert found.is_lossy_for_marks is lossy


def test_the_report_names_code_points_and_gives_examples(audit):
    found = audit(sequence(NFD, STRIP_ACCENTS, LOWER), "कु कु ABCDEFG", "कि")
    sign_i = "U+093F DEVANAGARI VOWEL SIGN I"
    assert json.loads(json.dumps(found.as_dict())) == {
        "documents": 2,
        "changed": 2,
        "changed_fraction": 1.0,
        "deleted": {
            "Mn": {"count": 2, "examples": [f"{U} ×2"]},
            "Mc": {"count": 1, "examples": [f"{sign_i} ×1"]},
        },
        "folded": {"count": 7, "examples": ["A → a ×1", "B → b ×1", "C → c ×1", "D → d ×1", "E → e ×1"]},
        "deleted_marks": {U: 2, sign_i: 1},
        "is_lossy_for_marks": True,
    }
