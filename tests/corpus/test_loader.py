"""Packed sequences: a function of seed and step, every sequence once per pass."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.corpus.apportionment import apportion
from lingraft.corpus.loader import SequenceLoader, num_sequences, permuted
from lingraft.corpus.mixing import Schedule
from lingraft.errors import CorpusError


@dataclass
class Store:
    tokens: np.ndarray
    ends: tuple[int, ...] = ()

    @property
    def document_ends(self) -> np.ndarray:
        return np.array([*self.ends, len(self.tokens)], dtype=np.uint64)


def make(a: int, b: int, num_steps: int, *, sizes=(41, 83), length: int = 4, seed: int = 3, consumed=None):
    """Return a loader over two streams, a: 0, 1, 2, … and b: 1000, 1001, …, of so many sequences a step."""
    stores = {
        name: Store(np.arange(size, dtype=np.uint16) + 1000 * n)
        for n, (name, size) in enumerate(zip("ab", sizes, strict=True))
    }
    mix = apportion(
        Schedule(lambda _: {"a": a / (a + b), "b": b / (a + b)}), ["a", "b"], (a + b) * num_steps, grain=a + b
    )
    return SequenceLoader(stores, mix, sequences=a + b, sequence_length=length, seed=seed, consumed=consumed)


def of_documents(*ends: int) -> SequenceLoader:
    """Return a loader over one stream of 13 tokens with documents in it, three sequences a step."""
    store = Store(np.arange(13, dtype=np.uint16), ends)
    mix = apportion(Schedule(lambda _: {"a": 1.0}), ["a"], 3)
    return SequenceLoader({"a": store}, mix, sequences=3, sequence_length=4, seed=0)


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
    batch = make(2, 3, 1).batch(0)
    assert batch.tokens.shape == (5, 5)
    assert sorted(batch.corpora) == ["a", "a", "b", "b", "b"]
    for row, name in zip(batch.tokens, batch.corpora, strict=True):
        assert (row[0] >= 1000) == (name == "b")
        assert row[0] % 4 == 0
        assert row.tolist() == list(range(row[0], row[0] + 5))


def test_every_sequence_comes_once_per_pass_and_passes_differ_in_order() -> None:
    loader = make(2, 0, 15)
    passes = [starts(loader, range(5 * n, 5 * n + 5)) for n in range(3)]
    assert all(sorted(p) == list(range(0, 40, 4)) for p in passes)
    assert len({tuple(p) for p in passes}) == 3


@pytest.mark.parametrize("step", [0, 4, 7, 29])
def test_o44_o36_a_batch_is_a_function_of_seed_and_step_alone(step: int) -> None:
    loader, fresh = make(2, 3, 30), make(2, 3, 30)
    for n in range(30):
        loader.batch(n)
    again, first = loader.batch(step), fresh.batch(step)
    assert np.array_equal(again.tokens, first.tokens)
    assert again.corpora == first.corpora


def test_the_seed_decides_the_order() -> None:
    assert starts(make(5, 0, 1), [0]) != starts(make(5, 0, 1, seed=4), [0])


def test_a_corpus_is_read_in_the_same_order_whatever_the_other_one_does() -> None:
    alone, mixed = make(2, 0, 5), make(2, 4, 5)
    assert [sorted(starts(alone, [n])) for n in range(5)] == [sorted(starts(mixed, [n])) for n in range(5)]


def test_the_next_stage_goes_on_behind_the_last() -> None:
    whole, first = make(1, 1, 8), make(1, 1, 3)
    assert first.consumed(3) == {"a": 12, "b": 12}
    second = make(1, 1, 5, consumed=first.consumed(3))
    assert starts(second, range(5)) == starts(whole, range(3, 8))
    assert second.consumed(5) == whole.consumed(8)


def test_a_stage_with_longer_sequences_does_not_read_a_consumed_one_again() -> None:
    assert make(1, 0, 1, length=8, consumed={"a": 12}).consumed(0) == {"a": 16, "b": 0}


def test_a_corpus_shorter_than_one_sequence_is_refused() -> None:
    with pytest.raises(CorpusError, match=r"corpora\.a: 4 tokens are less than one sequence of 4"):
        make(1, 0, 1, sizes=(4, 83))
    assert make(0, 1, 1, sizes=(4, 83)).num_steps == 1


def test_o52_the_realised_share_of_tokens_is_the_mix() -> None:
    loader = make(1, 2, 4)
    names = [name for n in range(4) for name in loader.batch(n).corpora]
    assert (names.count("a"), names.count("b")) == (4, 8)


def test_rows_of_a_step_are_mixed_evenly() -> None:
    """Any part of a step has the step's mix, so forward passes and ranks do."""
    names = make(20, 20, 1, sizes=(500, 500)).batch(0).corpora
    assert all(names[n : n + 4].count("a") == 2 for n in range(0, 40, 4))


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 6])
def test_o37_ranks_together_read_what_one_process_reads(num_ranks: int) -> None:
    loader = make(2, 4, 5)
    for step in range(5):
        whole = loader.batch(step)
        parts = [loader.batch(step, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
        assert np.array_equal(np.concatenate([part.tokens for part in parts]), whole.tokens)
        assert np.array_equal(np.concatenate([part.documents for part in parts]), whole.documents)
        assert sum((part.corpora for part in parts), ()) == whole.corpora


@pytest.mark.parametrize(("rank", "num_ranks"), [(-1, 2), (2, 2), (0, 0), (1, -1)])
def test_o37_a_rank_that_does_not_exist_is_refused(rank: int, num_ranks: int) -> None:
    with pytest.raises(CorpusError, match=f"no rank {rank} among {num_ranks}"):
        make(2, 4, 5).batch(0, rank=rank, num_ranks=num_ranks)


def test_o50_ranks_that_would_get_unequal_parts_are_refused() -> None:
    """Equal parts and one number of steps for all: no rank waits for another at the end."""
    with pytest.raises(CorpusError, match="6 sequences a step cannot be divided among 4 ranks"):
        make(2, 4, 5).batch(0, rank=0, num_ranks=4)


def rows_of(loader: SequenceLoader, first: int, last: int) -> list[tuple[int, ...]]:
    return [tuple(row) for step in range(first, last) for row in loader.batch(step).tokens.tolist()]


@pytest.mark.parametrize("step", [1, 3, 7, 20])
def test_o38_nothing_is_missing_after_a_stop_in_the_middle_of_a_pass(step: int) -> None:
    """41 tokens are 10 sequences of 4; at 3 a step a pass ends within a step, and step 20 is in the seventh."""
    whole = make(3, 1, 25)
    resumed = make(3, 1, 25)
    resumed.go_on(step, whole.state(step))
    assert rows_of(resumed, step, 25) == rows_of(whole, step, 25)


def test_o36_stopping_again_and_again_changes_nothing() -> None:
    whole, state, seen = make(3, 1, 12), None, []
    for step in range(12):
        loader = make(3, 1, 12)
        if state is not None:
            loader.go_on(step, state)
        seen += rows_of(loader, step, step + 1)
        state = loader.state(step + 1)
    assert seen == rows_of(whole, 0, 12)


def test_o44_the_next_batch_is_known_to_the_checkpoint_and_another_one_is_refused() -> None:
    loader, other = make(3, 1, 12), make(3, 1, 12, seed=4)
    other_data = make(3, 1, 12)
    other_data._stores["a"].tokens[:] += 1
    for changed in (other, other_data):
        with pytest.raises(CorpusError, match="step 6: the next batch is not the one that the checkpoint expects"):
            changed.go_on(5, loader.state(5))
    make(3, 1, 12).go_on(5, loader.state(5))


def test_a_mix_that_changes_in_mid_run_reads_every_corpus_on() -> None:
    """After 4 steps of 3 a and 1 b, 12 and 4 sequences are gone; the new mix goes on behind them, in every rerun."""
    first, second = make(3, 1, 12), make(1, 3, 12)
    second.go_on(4, first.state(4), changed=True)
    alone = make(4, 0, 12), make(0, 4, 12)
    assert sorted(starts(second, range(4, 8))) == sorted(starts(alone[0], range(3, 4)))
    assert sorted(starts(second, range(4, 8), "b")) == sorted(starts(alone[1], range(1, 4), "b"))
    again = make(1, 3, 12)
    again.go_on(7, second.state(7))
    assert rows_of(again, 7, 12) == rows_of(second, 7, 12)
    assert again.consumed(12) == {"a": 4 * (12 + 8), "b": 4 * (4 + 24)}


def test_documents_are_numbered_within_each_row() -> None:
    """The stream a ends documents after 3, 4 and 10 tokens; rows are cut every 4."""
    batch = of_documents(3, 4, 10).batch(0)
    found = {int(row[0]): documents.tolist() for row, documents in zip(batch.tokens, batch.documents, strict=True)}
    assert found == {0: [0, 0, 0, 1, 2], 4: [0, 0, 0, 0, 0], 8: [0, 0, 1, 1, 1]}


def test_o51_no_label_crosses_into_the_next_document() -> None:
    batch = of_documents(3, 4, 10).batch(0)
    found = {int(row[0]): counts.astype(int).tolist() for row, counts in zip(batch.tokens, batch.counts, strict=True)}
    assert found == {0: [1, 1, 0, 0], 4: [1, 1, 1, 1], 8: [1, 0, 1, 1]}
