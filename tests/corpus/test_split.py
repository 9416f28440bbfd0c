"""The split depends on the document alone."""

import pytest

from lingraft.corpus import Document, is_held_out


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
