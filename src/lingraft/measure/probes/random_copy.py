"""Copying a random sequence that has been seen once: the plainest sign of in-context learning."""

import torch

from lingraft.errors import MeasurementError
from lingraft.measure.items import ItemStream
from lingraft.measure.probes.probe import ItemScore, ProbeContext, ProbeResult, ProbeScore, probe
from lingraft.measure.statistics import bootstrap_ratio, wilson_interval

__all__ = ["random_copy"]

_VERSION = 1


@probe(
    "random_copy", reference="https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads", light=True
)
def random_copy(context: ProbeContext, *, num_items: int = 64, length: int = 64) -> ProbeResult:
    """Return how well the second copy of random token sequences is predicted.

    An item is ``length`` random ids that base and adapted model share, control tokens left out, written twice.
    ``accuracy`` is the share of the second copy's tokens that are the model's first choice (chance is 1/V); ``nll``
    their mean −log p, and ``nll_drop`` by how much it is below the first copy's, in nats. The first token of the second
    copy cannot be foreseen and is not scored.

    Raises:
        MeasurementError: there is nothing to score: no item, or items of one token.
    """
    if num_items < 1 or length < 2:
        raise MeasurementError(f"random_copy needs at least one item of two tokens, not {num_items} of {length}")
    scorer, tokenizer = context.model("random_copy draws token ids")
    if 2 * length + 1 > scorer.window:
        raise MeasurementError(
            f"random_copy: length {length} makes items of {2 * length + 1} tokens, the model sees "
            f"{scorer.window} at once"
        )
    allowed = sorted(
        i for i in tokenizer.vocabulary.values() if i in context.shared_ids and i not in tokenizer.special_ids
    )
    halves = [_ids(allowed, length, context.seed, index) for index in range(num_items)]
    again = slice(length + 1, 2 * length)
    hits: list[float] = []
    first: list[float] = []
    second: list[float] = []
    for half, scored in zip(halves, scorer.score([half * 2 for half in halves]), strict=True):
        hits.append(float((scored.greedy[again] == torch.tensor(half[1:])).sum()) / (length - 1))
        first.append(-scored.log_probabilities[1:length].double().mean().item())
        second.append(-scored.log_probabilities[again].double().mean().item())
    items = [
        ItemScore("", f"{index}", {"accuracy": hit, "nll": nll, "nll_drop": before - nll})
        for index, (hit, before, nll) in enumerate(zip(hits, first, second, strict=True))
    ]
    accuracy, trials = sum(hits) / num_items, num_items * (length - 1)
    is_mixed = 0 < accuracy < 1
    low, high = bootstrap_ratio(hits, [1] * num_items) if is_mixed else wilson_interval(accuracy * trials, trials)
    scores = [
        ProbeScore("accuracy", accuracy, low, high, num_items),
        ProbeScore("nll", sum(second) / num_items, count=num_items),
        ProbeScore("nll_drop", (sum(first) - sum(second)) / num_items, count=num_items),
        ProbeScore("chance", 1 / len(allowed)),
    ]
    return ProbeResult(scores, items)


def _ids(allowed: list[int], length: int, seed: int, index: int) -> list[int]:
    stream = ItemStream("random_copy", _VERSION, seed, length, index)
    return [allowed[stream.below(len(allowed))] for _ in range(length)]
