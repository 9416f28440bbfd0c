"""Elastic weight consolidation: the pull toward the start is as strong as source text says that a weight matters."""

from collections.abc import Mapping
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from lingraft.model.base import hidden_states
from lingraft.polling import poll
from lingraft.training.companion import Companion, StageStart
from lingraft.training.guards.guard import SourceText, guard
from lingraft.training.loss import chunked_cross_entropy

__all__ = ["Ewc", "diagonal_fisher"]


@guard("ewc", reference="arXiv 1612.00796", copies=2, limits={"strength": (0, inf), "tokens": (1, inf)}, divides=False)
class Ewc(Companion):
    """Adds λ/2 · Σ F (θ − θ₀)² to the loss: λ · F · (θ − θ₀) to each gradient, before gradients are clipped.

    F is :func:`diagonal_fisher` of the stage's starting weights on source text. It is small, so λ is large: there is no
    default for it (arXiv 2505.05946 sweeps it for Lithuanian).

    Args:
        start: the stage's start.
        source: where the source text comes from.
        strength: λ, at least 0.
        tokens: how much source text F is taken from.
    """

    group: ClassVar[str] = "ewc"

    def __init__(self, start: StageStart, source: SourceText, *, strength: float, tokens: int = 131_072) -> None:
        self.strength = strength
        self._parameters = dict(start.parameters)
        self._start = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        found = source.kept("ewc", lambda: diagonal_fisher(start, source, tokens))
        self._fisher: Mapping[str, Tensor] = {name: found[name].to(p.device) for name, p in self._parameters.items()}

    @torch.no_grad()
    def before_update(self, step: int) -> None:  # noqa: ARG002 - the same at every step
        """Add the pull to the gradients; weights at their start, frozen rows among them, get none."""
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                pull = (parameter - self._start[name]).mul_(self._fisher[name])
                parameter.grad.add_(pull, alpha=self.strength)


def diagonal_fisher(start: StageStart, source: SourceText, tokens: int) -> dict[str, Tensor]:
    """Return the diagonal of the empirical Fisher information per token, by parameter name, in fp32.

    F = (1/N) Σₛ (1/T) (∇ Σₜ log p(xₛₜ | xₛ,₍<ₜ₎))², over N sequences of T labels: the gradient of a whole sequence is
    squared, not that of every token, which would cost a backward pass for each. Under the model's own distribution the
    terms of different tokens are uncorrelated, so that this is the mean per-token Fisher there; on text, with its own
    labels, it is the empirical one (arXiv 1905.12558 on the difference). Sequences are packed text, and the label
    behind a document's end counts like any other.
    """
    sums = {name: torch.zeros_like(parameter, dtype=torch.float32) for name, parameter in start.parameters.items()}
    sequences = source.sequences(tokens)
    # Dropout would be noise in F.
    start.model.eval()
    for sequence in sequences:
        poll()
        inputs, targets = sequence[None, :-1], sequence[1:]
        total, _ = chunked_cross_entropy(hidden_states(start.model, inputs).flatten(0, 1), targets, start.head)
        torch.autograd.backward(total)
        for name, parameter in start.parameters.items():
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                sums[name].addcmul_(gradient, gradient, value=1 / (len(sequences) * len(targets)))
                parameter.grad = None
    return sums
