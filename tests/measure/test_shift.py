"""How far weights moved, by hand."""

from pathlib import Path

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.shift import KindShift, measure_shift, row_cosines
from lingraft.model.base import load_model

NEW = tuple(range(380, 410))


def shifted(folder: Path, name: str | None = None, rows: slice = slice(None), amount: float = 1.0, new_ids=NEW):
    model = load_model(folder)
    if name:
        model.get_parameter(name).data[rows] += amount
    return measure_shift(model, folder, new_ids=new_ids, num_ids=410)


def test_a_kind_sums_over_its_tensors() -> None:
    shift = KindShift()
    assert shift.add(torch.tensor([3.0, 0.0]), torch.tensor([3.0, 4.0])) == 4
    shift.add(torch.tensor([0.0]), torch.tensor([3.0]))
    assert shift.relative_l2 == pytest.approx(5 / 3)
    assert shift.cosine == pytest.approx(9 / (3 * 34**0.5))


def test_nothing_at_all_has_not_moved() -> None:
    shift = KindShift()
    shift.add(torch.zeros(2), torch.zeros(2))
    assert (shift.relative_l2, shift.cosine) == (0, 1)


@pytest.mark.parametrize(("then", "now"), [(0.0, 1.0), (1.0, 0.0)])
def test_a_kind_of_which_one_side_is_nothing_has_no_direction_in_common(then: float, now: float) -> None:
    """As of single rows: the cosine with a vector of zeros is 0, unless both are."""
    shift = KindShift()
    shift.add(torch.full((2,), then), torch.full((2,), now))
    assert (shift.relative_l2, shift.cosine) == (then, 0)


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_that_did_not_move(tied: bool, tied_folder: Path, untied_folder: Path) -> None:
    found = shifted(tied_folder if tied else untied_folder)
    tables = {"embeddings_old", "embeddings_new"} | (set() if tied else {"head_old", "head_new"})
    assert found.kinds.keys() == {"attention", "mlp", "norm"} | tables
    assert found.mean_l2 == 0
    assert all(kind.relative_l2 == 0 and kind.cosine == pytest.approx(1) for kind in found.kinds.values())


def test_one_norm_of_ones_doubled(tied_folder: Path) -> None:
    """A norm has 32 ones; there are five of them, and 20 tensors in all."""
    found = shifted(tied_folder, "model.norm.weight")
    assert found.kinds["norm"].relative_l2 == pytest.approx((32 / 160) ** 0.5)
    assert found.mean_l2 == pytest.approx(32**0.5 / 20)
    assert found.kinds["mlp"].relative_l2 == 0


@pytest.mark.parametrize(
    ("rows", "moved"),
    [(slice(0, 380), "embeddings_old"), (slice(380, 410), "embeddings_new"), (slice(410, None), None)],
)
def test_old_new_and_padding_rows_are_kept_apart(tied_folder: Path, rows: slice, moved: str | None) -> None:
    found = shifted(tied_folder, "model.embed_tokens.weight", rows)
    assert {kind for kind, sums in found.kinds.items() if sums.difference} == ({moved} if moved else set())
    assert (found.mean_l2 > 0) == (moved is not None)


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_in_the_middle_are_kept_apart_too(tied: bool, tied_folder: Path, untied_folder: Path) -> None:
    """Rows 5, 6 and 100 are new: of the four rows that move, two are new and two old."""
    folder, name = (tied_folder, "model.embed_tokens.weight") if tied else (untied_folder, "lm_head.weight")
    model = load_model(folder)
    before = model.get_parameter(name).detach().clone().double()
    model.get_parameter(name).data[[4, 5, 100, 101]] += 1
    found = measure_shift(model, folder, new_ids=[5, 6, 100], num_ids=410)
    kind, old = ("embeddings" if tied else "head"), [i for i in range(410) if i not in (5, 6, 100)]
    for part, rows in (("new", [5, 6, 100]), ("old", old)):
        sums = found.kinds[f"{kind}_{part}"]
        assert sums.difference == pytest.approx(2 * 32)
        assert sums.before == pytest.approx((before[rows] ** 2).sum().item())
    assert found.mean_l2 == pytest.approx((4 * 32) ** 0.5 / (20 if tied else 21))


def test_without_new_tokens_all_rows_are_old(tied_folder: Path) -> None:
    kinds = shifted(tied_folder, "model.embed_tokens.weight", slice(409, 410), new_ids=()).kinds
    assert "embeddings_new" not in kinds
    assert kinds["embeddings_old"].difference == pytest.approx(32)


def test_a_start_of_another_model_is_refused(tied_folder: Path, untied_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"no tensor 'lm_head\.weight' to compare with"):
        measure_shift(load_model(untied_folder), tied_folder, new_ids=NEW, num_ids=410)
    model = load_model(tied_folder)
    model.resize_token_embeddings(430)
    model.save_pretrained(tmp_path)
    with pytest.raises(MeasurementError, match=r"embed_tokens\.weight is \(430, 32\), in the model it is \(420, 32\)"):
        measure_shift(load_model(tied_folder), tmp_path, new_ids=NEW, num_ids=410)


def test_a_damaged_file_is_named(tied_folder: Path, tmp_path: Path) -> None:
    content = (tied_folder / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(MeasurementError, match=r"model\.safetensors: the weights to compare with cannot be read"):
        measure_shift(load_model(tied_folder), tmp_path, new_ids=NEW, num_ids=410)


def test_layers_are_told_apart(tied_folder: Path) -> None:
    """One norm of layer 1 doubled: its two norms hold 64 ones, of which 32 moved by 1."""
    found = shifted(tied_folder, "model.layers.1.input_layernorm.weight")
    assert {layer for layer, _ in found.layers} == {0, 1}
    assert {kind for _, kind in found.layers} == {"attention", "mlp", "norm"}
    assert found.layers[1, "norm"].relative_l2 == pytest.approx(0.5**0.5)
    assert {key for key, sums in found.layers.items() if sums.difference} == {(1, "norm")}


def test_layers_add_up_to_their_kind(tied_folder: Path) -> None:
    model = load_model(tied_folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    found = measure_shift(model, tied_folder, new_ids=NEW, num_ids=410)
    for kind in ("attention", "mlp"):
        parts = sum(sums.difference for (_, name), sums in found.layers.items() if name == kind)
        assert parts == pytest.approx(found.kinds[kind].difference)


def test_every_tensor_weighs_the_same_in_the_relative_mean(tied_folder: Path) -> None:
    """The last norm doubles, ‖θ − θ₀‖ = ‖θ₀‖; it is one of 20 tensors."""
    assert shifted(tied_folder, "model.norm.weight").mean_relative_l2 == pytest.approx(1 / 20)


def test_a_tensor_that_began_as_nothing_takes_no_part_in_the_relative_mean(tied_folder: Path, tmp_path: Path) -> None:
    """Of 20 tensors one was 0, and has no length to be held against; of the other 19 the last norm doubled."""
    model = load_model(tied_folder)
    model.get_parameter("model.layers.0.mlp.down_proj.weight").data.zero_()
    model.save_pretrained(tmp_path)
    model.get_parameter("model.layers.0.mlp.down_proj.weight").data += 1
    model.get_parameter("model.norm.weight").data += 1
    assert measure_shift(model, tmp_path, new_ids=NEW, num_ids=410).mean_relative_l2 == pytest.approx(1 / 19)


def test_rows_have_cosines_of_their_own() -> None:
    then = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
    now = torch.tensor([[6.0, 8.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert row_cosines(then, now).tolist() == pytest.approx([1, 0, 1, 0, -1])


def test_sums_over_blocks_are_the_sums_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingraft.measure.shift._BLOCK", 7)
    then, now = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), torch.ones(5, 6)
    shift = KindShift()
    assert shift.add(then, now) == pytest.approx((now - then).norm().item(), rel=1e-6)
    assert shift.cosine == pytest.approx(torch.nn.functional.cosine_similarity(then.flatten(), now.flatten(), 0).item())
    expected = torch.nn.functional.cosine_similarity(then, now, dim=1)
    torch.testing.assert_close(row_cosines(then, now).float(), expected)
