"""The split depends on the document alone, and what leaks is found."""

import numpy as np
import pytest

from lingraft.corpus import Document, find_leakage, is_held_out
from lingraft.corpus import split as split_module


def document(text, name="x"):
    return Document(text, "eu", name)


@pytest.mark.parametrize(("text", "number"), [("kaixo", 0.8137), ("agur", 0.8252), ("bai", 0.2936)])
def test_share_is_compared_with_the_first_bytes_of_sha256(text, number):
    assert not is_held_out(document(text), number - 0.001, "content")
    assert is_held_out(document(text), number + 0.001, "content")


def test_ends_of_the_range():
    documents = [document(str(n)) for n in range(100)]
    assert not any(is_held_out(d, 0.0, "content") for d in documents)
    assert all(is_held_out(d, 1.0, "content") for d in documents)


def test_share_is_met_and_a_larger_one_only_adds():
    held = {f: {n for n in range(20_000) if is_held_out(document(str(n)), f, "content")} for f in (0.05, 0.1)}
    assert abs(len(held[0.05]) / 20_000 - 0.05) < 0.005
    assert held[0.05] < held[0.1]


def test_by_id_a_page_and_its_translation_fall_on_one_side():
    pages = [f"help/{n}.html" for n in range(50)]
    sides = [[is_held_out(document(text + page, page), 0.5, "id") for page in pages] for text in ("eu", "en")]
    assert sides[0] == sides[1]
    assert 0 < sum(sides[0]) < 50


def test_by_content_equal_texts_fall_on_one_side():
    assert all(
        is_held_out(document(f"a {n}"), 0.5, "content") == is_held_out(document(f" a\n{n}", "y"), 0.5, "content")
        for n in range(50)
    )


SENTENCE = "one two three four five six seven eight nine ten eleven twelve thirteen"


@pytest.mark.parametrize(
    ("train", "share"),
    [
        (f"before {SENTENCE} after", 0.5),
        ("One, two. THREE four — five six (seven) eight nine ten eleven twelve: thirteen!", 0.5),
        (SENTENCE.removesuffix(" thirteen"), 0.0),
        (SENTENCE.replace("six seven", "seven six"), 0.0),
        ("", 0.0),
    ],
)
def test_thirteen_words_in_a_row_are_a_leak(train, share):
    held_out = [document(f"x {SENTENCE} y"), document("clean " * 30)]
    assert find_leakage([document("other words"), document(train)], held_out) == share


def test_scripts_without_spaces_leak_by_character():
    assert (
        find_leakage([document("我今天在北京大观园里看见了一只猫")], [document("他说:今天在北京大观园里看见了一只狗")])
        == 1.0
    )


@pytest.mark.parametrize("held_out", [[], ["too short"]])
def test_nothing_to_compare_is_no_leak(held_out):
    assert find_leakage([document(SENTENCE)], map(document, held_out)) == 0.0


def test_a_large_set_is_represented_by_a_sample(monkeypatch):
    monkeypatch.setattr(split_module, "_MAX_NGRAMS", 5000)
    numbers = np.random.default_rng(0).integers(0, 10**9, size=(400, 40)).astype(str)
    documents = [document(" ".join(row)) for row in numbers]
    assert abs(find_leakage(documents[:200], documents) - 0.5) < 0.12
