"""The new matrix: old rows bit for bit, new rows at their own ids, padding apart, every row's origin known."""

from functools import partial

import pytest
import torch

from lingraft.embeddings import InitContext, Origin, Rows, fill_rows, init_methods, mean, subword_mean
from lingraft.embeddings.context import fill_from_pieces
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import LearnOptions, expand_vocabulary, keep_vocabulary


@pytest.fixture(scope="module")
def expansion(tokenizer):
    return expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa"] * 12, [], LearnOptions(3))


def context_of(expansion, base, side="input"):
    return InitContext(expansion, base[: expansion.num_old].float(), side, torch.Generator().manual_seed(0))


def base_of(expansion, spare=0, dtype=torch.float32):
    return torch.randn(expansion.num_old + spare, 4, generator=torch.Generator().manual_seed(1)).to(dtype)


def ones(context):
    return torch.arange(1.0, 1 + context.expansion.num_new)[:, None].repeat(1, context.old.shape[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_old_rows_are_the_same_bits(expansion, dtype):
    base = base_of(expansion, dtype=dtype)
    filled = fill_rows(context_of(expansion, base), base, subword_mean, "subword_mean", expansion.new.num_ids)
    assert filled.matrix.dtype == dtype
    assert torch.equal(filled.matrix[: expansion.num_old], base)
    assert filled.counts() == {"copied": expansion.num_old, "initialised": 3}


def test_new_rows_stand_at_their_ids_and_padding_is_the_mean(expansion):
    base, old = base_of(expansion), expansion.num_old
    filled = fill_rows(context_of(expansion, base), base, ones, "ones", old + 5)
    assert filled.matrix[old : old + 3, 0].tolist() == [1.0, 2.0, 3.0]
    torch.testing.assert_close(filled.matrix[old + 3 :], base.mean(dim=0).repeat(2, 1))
    assert filled.counts() == {"copied": old, "initialised": 3, "padding": 2}


def test_o26_spare_rows_of_a_padded_base_are_used_first_and_by_id(expansion):
    """The case: more rows than ids in the base; the last rows of the matrix are not the new tokens'."""
    base, old = base_of(expansion, spare=10), expansion.num_old
    filled = fill_rows(context_of(expansion, base), base, ones, "ones", len(base))
    assert filled.matrix.shape == base.shape
    assert filled.matrix[old : old + 3, 0].tolist() == [1.0, 2.0, 3.0]
    assert torch.equal(filled.matrix[old + 3 :], base[old + 3 :])
    assert filled.counts() == {"copied": old, "initialised": 3, "padding": 7}


def test_rows_of_the_padding_do_not_enter_the_mean(expansion):
    base = base_of(expansion, spare=10)
    base[expansion.num_old :] = 1e6
    filled = fill_rows(context_of(expansion, base), base, mean, "mean", len(base))
    torch.testing.assert_close(filled.matrix[expansion.num_old], base[: expansion.num_old].mean(dim=0))


def test_origin_of_a_new_row_names_method_and_pieces(expansion):
    base = base_of(expansion)
    filled = fill_rows(context_of(expansion, base), base, ones, "ones", expansion.new.num_ids)
    token = expansion.new_tokens[1]
    assert filled.origins[token.id] == Origin("initialised", "ones", token.pieces)
    assert filled.origins[0] == Origin("copied")


def with_fallbacks(fallbacks):
    def method(context):
        return Rows(ones(context), fallbacks(context.expansion.new_ids))

    return method


def test_a_fallback_is_on_record_with_its_reason(expansion):
    base, token = base_of(expansion), expansion.new_tokens[1]
    method = with_fallbacks(lambda ids: {token.id: "no vector"})
    filled = fill_rows(context_of(expansion, base), base, method, "own", expansion.new.num_ids)
    assert filled.matrix[token.id].tolist() == [2.0] * 4
    assert filled.origins[token.id] == Origin("fallback", "own", token.pieces, "no vector")
    assert filled.counts() == {"copied": expansion.num_old, "initialised": 2, "fallback": 1}


@pytest.mark.parametrize(
    ("fallbacks", "message"),
    [
        (
            lambda ids: {ids[0]: "a", ids[1]: "a"},
            r"'own' could not be used for 2 of 3 new tokens, and more than half is too many \(2 times: a\)",
        ),
        (lambda ids: {7: "a"}, "a fallback for id 7, which is no new token"),
        (lambda ids: {ids[0]: ""}, "without saying why"),
    ],
)
def test_an_init_that_mostly_is_another_is_refused(expansion, fallbacks, message):
    base = base_of(expansion)
    with pytest.raises(ModelError, match=message):
        fill_rows(context_of(expansion, base), base, with_fallbacks(fallbacks), "own", expansion.new.num_ids)


def test_rows_are_completed_with_the_mean_of_the_pieces(expansion):
    base = base_of(expansion)
    second = expansion.new_tokens[1]
    found = torch.tensor([[9.0] * 4, [8.0] * 4])
    rows = fill_from_pieces(context_of(expansion, base), found, [2, 0], {second.id: "not there"})
    assert rows.matrix[[2, 0], 0].tolist() == [9.0, 8.0]
    torch.testing.assert_close(rows.matrix[1], base[list(second.pieces)].mean(dim=0))
    assert rows.fallbacks == {second.id: "mean of its pieces: not there"}


def test_what_a_method_returns_as_rows_is_checked_as_well(expansion):
    base = base_of(expansion)
    with pytest.raises(ModelError, match="not finite"):
        fill_rows(context_of(expansion, base), base, lambda c: Rows(ones(c) / 0), "own", expansion.new.num_ids)


def test_keeping_the_vocabulary_changes_no_bit_and_asks_no_method(tokenizer):
    kept = keep_vocabulary(tokenizer)
    base = base_of(kept, spare=2)
    filled = fill_rows(context_of(kept, base), base, lambda context: 1 / 0, "never", len(base))
    assert torch.equal(filled.matrix, base)
    assert filled.counts() == {"copied": kept.num_old, "padding": 2}


@pytest.mark.parametrize(("rows", "spare"), [(2, 0), (5, 10)])
def test_matrix_that_would_shrink_or_not_hold_an_id_is_refused(expansion, rows, spare):
    base = base_of(expansion, spare=spare)
    with pytest.raises(ModelError, match="cannot hold"):
        fill_rows(context_of(expansion, base), base, ones, "ones", expansion.num_old + rows)


def test_base_with_fewer_rows_than_ids_is_refused(expansion):
    base = base_of(expansion)[:-1]
    with pytest.raises(ModelError, match=f"base of {expansion.num_old - 1} cannot hold"):
        fill_rows(context_of(expansion, base), base, ones, "ones", expansion.new.num_ids)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda context: torch.zeros(2, 4), r"'own' must return a tensor of shape \(3, 4\), it returned \(2, 4\)"),
        (lambda context: torch.zeros(3, 5), r"it returned \(3, 5\)"),
        (lambda context: None, "it returned NoneType"),
        (lambda context: torch.full((3, 4), torch.nan), "not finite"),
        (lambda context: torch.full((3, 4), torch.inf), "not finite"),
    ],
)
def test_what_a_method_of_ones_own_returns_is_checked(expansion, method, message):
    base = base_of(expansion)
    with pytest.raises(ModelError, match=message):
        fill_rows(context_of(expansion, base), base, method, "own", expansion.new.num_ids)


def test_methods_are_found_by_name_and_bind_their_options():
    names = [entry.name for entry in init_methods]
    assert names == sorted(names)
    assert set(names) >= {"gaussian", "mean", "subword_mean", "similarity", "linear_map", "omp", "align", "zero"}
    assert all(entry.reference and entry.summary.startswith("Return") for entry in init_methods)
    bound = init_methods.get("gaussian", "embeddings.input").bind({"scale": 0.5}, "embeddings.options")
    assert isinstance(bound, partial)
    with pytest.raises(RecipeError, match="did you mean 'subword_mean'"):
        init_methods.get("subwordmean", "embeddings.input")


def raising(context):
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (raising, "init method 'own' failed: ValueError: no such thing"),
        (lambda context: torch.ones(3, 4, dtype=torch.int64), "must return dense rows of floating-point numbers"),
        (lambda context: torch.ones(3, 4, device="meta"), "must return dense rows of floating-point numbers"),
        (lambda context: torch.full((3, 4), 1e300, dtype=torch.float64), "returned rows that are not finite"),
    ],
)
def test_a_fault_of_a_method_is_told_with_its_name(expansion, method, message):
    base = base_of(expansion)
    with pytest.raises(ModelError, match=message):
        fill_rows(context_of(expansion, base), base, method, "own", expansion.new.num_ids)
