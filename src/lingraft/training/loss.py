"""Cross-entropy over a large vocabulary without ever holding all of its logits.

Logits are made for a chunk of positions at a time, in the compute type; the loss is taken in fp32, of some rows of the
chunk at a time, whose slope takes their place. The gradient is built while the chunk's slopes exist, so the backward
pass makes no logits at all.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from lingraft.errors import TrainingError
from lingraft.model.base import Head
from lingraft.training.chunks import POSITIONS, WORKED, chunk_positions

__all__ = ["chunked_cross_entropy", "token_log_probabilities"]

# Rows of the head's gradient that are made at a time.
_ROWS = 16384
# Positions that are scored at a time where nothing learns: their logits are in fp32.
_SCORED = 512
_ALL = slice(None)


@dataclass(frozen=True)
class _Way:
    """How the loss is made: what :func:`chunked_cross_entropy` is told beside its tensors."""

    head: Head
    dtype: torch.dtype
    chunk: int
    z_loss: float
    learning: slice


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of −log p(target) + z_loss · log² Z with both gradients made in the forward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, way: _Way) -> tuple[Tensor, Tensor]:
        head, dtype, z_loss = way.head, way.dtype, way.z_loss
        losses = torch.empty(targets.shape, dtype=torch.float32, device=hidden.device)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient = torch.zeros_like(weight) if needs_weight else None
        low = weight[: head.num_ids].to(dtype)
        chunk = chunk_positions(head.num_ids, min(way.chunk, len(targets)))
        chunks = _Chunks(low, head, chunk, z_loss)
        product = torch.empty_like(low[:_ROWS]) if needs_weight else None
        penalty = losses.new_zeros(())
        for start in range(0, len(targets), chunk):
            piece = slice(start, start + chunk)
            states = hidden[piece].to(dtype)
            losses[piece], slope, log_z = chunks.loss_and_slope(states, targets[piece])
            if z_loss:
                penalty += z_loss * log_z.square().sum()
            if hidden_gradient is not None:
                hidden_gradient[piece] = slope @ low
            if weight_gradient is not None and product is not None:
                _add_product(weight_gradient[: head.num_ids][way.learning], slope[:, way.learning], states, product)
        ctx.gradients = hidden_gradient, weight_gradient
        ctx.mark_non_differentiable(losses)
        return losses.sum(dtype=torch.float32) + penalty, losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # They are scaled where they lie, and so can be given only once.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise TrainingError("the gradients of a chunked loss can be taken only once; make the loss again")
        hidden, weight = (None if g is None else g.mul_(upstream.to(g.dtype)) for g in gradients)
        return hidden, weight, None, None


def _add_product(total: Tensor, slope: Tensor, states: Tensor, product: Tensor) -> None:
    """Add ``slope.T @ states`` to ``total``, some rows at a time, each made in ``product``."""
    for start in range(0, len(total), len(product)):
        part = slope[:, start : start + len(product)]
        total[start : start + part.shape[1]] += torch.mm(part.T, states, out=product[: part.shape[1]])


class _Chunks:
    """Loss and slope of one chunk after another, in the same memory.

    Logits are the largest thing that a step makes; taking fresh memory for each chunk costs more than computing them.
    """

    def __init__(self, weight: Tensor, head: Head, size: int, z_loss: float) -> None:
        self._weight, self._head, self._z_loss = weight, head, z_loss
        device, num_ids = weight.device, len(weight)
        self._rows = max(1, min(size, WORKED.get(device.type, WORKED["other"]) // max(1, num_ids)))
        self._low = torch.empty((size, num_ids), dtype=weight.dtype, device=device)
        self._logits = torch.empty((self._rows, num_ids), device=device)
        # Logarithms take the place of logits, unless a cap's slope needs these. Only the CPU's kernel is known to
        # have read a row by the time it writes there.
        in_place = head.softcap is None and device.type == "cpu"
        self._logs = self._logits if in_place else torch.empty_like(self._logits)
        self._bias = None if head.bias is None else head.bias[: head.num_ids].float()

    def loss_and_slope(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return −log p of each target, d(their sum + Σ z_loss · log² Z)/d(product of states and weight), and log Z.

        The slope, in the type of the product, is there until the next call.
        """
        low = self._low[: len(states)]
        torch.mm(states, self._weight.T, out=low)
        pieces = (slice(start, start + self._rows) for start in range(0, len(low), self._rows))
        parts = [self._put_slope(low[piece], targets[piece]) for piece in pieces]
        losses, log_z = (torch.cat(each) for each in zip(*parts, strict=True))
        return losses, low, log_z

    def _put_slope(self, low: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Put the slope of some rows in the place of their logits; return their losses and log Z."""
        size, places, cap = len(low), targets[:, None], self._head.softcap
        logits, logs = self._logits[:size], self._logs[:size]
        logits.copy_(low)
        if self._bias is not None:
            logits += self._bias
        if cap is not None:
            logits.div_(cap).tanh_().mul_(cap)
        chosen = logits.gather(1, places)[:, 0]
        torch.log_softmax(logits, dim=1, out=logs)
        losses = -logs.gather(1, places)[:, 0]
        log_z = chosen + losses
        slope = logs.exp_()
        if self._z_loss:
            slope *= 1 + 2 * self._z_loss * log_z[:, None]
        slope.scatter_add_(1, places, torch.full_like(places, -1, dtype=slope.dtype))
        if cap is not None:
            slope *= logits.div_(cap).square_().neg_().add_(1)
        low.copy_(slope)
        return losses, log_z


def chunked_cross_entropy(
    hidden: Float[Tensor, "positions dim"],
    targets: Int[Tensor, "positions"],
    head: Head,
    *,
    dtype: torch.dtype = torch.float32,
    chunk: int = POSITIONS,
    z_loss: float = 0.0,
    learning: slice = _ALL,
) -> tuple[Float[Tensor, ""], Float[Tensor, "positions"]]:
    """Return the summed cross-entropy in nats, with gradients, and the fp32 loss of every position, without.

    loss = Σ (logsumexp(zᵢ) − zᵢ[targetᵢ]) with z = softcap(hidden · Wᵀ + b) over the ids that the tokenizer owns. A
    head's bias takes part in the loss but is not trained. At most ``chunk`` × ids logits exist at a time. The sum also
    has Σ ``z_loss`` · logsumexp(zᵢ)², which keeps the normaliser near 1 (arXiv 2204.02311, sec. 5); the losses of
    positions do not.

    Args:
        hidden: states after the last norm.
        targets: the next token of each position; every position counts.
        head: see :func:`lingraft.model.base.head_of`.
        dtype: the type that matrix products are made in.
        chunk: positions per chunk.
        z_loss: weight of log² Z.
        learning: the rows of the matrix that learn; the gradient of all others is zero and costs nothing.
    """
    apply: Any = _ChunkedCrossEntropy.apply
    total, losses = apply(hidden, head.weight, targets, _Way(head, dtype, chunk, z_loss, learning))
    return total, losses


@torch.no_grad()
def token_log_probabilities(
    hidden: Float[Tensor, "positions dim"], targets: Int[Tensor, "positions"], head: Head, *, chunk: int = _SCORED
) -> tuple[Float[Tensor, "positions"], Int[Tensor, "positions"]]:
    """Return log p(target) in nats (fp32 log-softmax) and the id with the highest logit, for each position."""
    scores = torch.empty(targets.shape, dtype=torch.float32, device=hidden.device)
    best = torch.empty_like(targets)
    for start in range(0, len(targets), chunk):
        piece = slice(start, start + chunk)
        logits = head.logits(hidden[piece])
        scores[piece] = logits.gather(1, targets[piece, None])[:, 0] - logits.logsumexp(dim=1)
        best[piece] = logits.argmax(dim=1)
    return scores, best
