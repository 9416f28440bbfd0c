"""What a step of training tells, and what is asked of the first one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from lingraft.corpus.loader import Batch
from lingraft.errors import TrainingError
from lingraft.training.spikes import Alarm

__all__ = ["StepReport", "look_at_first_loss", "step_report"]

# A little above guessing is where an untrained model stands; far above, something does not belong together.
_WORSE_THAN_GUESSING = 1.1


@dataclass(frozen=True)
class StepReport:
    """What one step did: losses are nats per label, by corpus, where finite.

    ``tokens`` were read, ``read`` of them from each corpus; ``counts`` are the labels that were learned from, which are
    fewer, because no document has to foretell how the next one begins.
    ``alarm`` is what looked wrong, if anything.
    """

    step: int
    tokens: int
    learning_rate: float
    gradient_norm: float
    losses: Mapping[str, float]
    counts: Mapping[str, int]
    read: Mapping[str, int]
    alarm: Alarm | None = None


def step_report(
    batch: Batch, losses: Float[Tensor, "row"], rate: float, norm: float, step: int, alarm: Alarm | None
) -> StepReport:
    """Return what step ``step``, counted from 0, did; ``losses`` are sums over the labels of each row."""
    sums: dict[str, float] = dict.fromkeys(sorted(set(batch.corpora)), 0.0)
    counts = dict.fromkeys(sums, 0)
    for name, loss, labels in zip(batch.corpora, losses.tolist(), batch.counts, strict=True):
        sums[name] += loss
        counts[name] += int(labels.sum())
    means = {name: sums[name] / counts[name] for name in sums if counts[name] and math.isfinite(sums[name])}
    read = {name: batch.corpora.count(name) * batch.counts.shape[1] for name in sums}
    return StepReport(step + 1, batch.counts.size, rate, norm, means, counts, read, alarm)


def look_at_first_loss(report: StepReport, num_ids: int, *, refuse: bool, note: Callable[[str], None]) -> None:
    """Remark on a corpus that is predicted worse than by guessing; refuse to train where the whole step is, by far.

    Raises:
        TrainingError: training from there would first have to undo what is wrong, if it ever did.
    """
    guessing, count = math.log(num_ids), sum(report.counts[name] for name in report.losses)
    advice = "look at the initial embeddings, or whether tokenizer, head and weights belong together"
    whole = sum(loss * report.counts[name] for name, loss in report.losses.items()) / max(1, count)
    if refuse and whole > _WORSE_THAN_GUESSING * guessing:
        raise TrainingError(
            f"the first loss is {whole:.2f} nats a token, far worse than guessing among the {num_ids} tokens "
            f"({guessing:.2f}): {advice}"
        )
    for corpus, loss in report.losses.items():
        if loss > guessing:
            note(
                f"the first loss on {corpus} is {loss:.2f} nats a token, worse than guessing ({guessing:.2f}): {advice}"
            )
