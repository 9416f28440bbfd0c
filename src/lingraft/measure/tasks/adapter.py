"""A model as lm-eval asks it, over our own scorer.

What it sees to, each a place where numbers of grown vocabularies go wrong elsewhere: the start token stands in front
exactly once and is never scored; a token that spans the seam between prompt and answer is handled
(:mod:`lingraft.measure.tasks.seams`); rows that no token owns take no probability; padding is masked; a prompt longer
than the window loses its beginning, and is counted. Generation is greedy, up to a stop string.
"""

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lingraft.errors import MeasurementError, MissingExtraError
from lingraft.measure.scoring import Scorer
from lingraft.measure.tasks.seams import Joined, join_answers
from lingraft.measure.token_tree import Branch
from lingraft.model.generate import continue_until
from lingraft.vocabulary import TokenizerFile

try:
    from lm_eval.api.model import LM
except ImportError as error:
    raise MissingExtraError("running downstream tasks", "eval") from error

__all__ = [
    "AnswerScore",
    "ScorerLM",
    "joined_requests",
    "prompt_room",
    "quiet_harness",
    "refuse_sampling",
    "request_groups",
]

_MAX_TOKENS = 256


@dataclass(frozen=True)
class AnswerScore:
    """What a model made of one answer.

    Attributes:
        log_probability: of its tokens, in nats.
        tokens: how many were scored.
        is_greedy: whether each of them is the model's first choice.
        is_crossed: see :class:`lingraft.measure.tasks.seams.Joined`.
        cut: likewise.
    """

    log_probability: float
    tokens: int
    is_greedy: bool
    is_crossed: bool
    cut: int


def request_groups(requests: Sequence[Any]) -> list[list[int]]:
    """Return the places of requests that belong together: answers to the same prompt of the same item."""
    groups: dict[tuple[Any, Any, str], list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault((request.task_name, request.doc_id, request.args[0]), []).append(place)
    return list(groups.values())


def prompt_room(window: int) -> int:
    """Return the tokens that a prompt with its answer may have in a window.

    One place is the start token's, one is for what would be said behind them.
    """
    return window - 2


def joined_requests(requests: Sequence[Any], tokenizer: TokenizerFile, room: int) -> list[Joined]:
    """Return prompt and answer of each ``loglikelihood`` request as ids; no model is asked.

    Raises:
        MeasurementError: an answer is empty, or does not fit the room.
    """
    found: dict[int, Joined] = {}
    for places in request_groups(requests):
        prompt = requests[places[0]].args[0]
        answers = [requests[place].args[1] for place in places]
        found |= zip(places, join_answers(tokenizer, prompt, answers, room), strict=True)
    return [found[place] for place in range(len(requests))]


class ScorerLM(LM):  # type: ignore[misc]
    """Answers lm-eval's three kinds of requests.

    Args:
        scorer: the model.
        tokenizer: its tokenizer.
        end_id: the token at which generation ends.

    Attributes:
        scores: id of a request object → its :class:`AnswerScore`, of the requests of the last call.
        cut_prompts: prompts of generation that lost their beginning, over all calls.
    """

    def __init__(self, scorer: Scorer, tokenizer: TokenizerFile, *, end_id: int) -> None:
        super().__init__()
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.end_id = end_id
        self.scores: dict[int, AnswerScore] = {}
        self.cut_prompts = 0

    @property
    def room(self) -> int:
        """See :func:`prompt_room`."""
        return prompt_room(self.scorer.window)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Return ``(log p of the answer in nats, whether it is the greedy continuation)`` of each request."""
        joined, groups = joined_requests(requests, self.tokenizer, self.room), request_groups(requests)
        branches = [[Branch(joined[place].ids, joined[place].start) for place in places] for places in groups]
        self.scores = {}
        for places, found in zip(groups, self.scorer.score_branches(branches), strict=True):
            for place, score in zip(places, found, strict=True):
                one, told = joined[place], score.log_probabilities
                self.scores[id(requests[place])] = AnswerScore(
                    math.fsum(told), len(told), score.greedy[: len(told)] == one.scored, one.is_crossed, one.cut
                )
        return [(self.scores[id(request)].log_probability, self.scores[id(request)].is_greedy) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Return log p of each text in nats, in the windows that lm-eval's own model has with add_bos_token=False."""
        encoded = self.tokenizer.encode_batch([request.args[0] for request in requests])
        scored = self.scorer.score(encoded, disjoint=True)
        return [row.log_probabilities.double().sum().item() for row in scored]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Return the greedy continuation of each prompt, cut in front of the first stop string.

        Raises:
            MeasurementError: a task asks for sampling.
        """
        for request in requests:
            refuse_sampling(request.args[1], request.task_name)
        return [self._continue(request.args[0], request.args[1]) for request in requests]

    def _continue(self, prompt: str, options: Mapping[str, Any]) -> str:
        stops = options.get("until") or []
        limit = int(options.get("max_gen_toks") or options.get("max_new_tokens") or _MAX_TOKENS)
        ids = self.tokenizer.encode(prompt)
        room = self.room - min(limit, self.room // 2)
        if len(ids) > room:
            ids, self.cut_prompts = ids[len(ids) - room :], self.cut_prompts + 1
        return continue_until(
            self.scorer.model,
            self.tokenizer,
            ids,
            condition_id=self.scorer.condition_id,
            end_id=self.end_id,
            max_tokens=min(limit, self.room - len(ids)),
            stops=[stops] if isinstance(stops, str) else [stop for stop in stops if stop],
        )


@contextlib.contextmanager
def quiet_harness() -> Iterator[None]:
    """Keep lm-eval's remarks back while something of it is used; errors are told."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def refuse_sampling(options: Mapping[str, Any], task: str | None) -> None:
    """Raise a MeasurementError where a task's generation is not greedy: its number would be another every time."""
    if options.get("do_sample") and float(options.get("temperature") or 0.0) > 0:
        raise MeasurementError(
            f"task {task!r} samples its answers (do_sample, temperature {options['temperature']}); only greedy "
            "generation is measured here: put generation_kwargs: {do_sample: false} into its file"
        )
