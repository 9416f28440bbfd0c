"""Debiased linear CKA: laws, and parity with the estimator written out over all pairs of tokens."""

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.cka import linear_cka, ordinary_tokens


def states(tokens: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(tokens, dim, generator=torch.Generator().manual_seed(seed))


def written_out(x: torch.Tensor, y: torch.Tensor) -> float:
    """HSIC₁ of arXiv 2010.15327, eq. 3, with matrices of tokens by tokens whose diagonals are zero."""

    def hsic(k: torch.Tensor, m: torch.Tensor) -> float:
        n, one = len(k), torch.ones(len(k), 1, dtype=torch.float64)
        k, m = k - torch.diag(k.diag()), m - torch.diag(m.diag())
        total = torch.trace(k @ m)
        total = total + ((one.T @ k @ one) * (one.T @ m @ one) / ((n - 1) * (n - 2))).squeeze()
        total = total - (2 / (n - 2) * (one.T @ k @ m @ one)).squeeze()
        return (total / (n * (n - 3))).item()

    k, m = x.double() @ x.double().T, y.double() @ y.double().T
    return hsic(k, m) / (hsic(k, k) * hsic(m, m)) ** 0.5


@pytest.mark.parametrize(("dim", "other"), [(5, 7), (90, 3), (200, 300)])
def test_it_agrees_with_the_estimator_written_out(dim: int, other: int) -> None:
    x = states(80, dim) + 3
    y = torch.cat([x[:, :2], states(80, other, seed=1)], dim=1)
    assert linear_cka(x, y) == pytest.approx(written_out(x, y), rel=1e-9)


def test_turned_scaled_and_moved_states_are_the_same() -> None:
    x = states(100, 6)
    rotation = torch.linalg.qr(states(6, 6, seed=2))[0]
    assert linear_cka(x, x) == pytest.approx(1)
    assert linear_cka(x, 5 * x @ rotation + 7) == pytest.approx(1, abs=1e-6)


def test_unrelated_states_are_near_zero_also_in_more_dimensions_than_tokens() -> None:
    """The plain estimator says 0.7 here, of states that have nothing in common."""
    x, y = states(100, 400), states(100, 400, seed=1)
    k, m = (x - x.mean(0)) @ (x - x.mean(0)).T, (y - y.mean(0)) @ (y - y.mean(0)).T
    assert (k * m).sum() / (k.norm() * m.norm()) > 0.7
    assert abs(linear_cka(x, y) or 0) < 0.05


def test_states_that_do_not_vary_have_no_alignment() -> None:
    assert linear_cka(torch.ones(70, 3), states(70, 3)) is None


@pytest.mark.parametrize(("one", "other"), [(63, 63), (70, 71)])
def test_few_or_other_tokens_are_refused(one: int, other: int) -> None:
    with pytest.raises(MeasurementError, match=rf"at least 64, not {one} and {other}"):
        linear_cka(states(one, 3), states(other, 3))


def test_a_few_outlying_tokens_would_decide_alone_and_are_named() -> None:
    """One token a hundred times as long as the others: what becomes of its length is all that CKA would see."""
    x = states(200, 6)
    one, other = x.clone(), x.clone()
    one[3] *= 400
    other[3] *= 4
    assert (linear_cka(one, other) or 0) < 0.9
    kept = ordinary_tokens(one, other)
    assert kept.sum() == 199
    assert not kept[3]
    assert linear_cka(one[kept], other[kept]) == pytest.approx(1)
    assert ordinary_tokens(x, 5 * x).all()
