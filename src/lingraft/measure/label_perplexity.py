"""Perplexity of the labels of multiple-choice prompts: the early sign of arXiv 2506.00288 (sec. 4, fig. 3).

While the loss on held-out text falls as it should, a model that loses in-context learning no longer expects any of the
labels that a prompt asks for. Of a label y behind a prompt:

    exp(−(1/|y|) Σₜ log p(yₜ | prompt, y₍<t₎))

averaged over items: for the right label, and for all labels of an item. It is no validation perplexity, and does not
belong on one axis with it. Tokens are counted by the model's own tokenizer, so between two tokenizers it can be
compared only where labels have the same tokens, as single letters have; bits per byte of the right labels stand
beside it for all other cases.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingraft.errors import MeasurementError

__all__ = ["Label", "LabelPerplexity", "label_perplexity"]

_RESAMPLES = 1000


@dataclass(frozen=True)
class Label:
    """One label behind its prompt: the log-probability of its tokens (nats), their number, and its UTF-8 bytes."""

    log_probability: float
    tokens: int
    bytes: int

    @property
    def nats_per_token(self) -> float:
        """−(1/|y|) Σ log p."""
        return -self.log_probability / self.tokens


@dataclass(frozen=True)
class LabelPerplexity:
    """What a model makes of the labels of some items; every number is a mean over items.

    Attributes:
        gold: perplexity of the right label.
        gold_interval: its 95 % percentile interval, items being drawn.
        all: perplexity of a label, first averaged over the labels of an item.
        all_interval: likewise.
        gold_nats: −log p per token of the right label: a mean that no single item can rule.
        all_nats: the same over all labels.
        gold_bits_per_byte: Σ bits / Σ bytes of the right labels: comparable between tokenizers.
        items: how many.
    """

    gold: float
    gold_interval: tuple[float, float]
    all: float
    all_interval: tuple[float, float]
    gold_nats: float
    all_nats: float
    gold_bits_per_byte: float
    items: int


def label_perplexity(items: Sequence[tuple[Sequence[Label], Sequence[int]]], *, seed: int = 0) -> LabelPerplexity:
    """Return the label perplexity over items, each its labels and the places of those that are right.

    Of several right labels the likeliest counts.

    Raises:
        MeasurementError: there is no item, an item has no label or no right one, or a label has no token.
    """
    if not items:
        raise MeasurementError("label perplexity needs at least one item")
    golds, alls = [], []
    for labels, right in items:
        if not labels or not right or not all(0 <= place < len(labels) for place in right):
            raise MeasurementError(f"an item with {len(labels)} labels has its right ones at {list(right)}")
        if any(label.tokens < 1 for label in labels):
            raise MeasurementError("a label without a token has no perplexity")
        golds.append(min((labels[place] for place in right), key=lambda label: label.nats_per_token))
        alls.append(labels)
    gold = np.array([_perplexity(label) for label in golds])
    every = np.array([sum(map(_perplexity, labels)) / len(labels) for labels in alls])
    picks = np.random.default_rng(seed).integers(len(gold), size=(_RESAMPLES, len(gold)))
    nats, sizes = (sum(values) for values in zip(*((-g.log_probability, g.bytes) for g in golds), strict=True))
    return LabelPerplexity(
        gold=float(gold.mean()),
        gold_interval=_interval(gold[picks].mean(axis=1)),
        all=float(every.mean()),
        all_interval=_interval(every[picks].mean(axis=1)),
        gold_nats=sum(label.nats_per_token for label in golds) / len(golds),
        all_nats=sum(sum(label.nats_per_token for label in labels) / len(labels) for labels in alls) / len(alls),
        gold_bits_per_byte=nats / math.log(2) / max(1, sizes),
        items=len(items),
    )


def _perplexity(label: Label) -> float:
    # A label that a model all but rules out must not make the mean infinite: exp(700) is still a float.
    return math.exp(min(label.nats_per_token, 700.0))


def _interval(means: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
