"""Scores token sequences: log-probabilities of given tokens, each of them once.

This is the one place where a model is asked for likelihoods; bits per byte and all probes stand on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lingraft.errors import MeasurementError
from lingraft.measure.token_tree import Branch, BranchScore, TokenTree
from lingraft.model.base import Head, head_of, hidden_states
from lingraft.model.isolation import masked_inputs
from lingraft.polling import poll
from lingraft.training.loss import token_log_probabilities

__all__ = ["Scored", "Scorer", "disjoint_windows", "windows"]

# A row of a tree is summed in another order than its texts alone; what a mask that is not heeded does is far larger.
_TREE_TOLERANCE, _HALF_TOLERANCE = 1e-3, 5e-2
_NODES_AT_ONCE = 256


@dataclass(frozen=True)
class Scored:
    """What a model says of one sequence: each scored token's log-probability (nats) and the greedy choice there."""

    log_probabilities: Float[Tensor, "scored"]
    greedy: Int[Tensor, "scored"]


def windows(num_tokens: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """Return ``(begin, first_scored, end)`` of the windows over a text; each token is scored in exactly one of them.

    Every window is meant to be put behind the same start token. The first scores all its tokens; each later one begins
    ``stride`` tokens further on and scores what the ones before have not.

    Raises:
        MeasurementError: the stride is not between 1 and the window.
    """
    if not 1 <= stride <= window:
        raise MeasurementError(f"a stride lies between 1 and the window {window}, not {stride}")
    found, begin, scored = [], 0, 0
    while scored < num_tokens:
        end = min(begin + window, num_tokens)
        found.append((begin, scored, end))
        begin, scored = begin + stride, end
    return found


def disjoint_windows(num_tokens: int, window: int) -> list[tuple[int, int, int]]:
    """Return ``(begin, first_scored, end)`` of windows that share no scored token, the way lm-eval rolls over a text.

    The first window is meant to be put behind the start token. Every later one has none: it begins with text, the one
    token before its first scored token, and the last one with as much text as makes it as long as the others. So most
    tokens at the head of a window are scored with next to no context, and the number is worse than by :func:`windows`;
    it is there to be compared with numbers made that way (``get_rolling_token_windows`` with ``context_len=1`` in
    https://github.com/EleutherAI/lm-evaluation-harness).
    """
    found = [(0, 0, min(window, num_tokens))] if num_tokens else []
    for first in range(window, num_tokens, window):
        end = min(first + window, num_tokens)
        found.append((end - window - 1, first, end))
    return found


class Scorer:
    """A model with the settings by which it is asked.

    Args:
        model: a causal language model.
        num_ids: ids of the tokenizer; logits of rows past them are left out of every softmax.
        condition_id: the token put in front of every window; it conditions and is never scored.
        window: longest sequence, the start token included.
        batch_size: sequences per forward pass.
        dtype: the type of matrix products; softmax and sums are fp32 and fp64.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        num_ids: int,
        condition_id: int,
        window: int = 1024,
        batch_size: int = 8,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model = model
        self.head: Head = head_of(model, num_ids)
        self.num_ids = num_ids
        self.condition_id = condition_id
        given: Any = model
        longest = getattr(given.config.get_text_config(), "max_position_embeddings", None)
        self.window = min(window, longest) if longest else window
        self._batch_size = batch_size
        self._dtype = dtype

    def score(
        self, sequences: Sequence[Sequence[int]], *, stride: int | None = None, disjoint: bool = False
    ) -> list[Scored]:
        """Return, for each sequence, the scores of all its tokens, the start token having been put in front.

        Longer sequences are cut into windows that together score every token once.

        Args:
            sequences: ids without the start token.
            stride: tokens between the beginnings of two windows; half a window by default, so that every token behind
                the first window has at least half a window of context.
            disjoint: :func:`disjoint_windows` instead, with no start token before the second and later ones.

        Raises:
            MeasurementError: an id is not one of the tokenizer's, or the stride does not fit the window.
        """
        room = self.window - 1
        pieces: list[tuple[int, int, list[int]]] = []
        for index, sequence in enumerate(sequences):
            self._refuse_foreign_ids(sequence)
            for number, (begin, first, end) in enumerate(self._windows(len(sequence), room, stride, disjoint)):
                if disjoint and number:
                    pieces.append((index, first - begin - 1, list(sequence[begin:end])))
                else:
                    pieces.append((index, first - begin, [self.condition_id, *sequence[begin:end]]))
        results: list[list[Scored]] = [[] for _ in sequences]
        order = sorted(range(len(pieces)), key=lambda n: (-len(pieces[n][2]), n))
        scored: dict[int, Scored] = {}
        for start in range(0, len(order), self._batch_size):
            poll()
            chosen = order[start : start + self._batch_size]
            scored |= zip(chosen, self._forward([pieces[n] for n in chosen]), strict=True)
        for number, (index, _, _) in enumerate(pieces):
            results[index].append(scored[number])
        return [_joined(parts) for parts in results]

    def _windows(self, num_tokens: int, room: int, stride: int | None, disjoint: bool) -> list[tuple[int, int, int]]:
        if disjoint:
            return disjoint_windows(num_tokens, room)
        return windows(num_tokens, room, max(1, room // 2) if stride is None else stride)

    def _refuse_foreign_ids(self, sequence: Sequence[int]) -> None:
        if sequence and (max(sequence) >= self.num_ids or min(sequence) < 0):
            worst = max(sequence) if max(sequence) >= self.num_ids else min(sequence)
            raise MeasurementError(f"id {worst} is not one of the tokenizer's {self.num_ids} ids")

    @torch.no_grad()
    def _forward(self, pieces: Sequence[tuple[int, int, list[int]]]) -> list[Scored]:
        """Score a batch: padding stands on the right, so that nothing before it can see it."""
        longest = max(len(tokens) for _, _, tokens in pieces)
        ids = torch.full((len(pieces), longest), self.condition_id)
        mask = torch.zeros_like(ids)
        for row, (_, _, tokens) in enumerate(pieces):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        self.model.eval()
        device = self.head.weight.device
        ids, mask = ids.to(device), mask.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            hidden = hidden_states(self.model, ids, None if bool(mask.all()) else mask)
        rows = []
        for row, (_, skip, tokens) in enumerate(pieces):
            states = hidden[row, skip : len(tokens) - 1].to(self._dtype)
            scores, greedy = token_log_probabilities(states, ids[row, skip + 1 : len(tokens)], self.head)
            rows.append(Scored(scores.cpu(), greedy.cpu()))
        return rows

    def score_branches(self, groups: Sequence[Sequence[Branch]]) -> list[list[BranchScore]]:
        """Return the scores of the ends of texts, those of one group being computed as one tree of tokens.

        What the texts of a group have in common is computed once. Models that take no such mask are given every text by
        itself: the scores are the same, up to rounding.

        Raises:
            MeasurementError: an id is not one of the tokenizer's, or a text is longer than the window.
        """
        for branch in chain.from_iterable(groups):
            self._refuse_foreign_ids(branch.ids)
            # One place stands for the start token, and one for what would be said behind the last.
            if len(branch.ids) > self.window - 2:
                raise MeasurementError(
                    f"a prompt with its answer has {len(branch.ids)} tokens, the model has room for {self.window - 2}: "
                    "take fewer demonstrations"
                )
        if not self._takes_trees:
            return [self._score_apart(group) for group in groups]
        trees = [TokenTree(group, self.condition_id) for group in groups]
        order = sorted(range(len(trees)), key=lambda n: (-len(trees[n].tokens), n))
        found: dict[int, list[BranchScore]] = {}
        for start in range(0, len(order), self._batch_size):
            poll()
            chosen = order[start : start + self._batch_size]
            picked = [trees[n] for n in chosen]
            read = self._read_trees(self._tree_states(picked), picked, [groups[n] for n in chosen])
            found |= zip(chosen, read, strict=True)
        return [found[number] for number in range(len(trees))]

    @cached_property
    def _takes_trees(self) -> bool:
        """Whether the model computes texts in a tree as it does alone; it is asked on two short ones."""
        ids = [(n * 7 + 1) % self.num_ids for n in range(10)]
        pair = [Branch((*ids[:6], ids[6]), 2), Branch((*ids[:4], *ids[7:]), 2)]
        try:
            tree = TokenTree(pair, self.condition_id)
            together = self._read_trees(self._tree_states([tree]), [tree], [pair])[0]
        except (ValueError, TypeError, RuntimeError, AttributeError, KeyError, IndexError):
            return False
        differences = [
            abs(one - other)
            for joint, apart in zip(together, self._score_apart(pair), strict=True)
            for one, other in zip(joint.log_probabilities, apart.log_probabilities, strict=True)
        ]
        return max(differences) <= (_HALF_TOLERANCE if self._dtype == torch.bfloat16 else _TREE_TOLERANCE)

    def _score_apart(self, group: Sequence[Branch]) -> list[BranchScore]:
        """Score each text by itself; one more token behind it asks what the model would say there."""
        rows = self.score([(*branch.ids, self.condition_id) for branch in group])
        return [
            BranchScore(
                tuple(row.log_probabilities[branch.start : -1].tolist()), tuple(row.greedy[branch.start :].tolist())
            )
            for row, branch in zip(rows, group, strict=True)
        ]

    @torch.no_grad()
    def _tree_states(self, trees: Sequence[TokenTree]) -> Float[Tensor, "batch position dim"]:
        size = max(len(tree.tokens) for tree in trees)
        ids = torch.full((len(trees), size), self.condition_id)
        positions = torch.zeros_like(ids)
        for row, tree in enumerate(trees):
            ids[row, : len(tree.tokens)] = torch.tensor(tree.tokens)
            positions[row, : len(tree.tokens)] = torch.tensor(tree.positions)
        seen = torch.from_numpy(np.stack([tree.visible(size) for tree in trees]))
        self.model.eval()
        device = self.head.weight.device
        given: Any = self.model
        inputs = masked_inputs(self.model, seen.to(device), positions.to(device))
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            output: Tensor = given.base_model(input_ids=ids.to(device), use_cache=False, **inputs).last_hidden_state
        return output

    @torch.no_grad()
    def _read_trees(
        self,
        hidden: Float[Tensor, "batch position dim"],
        trees: Sequence[TokenTree],
        groups: Sequence[Sequence[Branch]],
    ) -> list[list[BranchScore]]:
        """Read the log-probability of each wanted token off its parent's state, and the first choice behind it."""
        paths = [
            [[(row, node) for node in path[branch.start :]] for path, branch in zip(tree.paths, group, strict=True)]
            for row, (tree, group) in enumerate(zip(trees, groups, strict=True))
        ]
        nodes = sorted({node for group in paths for path in group for node in path})
        edges = sorted({edge for group in paths for path in group for edge in pairwise(path)})
        greedy: dict[tuple[int, int], int] = {}
        scores: dict[tuple[int, int], float] = {}
        for first in range(0, len(nodes), _NODES_AT_ONCE):
            piece = nodes[first : first + _NODES_AT_ONCE]
            rows, places = torch.tensor(piece, device=hidden.device).T
            logits = self.head.logits(hidden[rows, places].to(self._dtype))
            greedy |= zip(piece, logits.argmax(dim=1).tolist(), strict=True)
            number = {node: n for n, node in enumerate(piece)}
            wanted = [(number[parent], child) for parent, child in edges if parent in number]
            parents, targets = [n for n, _ in wanted], [trees[row].tokens[node] for _, (row, node) in wanted]
            found = logits[parents, targets] - logits.logsumexp(dim=1)[parents]
            scores |= zip((child for _, child in wanted), found.tolist(), strict=True)
        return [
            [BranchScore(tuple(scores[n] for n in path[1:]), tuple(greedy[n] for n in path)) for path in group]
            for group in paths
        ]


def _joined(parts: Sequence[Scored]) -> Scored:
    if not parts:
        return Scored(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    return Scored(torch.cat([p.log_probabilities for p in parts]), torch.cat([p.greedy for p in parts]))
