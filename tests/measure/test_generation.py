"""What is counted of a model's own text, by hand."""

import pytest

from lingraft.corpus.language_id import Guess, Label
from lingraft.measure.generation import (
    QUESTIONS,
    Told,
    beginning,
    identified_as,
    is_loop,
    questions_in,
    repeated_share,
    script_of_text,
    told_of,
)


@pytest.mark.parametrize(
    ("ids", "share"),
    [
        ([], 0),
        ([1, 2, 3], 0),
        ([1, 2, 3, 4, 5, 6], 0),
        ([1, 1, 1, 1, 1, 1], 2 / 3),
        ([1, 2, 3, 4, 1, 2, 3, 4], 1 / 5),
    ],
)
def test_share_of_repeated_four_grams(ids: list[int], share: float) -> None:
    assert repeated_share(ids) == pytest.approx(share)


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ([7] * 11, False),
        ([7] * 12, True),
        ([1, 2, 3, *[7] * 12], True),
        ([*[7] * 12, 1], False),
        ([9, *[1, 2, 3, 4, 5] * 3], True),
        ([1, 2, 3, 4, 5] * 2, False),
        ([1, 2] * 5 + [1], False),
        ([1, 2] * 6, True),
        (list(range(40)), False),
        ([], False),
    ],
)
def test_a_loop_is_the_same_three_times_over_twelve_tokens(ids: list[int], loops: bool) -> None:
    assert is_loop(ids) is loops


def test_counts_over_outputs() -> None:
    told = [Told((1, 50, 51, 50), "bat"), Told((), " \n"), Told((2,) * 15, "oo")]
    found = told_of(told, range(50, 60))
    assert found["new_token_share"] == pytest.approx(3 / 19)
    assert found["distinct_new_tokens"] == 2
    assert found["empty"] == found["loops"] == pytest.approx(1 / 3)
    assert found["repetition"] == pytest.approx((0 + 0 + 11 / 12) / 3)
    assert set(told_of([], ()).values()) == {0}


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("राजधानी पेरिस है Paris", "hi", True),
        ("The capital is Paris", "hi", False),
        ("العاصمة هي باريس", "ar", True),
        ("Hiriburua Paris da", "eu", True),
        ("Ha-ha", "sr", True),
        ("12 + 34 = …", "eu", False),
        ("", "eu", False),
        ("Paris", "pt_BR", True),
    ],
)
def test_script_of_most_letters(text: str, language: str, expected: bool) -> None:
    assert script_of_text(text, language) is expected


@pytest.mark.parametrize(
    ("label", "plausible", "language", "expected"),
    [
        ("eu", True, "eu", True),
        ("en", True, "eu", False),
        ("eu", False, "eu", False),
        ("ms", True, "id", True),
        ("arz", True, "ar", True),
        ("pt", True, "pt-BR", True),
    ],
)
def test_an_identifier_is_believed_where_it_can_tell(
    label: str, plausible: bool, language: str, expected: bool
) -> None:
    assert identified_as(lambda _: Guess(Label(label), 0.9, "Latin", plausible), "text", language) is expected


def test_nothing_is_no_language() -> None:
    assert not identified_as(lambda _: Guess(Label("eu"), 0.9, None, is_plausible=True), " \n", "eu")


def test_questions_are_in_the_scripts_of_their_languages_and_end_as_questions() -> None:
    assert QUESTIONS.keys() == {"ar", "en", "eu", "hi", "id"}
    for language, questions in QUESTIONS.items():
        assert len(set(questions)) == 8
        assert all(script_of_text(question, language) and question[-1] in "?؟" for question in questions)


def test_questions_of_other_languages_are_found_in_text() -> None:
    texts = ["Hau da. Nola ireki dezaket fitxategia? Egin klik.", "Non dago?\nNola ireki dezaket fitxategia? Bai", "x?"]
    assert questions_in(texts, 9) == ["Nola ireki dezaket fitxategia?", "Non dago?"]
    assert questions_in(texts, 1) == ["Nola ireki dezaket fitxategia?"]
    assert questions_in(["كيف حالك اليوم؟ بخير"], 4) == ["كيف حالك اليوم؟"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\n short\nmore", "short"), ("a" * 70, "a" * 60), ("word " * 20, "word " * 11 + "word"), ("", "")],
)
def test_beginnings(text: str, expected: str) -> None:
    assert beginning(text) == expected
