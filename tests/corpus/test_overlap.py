"""Thirteen words in a row that stand in training text and in what is to be measured."""

import json

import numpy as np
import pytest

from lingraft.corpus import Document, Overlap
from lingraft.corpus import overlap as overlap_module
from lingraft.corpus.overlap import read_items
from lingraft.corpus.streams import MAX_LINE_BYTES
from lingraft.errors import CorpusError


def document(text, name="x"):
    return Document(text, "eu", name)


def find_leakage(train, held_out):
    overlap = Overlap()
    watched = overlap.watch("validation", held_out)
    for each in train:
        overlap.read(each.text, "eu")
    overlap.settle()
    return watched.share


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
    monkeypatch.setattr(overlap_module, "_MAX_ROWS", 5000)
    numbers = np.random.default_rng(0).integers(0, 10**9, size=(400, 40)).astype(str)
    documents = [document(" ".join(row)) for row in numbers]
    assert abs(find_leakage(documents[:200], documents) - 0.5) < 0.12


@pytest.mark.parametrize(("num_words", "is_found"), [(7, False), (8, True), (12, True), (13, True), (40, True)])
def test_a_short_item_is_looked_for_whole_down_to_eight_words(num_words, is_found):
    item = " ".join(f"w{n}" for n in range(num_words))
    overlap = Overlap()
    watched = overlap.watch("items", [document(item)])
    overlap.read(f"before {item} after", "en")
    overlap.settle()
    assert watched.share == float(is_found)
    assert watched.too_short == int(not is_found)
    if is_found:
        assert watched.as_json()["found_in"] == {"en": 1}


def test_each_training_text_is_told_apart_and_samples_are_escaped():
    overlap = Overlap()
    watched = overlap.watch("items", [document(f"{SENTENCE} \u202e", "q1"), document("other words " * 9, "q2")])
    overlap.read("nothing here", "eu")
    overlap.read(SENTENCE, "en")
    overlap.settle()
    assert watched.as_json() == {
        "name": "items", "documents": 2, "overlapping": 1, "share": 0.5, "found_in": {"en": 1}, "too_short": 0,
        "unwatched": 0, "samples": [{"at": "q1", "text": f"{SENTENCE} \\u202e"}],
    }  # fmt: skip


def test_against_the_slow_way():
    generator = np.random.default_rng(1)
    texts = [" ".join(generator.integers(0, 3, size=60).astype(str)) for _ in range(30)]
    train, held_out = texts[:20], texts[20:]
    rows = lambda text, n: {tuple(text.split()[i : i + n]) for i in range(61 - n)}  # noqa: E731
    for n in (8, 9, 10):
        overlap = Overlap(n)
        watched = overlap.watch("x", map(document, held_out))
        for text in train:
            overlap.read(text, "x")
        overlap.settle()
        slow = [bool(rows(text, n) & set().union(*(rows(each, n) for each in train))) for text in held_out]
        assert watched.share == sum(slow) / 10
    assert 0 < watched.share < 1  # of the longest rows


def test_items_are_all_texts_of_a_line_whatever_they_are_called(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text(
        json.dumps({"question": "Why?", "n": 3, "choices": [{"text": "A"}, "B"]}) + "\n\n", encoding="utf-8"
    )
    assert [(item.text, item.id) for item in read_items(path)] == [("Why?\nA\nB", "items.jsonl:1")]
    path = tmp_path / "items.txt"
    path.write_text("One.\n\nTwo.\n")
    assert [item.text for item in read_items(path)] == ["One.", "Two."]


def test_a_bad_line_of_items_is_named(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"a": "b"}\n{\n')
    with pytest.raises(CorpusError, match=r"items\.jsonl:2: byte 11: not a line of items"):
        list(read_items(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("i.jsonl", b'{"q": "a"}\n{"q": "\\ud83d"}\n', r"i\.jsonl:2: byte 11: not a line of items: .*surrogates"),
        ("i.jsonl", b"[" * 100_000 + b"\n", r"i\.jsonl:1: byte 0: not a line of items: .*recursion"),
        ("i.txt", b"a" * (MAX_LINE_BYTES + 1), r"i\.txt:1: byte 0: not a line of items: longer than 16777216 bytes"),
        ("i.parquet", b"PAR1", r"i\.parquet: items are read from \.txt or \.jsonl, not from a table"),
    ],
)
def test_items_that_cannot_be_looked_for_are_refused(tmp_path, name, content, message):
    """Cut at the limit, an item would be looked for in part, and never be found."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        list(read_items(tmp_path / name))
