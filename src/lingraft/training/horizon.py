"""How far back an average remembers: half-lives and the share of the start. Loads no torch."""

import math

__all__ = ["half_life", "shadow_decay", "start_share"]


def half_life(decay: float, every: int) -> float:
    """Return after how many steps the weight of an old value has halved: η · ln ½ / ln α."""
    return every * math.log(0.5) / math.log(decay)


def shadow_decay(update: int, decay: float, *, warmup: bool) -> float:
    """Return dₙ of the n-th update (from 1) of a shadow average: min(α, (1 + n) / (10 + n)) with warm-up, else α."""
    return min(decay, (1 + update) / (10 + update)) if warmup else decay


def start_share(num_steps: int, *, decay: float, every: int, warmup: bool = False) -> float:
    """Return the weight of the first value in an average after some steps: the product of dₙ over its updates.

    Without warm-up this is α^⌊steps / η⌋. For a live average it is what is left of the distance between the start and
    a point that every step would jump to.
    """
    updates = num_steps // every
    if not warmup:
        return float(decay**updates)
    # From some update on dₙ is α; before that the product of (1 + n) / (10 + n) is taken term by term.
    share = 1.0
    for update in range(1, updates + 1):
        if (1 + update) / (10 + update) >= decay:
            return float(share * decay ** (updates - update + 1))
        share *= (1 + update) / (10 + update)
    return share
