"""Which documents stay, which go, and under which reason."""

import pytest

from lingraft.corpus import Document, Rejects, clean, count_words, script_histogram


def run(texts, rejects=None, **options):
    settings = {
        "normalise": "none",
        "deduplicate": True,
        "min_characters": 1,
        "max_documents": None,
    } | options
    documents = [Document(text, "eu", str(number)) for number, text in enumerate(texts)]
    return [d.text for d in clean(documents, rejects=rejects if rejects is not None else Rejects(), **settings)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "white space only"),
        (" \u00a0\u3000\n", "white space only"),
        ("ab", "shorter than 3 characters"),
        ("abc\x1b[31m", "control character U+001B"),
        ("abc\f", "control character U+000C"),
        ("abc\x85", "control character U+0085"),
        ("abc\x7f", "control character U+007F"),
    ],
)
def test_unfit_document_has_a_reason(text, reason):
    rejects = Rejects()
    assert run([text, "good"], rejects, min_characters=3) == ["good"]
    assert rejects.counts == {reason: 1}
    assert str(rejects.samples[reason][0]) == f"eu/0: {reason}"


@pytest.mark.parametrize(
    "text", ["a\tb\nc", "ක්\u200dෂ", "می\u200cخواهم", "\u200fשלום\u200e", "a\ufeffb", "ﷲ", "مـــد", "٣"]
)
def test_text_of_any_script_is_kept_as_it_is(text):
    assert run([text]) == [text]


def test_marks_are_counted():
    rejects = Rejects()
    run(["\u200f\u061ca\u202b", "ක්\u200dෂ\ufeff", "مـــد ﷲ"], rejects)
    assert rejects.notes == {
        "bidi marks (kept)": 3,
        "zero-width joiners and non-joiners (kept)": 1,
        "byte order marks inside a text (kept)": 1,
        "kashidas (kept)": 3,
        "Arabic presentation forms (kept)": 1,
    }


def test_carriage_returns_become_newlines_and_are_counted():
    rejects = Rejects()
    assert run(["a\r\nb\rc"], rejects) == ["a\nb\nc"]
    assert rejects.notes == {"documents with \\r line ends, made \\n": 1}


@pytest.mark.parametrize(
    ("normalise", "text", "note"),
    [("nfc", "\u00f1", "put into NFC"), ("none", "n\u0303", "not in NFC (kept)")],
)
def test_nfc_on_request_and_never_nfkc(normalise, text, note):
    rejects = Rejects()
    assert run(["n\u0303", "ﬁ"], rejects, normalise=normalise) == [text, "ﬁ"]
    assert rejects.notes == {f"documents {note}": 1}


def test_duplicates_are_equal_in_white_space_and_form():
    texts = ["\u00f1 a", " n\u0303\n\ta ", "Ñ a"]
    rejects = Rejects()
    assert run(texts, rejects) == ["\u00f1 a", "Ñ a"]
    assert rejects.counts == {"exact duplicate of an earlier document": 1}
    assert run(texts, deduplicate=False) == texts


@pytest.mark.parametrize("texts", [["cat", "dog"], ["今天下雨了", "猫在睡觉"], ["مرحبا", "كتاب"]])
def test_o39_o48_short_texts_and_all_scripts_stay_apart(texts):
    assert run([*texts, texts[0]]) == texts


def test_documents_are_taken_up_to_the_limit_and_read_no_further():
    def documents():
        yield from (Document(text, "eu", text) for text in "ab")
        raise AssertionError("read too far")

    options = {"normalise": "none", "deduplicate": True, "min_characters": 1, "max_documents": 2}
    assert [d.text for d in clean(documents(), rejects=Rejects(), **options)] == ["a", "b"]


def test_three_samples_are_kept_of_each_reason():
    rejects = Rejects()
    run([" "] * 5, rejects)
    assert rejects.total == 5
    assert len(rejects.as_json()[0]["samples"]) == 3


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("Kaixo,  mundua!\n", 2), ("don't stop", 2), ("北京 2024年", 4), ("मैं हिन्दी", 2), ("ไป", 2)],
)
def test_words(text, count):
    assert count_words(text) == count


def test_scripts():
    histogram = script_histogram(["abc, 12", "мир", "हिन्दी", "北ᚠー"])
    assert histogram == {"Latin": 3, "Cyrillic": 3, "Devanagari": 3, "Han": 1, "Runic": 1, "Common": 1}
    assert next(iter(histogram)) == "Latin"
