"""A verdict in plain words: which arm to ship, what it gains and costs, and what the data cannot tell."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingraft.measure.comparison import Arm, Level, Match, Quantity
from lingraft.measure.paired import Estimate, smallest_detectable
from lingraft.measure.verdict import Standing, Verdict, bits_of, is_lost
from lingraft.report.metrics import metric_of
from lingraft.report.rows import format_share, language_name

__all__ = [
    "Recommendation",
    "change_in_words",
    "detectable_in_words",
    "difference_in_words",
    "in_words",
    "p_in_words",
    "recommend",
    "signed",
    "told_in_words",
    "with_interval",
]

_FEW_SEEDS = 5
_MOST_DIGITS = 7


@dataclass(frozen=True)
class Recommendation:
    """What to do, and why.

    Attributes:
        headline: one sentence.
        kind: ``sure``, ``unsure`` or ``none``: how the headline is to be taken.
        caveat: what the training runs behind it can say at all; to be read together with the headline.
        reasons: sentences, the most important first.
    """

    headline: str
    kind: str
    caveat: str
    reasons: tuple[str, ...]


def recommend(verdict: Verdict, arms: Sequence[Arm]) -> Recommendation:
    """Return a verdict in words."""
    caveat = _caveat(arms)
    if verdict.chosen is None:
        return Recommendation(_none_headline(verdict), "none", caveat, tuple(_excluded(verdict)))
    rivals = [name for name in (verdict.best, *verdict.tied) if name != verdict.chosen and name is not None]
    doubts = list(_doubts(verdict, rivals))
    headline = f"Ship {_named(verdict.chosen)}" + (f"; {'; '.join(doubts)}." if doubts else ".")
    reasons = (
        *_gains_and_costs(verdict, verdict.standing(verdict.chosen)),
        *_ties(verdict, rivals),
        *_worse(verdict),
        *_excluded(verdict),
    )
    return Recommendation(headline, "unsure" if doubts else "sure", caveat, reasons)


def _doubts(verdict: Verdict, rivals: Sequence[str]) -> Iterator[str]:
    """Yield what could turn the choice over: a gain not told apart, or a limit that an interval lies across."""
    if rivals:
        yield f"the data do not tell its gain from that of {_listed(rivals)}"
    chosen = verdict.standing(verdict.chosen or "")
    if chosen.loss and chosen.loss.high > verdict.allowed_of(chosen):
        yield "whether it costs no more than it may is not settled"
    better = [
        one.arm
        for one in verdict.standings
        if one.excluded == "source" and one.gain and one.loss and chosen.gain
        if one.loss.low <= verdict.allowed_of(one) and one.gain.value > chosen.gain.value
    ]
    if better:
        yield f"whether {_listed(better)}, which would gain more, costs too much is not settled"


def with_interval(estimate: Estimate, digits: int = 3, *, sign: bool = False) -> str:
    """Return ``0.412 [0.390, 0.431]``, with a sign in front where it is a difference.

    There are more digits where the number would be written as nothing and is not: ``0.00012 [0.00009, 0.00015]``.
    """
    write = signed if sign else _number
    while estimate.value and digits < _MOST_DIGITS and not round(estimate.value, digits):
        digits += 2
    return f"{write(estimate.value, digits)} [{write(estimate.low, digits)}, {write(estimate.high, digits)}]"


def difference_in_words(estimate: Estimate) -> str:
    """Return a difference with its sign and interval, or that there is none, whichever items are drawn."""
    return "no difference at all" if estimate.is_nothing else with_interval(estimate, sign=True)


def change_in_words(estimate: Estimate | None) -> str:
    """Return a change with its sign and interval, a dash where it is not known."""
    return with_interval(estimate, sign=True) if estimate else "–"


def told_in_words(one: Match) -> str:
    """Return whether the second arm is ``better`` or ``worse``, or ``no`` where the data do not tell."""
    return ("better" if one.is_better else "worse") if one.is_told else "no"


def detectable_in_words(one: Match) -> str:
    """Return the smallest difference that would show, a dash where no item differs."""
    return f"{one.detectable:.3f}" if one.detectable else "–"


def in_words(quantity: Quantity) -> str:
    """Return what is compared in plain words: ``bits per byte, Basque (eu)``, ``random copy: accuracy``."""
    name = quantity.name if quantity.is_bits else f"{quantity.name}/{quantity.score}"
    metric = metric_of(name)
    words = metric.words(name) if metric else quantity.label
    return f"{words}, {language_name(quantity.language)}" if quantity.language else words


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign: ``+0.012``, ``−0.3``; ``0.000`` has none."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not float(text) else text.replace("-", "−")


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if not float(text) else text.replace("-", "−")


def _named(arm: str | None) -> str:
    """Return an arm's name in quotation marks: one may be called “none”."""
    return f"“{arm}”"


def _listed(names: Sequence[str]) -> str:
    quoted = [_named(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _none_headline(verdict: Verdict) -> str:
    judged = [standing for standing in verdict.standings if standing.is_judged]
    if not judged:
        return "Nothing can be recommended: no arm could be judged."
    least = min(judged, key=lambda standing: standing.loss.value if standing.loss else float("inf"))
    return (
        f"Ship none of them: every arm costs more than it may. {_named(least.arm)} costs the source language least; "
        "try more replay, a smaller rate, or averaging."
    )


def _gains_and_costs(verdict: Verdict, chosen: Standing) -> Iterator[str]:
    if chosen.gain is None or chosen.loss is None:
        return
    levels, limit = chosen.levels, verdict.allowed_of(chosen)
    name, target = _named(chosen.arm), language_name(verdict.target)
    yield f"{target}: {name} {_needs(levels[bits_of(verdict.target)], chosen.gain.negated)}{_so(chosen.gain)}."
    source = language_name(verdict.source)
    needs = _needs(levels[bits_of(verdict.source)], chosen.loss)
    yield f"{source}: {name} {needs}{_so(chosen.loss.negated)}. {_limit(verdict, limit)} would have been allowed."
    if chosen.loss.high > limit:
        yield f"Whether it keeps within that limit is not settled: the interval reaches {signed(chosen.loss.high)}."
    for quantity, fall in chosen.falls.items():
        level, change = levels[quantity], difference_in_words(fall.negated)
        told = f"{level.after:.3f}, and {level.before:.3f} before training ({change}){_so(fall.negated, of_items=True)}"
        yield f"In-context learning, {in_words(quantity)}: {told}."
    if (better := verdict.dominated_by(chosen.arm)) is not None:
        may = verdict.standing(better).excluded is None
        why = "the rule goes by what is told apart" if may else "it is not to be shipped for another reason"
        yield f"By the plain numbers {_named(better)} is at least as good in both; {why}."


def _needs(level: Level, change: Estimate) -> str:
    before, after = _number(level.before, 3), _number(level.after, 3)
    return f"needs {after} bits for a byte of text, the base model {before} ({difference_in_words(change)})"


def _so(improvement: Estimate, *, of_items: bool = False) -> str:
    """Return what a change says, where more is better: nothing, so far as the items show, unless 0 is left out.

    Then what they would have shown stands beside it: few items show little. Where items are right or wrong, resampling
    that meets one or two that changed says too little of what more would look like; a few must change in any case.
    """
    if improvement.is_nothing:
        return ""
    if not improvement.is_told:
        least = max(improvement.detectable, smallest_detectable(0.0, improvement.items) if of_items else 0.0)
        return f": no change that these items show; one of {least:.3f} would show in 8 of 10 tries"
    return ": better" if improvement.value > 0 else ": worse"


def _ties(verdict: Verdict, rivals: Sequence[str]) -> Iterator[str]:
    for one in verdict.gains:
        if not one.is_told:
            found = f" A difference of {one.detectable:.3f} would have been found in 8 of 10 tries."
            yield (
                f"{language_name(verdict.target)}: {_named(one.second)} needs {_more(one)} bits per byte than "
                f"{_named(one.first)}, not told apart (p {p_in_words(one.adjusted)} by Holm's rule)."
            ) + (found if one.detectable else "")
    for one in verdict.losses:
        told = "which the data tell apart" if one.is_told else "which may be chance as well"
        yield (
            f"Of the tied arms, {_named(one.second)} costs {language_name(verdict.source)} least: "
            f"{_more(one)} bits per byte than {_named(one.first)}, {told}."
        )
    if rivals and not verdict.losses:
        yield f"Of the tied arms, {_named(verdict.chosen)} costs {language_name(verdict.source)} least."


def _more(one: Match) -> str:
    """Return a difference of bits per byte as ``0.004 [−0.002, 0.010] more``: the interval is of the same direction."""
    if one.difference.value >= 0:
        return f"{with_interval(one.difference)} more"
    return f"{with_interval(one.difference.negated)} fewer"


def p_in_words(value: float) -> str:
    """Return ``0.127``, or ``< 0.001``."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _worse(verdict: Verdict) -> Iterator[str]:
    told = [one for one in verdict.gains if one.is_told]
    if told:
        listed = "; ".join(f"{_named(one.second)}, by {with_interval(one.difference)} bits per byte" for one in told)
        yield f"Worse for {language_name(verdict.target)} than {_named(told[0].first)}, told apart: {listed}."


def _excluded(verdict: Verdict) -> Iterator[str]:
    source = language_name(verdict.source)
    for standing in verdict.standings:
        if standing.excluded == "source" and standing.loss and standing.gain:
            limit = verdict.allowed_of(standing)
            open_ = ", and the interval reaches below" if standing.loss.low <= limit else ""
            yield (
                f"{_named(standing.arm)} is not to be shipped: {source} text costs "
                f"{with_interval(standing.loss, sign=True)} bits per byte more, and "
                f"{_limit(verdict, limit)} is allowed{open_}; its gain is "
                f"{_number(standing.gain.value, 3)}."
            )
        elif standing.excluded == "icl":
            # A larger fall that may be chance is not why.
            levels = standing.levels
            lost = [pair for pair in standing.falls.items() if is_lost(pair[1], levels[pair[0]], verdict.limits)]
            probe, fall = max(lost, key=lambda pair: pair[1].value / levels[pair[0]].before)
            yield (
                f"{_named(standing.arm)} is not to be shipped: in-context learning has clearly fallen, "
                f"{in_words(probe)} by {with_interval(fall)} from {levels[probe].before:.3f}, and "
                f"{format_share(verdict.limits.probe_drop)} of that is allowed."
            )
        elif standing.excluded:
            yield f"{_named(standing.arm)} is not judged: {standing.excluded}."


def _limit(verdict: Verdict, allowed: float) -> str:
    return f"{signed(allowed)} ({format_share(verdict.limits.source_rise)})"


def _caveat(arms: Sequence[Arm]) -> str:
    counts = sorted({len(arm.runs) for arm in arms})
    if counts == [1]:
        return (
            "One training run per arm: item uncertainty only. The intervals say what other texts and questions would "
            "have given, not what another seed would have; a claim about a method needs three seeds or more (--vary "
            "seed=0,1,2)."
        )
    listed = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    narrow = " With so few, intervals are too narrow; read the standard deviations over seeds beside them."
    return f"{listed} training runs per arm that differ in their seed: seeds and items are drawn apart." + (
        narrow if counts[0] < _FEW_SEEDS else ""
    )
