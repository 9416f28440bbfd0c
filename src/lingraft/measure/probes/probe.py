"""What a probe is: a function from a model and options to named scores, and the scores of its single items."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lingraft.errors import MeasurementError
from lingraft.measure.answering import Answered, Answerer, ModelAnswerer, Question, Questioner, ask
from lingraft.measure.scoring import Scorer
from lingraft.registry import Registry
from lingraft.vocabulary import TokenizerFile

__all__ = ["ItemScore", "Probe", "ProbeContext", "ProbeResult", "ProbeScore", "probe", "probes", "questions_of"]


@dataclass(frozen=True)
class ProbeContext:
    """What a probe may use.

    Attributes:
        scorer: the model; none where only the questions are wanted.
        tokenizer: its tokenizer.
        shared_ids: ids that mean the same token to the base and the adapted model (old ids that no new token took):
            token-level probes draw from these, so that both models see the same.
        seed: of the items; not of the training run.
        answerer: who answers questions, if not the model.
    """

    scorer: Scorer | None
    tokenizer: TokenizerFile | None
    shared_ids: frozenset[int] = frozenset()
    seed: int = 0
    answerer: Answerer | None = None

    def ask(self, groups: Sequence[Sequence[Question]]) -> list[Answered]:
        """Return all questions with the replies to them; the prompts of one group begin alike."""
        return ask(self.answerer or ModelAnswerer(*self.model("questions")), groups)

    def model(self, what: str) -> tuple[Scorer, TokenizerFile]:
        """Return scorer and tokenizer.

        Raises:
            MeasurementError: there is no model; ``what`` needs one.
        """
        if self.scorer is None or self.tokenizer is None:
            raise MeasurementError(f"{what}: this needs a model, and there is none")
        return self.scorer, self.tokenizer


@dataclass(frozen=True)
class ProbeScore:
    """One number of a probe: its name below the probe's own, its value, its 95 % interval, and the items behind it."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    count: int | None = None


@dataclass(frozen=True)
class ItemScore:
    """The scores of one item.

    Attributes:
        task: its name below the probe's own.
        item: what names the item there.
        scores: score → value.
        beside: whether the item has no part in what sums the probe up, and so none in a comparison of two models.
    """

    task: str
    item: str
    scores: Mapping[str, float]
    beside: bool = False


@dataclass(frozen=True)
class ProbeResult:
    """What a probe returns: its numbers, and what stands behind them, item by item."""

    scores: list[ProbeScore]
    items: list[ItemScore] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        scores: list[ProbeScore],
        answered: Iterable[Answered],
        *,
        judged_by: str = "exact_match",
        tasks: Collection[str] | None = None,
    ) -> "ProbeResult":
        """Return a result whose items are questions that were answered; the score they are judged by stands first.

        Where ``tasks`` are given, they are those that sum the probe up; the items of others stand beside.
        """
        items = []
        for one in answered:
            own = one.scores
            told, beside = {judged_by: own[judged_by], **own}, tasks is not None and one.question.task not in tasks
            items.append(ItemScore(one.question.task, one.question.item, told, beside=beside))
        return cls(scores, items)


Probe = Callable[..., ProbeResult]

probes: Registry[Probe] = Registry("probe")
probe = probes.register


def questions_of(function: Callable[[ProbeContext], ProbeResult], seed: int = 0) -> list[Question]:
    """Return the questions that a probe, its options filled in, would ask any model.

    Raises:
        MeasurementError: the probe does not ask in text, or its options are wrong.
    """
    asked = Questioner()
    function(ProbeContext(None, None, seed=seed, answerer=asked))
    return asked.questions
