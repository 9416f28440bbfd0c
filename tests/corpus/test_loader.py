"""Packed sequences: a function of seed and step, every sequence once per pass."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.corpus.loader import SequenceLoader, num_sequences, permuted
from lingraft.errors import CorpusError


@dataclass
class Store:
    tokens: np.ndarray
    ends: tuple[int, ...] = ()

    @property
    def document_ends(self) -> np.ndarray:
        return np.array([*self.ends, len(self.tokens)], dtype=np.uint64)


def make(quotas, sizes=(41, 83), *, length: int = 4, seed: int = 3, consumed=None) -> SequenceLoader:
    """Return a loader over two streams, a: 0, 1, 2, … and b: 1000, 1001, …"""
    stores = {
        name: Store(np.arange(size, dtype=np.uint16) + 1000 * n)
        for n, (name, size) in enumerate(zip("ab", sizes, strict=True))
    }
    return SequenceLoader(stores, np.array(quotas), sequence_length=length, seed=seed, consumed=consumed)


def starts(loader: SequenceLoader, steps, corpus: str = "a") -> list[int]:
    found = []
    for n in steps:
        batch = loader.batch(n)
        found += [int(row[0]) for row, name in zip(batch.tokens, batch.corpora, strict=True) if name == corpus]
    return found


@pytest.mark.parametrize(("tokens", "count"), [(0, 0), (1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (41, 10)])
def test_a_sequence_needs_one_token_more_as_last_label(tokens: int, count: int) -> None:
    assert num_sequences(tokens, 4) == count


@settings(deadline=None)
@given(st.integers(1, 300), st.binary(min_size=1, max_size=32))
def test_permuted_is_a_permutation(size: int, key: bytes) -> None:
    assert sorted(permuted(n, size, key) for n in range(size)) == list(range(size))


def test_permuted_mixes_and_depends_on_the_key() -> None:
    orders = [[permuted(n, 100, key) for n in range(100)] for key in (b"1", b"2")]
    assert orders[0] != orders[1]
    assert all(sum(order[n] == n for n in range(100)) < 10 for order in orders)


def test_permuted_never_changes() -> None:
    assert [permuted(n, 10, b"fixed") for n in range(10)] == [9, 3, 2, 4, 5, 1, 7, 6, 0, 8]


def test_rows_are_pieces_of_the_stream_with_their_labels() -> None:
    batch = make([[2, 3]]).batch(0)
    assert batch.tokens.shape == (5, 5)
    assert sorted(batch.corpora) == ["a", "a", "b", "b", "b"]
    for row, name in zip(batch.tokens, batch.corpora, strict=True):
        assert (row[0] >= 1000) == (name == "b")
        assert row[0] % 4 == 0
        assert row.tolist() == list(range(row[0], row[0] + 5))


def test_every_sequence_comes_once_per_pass_and_passes_differ_in_order() -> None:
    loader = make([[2, 0]] * 15)
    passes = [starts(loader, range(5 * n, 5 * n + 5)) for n in range(3)]
    assert all(sorted(p) == list(range(0, 40, 4)) for p in passes)
    assert len({tuple(p) for p in passes}) == 3


@pytest.mark.parametrize("step", [0, 4, 7, 29])
def test_o44_o36_a_batch_is_a_function_of_seed_and_step_alone(step: int) -> None:
    quotas = [[2, 3]] * 30
    loader, fresh = make(quotas), make(quotas)
    for n in range(30):
        loader.batch(n)
    again, first = loader.batch(step), fresh.batch(step)
    assert np.array_equal(again.tokens, first.tokens)
    assert again.corpora == first.corpora


def test_the_seed_decides_the_order() -> None:
    assert starts(make([[5, 0]]), [0]) != starts(make([[5, 0]], seed=4), [0])


def test_a_corpus_is_read_in_the_same_order_whatever_the_other_one_does() -> None:
    alone, mixed = make([[2, 0]] * 5), make([[2, 4]] * 5)
    assert [sorted(starts(alone, [n])) for n in range(5)] == [sorted(starts(mixed, [n])) for n in range(5)]


def test_the_next_stage_goes_on_behind_the_last() -> None:
    whole, first = make([[1, 1]] * 8), make([[1, 1]] * 3)
    assert first.consumed(3) == {"a": 12, "b": 12}
    second = make([[1, 1]] * 5, consumed=first.consumed(3))
    assert starts(second, range(5)) == starts(whole, range(3, 8))
    assert second.consumed(5) == whole.consumed(8)


def test_a_stage_with_longer_sequences_does_not_read_a_consumed_one_again() -> None:
    assert make([[1, 0]], length=8, consumed={"a": 12}).consumed(0) == {"a": 16, "b": 0}


def test_a_corpus_shorter_than_one_sequence_is_refused() -> None:
    with pytest.raises(CorpusError, match=r"corpora\.a: 4 tokens are less than one sequence of 4"):
        make([[1, 0]], sizes=(4, 83))
    assert make([[0, 1]], sizes=(4, 83)).num_steps == 1


def test_o52_the_realised_share_of_tokens_is_the_quotas() -> None:
    loader = make([[1, 3], [2, 2]])
    names = [name for n in range(2) for name in loader.batch(n).corpora]
    assert (names.count("a"), names.count("b")) == (3, 5)


def test_documents_are_numbered_within_each_row() -> None:
    """The stream a ends documents after 3, 4 and 10 tokens; rows are cut every 4."""
    store = Store(np.arange(13, dtype=np.uint16), (3, 4, 10))
    loader = SequenceLoader({"a": store}, np.array([[3]]), sequence_length=4, seed=0)
    batch = loader.batch(0)
    found = {int(row[0]): documents.tolist() for row, documents in zip(batch.tokens, batch.documents, strict=True)}
    assert found == {0: [0, 0, 0, 1, 2], 4: [0, 0, 0, 0, 0], 8: [0, 0, 1, 1, 1]}


def test_o51_no_label_crosses_into_the_next_document() -> None:
    store = Store(np.arange(13, dtype=np.uint16), (3, 4, 10))
    batch = SequenceLoader({"a": store}, np.array([[3]]), sequence_length=4, seed=0).batch(0)
    found = {int(row[0]): counts.astype(int).tolist() for row, counts in zip(batch.tokens, batch.counts, strict=True)}
    assert found == {0: [1, 1, 0, 0], 4: [1, 1, 1, 1], 8: [1, 0, 1, 1]}
