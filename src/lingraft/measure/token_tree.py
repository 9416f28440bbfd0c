"""Lays texts that begin alike out as one row in which each shared token stands once.

Prompts of a probe differ in their last tokens only: the choices behind one prompt, the query behind more and more
demonstrations. As a tree, the shared part is computed once for all of them. A token sees its ancestors and itself, and
its position is its depth, so every text is computed as if it stood alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

__all__ = ["Branch", "BranchScore", "TokenTree"]


@dataclass(frozen=True)
class Branch:
    """A text and where in it scoring begins: the tokens from ``start`` on are asked for, and what follows the last."""

    ids: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class BranchScore:
    """What a model says of a branch.

    Attributes:
        log_probabilities: log p in nats of each token from the branch's start on.
        greedy: the model's first choice at each of these places, and one more: what it would say behind the last.
    """

    log_probabilities: tuple[float, ...]
    greedy: tuple[int, ...]


class TokenTree:
    """The tree of some branches, behind one start token, which is its root and the row's first token.

    Args:
        branches: the texts.
        root: the start token.

    Attributes:
        tokens: the row.
        positions: how many tokens stand before each of them in its own text, the start token included.
        paths: for each branch, where in the row its tokens stand, the root first.
    """

    def __init__(self, branches: Sequence[Branch], root: int) -> None:
        self.tokens, self.positions, self._parents = [root], [0], [0]
        children: dict[tuple[int, int], int] = {}
        self.paths = [self._insert(branch.ids, children) for branch in branches]

    def _insert(self, ids: Sequence[int], children: dict[tuple[int, int], int]) -> list[int]:
        path = [0]
        for token in ids:
            known = children.setdefault((path[-1], token), len(self.tokens))
            if known == len(self.tokens):
                self.tokens.append(token)
                self.positions.append(len(path))
                self._parents.append(path[-1])
            path.append(known)
        return path

    def visible(self, size: int) -> Bool[np.ndarray, "size size"]:
        """Return which tokens each one sees, in a row that padding fills up to ``size``; padding sees itself."""
        seen = np.eye(size, dtype=bool)
        for place in range(1, len(self.tokens)):
            seen[place] |= seen[self._parents[place]]
        return seen
