"""Scores token sequences: log-probabilities of given tokens, each of them once.

This is the one place where a model is asked for likelihoods; bits per byte and all probes stand on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lingraft.errors import MeasurementError
from lingraft.model.base import Head, head_of, hidden_states
from lingraft.polling import poll
from lingraft.training.loss import token_log_probabilities

__all__ = ["Scored", "Scorer", "disjoint_windows", "windows"]


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


def _joined(parts: Sequence[Scored]) -> Scored:
    if not parts:
        return Scored(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    return Scored(torch.cat([p.log_probabilities for p in parts]), torch.cat([p.greedy for p in parts]))
