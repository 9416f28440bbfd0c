"""How many logits the loss has in memory at once. Loads no torch, so that a plan can count them."""

__all__ = ["LOGITS", "POSITIONS", "chunk_positions"]

POSITIONS = 512
LOGITS = 1 << 25


def chunk_positions(num_ids: int, most: int = POSITIONS) -> int:
    """Return how many positions get their logits together: at most ``most``, and no more than ``LOGITS`` logits.

    At least one position, however many ids there are.
    """
    return max(1, min(most, LOGITS // max(1, num_ids)))
