"""The penalty on the distance from the start ("l2_start"), by hand."""

import torch
from torch import nn

from lingraft.training.guards import L2Start


def test_the_pull_by_hand_and_as_autograd_has_it(bare_start, source) -> None:
    """θ₀ = (1, 2), θ = (3, 2), λ = ½, gradient (10, 20) → (10 + ½ · 2, 20)."""
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    deaf = nn.Parameter(torch.tensor([1.0]))
    guard = L2Start(bare_start({"w": weight, "deaf": deaf}), source, strength=0.5)
    with torch.no_grad():
        weight.copy_(torch.tensor([3.0, 2.0]))
    weight.grad = torch.tensor([10.0, 20.0])
    guard.before_update(1)
    assert weight.grad.tolist() == [11.0, 20.0]
    assert deaf.grad is None
    other = weight.detach().clone().requires_grad_()
    (0.5 / 2 * (other - torch.tensor([1.0, 2.0])).square().sum()).backward()
    assert other.grad.tolist() == [1.0, 0.0]
    assert guard.state() == {}
