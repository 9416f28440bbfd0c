"""The alarm on forgetting: what training has cost, held against limits, from numbers that are measured anyway."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lingraft.limits import LEAST_SCORE, Limits
from lingraft.measurement import Measurement, prompts_gate

__all__ = ["Finding", "ForgettingLimits", "judge_forgetting"]

_BODY = ("attention", "mlp")


@dataclass(frozen=True)
class ForgettingLimits:
    """How much may be lost before it is alarming; None leaves a rule out.

    Attributes:
        probe: the score of a probe, as in ``random_copy/accuracy``; higher is better.
        probe_drop: by what share of the base's score it may fall.
        source_rise: by what share of the base's bits per byte those of source text may rise.
        shift: the largest ‖θ − θ₀‖ / ‖θ₀‖ of attention or of MLP matrices.
    """

    probe: str | None = "random_copy/accuracy"
    probe_drop: float | None = Limits.probe_drop
    source_rise: float | None = Limits.source_rise
    shift: float | None = 0.1


@dataclass(frozen=True)
class Finding:
    """A limit that is broken.

    Attributes:
        rule: ``icl``, ``source`` or ``shift``.
        value: what was lost, in the unit of the limit.
        limit: what may be.
        text: in words, with the numbers it stands on.
    """

    rule: str
    value: float
    limit: float
    text: str


def judge_forgetting(
    base: Iterable[Measurement], now: Iterable[Measurement], limits: ForgettingLimits, source: str
) -> list[Finding]:
    """Return which limits a model breaks, judged by the rows of the base and its own.

    A probe and source text break their limits only where the loss is clear of the noise of items and documents as well:
    zero lies outside the interval of the paired difference or, of a probe without one, the base's score outside its
    own. What was not measured is not judged, nor is a probe in which the base itself scores under 5 %.

    Args:
        base: rows of the untouched base model, and whether the probe's prompts are the same tokens to the adapted one;
            where they are not, the probe is not judged.
        now: rows of one moment.
        limits: what may be lost.
        source: the source language.
    """
    then, rows = list(base), list(now)
    found = [_probe(then, rows, limits), _source(then, rows, limits, source), _shift(rows, limits)]
    return [finding for finding in found if finding is not None]


def _row(rows: Sequence[Measurement], name: str, language: str | None = None) -> Measurement | None:
    return next((row for row in rows if row.name == name and row.language == language), None)


def _probe(base: Sequence[Measurement], now: Sequence[Measurement], limits: ForgettingLimits) -> Finding | None:
    name = f"probe/{limits.probe}"
    before, after = _row(base, name), _row(now, name)
    if limits.probe is None or limits.probe_drop is None or before is None or after is None:
        return None
    gate = _row(base, prompts_gate(limits.probe.partition("/")[0]))
    if before.value < LEAST_SCORE or (gate is not None and gate.value):
        return None
    drop = 1 - after.value / before.value
    paired = _row(now, f"{name}/difference")
    highest = after.high if paired is None or paired.high is None else before.value + paired.high
    if drop <= limits.probe_drop or (highest is not None and highest >= before.value):
        return None
    text = f"in-context learning ({limits.probe}) fell from {before.value:.3f} to {after.value:.3f}, by {drop:.0%}"
    return Finding("icl", drop, limits.probe_drop, text)


def _source(
    base: Sequence[Measurement], now: Sequence[Measurement], limits: ForgettingLimits, source: str
) -> Finding | None:
    before, after = (_row(rows, "bits_per_byte", source) for rows in (base, now))
    if limits.source_rise is None or before is None or after is None:
        return None
    rise = after.value / before.value - 1
    paired = _row(now, "bits_per_byte/difference", source)
    if rise <= limits.source_rise or (paired is not None and paired.low is not None and paired.low <= 0):
        return None
    text = f"{source} bits per byte rose from {before.value:.3f} to {after.value:.3f}, by {rise:.1%}"
    return Finding("source", rise, limits.source_rise, text)


def _shift(now: Sequence[Measurement], limits: ForgettingLimits) -> Finding | None:
    moved = [(row.value, kind) for kind in _BODY if (row := _row(now, f"shift/{kind}/relative_l2"))]
    if limits.shift is None or not moved or max(moved)[0] <= limits.shift:
        return None
    value, kind = max(moved)
    return Finding("shift", value, limits.shift, f"the {kind} matrices are {value:.3f} of their length away")
