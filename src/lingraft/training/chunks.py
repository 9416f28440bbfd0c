"""How many logits the loss has in memory at once. Loads no torch, so that a plan can count them."""

__all__ = ["LOGITS", "POSITIONS", "WORKED", "chunk_positions"]

# Large products are quick ones: with these, a chunk of two thousand positions has up to 32,768 logits each.
POSITIONS = 2048
LOGITS = 1 << 26
# Of a chunk's logits, as many are in fp32 at a time: few enough on a CPU to stay in its caches from one pass over them
# to the next, enough on anything else to be worth starting a kernel.
WORKED = {"cpu": 1 << 21, "other": 1 << 24}


def chunk_positions(num_ids: int, most: int = POSITIONS) -> int:
    """Return how many positions get their logits together: at most ``most``, and no more than ``LOGITS`` logits.

    At least one position, however many ids there are.
    """
    return max(1, min(most, LOGITS // max(1, num_ids)))
