"""Orthogonal matching pursuit: a few shared tokens whose combination is the donor's row, combined anew."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lingraft.embeddings.context import InitContext, Rows, fill_from_pieces, init_method
from lingraft.embeddings.donor import open_donor, share_tokens
from lingraft.embeddings.vectors import combine_rows
from lingraft.errors import RecipeError
from lingraft.polling import poll

__all__ = ["omp", "orthogonal_matching_pursuit"]

# Of a block of signals, the correlations with all atoms exist at once: 256 x 100k atoms are 100 MB.
_BLOCK = 256
# What is left of an atom beside those before it, as a share of it, where rounding leaves something of nothing.
_NOTHING = 1e-6


@init_method("omp", reference="arXiv 2506.06607", needs=("donor",))
def omp(context: InitContext, *, donor: str, k: int = 64, device: str = "cpu") -> Rows:
    """Return, for each new token, the combination of old rows that spells its row in the donor with shared tokens.

    d_t ≈ Σⱼ cⱼ d_{sⱼ} over k shared tokens sⱼ that orthogonal matching pursuit chooses, and row(t) = Σⱼ cⱼ e_{sⱼ} with
    the same coefficients; d are rows of the donor, e of the base model. Coefficients may be negative and need not sum
    to 1. Tokens that the donor lacks get the mean of their pieces.

    Args:
        context: what every method sees.
        donor: a local model folder with tokenizer.json and safetensors weights.
        k: shared tokens a row is made of, at most.
        device: where to compute, as torch names it; on a CPU the largest cases take hours (see
            :func:`orthogonal_matching_pursuit`).

    Raises:
        RecipeError: there is no such folder, or ``k`` is under 1.
        ModelError: the donor's matrix cannot be read, or no token is shared.
    """
    if k < 1:
        raise RecipeError(f"embeddings.{context.side}.k: at least 1 shared token is needed for a row, not {k}")
    shared = share_tokens(context, open_donor(donor, f"embeddings.{context.side}.donor"))
    chosen, coefficients = orthogonal_matching_pursuit(shared.donor_new.to(device), shared.donor_anchors.to(device), k)
    rows = combine_rows(shared.old_anchors, chosen.cpu(), coefficients.cpu())
    return fill_from_pieces(context, rows, shared.places, shared.reasons)


def orthogonal_matching_pursuit(
    signals: Float[Tensor, "signals dim"], atoms: Float[Tensor, "atoms dim"], k: int
) -> tuple[Int[Tensor, "signals k"], Float[Tensor, "signals k"]]:
    """Return which atoms spell each signal, in the order in which they were chosen, and their coefficients.

    Step by step the atom with the largest |⟨a, r⟩| joins, r being what is left of the signal, and all coefficients are
    fitted again. Atoms are taken as they are, not scaled to length 1. A signal whose next atom depends on those before
    is done, and the rest of its coefficients are 0.

    Correlations cost 2 · signals · atoms · dim operations a step, in the type of the inputs, and are nearly all of the
    work; the fits run in fp64 and grow with k² · dim. 4,000 signals of 576 dimensions over 45,000 atoms with k = 64 are
    1.3e13 operations, about ten minutes on two CPU cores; 32,000 of 4,096 over 100,000 are 1.7e15, which is work for a
    GPU.
    """
    width = min(k, len(atoms), atoms.shape[1])
    blocks = [_pursue(block, atoms, width) for block in torch.split(signals, _BLOCK)]
    return torch.cat([chosen for chosen, _ in blocks]), torch.cat([fitted for _, fitted in blocks]).to(signals.dtype)


def _pursue(signals: Tensor, atoms: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return atoms and coefficients of one block: L Lᵀ c = A y, with one row more of L at each step."""
    targets = signals.double()
    number, dim = signals.shape
    chosen = torch.zeros(number, k, dtype=torch.long, device=signals.device)
    rows = targets.new_zeros(number, k, dim)
    lower = targets.new_zeros(number, k, k)
    wanted = targets.new_zeros(number, k, 1)
    fitted = targets.new_zeros(number, k, 1)
    open_ = torch.ones(number, dtype=torch.bool, device=signals.device)
    left = targets
    for step in range(k):
        poll()
        correlations = (left.to(atoms.dtype) @ atoms.T).abs_()
        correlations.scatter_(1, chosen[:, :step], -1.0)
        chosen[:, step] = correlations.argmax(dim=1)
        atom = atoms[chosen[:, step]].double()
        row, pivot = _next_row(lower[:, :step, :step], rows[:, :step], atom)
        open_ = open_ & (pivot > _NOTHING * torch.linalg.vector_norm(atom, dim=1))
        # A signal that is done gets the row (0 … 0 1) and the wish 0, from which the coefficient 0 follows.
        lower[:, step, :step] = row * open_[:, None]
        lower[:, step, step] = torch.where(open_, pivot, 1.0)
        wanted[:, step, 0] = (atom * targets).sum(dim=1) * open_
        rows[:, step] = atom
        fitted = torch.cholesky_solve(wanted[:, : step + 1], lower[:, : step + 1, : step + 1])
        left = targets - (fitted.mT @ rows[:, : step + 1]).squeeze(1)
    return chosen, fitted.squeeze(2)


def _next_row(lower: Tensor, rows: Tensor, atom: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next row of the Cholesky factor of the chosen atoms' Gram matrix, and its last number."""
    products = rows @ atom[:, :, None]
    row = torch.linalg.solve_triangular(lower, products, upper=False).squeeze(2)
    return row, (atom.square().sum(dim=1) - row.square().sum(dim=1)).clamp_min(0).sqrt()
