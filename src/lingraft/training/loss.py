"""Cross-entropy over a large vocabulary without ever holding all of its logits.

Logits are made for a chunk of positions at a time, in the compute type; the loss is taken in fp32. The gradient is
built while the chunk's logits exist, so the backward pass makes no logits at all.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from lingraft.model.base import Head

__all__ = ["chunked_cross_entropy", "token_log_probabilities"]

_CHUNK = 512


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of −log p(target) + z_loss · log² Z with both gradients made in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        head: Head,
        dtype: torch.dtype,
        chunk: int,
        z_loss: float,
    ) -> tuple[Tensor, Tensor]:
        losses = torch.empty(targets.shape, dtype=torch.float32, device=hidden.device)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient = torch.zeros_like(weight) if needs_weight else None
        low = weight[: head.num_ids].to(dtype)
        penalty = losses.new_zeros(())
        for start in range(0, len(targets), chunk):
            piece = slice(start, start + chunk)
            states = hidden[piece].to(dtype)
            losses[piece], slope, log_z = _loss_and_slope(states, low, targets[piece], head, z_loss)
            if z_loss:
                penalty += z_loss * log_z.square().sum()
            slope = slope.to(dtype)
            if hidden_gradient is not None:
                hidden_gradient[piece] = slope @ low
            if weight_gradient is not None:
                weight_gradient[: head.num_ids] += slope.T @ states
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.mark_non_differentiable(losses)
        return losses.sum(dtype=torch.float32) + penalty, losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        scaled = [None if g is None else g * upstream.to(g.dtype) for g in (hidden_gradient, weight_gradient)]
        return scaled[0], scaled[1], None, None, None, None, None


def _loss_and_slope(
    states: Tensor, weight: Tensor, targets: Tensor, head: Head, z_loss: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return −log p of each target, d(their sum + Σ z_loss · log² Z)/d(product of states and weight), and log Z."""
    logits = (states @ weight.T).float()
    if head.bias is not None:
        logits += head.bias[: head.num_ids].float()
    if head.softcap is not None:
        logits.div_(head.softcap).tanh_().mul_(head.softcap)
    log_z = logits.logsumexp(dim=1, keepdim=True)
    losses = (log_z - logits.gather(1, targets[:, None]))[:, 0]
    bend = None if head.softcap is None else 1 - (logits / head.softcap) ** 2
    slope = logits.sub_(log_z).exp_()
    if z_loss:
        slope *= 1 + 2 * z_loss * log_z
    slope.scatter_add_(1, targets[:, None], torch.full_like(targets[:, None], -1, dtype=slope.dtype))
    return losses, slope if bend is None else slope * bend, log_z[:, 0]


def chunked_cross_entropy(
    hidden: Float[Tensor, "positions dim"],
    targets: Int[Tensor, "positions"],
    head: Head,
    *,
    dtype: torch.dtype = torch.float32,
    chunk: int = _CHUNK,
    z_loss: float = 0.0,
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
    """
    apply: Any = _ChunkedCrossEntropy.apply
    total, losses = apply(hidden, head.weight, targets, head, dtype, chunk, z_loss)
    return total, losses


@torch.no_grad()
def token_log_probabilities(
    hidden: Float[Tensor, "positions dim"], targets: Int[Tensor, "positions"], head: Head, *, chunk: int = _CHUNK
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
