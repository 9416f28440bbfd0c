"""Likelihoods: every token once, whatever it is batched with."""

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure import scoring
from lingraft.measure.scoring import Scorer, disjoint_windows, windows
from lingraft.measure.token_tree import Branch

NUM_IDS = 410


def make(model, **options) -> Scorer:
    return Scorer(model, **({"num_ids": NUM_IDS, "condition_id": 0} | options))


def sequence(length: int, seed: int = 0) -> list[int]:
    return torch.randint(1, NUM_IDS, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def slow_scores(model, tokens: list[int], begins: list[int]) -> list[float]:
    """Score one token at a time: token i in the context of what stands from begins[i] on, behind the start token."""
    scores = []
    for place, begin in enumerate(begins):
        ids = torch.tensor([[0, *tokens[begin:place]]])
        with torch.no_grad():
            scores.append(model(ids).logits[0, -1, :NUM_IDS].log_softmax(0)[tokens[place]].item())
    return scores


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((20, 10, 5), [(0, 0, 10), (5, 10, 15), (10, 15, 20)]),
        ((19, 9, 5), [(0, 0, 9), (5, 9, 14), (10, 14, 19)]),
        ((10, 10, 5), [(0, 0, 10)]),
        ((11, 10, 5), [(0, 0, 10), (5, 10, 11)]),
        ((20, 10, 10), [(0, 0, 10), (10, 10, 20)]),
        ((3, 1, 1), [(0, 0, 1), (1, 1, 2), (2, 2, 3)]),
        ((0, 10, 5), []),
    ],
)
def test_windows_by_hand(shape: tuple[int, int, int], found: list) -> None:
    assert windows(*shape) == found


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 9, 10])
@pytest.mark.parametrize("num_tokens", [1, 9, 10, 11, 20, 57])
def test_o69_every_target_is_scored_exactly_once(num_tokens: int, stride: int) -> None:
    scored = [n for _, first, end in windows(num_tokens, 10, stride) for n in range(first, end)]
    assert scored == list(range(num_tokens))
    assert all(first - begin >= min(10 - stride, first) for begin, first, _ in windows(num_tokens, 10, stride))


@pytest.mark.parametrize("stride", [0, 11, -1])
def test_a_stride_that_skips_or_stands_still_is_refused(stride: int) -> None:
    with pytest.raises(MeasurementError, match="between 1 and the window 10"):
        windows(20, 10, stride)


def test_scores_equal_those_of_one_token_at_a_time(model) -> None:
    tokens = sequence(12)
    scored = make(model).score([tokens])[0]
    assert scored.log_probabilities.tolist() == pytest.approx(slow_scores(model, tokens, [0] * 12), abs=1e-4)


def test_o69_o72_strided_scores_equal_the_slow_way_with_the_start_token_before_every_window(model) -> None:
    tokens = sequence(20)
    # A window of 11 has room for 10 tokens behind the start token; the stride is half of that.
    scored = make(model, window=11).score([tokens])[0]
    expected = slow_scores(model, tokens, [0] * 10 + [5] * 5 + [10] * 5)
    assert len(scored.log_probabilities) == 20
    assert scored.log_probabilities.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[list[list[int]], list[list[int]] | None]]:
    """Return every batch of ids that a model is asked for, with its mask."""
    seen, whole = [], scoring.hidden_states

    def watch(model, ids, mask=None):
        seen.append((ids.tolist(), None if mask is None else mask.tolist()))
        return whole(model, ids, mask)

    monkeypatch.setattr(scoring, "hidden_states", watch)
    return seen


def test_o72_every_window_starts_the_same_way(model, asked) -> None:
    make(model, window=11, condition_id=7).score([sequence(50), sequence(3)])
    assert {row[0] for ids, _ in asked for row in ids} == {7}


def test_o74_the_start_token_stands_there_exactly_once(model, asked) -> None:
    tokens = sequence(9)
    make(model, condition_id=0).score([tokens])
    assert asked == [([[0, *tokens]], None)]


def test_o71_another_start_token_gives_other_scores(model) -> None:
    scores = [make(model, condition_id=n).score([sequence(5)])[0].log_probabilities for n in (0, 1)]
    assert not torch.allclose(scores[0], scores[1], atol=1e-3)


def test_padding_is_masked_by_position_and_stands_on_the_right(model, asked) -> None:
    make(model, condition_id=5).score([[5, 5], [5, 5, 5, 5]])
    assert asked == [([[5] * 5, [5] * 5], [[1] * 5, [1, 1, 1, 0, 0]])]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_batches_and_padding_do_not_change_scores(model, batch_size: int) -> None:
    texts = [sequence(length, length) for length in (1, 30, 2, 17, 5, 45, 45)]
    alone = [make(model, window=32).score([text])[0] for text in texts]
    together = make(model, window=32, batch_size=batch_size).score(texts)
    for one, other, text in zip(alone, together, texts, strict=True):
        torch.testing.assert_close(one.log_probabilities, other.log_probabilities, atol=1e-5, rtol=1e-5)
        assert one.greedy.tolist() == other.greedy.tolist()
        assert len(other.greedy) == len(text)


def test_an_empty_sequence_has_no_scores(model) -> None:
    scored = make(model).score([[], [3]])
    assert [len(s.log_probabilities) for s in scored] == [0, 1]


def test_rows_that_no_token_owns_take_no_probability(model) -> None:
    tokens = sequence(6)
    whole, masked = (make(model, num_ids=n).score([tokens])[0].log_probabilities for n in (420, NUM_IDS))
    assert (masked > whole).all()


@pytest.mark.parametrize("bad", [NUM_IDS, -1])
def test_a_foreign_id_is_refused(model, bad: int) -> None:
    with pytest.raises(MeasurementError, match=f"id {bad} is not one of the tokenizer's 410"):
        make(model).score([[1, bad, 2]])


def test_o68_window_losses_are_summed_over_all_tokens_before_dividing(model) -> None:
    tokens = sequence(20)
    scored = make(model, window=11).score([tokens])[0].log_probabilities
    windowed = [scored[a:b].mean() for a, b in ((0, 10), (10, 15), (15, 20))]
    slow = slow_scores(model, tokens, [0] * 10 + [5] * 5 + [10] * 5)
    assert scored.sum().item() / 20 == pytest.approx(sum(slow) / 20, abs=1e-4)
    assert abs(scored.mean().item() - sum(windowed).item() / 3) > 1e-4


def test_the_models_own_limit_bounds_the_window(model) -> None:
    assert make(model, window=1024).window == 256
    assert len(make(model).score([sequence(600)])[0].greedy) == 600


def test_bf16_is_close(model) -> None:
    exact, low = (
        make(model, dtype=t).score([sequence(40)])[0].log_probabilities for t in (torch.float32, torch.bfloat16)
    )
    assert low.dtype == torch.float32
    assert low.mean().item() == pytest.approx(exact.mean().item(), rel=0.02)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((0, 4), []),
        ((3, 4), [(0, 0, 3)]),
        ((4, 4), [(0, 0, 4)]),
        # The last window is filled up with text before it: it begins at 6 - 4 - 1.
        ((6, 4), [(0, 0, 4), (1, 4, 6)]),
        ((12, 4), [(0, 0, 4), (3, 4, 8), (7, 8, 12)]),
    ],
)
def test_disjoint_windows_by_hand(shape: tuple[int, int], found: list) -> None:
    assert disjoint_windows(*shape) == found


@pytest.mark.parametrize("num_tokens", [1, 9, 10, 11, 20, 57])
def test_o69_disjoint_windows_score_every_target_once_too(num_tokens: int) -> None:
    found = disjoint_windows(num_tokens, 10)
    assert [n for _, first, end in found for n in range(first, end)] == list(range(num_tokens))
    assert all(end - begin == 11 for begin, _, end in found[1:])


def test_disjoint_scores_equal_the_slow_way(model) -> None:
    tokens = sequence(25)
    scored = make(model, window=11).score([tokens], disjoint=True)[0].log_probabilities.tolist()
    slow = slow_scores(model, tokens[:10], [0] * 10)
    for begin, first, end in [(9, 10, 20), (14, 20, 25)]:
        for place in range(first, end):
            with torch.no_grad():
                logits = model(torch.tensor([tokens[begin:place]])).logits[0, -1, :NUM_IDS]
            slow.append(logits.log_softmax(0)[tokens[place]].item())
    assert scored == pytest.approx(slow, abs=1e-4)


@pytest.mark.parametrize("stride", [1, 3, 10])
def test_any_stride_scores_every_token_behind_what_it_leaves(model, stride: int) -> None:
    tokens = sequence(24)
    scored = make(model, window=11).score([tokens], stride=stride)[0].log_probabilities.tolist()
    begins = [begin for begin, first, end in windows(24, 10, stride) for _ in range(first, end)]
    assert scored == pytest.approx(slow_scores(model, tokens, begins), abs=1e-4)


def test_a_stride_longer_than_the_window_is_refused_by_the_scorer(model) -> None:
    with pytest.raises(MeasurementError, match="between 1 and the window 10, not 11"):
        make(model, window=11).score([sequence(20)], stride=11)


def branching() -> list[list[Branch]]:
    """Two groups: three ends behind one beginning, and two texts of which one is the beginning of the other."""
    stem, other = tuple(sequence(9)), tuple(sequence(5, 1))
    ends = [tuple(sequence(length, 2 + length)) for length in (1, 2, 4)]
    return [[Branch((*stem, *end), 9) for end in ends], [Branch(other, 2), Branch((*other, 7, 8), 4)]]


def same(one: list, other: list) -> bool:
    pairs = [pair for group in zip(one, other, strict=True) for pair in zip(*group, strict=True)]
    assert all(a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-4) for a, b in pairs)
    return all(a.greedy == b.greedy for a, b in pairs)


def test_branches_equal_the_scores_of_each_text_alone(model) -> None:
    scorer, groups = make(model), branching()
    found = scorer.score_branches(groups)
    assert scorer._takes_trees
    assert same(found, [scorer._score_apart(group) for group in groups])
    for group, scored in zip(groups, found, strict=True):
        for branch, score in zip(group, scored, strict=True):
            whole = scorer.score([branch.ids])[0]
            assert score.log_probabilities == pytest.approx(whole.log_probabilities[branch.start :].tolist(), abs=1e-4)
            assert score.greedy[:-1] == tuple(whole.greedy[branch.start :].tolist())
            with torch.no_grad():
                behind = model(torch.tensor([[0, *branch.ids]])).logits[0, -1, :NUM_IDS].argmax()
            assert score.greedy[-1] == behind


@pytest.mark.parametrize("batch_size", [1, 2])
def test_batches_of_trees_do_not_change_scores(model, batch_size: int) -> None:
    assert same(make(model, batch_size=batch_size).score_branches(branching()), make(model).score_branches(branching()))


def test_many_places_are_read_in_pieces(model, monkeypatch) -> None:
    whole = make(model).score_branches(branching())
    monkeypatch.setattr(scoring, "_NODES_AT_ONCE", 2)
    assert same(make(model).score_branches(branching()), whole)


def test_a_model_that_heeds_no_mask_gets_each_text_by_itself(model, monkeypatch) -> None:
    """A mask that is dropped on the way must not be taken on trust."""
    expected = make(model).score_branches(branching())
    monkeypatch.setattr(scoring, "masked_inputs", lambda model, seen, positions: {"position_ids": positions})
    blind = make(model)
    found = blind.score_branches(branching())
    assert not blind._takes_trees
    assert same(found, expected)


def test_a_branch_longer_than_the_window_is_refused(model) -> None:
    with pytest.raises(MeasurementError, match="has 10 tokens, the model has room for 9: take fewer"):
        make(model, window=11).score_branches([[Branch(tuple(range(1, 11)), 3)]])
    full = [[Branch(tuple(range(1, 10)), 3)]]
    scorer = make(model, window=11)
    assert same(scorer.score_branches(full), [scorer._score_apart(full[0])])
