"""Spectra of changes, by hand and against the decomposition that they are a short way to."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.errors import MeasurementError
from lingraft.measure.spectra import evenly_spaced, matrix_spectrum, measure_spectra
from lingraft.model.base import load_model


@pytest.mark.parametrize(
    ("num_layers", "count", "layers"),
    [
        (30, 3, (0, 14, 29)),
        (2, 3, (0, 1)),
        (1, 3, (0,)),
        (30, 1, (15,)),
        (30, 0, ()),
        (0, 3, ()),
        (5, 9, (0, 1, 2, 3, 4)),
    ],
)
def test_layers_are_first_last_and_evenly_between(num_layers: int, count: int, layers: tuple[int, ...]) -> None:
    assert evenly_spaced(num_layers, count) == layers


def test_a_diagonal_change_by_hand() -> None:
    """Δ = diag(3, 4, 0): ‖Δ‖² = 25, σ₁² = 16; W₀ = diag(8, 1, 1)."""
    old = torch.diag(torch.tensor([8.0, 1, 1]))
    found = matrix_spectrum(old, old + torch.diag(torch.tensor([3.0, 4, 0])))
    assert found.stable_rank == pytest.approx(25 / 16)
    assert found.ratio == pytest.approx(4 / 8)
    assert (found.intruders, found.top) == (0, 3)


def test_no_change_has_rank_zero() -> None:
    found = matrix_spectrum(torch.eye(4), torch.eye(4))
    assert (found.stable_rank, found.ratio, found.intruders) == (0, 0, 0)


def test_from_nothing_there_is_no_ratio() -> None:
    """W₀ = 0 has no directions that its own decomposition does not invent; the ratio is 0, not a division by it."""
    assert matrix_spectrum(torch.zeros(3, 3), torch.eye(3)).ratio == 0


@pytest.mark.parametrize("wide", [False, True])
def test_directions_of_no_size_are_no_intruders(wide: bool) -> None:
    """W = W₀ = diag(2, 1, 0, 0) over a row of zeros: two directions there are, and both are the base's."""
    matrix = torch.zeros(5, 4)
    matrix[0, 0], matrix[1, 1] = 2, 1
    matrix = matrix.T if wide else matrix
    found = matrix_spectrum(matrix, matrix)
    assert (found.intruders, found.top) == (0, 2)


def test_all_directions_are_new_to_a_matrix_of_zeros() -> None:
    """As the outputs of inserted layers are; directions of W₀ that only its decomposition invents are none."""
    found = matrix_spectrum(torch.zeros(3, 4), torch.eye(4)[:3])
    assert (found.stable_rank, found.ratio, found.intruders, found.top) == (pytest.approx(3), 0, 3, 3)
    nothing = matrix_spectrum(torch.eye(3), torch.zeros(3, 3))
    assert (nothing.intruders, nothing.top) == (0, 0)


def test_a_direction_in_which_the_base_was_nothing_is_an_intruder() -> None:
    """W₀ = diag(1, 0, 0) becomes diag(1, 2, 0)."""
    found = matrix_spectrum(torch.diag(torch.tensor([1.0, 0, 0])), torch.diag(torch.tensor([1.0, 2, 0])))
    assert (found.intruders, found.top) == (1, 2)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_one_strong_new_direction_is_an_intruder(shape: tuple[int, int]) -> None:
    """All axes at once: its cosine to each of the first five left vectors, the axes, is 1/√12 and to the others small."""
    old = torch.zeros(shape)
    old[torch.arange(12), torch.arange(12)] = torch.linspace(2, 1, 12)
    new = old.clone()
    new += 100 * torch.outer(torch.ones(shape[0]) / shape[0] ** 0.5, torch.ones(shape[1]) / shape[1] ** 0.5)
    found = matrix_spectrum(old, new)
    assert found.intruders >= 1
    assert found.stable_rank == pytest.approx(1)
    assert matrix_spectrum(old, old * 3).intruders == 0


@pytest.mark.parametrize("shape", [(24, 9), (9, 24), (16, 16)])
def test_it_agrees_with_the_whole_decomposition(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    old = torch.randn(shape, generator=generator)
    new = old + 0.8 * torch.randn(shape, generator=generator)
    found = matrix_spectrum(old, new)
    change = torch.linalg.svdvals((new - old).double())
    assert found.stable_rank == pytest.approx((change.square().sum() / change[0] ** 2).item())
    assert found.ratio == pytest.approx((change[0] / torch.linalg.matrix_norm(old.double(), 2)).item())
    before = torch.linalg.svd(old.double(), full_matrices=False)[0]
    after = torch.linalg.svd(new.double(), full_matrices=False)[0][:, : found.top]
    slow = sum(int(max(abs(torch.dot(a, b).item()) for b in before.T) < 0.5) for a in after.T)
    assert found.intruders == slow


def test_a_matrix_of_another_shape_is_refused(tied_folder: Path, tmp_path: Path) -> None:
    tensors = load_file(tied_folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 2)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(MeasurementError, match=r"up_proj.weight is \(3, 2\), in the model it is \(64, 32\)"):
        measure_spectra(load_model(tied_folder), tmp_path, layers=[1])


def test_matrices_of_the_chosen_layers(tied_folder: Path) -> None:
    model = load_model(tied_folder)
    model.get_parameter("model.layers.1.mlp.up_proj.weight").data += 0.01
    found = measure_spectra(model, tied_folder, layers=[1])
    assert {layer for layer, _ in found} == {1}
    assert {matrix for _, matrix in found} >= {"self_attn.q_proj", "mlp.up_proj", "mlp.down_proj"}
    moved = {matrix for (_, matrix), spectrum in found.items() if spectrum.stable_rank}
    assert moved == {"mlp.up_proj"}
    assert found[1, "mlp.up_proj"].stable_rank == pytest.approx(1, abs=1e-3)
