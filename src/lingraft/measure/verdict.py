"""Which arm to ship, and how sure that is.

The rule, fixed before anything is measured: of the arms that have not lost more than the limits allow, of source text
and of in-context learning, the one that gains most on target text. Arms whose gain the data do not tell from it are
tied; of those, the one that costs the source language least.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lingraft.errors import MeasurementError
from lingraft.limits import LEAST_SCORE, Limits
from lingraft.measure.comparison import (
    BITS,
    Arm,
    Level,
    Match,
    Quantity,
    change_from_base,
    level_of,
    matches,
    quantities_of,
    refuse_incomparable,
)
from lingraft.measure.paired import Estimate

__all__ = ["Standing", "Verdict", "bits_of", "is_lost", "judge"]


@dataclass(frozen=True)
class Standing:
    """Where an arm stands beside the base.

    Attributes:
        arm: its name.
        seeds: of its training runs.
        gain: bits per byte that target text got cheaper.
        loss: bits per byte that source text got more expensive.
        falls: probe → by how much its score fell.
        levels: what the base and the arm have of each of these, as it was measured.
        excluded: why it is not to be shipped: ``source``, ``icl``, or a reason in words why it cannot be judged; None
            where it may.
    """

    arm: str
    seeds: tuple[int, ...]
    gain: Estimate | None
    loss: Estimate | None
    falls: Mapping[Quantity, Estimate]
    levels: Mapping[Quantity, Level]
    excluded: str | None

    @property
    def changes(self) -> tuple[Estimate | None, Estimate | None]:
        """By how many bits per byte target and source text changed; fewer are better, so a gain is negative."""
        return self.gain.negated if self.gain else None, self.loss

    @property
    def is_judged(self) -> bool:
        """Whether gain and loss are known, and comparable with the other arms'."""
        return self.gain is not None and self.loss is not None and self.excluded in (None, "source", "icl")


@dataclass(frozen=True)
class Verdict:
    """The choice among arms.

    Attributes:
        limits: what it was made by.
        target: the target language.
        source: the source language.
        standings: of every arm, in the order given.
        chosen: the arm to ship; None where none may be.
        best: the arm among those that may be shipped which gains most, tied with others or not.
        gains: target text: every other arm that may be shipped minus ``best``.
        losses: source text: ``chosen`` minus ``best``, where they are not the same.
    """

    limits: Limits
    target: str
    source: str
    standings: tuple[Standing, ...]
    chosen: str | None
    best: str | None
    gains: tuple[Match, ...] = ()
    losses: tuple[Match, ...] = ()

    @property
    def tied(self) -> tuple[str, ...]:
        """The arms whose gain is not told from that of ``best``."""
        return tuple(one.second for one in self.gains if not one.is_told)

    @property
    def eligible(self) -> tuple[str, ...]:
        """The arms that may be shipped."""
        return tuple(standing.arm for standing in self.standings if standing.excluded is None)

    def standing(self, arm: str) -> Standing:
        """Return where an arm stands."""
        return next(standing for standing in self.standings if standing.arm == arm)

    def allowed_of(self, standing: Standing) -> float:
        """Return by how many bits per byte source text may get more expensive than with an arm's own base."""
        return _allowed(standing.levels[bits_of(self.source)], self.limits.source_rise)

    @property
    def allowed(self) -> float | None:
        """The same of all arms that are judged; None where there is none, or where their bases differ."""
        found = [self.allowed_of(standing) for standing in self.standings if standing.is_judged]
        # The mean of several runs' base, which is the same, may differ from it by rounding.
        return found[0] if found and all(math.isclose(one, found[0], rel_tol=1e-9) for one in found) else None

    def dominated_by(self, arm: str) -> str | None:
        """Return an arm that gains at least as much and costs no more, and is better in one of both; None if none is.

        Only the numbers are looked at, not whether the data tell them apart.
        """
        own = self.standing(arm)
        for other in self.standings:
            if other.arm != arm and own.is_judged and other.is_judged:
                ahead = (_gain_of(other) - _gain_of(own), _loss_of(own) - _loss_of(other))
                if min(ahead) >= 0 and max(ahead) > 0:
                    return other.arm
        return None


def judge(arms: Sequence[Arm], *, target: str, source: str, limits: Limits | None = None) -> Verdict:
    """Return which arm to ship by the rule above.

    Raises:
        MeasurementError: there are no arms.
    """
    if not arms:
        raise MeasurementError("there is no arm to judge")
    limits = limits or Limits()
    gain, loss = bits_of(target), bits_of(source)
    model = _most_complete(arms, (gain, loss))
    standings = tuple(_standing(arm, model, gain, loss, limits) for arm in arms)
    eligible = [standing for standing in standings if standing.excluded is None]
    if not eligible:
        return Verdict(limits, target, source, standings, None, None)
    best = max(eligible, key=_gain_of).arm
    may = [arm for arm in arms if arm.name in {standing.arm for standing in eligible}]
    gains, _ = matches(may, [best], [gain])
    tied = {best} | {one.second for one in gains if not one.is_told}
    chosen = min((standing for standing in eligible if standing.arm in tied), key=_loss_of).arm
    losses = matches([arm for arm in may if arm.name in (best, chosen)], [best], [loss])[0] if chosen != best else ()
    return Verdict(limits, target, source, standings, chosen, best, gains, losses)


def bits_of(language: str) -> Quantity:
    """Return the quantity that gain and loss are changes of."""
    return Quantity(BITS, "bits", language)


def _gain_of(standing: Standing) -> float:
    return standing.gain.value if standing.gain else float("-inf")


def _loss_of(standing: Standing) -> float:
    return standing.loss.value if standing.loss else float("inf")


def _standing(arm: Arm, model: Arm, target: Quantity, source: Quantity, limits: Limits) -> Standing:
    (change, why_not_target), (loss, why_not_source) = (_change(arm, model, one) for one in (target, source))
    falls = dict(_falls(arm))
    known = [quantity for quantity, one in ((target, change), (source, loss)) if one]
    levels = {quantity: level_of(arm, quantity) for quantity in (*known, *falls)}
    reason = why_not_target or why_not_source
    if reason is None and loss is not None and loss.value > _allowed(levels[source], limits.source_rise):
        reason = "source"
    if reason is None and any(is_lost(fall, levels[probe], limits) for probe, fall in falls.items()):
        reason = "icl"
    return Standing(arm.name, arm.seeds, change.negated if change else None, loss, falls, levels, reason)


def is_lost(fall: Estimate, level: Level, limits: Limits) -> bool:
    """Return whether the score of a probe fell by more than it may, and surely so: the interval leaves 0 out.

    A base under :data:`~lingraft.limits.LEAST_SCORE` had nothing to lose.
    """
    return fall.low > 0 and level.before >= LEAST_SCORE and fall.value > _allowed(level, limits.probe_drop)


def _allowed(level: Level, share: float) -> float:
    return share * level.before


def _change(arm: Arm, model: Arm, quantity: Quantity) -> tuple[Estimate | None, str | None]:
    """Return what an arm changed, or why that is not known or not to be held against ``model``'s."""
    try:
        if arm is not model:
            refuse_incomparable(model, arm, quantity)
        return change_from_base(arm, quantity), None
    except MeasurementError as error:
        return None, f"{quantity.label}: {error}"


def _falls(arm: Arm) -> Iterator[tuple[Quantity, Estimate]]:
    """Yield every probe that both the base and the arm were given, in the same tokens, with the fall of its score."""
    for quantity in (one for one in quantities_of([arm]) if one.is_probe and one.name not in arm.other_prompts):
        change, reason = _change(arm, arm, quantity)
        if change is not None and reason is None:
            yield quantity, change.negated


def _most_complete(arms: Sequence[Arm], quantities: Sequence[Quantity]) -> Arm:
    """Return the first arm that was asked everything: what the others are held against."""
    whole = (arm for arm in arms if all(_change(arm, arm, quantity)[0] for quantity in quantities))
    return next(whole, arms[0])
