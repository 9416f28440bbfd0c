"""Orthogonal matching pursuit: the code by hand, its laws, and the peers."""

import pytest
import torch

from lingraft.embeddings import InitContext, fill_rows, omp, subword_mean
from lingraft.embeddings.methods.omp import orthogonal_matching_pursuit
from lingraft.errors import RecipeError
from lingraft.vocabulary import LearnOptions, expand_vocabulary


def draw(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="module")
def expansion(tokenizer):
    return expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa"] * 12, [], LearnOptions(8))


def test_code_by_hand():
    """y = (2, 1) has products 2 and 3, so (1, 1) is first: 3/2 of it leave (½, −½). Then (1, 0) joins, and the fit of
    both is y = 1 · (1, 1) + 1 · (1, 0)."""
    atoms = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    chosen, coefficients = orthogonal_matching_pursuit(torch.tensor([[2.0, 1.0]]), atoms, 2)
    assert chosen.tolist() == [[1, 0]]
    torch.testing.assert_close(coefficients, torch.tensor([[1.0, 1.0]]))


def test_one_atom_is_the_projection():
    """⟨(3, 4), (2, 0)⟩ = 6 beats 4; 6 / 4 of it."""
    atoms = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    chosen, coefficients = orthogonal_matching_pursuit(torch.tensor([[3.0, 4.0]]), atoms, 1)
    assert (chosen.tolist(), coefficients.tolist()) == ([[0]], [[1.5]])


def test_an_atom_that_points_away_is_as_good():
    """|⟨(−3, 1), (1, 0)⟩| = 3 beats 1, and the coefficient is −3."""
    chosen, coefficients = orthogonal_matching_pursuit(torch.tensor([[-3.0, 1.0]]), torch.eye(2), 1)
    assert (chosen.tolist(), coefficients.tolist()) == ([[0]], [[-3.0]])


def test_a_signal_that_is_an_atom_is_that_atom_alone():
    chosen, coefficients = orthogonal_matching_pursuit(3 * torch.eye(8)[[5, 2]], torch.eye(8), 4)
    assert chosen[:, 0].tolist() == [5, 2]
    torch.testing.assert_close(coefficients, torch.tensor([[3.0, 0, 0, 0]] * 2))


def test_atoms_that_stand_twice_are_used_once_and_nothing_breaks():
    atoms = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    signals = torch.tensor([[2.0, 1.0, 5.0], [0.0, 0.0, 0.0]])
    chosen, coefficients = orthogonal_matching_pursuit(signals, atoms, 3)
    sums = torch.zeros(2, 3).scatter_add_(1, chosen, coefficients) @ atoms
    torch.testing.assert_close(sums, torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    assert all(len(set(row)) == 3 for row in chosen.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_left_is_orthogonal_to_the_chosen_and_shrinks(dtype):
    signals, atoms = draw(0, 300, 24, dtype=dtype), draw(1, 200, 24, dtype=dtype)
    before = signals.norm(dim=1)
    for k in (1, 4, 12):
        chosen, coefficients = orthogonal_matching_pursuit(signals, atoms, k)
        left = signals - (coefficients[:, :, None] * atoms[chosen]).sum(dim=1)
        assert (left.norm(dim=1) < before).all()
        assert (atoms[chosen] @ left[:, :, None]).abs().max() < (1e-4 if dtype == torch.float32 else 1e-12)
        assert all(len(set(row)) == k for row in chosen.tolist())
        before = left.norm(dim=1)


def test_more_atoms_than_there_are_or_dimensions_are_not_used():
    assert orthogonal_matching_pursuit(draw(0, 2, 5), draw(1, 3, 5), 64)[0].shape == (2, 3)
    chosen, coefficients = orthogonal_matching_pursuit(draw(0, 2, 5), draw(1, 30, 5), 64)
    assert chosen.shape == (2, 5)
    torch.testing.assert_close((coefficients[:, :, None] * draw(1, 30, 5)[chosen]).sum(dim=1), draw(0, 2, 5))


def test_no_signals_no_code():
    assert orthogonal_matching_pursuit(draw(0, 0, 5), draw(1, 30, 5), 4)[0].shape == (0, 4)


def test_the_same_combination_is_taken_of_old_rows(write_donor, expansion):
    """Law: where old rows are a linear image of the donor's and k spans its space, new rows are that image too."""
    donor_rows, image = draw(0, expansion.new.num_ids, 6), draw(1, 6, 9)
    folder = write_donor(expansion.new.text, {"wte.weight": donor_rows})
    context = InitContext(expansion, (donor_rows @ image)[: expansion.num_old], "input", torch.Generator())
    made = omp(context, donor=str(folder))
    wanted = donor_rows[[token.id for token in expansion.new_tokens]] @ image
    torch.testing.assert_close(made.matrix, wanted, atol=1e-4, rtol=1e-4)


def test_one_shared_token_a_row_by_hand(write_donor, expansion, tokenizer):
    """Each new token's donor row is twice that of "a", so its new row is twice the old row of "a"."""
    letter = tokenizer.id_of("a")
    donor_rows = torch.eye(expansion.new.num_ids)
    for token in expansion.new_tokens:
        donor_rows[token.id] = 2 * donor_rows[letter]
    folder = write_donor(expansion.new.text, {"wte.weight": donor_rows})
    old = draw(1, expansion.num_old, 5)
    made = omp(InitContext(expansion, old, "input", torch.Generator()), donor=str(folder), k=3)
    torch.testing.assert_close(made.matrix, (2 * old[letter]).repeat(8, 1))


def test_tokens_that_the_donor_lacks_are_on_record(write_donor, expansion, tokenizer):
    fewer = expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa"] * 12, [], LearnOptions(6))
    folder = write_donor(fewer.new.text, {"wte.weight": draw(0, fewer.new.num_ids, 6)})
    old = draw(1, expansion.num_old, 4)
    context = InitContext(expansion, old, "input", torch.Generator())
    filled = fill_rows(context, old, lambda c: omp(c, donor=str(folder), k=4), "omp", expansion.new.num_ids)
    assert filled.counts()["fallback"] == 2
    last = expansion.new_tokens[-1]
    assert torch.equal(filled.matrix[last.id], subword_mean(context)[-1])


def test_k_under_one_is_refused(expansion):
    context = InitContext(expansion, draw(1, expansion.num_old, 4), "output", torch.Generator())
    with pytest.raises(RecipeError, match=r"embeddings.output.k: at least 1 shared token is needed for a row, not 0"):
        omp(context, donor="nowhere", k=0)


def largest_difference(chosen, coefficients, other_chosen, other_coefficients, number):
    """Return by how much two codes differ at most, as vectors over all atoms."""
    ours = torch.zeros(len(chosen), number).scatter_(1, chosen, coefficients.float())
    theirs = torch.zeros(len(chosen), number).scatter_(1, other_chosen, other_coefficients.float())
    return (ours - theirs).abs().max().item()


@pytest.mark.peers
@pytest.mark.parametrize("k", [1, 8, 64])
def test_parity_with_scikit_learn(k):
    linear_model = pytest.importorskip("sklearn.linear_model")
    signals = draw(0, 60, 128)
    atoms = torch.nn.functional.normalize(draw(1, 900, 128), dim=1)
    codes = linear_model.orthogonal_mp(atoms.T.double().numpy(), signals.T.double().numpy(), n_nonzero_coefs=k)
    chosen, coefficients = orthogonal_matching_pursuit(signals, atoms, k)
    ours = torch.zeros(60, 900).scatter_(1, chosen, coefficients)
    torch.testing.assert_close(ours, torch.from_numpy(codes).T.float(), atol=1e-5, rtol=0)


@pytest.mark.peers
@pytest.mark.parametrize("k", [1, 8, 64])
def test_parity_with_mergekit(k):
    peer = pytest.importorskip("mergekit.tokensurgeon.omp")
    signals, atoms = draw(0, 60, 128) + 1.0, draw(1, 900, 128) * 0.1 + 0.5
    chosen, coefficients = orthogonal_matching_pursuit(signals.double(), atoms.double(), k)
    other = peer.batch_omp(signals.double(), atoms.double(), k)
    assert largest_difference(chosen, coefficients, *other, number=900) < 1e-5
