"""What a probe is: a function from a model and options to named scores."""

from collections.abc import Callable
from dataclasses import dataclass

from lingraft.measure.scoring import Scorer
from lingraft.registry import Registry
from lingraft.vocabulary import TokenizerFile

__all__ = ["Probe", "ProbeContext", "ProbeScore", "probe", "probes"]


@dataclass(frozen=True)
class ProbeContext:
    """What a probe may use.

    Attributes:
        scorer: the model.
        tokenizer: its tokenizer.
        shared_ids: ids that mean the same token to the base and the adapted model (old ids that no new token took):
            token-level probes draw from these, so that both models see the same.
        seed: of the items; not of the training run.
    """

    scorer: Scorer
    tokenizer: TokenizerFile
    shared_ids: frozenset[int]
    seed: int = 0


@dataclass(frozen=True)
class ProbeScore:
    """One number of a probe: its name below the probe's own, its value, its 95 % interval, and the items behind it."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    count: int | None = None


Probe = Callable[..., list[ProbeScore]]

probes: Registry[Probe] = Registry("probe")
probe = probes.register
