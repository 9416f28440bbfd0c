"""Parts of a corpus: cut between lines, whole or not there, and never taken for others."""

import json

import numpy as np
import pytest

from lingraft.corpus.parts import LENGTHS, TOKENS, Encoding, TextRange, cut_text, is_part, read_range, write_part
from lingraft.errors import CorpusError

TEXTS = ["ab", "ñandú", "c\nd", "e", "fgh", "i"]
SPELL = Encoding(lambda texts: [[ord(c) for c in text] for text in texts], 300, 1, 2)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.jsonl"
    lines = [json.dumps({"id": str(n), "text": text}, ensure_ascii=False) for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [1, 20, 50, 90, 10_000])
def test_ranges_are_whole_lines_that_together_are_the_text(text, size: int) -> None:
    ranges = cut_text(text, size)
    assert [piece.begin for piece in ranges] == [0, *(piece.end for piece in ranges[:-1])]
    assert ranges[-1].end == text.stat().st_size
    pieces = [list(read_range(text, piece)) for piece in ranges]
    assert [text for piece in pieces for text in piece] == TEXTS
    firsts = [1 + sum(map(len, pieces[:n])) for n in range(len(pieces))]
    assert [piece.first for piece in ranges] == firsts


def test_a_line_that_is_none_is_named(text) -> None:
    text.write_text(text.read_text(encoding="utf-8") + "{}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"train\.jsonl:7: not a line of prepared text: KeyError"):
        list(read_range(text, cut_text(text, 10_000)[0]))


@pytest.mark.parametrize("start", [None, 1])
def test_a_part_by_hand(tmp_path, start) -> None:
    """O-46: start and end tokens do not depend on each other."""
    encoding = Encoding(SPELL.encode_batch, 300, start, 2)
    part = write_part(["ab", "c"], encoding, tmp_path / "part")
    lead = [] if start is None else [1]
    assert np.fromfile(part.folder / TOKENS, "<u2").tolist() == [*lead, 97, 98, 2, *lead, 99, 2]
    assert np.fromfile(part.folder / LENGTHS, "<u8").tolist() == [3 + len(lead), 2 + len(lead)]
    assert (part.num_tokens, part.num_documents, part.num_bytes) == (5 + 2 * len(lead), 2, 3)


def test_a_part_is_taken_only_for_what_it_was_made_of_and_only_whole(tmp_path) -> None:
    part = write_part(["ab"], SPELL, tmp_path / "part", key={"tokenizer": "t"})
    assert is_part(tmp_path / "part", {"tokenizer": "t"}) == part
    assert is_part(tmp_path / "part", {"tokenizer": "other"}) is None
    assert is_part(tmp_path / "none", {}) is None
    with (tmp_path / "part" / TOKENS).open("ab") as file:
        file.write(b"x")
    assert is_part(tmp_path / "part", {"tokenizer": "t"}) is None


@pytest.mark.parametrize("place", [0, 255, 256, 600])
def test_a_document_that_cannot_be_stored_is_named_by_its_number_in_the_corpus(tmp_path, place: int) -> None:
    texts = ["a"] * 700
    texts[place] = "a\u0002b"
    with pytest.raises(CorpusError, match=f"document {1000 + place} has the start or end token 2 inside its text"):
        write_part(texts, SPELL, tmp_path / "part", first=1000)
    assert list(tmp_path.iterdir()) == []


def test_what_encoding_raises_is_raised(tmp_path) -> None:
    def encode(texts):
        raise CorpusError("no")

    with pytest.raises(CorpusError, match=r"^no$"):
        write_part(["a"], Encoding(encode, 300, None, 2), tmp_path / "part")


def test_an_empty_part_is_empty(tmp_path, text) -> None:
    assert write_part([], SPELL, tmp_path / "part").num_tokens == 0
    assert list(read_range(text, TextRange(0, 0, 1))) == []
