"""Optimisers by name.

Every one takes groups of parameters, each with its weight decay and its share of the learning rate, and never moves a
row whose gradient is zero and whose group is not decayed: that is what freezing single rows stands on. Those marked
``divides=False`` look at whole matrices, and cannot be divided by rows among ranks. Loads no torch until an optimiser
is made, so that a plan can check names and options.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lingraft.registry import Registry

__all__ = ["adafactor", "adamw", "muon", "optimizer_method", "optimizers", "sgd"]

Groups = Sequence[dict[str, Any]]

optimizers: Registry[Callable[..., list[Any]]] = Registry("optimiser")
optimizer_method = optimizers.register


@optimizer_method("adamw", reference="arXiv 1711.05101", carries=True, copies=2)
def adamw(groups: Groups, *, betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8) -> list[Any]:
    """Return AdamW: m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², θ ← θ − η (m̂ / (√v̂ + ε) + λθ)."""
    from lingraft.training.optimizer_state import RowwiseAdamW

    return [RowwiseAdamW(list(groups), lr=1.0, betas=betas, eps=eps, fused=True)]


@optimizer_method("adafactor", reference="arXiv 1804.04235", copies=0, divides=False)
def adafactor(groups: Groups) -> list[Any]:
    """Return Adafactor: second moments of a matrix kept as one row and one column, no first moment."""
    from torch.optim import Adafactor

    return [Adafactor(list(groups), lr=1.0)]


@optimizer_method("sgd", reference="https://doi.org/10.1016/0041-5553(64)90137-5", copies=1)
def sgd(groups: Groups, *, momentum: float = 0.9) -> list[Any]:
    """Return stochastic gradient descent with momentum."""
    from torch.optim import SGD

    return [SGD(list(groups), lr=1.0, momentum=momentum)]


@optimizer_method("muon", reference="arXiv 2502.16982", copies=1.2, divides=False)
def muon(
    groups: Groups,
    *,
    momentum: float = 0.95,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
) -> list[Any]:
    """Return Muon for the matrices of the body, scaled to AdamW's update size, and AdamW for tables and vectors."""
    from torch.optim import Muon

    matrices, others = [], []
    for group in groups:
        inside = [p for p in group["params"] if p.ndim == 2 and not group["is_table"]]
        outside = [p for p in group["params"] if p.ndim != 2 or group["is_table"]]
        matrices += [group | {"params": inside}] if inside else []
        others += [group | {"params": outside}] if outside else []
    made: list[Any] = []
    if matrices:
        made.append(Muon(matrices, lr=1.0, momentum=momentum, adjust_lr_fn="match_rms_adamw"))
    return [*made, *(adamw(others, betas=betas, eps=eps) if others else [])]
