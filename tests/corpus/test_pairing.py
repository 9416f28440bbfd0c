"""Parallel text as documents: both sides, in either order, and nothing lost on the way."""

import json

import pytest

from lingraft.corpus.pairing import count_sides, pair_texts, read_sides, write_pairs
from lingraft.errors import CorpusError

EU, EN = ["Kaixo mundua", "Egun on", "Gabon"], ["Hello world", "Good morning", "Good night"]


@pytest.fixture
def aligned(tmp_path):
    for name, texts in (("a.eu.txt", EU), ("a.en.txt", EN)):
        (tmp_path / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return [tmp_path / "a.eu.txt", tmp_path / "a.en.txt"]


def write(files, folder, **options):
    settings = {"languages": ("eu", "en"), "fields": None, "direction": "forward", "separator": "\n", "seed": 0}
    return write_pairs(files, folder / "pairs", where="corpora.p", **settings | options)


def rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_two_aligned_files_by_hand(aligned, tmp_path) -> None:
    found = rows(write(aligned, tmp_path, separator=" = "))
    assert found[0] == {"id": "a:1", "text": "Kaixo mundua = Hello world", "sides": {"eu": EU[0], "en": EN[0]}}
    assert [row["text"] for row in found[1:]] == ["Egun on = Good morning", "Gabon = Good night"]
    assert list(read_sides(tmp_path / "pairs" / "pairs.jsonl", 1)) == [{"eu": EU[0], "en": EN[0]}]


def test_two_fields_of_a_line_by_hand(tmp_path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({"x": a, "y": b}) + "\n\n" for a, b in zip(EU, EN, strict=True)))
    found = rows(write([path], tmp_path, fields=("x", "y"), direction="backward"))
    assert [row["text"] for row in found] == [f"{b}\n{a}" for a, b in zip(EU, EN, strict=True)]
    assert [row["id"] for row in found] == ["p:1", "p:3", "p:5"]


def test_either_direction_in_half_of_the_documents_by_seed() -> None:
    def firsts(seed: int) -> list[bool]:
        made = [pair_texts(f"a{n}", f"b{n}", direction="both", separator="|", seed=seed) for n in range(1000)]
        assert all(set(text.split("|")) == {f"a{n}", f"b{n}"} for n, text in enumerate(made))
        return [text.startswith("a") for text in made]

    assert 440 < sum(firsts(0)) < 560
    assert firsts(0) == firsts(0) != firsts(1)


def test_tokens_of_both_sides_are_counted() -> None:
    """Letters for tokens: 10 of one language and 30 of the other, over more than one batch."""
    sides = [{"eu": "a", "en": "bcd"}] * 600
    assert count_sides(sides, lambda texts: [list(map(ord, text)) for text in texts]) == {"eu": 0.25, "en": 0.75}
    assert count_sides([], lambda texts: []) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b: b.write_text("Hello\nGood\n"), r"a\.en\.txt:3: it has 2 lines and a\.eu\.txt has more"),
        (lambda a, b: a.write_text("Kaixo\n \nGabon\n"), r"a\.eu\.txt:2: an empty line has no translation"),
        (lambda a, b: a.write_bytes(b"Kaixo\n\xff\nGabon\n"), r"a\.eu\.txt:2: byte 6: not UTF-8"),
    ],
)
def test_files_that_are_not_aligned_are_refused_by_line(aligned, tmp_path, change, message: str) -> None:
    change(*aligned)
    with pytest.raises(CorpusError, match=message):
        write(aligned, tmp_path)
    assert not (tmp_path / "pairs").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"x": "Kaixo"}', r"p\.jsonl:1: no text in 'y' \(there is: x\)"),
        ('{"x": "Kaixo", "y": " "}', r"p\.jsonl:1: no text in 'y'"),
        ("[1]", r"p\.jsonl:1: no text in 'x' \(there is: list\)"),
        ("{", r"p\.jsonl:1: not JSON"),
    ],
)
def test_a_line_without_both_sides_is_refused(tmp_path, line: str, message: str) -> None:
    (tmp_path / "p.jsonl").write_text(line + "\n")
    with pytest.raises(CorpusError, match=message):
        write([tmp_path / "p.jsonl"], tmp_path, fields=("x", "y"))


def test_three_files_are_no_pair(aligned, tmp_path) -> None:
    with pytest.raises(CorpusError, match=r"corpora\.p\.path: without pairs\.fields it lists two files, here are 3"):
        write([*aligned, aligned[0]], tmp_path)
