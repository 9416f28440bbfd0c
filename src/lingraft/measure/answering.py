"""Asks a model questions that have a list of choices: how likely each is, and which of them it would say by itself.

All text probes stand on this. Who answers is a matter of its own (:class:`Answerer`): a model, an oracle in a test, or
nobody, where only the questions are wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Protocol, runtime_checkable

from lingraft.measure.scoring import Scorer
from lingraft.measure.token_tree import Branch, BranchScore
from lingraft.vocabulary import TokenizerFile

__all__ = ["Answered", "Answerer", "ModelAnswerer", "Question", "Questioner", "Reply", "ask"]


@dataclass(frozen=True)
class Question:
    """A prompt and what may follow it.

    Attributes:
        task: what the question is one of, as in ``min`` or ``k8``; its place in the names of measurements.
        item: what names it among those, in every run.
        prompt: ends where the answer begins.
        choices: what may follow, each different, with the space that stands before it; a line end comes next.
        answer: the right one of the choices.
    """

    task: str
    item: str
    prompt: str
    choices: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Reply:
    """What was answered.

    Attributes:
        log_probabilities: of each choice, in nats, summed over its tokens.
        said: the choice that is the greedy continuation, with a line end or a control token behind it; or None.
        right_tokens: the share of the answer's tokens that are the first choice behind those before them.
    """

    log_probabilities: tuple[float, ...]
    said: str | None
    right_tokens: float


@dataclass(frozen=True)
class Answered:
    """A question with its reply."""

    question: Question
    reply: Reply

    @property
    def scores(self) -> dict[str, float]:
        """What the reply is worth.

        ``exact_match``: the greedy continuation is the answer. ``validity``: it is any of the choices.
        ``choice_accuracy``: the answer has the highest log-probability, or is the first of the choices that have.
        ``gold_log_probability``: the answer's, in nats. ``token_accuracy``: see :attr:`Reply.right_tokens`.
        """
        by_choice = dict(zip(self.question.choices, self.reply.log_probabilities, strict=True))
        gold = by_choice[self.question.answer]
        return {
            "exact_match": float(self.reply.said == self.question.answer),
            "validity": float(self.reply.said is not None),
            "choice_accuracy": float(max(by_choice, key=by_choice.__getitem__) == self.question.answer),
            "gold_log_probability": gold,
            "token_accuracy": self.reply.right_tokens,
        }


@runtime_checkable
class Answerer(Protocol):
    """Whoever answers questions."""

    def replies(self, groups: Sequence[Sequence[Question]]) -> list[list[Reply]]:
        """Return a reply to each question; the prompts of one group begin alike."""
        ...


def ask(answerer: Answerer, groups: Sequence[Sequence[Question]]) -> list[Answered]:
    """Return all questions of all groups, in their order, with the replies to them."""
    replies = answerer.replies(groups)
    return [
        Answered(question, reply)
        for group, told in zip(groups, replies, strict=True)
        for question, reply in zip(group, told, strict=True)
    ]


class Questioner:
    """Answers nothing and keeps the questions: for those who want the items and have no model."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def replies(self, groups: Sequence[Sequence[Question]]) -> list[list[Reply]]:
        """Keep the questions; no choice is likelier than another, and none is said."""
        self.questions += chain.from_iterable(groups)
        return [[Reply((0.0,) * len(question.choices), None, 0.0) for question in group] for group in groups]


class ModelAnswerer:
    """A model's answers, without a sampling loop.

    Each choice is scored behind the prompt. It *is* the greedy continuation if each of its tokens is the model's first
    choice behind those before, and the first choice behind it begins a new line or is a control token.
    """

    def __init__(self, scorer: Scorer, tokenizer: TokenizerFile) -> None:
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._ends: dict[int, bool] = {}

    def replies(self, groups: Sequence[Sequence[Question]]) -> list[list[Reply]]:
        """Return the model's replies; what the prompts of one group have in common is computed once."""
        questions = list(chain.from_iterable(groups))
        branches = self._branches(questions)
        borders = list(accumulate((len(group) for group in groups), initial=0))
        grouped = [list(chain.from_iterable(branches[first:end])) for first, end in pairwise(borders)]
        scored = chain.from_iterable(self._scorer.score_branches(grouped))
        made = []
        for question, own in zip(questions, branches, strict=True):
            made.append(self._reply(question, own, [next(scored) for _ in own]))
        return [made[first:end] for first, end in pairwise(borders)]

    def _branches(self, questions: Sequence[Question]) -> list[list[Branch]]:
        """Return the branches of each question: what its prompt and all its choices begin with is not scored.

        A token may span the seam between prompt and answer; scoring then begins before it.
        """
        texts = [[q.prompt, *(q.prompt + choice for choice in q.choices)] for q in questions]
        encoded = iter(self._tokenizer.encode_batch(list(chain.from_iterable(texts))))
        found = []
        for alike in texts:
            prompt, *rows = [next(encoded) for _ in alike]
            start = _shared_length([prompt, *rows])
            found.append([Branch(tuple(ids), start) for ids in rows])
        return found

    def _reply(self, question: Question, branches: Sequence[Branch], scores: Sequence[BranchScore]) -> Reply:
        said, right = None, 0.0
        for choice, branch, score in zip(question.choices, branches, scores, strict=True):
            wanted = branch.ids[branch.start :]
            hits = [first == token for first, token in zip(score.greedy, wanted, strict=False)]
            if all(hits) and self._is_end(score.greedy[-1]):
                said = choice
            if choice == question.answer:
                right = sum(hits) / len(hits)
        return Reply(tuple(sum(score.log_probabilities) for score in scores), said, right)

    def _is_end(self, token_id: int) -> bool:
        if token_id not in self._ends:
            begins = self._tokenizer.decode([token_id]).lstrip(" ").startswith("\n")
            self._ends[token_id] = begins or token_id in self._tokenizer.special_ids
        return self._ends[token_id]


def _shared_length(rows: Sequence[Sequence[int]]) -> int:
    shortest = min(map(len, rows))
    return next((n for n in range(shortest) if len({row[n] for row in rows}) > 1), shortest)
