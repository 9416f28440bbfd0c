"""What kind of change a matrix has undergone, by its singular values: of few directions, or diffuse."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lingraft.errors import MeasurementError
from lingraft.measure.shift import layer_of, stored_tensors
from lingraft.model.freeze import parts_of
from lingraft.polling import poll

__all__ = ["MatrixSpectrum", "evenly_spaced", "matrix_spectrum", "measure_spectra"]

TOP_VECTORS = 10
INTRUDER_COSINE = 0.5


@dataclass(frozen=True)
class MatrixSpectrum:
    """The change Δ = W − W₀ of one matrix.

    Attributes:
        stable_rank: ‖Δ‖_F² / σ₁(Δ)²: 1 where all change is in one direction, at most the rank; 0 where there is none.
        ratio: σ₁(Δ) / σ₁(W₀); 0 where W₀ is 0.
        intruders: how many of the ``top`` first left singular vectors of W are at a cosine below 0.5 to every left
            singular vector of W₀: directions that the base model did not have (arXiv 2410.21228, sec. 3).
        top: how many were looked at: ten, or as many as the matrix has.
    """

    stable_rank: float
    ratio: float
    intruders: int
    top: int


def evenly_spaced(num_layers: int, count: int) -> tuple[int, ...]:
    """Return at most ``count`` layers of ``0 … num_layers − 1``: first, last, and evenly between; the middle if one."""
    if count <= 0 or num_layers <= 0:
        return ()
    if count == 1:
        return (num_layers // 2,)
    return tuple(sorted({round(n * (num_layers - 1) / (count - 1)) for n in range(count)}))


@torch.no_grad()
def measure_spectra(model: nn.Module, start: Path, *, layers: Sequence[int]) -> dict[tuple[int, str], MatrixSpectrum]:
    """Return ``(layer, name of the matrix within it) → spectrum`` for every matrix of some layers.

    The start is read matrix by matrix.

    Args:
        model: the model now.
        start: a folder with the safetensors weights of the start.
        layers: which ones, counted from 0.

    Raises:
        MeasurementError: a matrix of the model is not in the folder, or has another shape there; or a file is damaged.
    """
    prefixes = parts_of(model).layers
    now = {}
    for name, parameter in model.named_parameters():
        layer = layer_of(name, prefixes)
        if layer in layers and parameter.dim() == 2 and min(parameter.shape) > 1:
            now[name] = parameter
    found = {}
    for name, then in stored_tensors(start, now.keys()):
        if name in now:
            poll()
            layer = layer_of(name, prefixes)
            assert layer is not None
            if then.shape != now[name].shape:
                shapes = f"{tuple(then.shape)}, in the model it is {tuple(now[name].shape)}"
                raise MeasurementError(f"{start}: {name} is {shapes}")
            label = name.removeprefix(f"{prefixes[layer]}.").removesuffix(".weight")
            found[layer, label] = matrix_spectrum(then, now[name].detach())
    if len(found) < len(now):
        raise MeasurementError(f"{start}: {len(now) - len(found)} of {len(now)} matrices are not there to compare with")
    return dict(sorted(found.items()))


def matrix_spectrum(then: Float[Tensor, "rows columns"], now: Float[Tensor, "rows columns"]) -> MatrixSpectrum:
    """Return what kind of change lies between two matrices.

    Singular values and vectors come from the Gram matrix of the smaller side in fp64, which is several times cheaper
    than a decomposition of the matrix, and exact enough for the directions looked at, which are the largest.
    """
    old, new = then.to(now.device).double(), now.double()
    change = new - old
    largest = _largest_singular_value(change)
    rank = change.square().sum().item() / largest**2 if largest else 0.0
    before = _largest_singular_value(old)
    first, known = _left_vectors(new)[:, :TOP_VECTORS], _left_vectors(old)
    # A matrix of zeros knows no direction, and a column of zeros is at a cosine of 0 to all.
    cosines = first.T @ (known if known.shape[1] else known.new_zeros(len(known), 1))
    intruders = int((cosines.abs().amax(dim=1) < INTRUDER_COSINE).sum())
    return MatrixSpectrum(rank, largest / before if before else 0.0, intruders, first.shape[1])


def _gram(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "side side"]:
    gram: Tensor = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return gram


def _largest_singular_value(matrix: Float[Tensor, "rows columns"]) -> float:
    return float(torch.linalg.eigvalsh(_gram(matrix))[-1].clamp_min(0).sqrt())


def _left_vectors(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows rank"]:
    """Return the left singular vectors of a matrix, those of the largest values first.

    Directions with σ below 10⁻⁷ σ₁ have no sure vector and are left out. Where the left side is the longer one the
    vectors are W v / σ.
    """
    found: tuple[Tensor, Tensor] = torch.linalg.eigh(_gram(matrix))
    values, vectors = found[0], found[1].flip(1)
    sizes = values.flip(0).clamp_min(0).sqrt()
    sure = sizes > 1e-7 * sizes[0]
    if matrix.shape[0] <= matrix.shape[1]:
        return vectors[:, sure]
    return matrix @ vectors[:, sure] / sizes[sure]
