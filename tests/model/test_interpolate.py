"""The line between two models, and merges of several ("linear", "slerp"), by hand and to the bit."""

import math

import pytest
import torch

from lingraft.errors import ModelError, RecipeError
from lingraft.model.base import is_tied, load_model
from lingraft.model.interpolate import interpolate, linear, merge_weights, slerp


def weights_of(model, noise: float = 0.0) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {n: p.detach() + noise * torch.randn_like(p) for n, p in model.named_parameters()}


@pytest.mark.parametrize("folder", ["tied_folder", "untied_folder"])
def test_both_ends_are_bit_for_bit_and_the_middle_is_half_way(folder: str, request) -> None:
    model = load_model(request.getfixturevalue(folder))
    base, tuned = weights_of(model), weights_of(model, 0.1)
    tied = is_tied(model)
    for weight, wanted in ((0.0, base), (1.0, tuned)):
        interpolate(model, base, tuned, weight, ())
        assert all(torch.equal(p, wanted[n]) for n, p in model.named_parameters())
    interpolate(model, base, tuned, 0.25, ())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), 0.75 * base[name] + 0.25 * tuned[name])
    assert is_tied(model) == tied


@pytest.mark.parametrize("folder", ["tied_folder", "untied_folder"])
@pytest.mark.parametrize("new_ids", [(400, 401, 402), (3, 17, 399)])
def test_rows_of_new_tokens_are_the_trained_ones_everywhere(folder: str, new_ids, request) -> None:
    model = load_model(request.getfixturevalue(folder))
    base, tuned = weights_of(model), weights_of(model, 0.1)
    interpolate(model, base, tuned, 0.0, new_ids)
    tables = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    rows = list(new_ids)
    for name, parameter in model.named_parameters():
        if any(parameter is table for table in tables):
            assert torch.equal(parameter[rows], tuned[name][rows])
            parameter = parameter.detach().clone()
            parameter[rows] = base[name][rows]
        assert torch.equal(parameter, base[name])


def test_models_of_other_shapes_are_refused(tied_folder) -> None:
    model = load_model(tied_folder)
    base = weights_of(model)
    with pytest.raises(ModelError, match="they differ in extra"):
        interpolate(model, base | {"extra": torch.zeros(1)}, base, 0.5, ())
    with pytest.raises(ModelError, match=r"they differ in model\.norm\.weight"):
        merge_weights([base, base | {"model.norm.weight": torch.zeros(1)}], "linear")


def test_slerp_by_hand() -> None:
    """Between (2, 0) and (0, 2): √2 each, of length 2, where the line has (1, 1)."""
    one, other = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 2.0])
    torch.testing.assert_close(slerp(one, other, 0.5), torch.tensor([math.sqrt(2)] * 2))
    torch.testing.assert_close(linear(one, other, 0.5), torch.ones(2))
    third = slerp(one, other, 1 / 3)
    torch.testing.assert_close(third, 2 * torch.tensor([math.cos(math.pi / 6), math.sin(math.pi / 6)]))


@pytest.mark.parametrize("pair", [([1.0, 2.0], [2.0, 4.0]), ([1.0, 2.0], [-1.0, -2.0]), ([0.0, 0.0], [1.0, 1.0])])
def test_where_there_is_no_one_arc_it_is_the_line(pair) -> None:
    one, other = (torch.tensor(side) for side in pair)
    assert torch.equal(slerp(one, other, 0.5), linear(one, other, 0.5))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_linear_merges_are_the_plain_mean(count: int) -> None:
    branches = [{"w": torch.full((3,), float(n))} for n in range(count)]
    torch.testing.assert_close(merge_weights(branches, "linear")["w"], torch.full((3,), (count - 1) / 2))
    assert branches[0]["w"].tolist() == [0.0] * 3


@pytest.mark.parametrize("method", ["linear", "slerp"])
def test_what_no_branch_moved_stays_bit_for_bit(method: str) -> None:
    """Frozen rows of a table whose other rows trained."""
    torch.manual_seed(0)
    start = torch.randn(50, 8)
    branches = [{"w": start.clone()} for _ in range(3)]
    for branch in branches:
        branch["w"][40:] += torch.randn(10, 8)
    merged = merge_weights(branches, method)["w"]
    assert torch.equal(merged[:40], start[:40])
    assert not torch.equal(merged[40:], branches[0]["w"][40:])


def test_an_unknown_merge_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"stages\.0\.slices\.merge: unknown merge 'ties'"):
        merge_weights([{"w": torch.ones(1)}] * 2, "ties", "stages.0.slices.merge")
