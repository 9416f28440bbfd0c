"""How many positions get their logits together, by hand."""

import pytest

from lingraft.training.chunks import LOGITS, POSITIONS, chunk_positions


@pytest.mark.parametrize(
    ("num_ids", "most", "positions"),
    [
        (32_768, POSITIONS, 2048),
        (LOGITS // 512, POSITIONS, 512),
        (LOGITS // 512 + 1, POSITIONS, 511),
        (128_256, POSITIONS, 523),
        (128_256, 7, 7),
        (2 * LOGITS, POSITIONS, 1),
        (100, 0, 1),
        (0, POSITIONS, 2048),
    ],
)
def test_positions_of_a_chunk_by_hand(num_ids: int, most: int, positions: int) -> None:
    assert chunk_positions(num_ids, most) == positions
