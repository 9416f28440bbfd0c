"""Rows and items of bits per byte, by hand."""

import hashlib
import math

import pytest

from lingraft.measure.bits_per_byte import BitsPerByte, EvaluationText
from lingraft.measure.scoring import Scorer
from lingraft.model.base import load_model
from lingraft.pipeline.text_rows import bits_items, bits_rows, dead_mass_rows, full_window_row, secondary_rows
from lingraft.vocabulary import TokenizerFile

BITS = BitsPerByte(
    value=2.0,
    low=1.5,
    high=2.5,
    documents=2,
    bytes=10,
    tokens=4,
    document_bits=(12.0, 8.0),
    characters=8,
    words=5,
    end_bits=1.0,
)
TEXT = EvaluationText(("ñab c", "d e f"), lossy=3, empty=0)


def values(rows) -> dict[str, float]:
    return {row.name: row.value for row in rows}


def test_rows_by_hand() -> None:
    found = list(bits_rows("s", 7, "eu", BITS, TEXT))
    assert values(found) == {
        "bits_per_byte": 2.0,
        "nats_per_token": pytest.approx(20 * math.log(2) / 4),
        "bits_per_byte/lossy_documents": 3,
    }
    assert (found[0].low, found[0].high, found[0].count, found[0].language) == (1.5, 2.5, 2, "eu")
    assert full_window_row("s", 7, "eu", BITS).name == "bits_per_byte/full_window"


def test_perplexity_per_token_is_a_row_only_with_the_same_tokenizer(tokenizer, tokenizer_text: str) -> None:
    other = TokenizerFile(tokenizer_text + "\n", "another file")
    rows = values(secondary_rows("s", 7, "eu", BITS, tokenizer, tokenizer))
    assert rows == {
        "bits_per_byte/per_character": 2.5,
        "bits_per_byte/per_word": 4.0,
        "bits_per_byte/with_end": 2.1,
        "token_perplexity": pytest.approx(2**5),
    }
    assert "token_perplexity" not in values(secondary_rows("s", 7, "eu", BITS, tokenizer, other))


def test_documents_are_items_named_by_their_text_a_repeated_one_by_its_number_too() -> None:
    documents = ("ñab c", "d e f", "ñab c")
    bits = BitsPerByte(2.0, 1.0, 3.0, 3, 17, 5, (12.0, 8.0, 11.0))
    items = list(bits_items("s", 7, "eu", bits, documents, averaged=True))
    name = hashlib.sha256("ñab c".encode()).hexdigest()[:16]
    assert [item.item for item in items] == [name, hashlib.sha256(b"d e f").hexdigest()[:16], f"{name}-2"]
    assert [dict(item.scores) for item in items] == [
        {"bits": 12.0, "bytes": 6.0},
        {"bits": 8.0, "bytes": 5.0},
        {"bits": 11.0, "bytes": 6.0},
    ]
    assert {(item.name, item.language, item.averaged, item.tokens) for item in items} == {
        ("bits_per_byte", "eu", True, 7)
    }


def test_what_padding_rows_take_is_told_where_there_are_some(tied_folder, tokenizer) -> None:
    model = load_model(tied_folder)
    with_padding = Scorer(model, num_ids=tokenizer.num_ids, condition_id=0)
    (row,) = dead_mass_rows(with_padding, tokenizer, "base", 0, "en", ["The light in the night."])
    # Weights that are next to nothing give every one of the 420 rows about the same.
    assert row.value == pytest.approx((420 - tokenizer.num_ids) / 420, rel=0.05)
    without = Scorer(model, num_ids=420, condition_id=0)
    assert list(dead_mass_rows(without, tokenizer, "base", 0, "en", ["The light."])) == []
