"""The verdict in plain words: what was gained, what was lost, and whether it is safe to use.

A pure function of the measurements. It never says more than the intervals do: where that of the paired
difference holds zero, or without one the 95 % intervals before and after overlap, it says "no clear change", and a
limit counts as crossed only where they do not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lingraft.limits import LEAST_SCORE, Limits
from lingraft.measurement import Measurement, prompts_gate
from lingraft.quantities import format_tokens
from lingraft.report.changes import Change, change_of
from lingraft.report.rows import (
    UNTRAINED,
    first_at,
    format_share,
    format_value,
    language_name,
    last_trained,
)

__all__ = ["Finding", "State", "Summary", "Verdict", "summarise"]

_PROBES = {
    "probe/random_copy/accuracy": "random copy accuracy",
    "probe/copain/exact_match": "Copain exact match",
}
_BITS = (
    "Bits per byte: how many bits the model needs for a byte of text that it has not seen. The better it knows a "
    "language, the fewer."
)
_CAUTION = (
    "One training run: the intervals are item uncertainty only (which documents, which prompts), not "
    "what another seed would give. Those in brackets describe each model by itself; whether a change is clear "
    "is judged by the differences on the same items where these are on record, else by whether the two intervals "
    "overlap."
)
_YARDSTICK = (
    "A yardstick only, for how far weights moved: random noise of relative size 0.05 was nearly "
    "harmless to a model of 135 M parameters, 0.1 hurt it and 0.2 destroyed it; training does not move "
    "weights at random."
)


_STYLES = {"question": "answers to questions", "base": "continuations of documents"}
_MORE_LOOPS = 0.1


class State(StrEnum):
    """What a finding means for the verdict."""

    GOOD = "good"
    BAD = "bad"
    UNCLEAR = "unclear"
    MISSING = "missing"
    NEUTRAL = "neutral"


class Verdict(StrEnum):
    """Whether the adapted model can be used, as far as these measurements go."""

    USE = "Safe to use, as far as measured"
    NO_GAIN = "Nothing lost, and no gain shown"
    CARE = "Use with care"
    DO_NOT_USE = "Do not use it as it is"
    TOO_EARLY = "Too early to say"


@dataclass(frozen=True)
class Finding:
    """One sentence of the summary, and what it means for the verdict."""

    text: str
    state: State


@dataclass(frozen=True)
class Summary:
    """The verdict, what it rests on in one sentence, and the findings behind it."""

    verdict: Verdict
    headline: str
    gained: tuple[Finding, ...]
    lost: tuple[Finding, ...]
    notes: tuple[str, ...]


def summarise(
    rows: Sequence[Measurement],
    source: str,
    target: str,
    planned_tokens: int | None = None,
    failed_gates: Sequence[str] = (),
    warned_gates: Sequence[str] = (),
    limits: Limits | None = None,
) -> Summary:
    """Return the verdict and the sentences behind it.

    The model is called usable when target bits per byte clearly fell, source bits per byte and the probes lost no more
    than the limits allow, and no vocabulary check failed. What it writes is told beside it and decides nothing: there
    are few prompts, and no limit to hold them against.

    Args:
        rows: all measurements of one run.
        source: language code that must not be forgotten.
        target: language code that was to be learned.
        planned_tokens: training tokens of the whole recipe; with fewer seen, it is too early for a verdict.
        failed_gates: names of vocabulary checks that did not pass.
        warned_gates: names of those whose failure is only a warning; they are told and decide nothing.
        limits: what may be lost; those of a recipe that states none by default.
    """
    gained = (_target_finding(rows, target), *_fertility_finding(rows, target))
    limits = limits or Limits()
    probes = tuple(_probe_finding(rows, name, words, limits.probe_drop) for name, words in _PROBES.items())
    gates = tuple(Finding(f"The vocabulary check “{name}” failed.", State.BAD) for name in failed_gates)
    checks = (_source_finding(rows, source, limits.source_rise), *probes, *gates)
    warned = tuple(
        Finding(f"The vocabulary check “{name}” gave a warning; it does not decide.", State.UNCLEAR)
        for name in warned_gates
    )
    lost = (*checks, *warned, *_writing_findings(rows), *_drift_finding(rows, source), *_shift_finding(rows))
    seen = max((r.tokens for r in rows if r.stage not in UNTRAINED), default=0)
    verdict = _verdict(gained[0].state, [c.state for c in checks], planned_tokens is not None and seen < planned_tokens)
    notes = [_BITS, _CAUTION, _limits(limits), *([_YARDSTICK] if any("Weights moved" in f.text for f in lost) else [])]
    if planned_tokens is not None and seen < planned_tokens:
        notes.insert(0, f"The run is not finished: {format_tokens(seen)} of {format_tokens(planned_tokens)} tokens.")
    return Summary(verdict, _headline(verdict, language_name(target), gained[0], checks), gained, lost, tuple(notes))


def _limits(limits: Limits) -> str:
    dearer, lower = format_share(limits.source_rise), format_share(limits.probe_drop)
    return (
        f"Limits used here, as the recipe states them (measure.alarm): source bits per byte may rise by {dearer}, a "
        f"probe may fall by {lower} of its value. Beyond that, and clearly so, the verdict is “do not use it as it "
        "is”; where the intervals are too wide to rule it out, it is “use with care”."
    )


def _verdict(gain: State, checks: Sequence[State], is_unfinished: bool) -> Verdict:
    if is_unfinished or gain is State.MISSING or checks[0] is State.MISSING:
        return Verdict.TOO_EARLY
    if State.BAD in (gain, *checks):
        return Verdict.DO_NOT_USE
    if set(checks) == {State.GOOD} and gain in (State.GOOD, State.UNCLEAR):
        return Verdict.USE if gain is State.GOOD else Verdict.NO_GAIN
    return Verdict.CARE


def _headline(verdict: Verdict, target: str, gain: Finding, checks: Sequence[Finding]) -> str:
    gained = {
        State.GOOD: f"A clear gain in {target}",
        State.BAD: f"{target} got clearly worse",
        State.UNCLEAR: f"No clear change in {target}",
    }.get(gain.state, f"{target} was not measured before and after")
    number = sum(c.state is State.BAD for c in checks)
    if verdict is Verdict.TOO_EARLY:
        return f"{gained} so far; the run or its measurements are incomplete."
    if verdict is Verdict.DO_NOT_USE:
        losses = (
            f"{number} of {len(checks)} checks for losses failed clearly" if number else "no other check failed clearly"
        )
        return f"{gained}; {losses}."
    if verdict is Verdict.USE:
        return f"{gained}, and no loss beyond its limit."
    if verdict is Verdict.NO_GAIN:
        return f"{gained}, and no loss beyond its limit: train on more text, or measure on more of it."
    open_checks = sum(c.state is not State.GOOD for c in checks)
    return f"{gained}; {open_checks} of {len(checks)} checks for losses could not be settled."


def _target_finding(rows: Sequence[Measurement], target: str) -> Finding:
    change = change_of(rows, "bits_per_byte", target)
    if change is None:
        return Finding(
            f"{language_name(target)}: bits per byte were not measured before and after training.",
            State.MISSING,
        )
    words = f"{language_name(target)}: bits per byte {change.words()} (lower is better): "
    if not change.is_clear:
        return Finding(words + _unsettled(change), State.UNCLEAR)
    is_gain = change.after.value < change.before.value
    return Finding(
        words + ("a clear gain." if is_gain else "clearly worse than the base model."),
        State.GOOD if is_gain else State.BAD,
    )


def _unsettled(change: Change) -> str:
    if change.is_clear is None:
        return "no interval was measured, so it cannot be said whether the change is clear."
    return f"no clear change ({_overlap(change)})."


def _overlap(change: Change) -> str:
    return "the paired interval includes zero" if change.paired else "the intervals overlap"


def _source_finding(rows: Sequence[Measurement], source: str, limit: float) -> Finding:
    change = change_of(rows, "bits_per_byte", source)
    if change is None:
        return Finding(
            f"{language_name(source)}: bits per byte were not measured before and after training.",
            State.MISSING,
        )
    words = f"{language_name(source)}: bits per byte {change.words()} (lower is better): "
    return _against_limit(words, change, sign=1, limit=limit, noun="rise")


def _probe_finding(rows: Sequence[Measurement], name: str, words: str, limit: float) -> Finding:
    change = change_of(rows, name)
    gate = first_at(rows, "expanded", prompts_gate(name.split("/")[1]))
    if gate is not None and gate.value:
        told = "not comparable with the base model, since the new tokenizer cuts its prompts otherwise."
        return Finding(f"In-context learning, {words}: {told}", State.UNCLEAR)
    if change is None:
        return Finding(f"In-context learning, {words}: not measured before and after training.", State.MISSING)
    words = f"In-context learning, {words}: {change.words('percent')}: "
    if change.before.value < LEAST_SCORE:
        return Finding(
            f"{words}the base model scored under {format_share(LEAST_SCORE)}: there was nothing to lose.",
            State.GOOD,
        )
    return _against_limit(words, change, sign=-1, limit=limit, noun="drop")


def _against_limit(words: str, change: Change, sign: int, limit: float, noun: str) -> Finding:
    """Judge a change against its limit; ``sign`` is 1 where a rise is a loss and −1 where a drop is one."""
    if change.relative is None:
        return Finding(words + "the base model scored zero, so there was nothing to lose.", State.GOOD)
    if change.difference is None:
        return Finding(words + _unsettled(change), State.UNCLEAR)
    loss, allowed = sign * change.relative, f"the limit of {format_share(limit)}"
    worst = max(sign * end for end in change.difference) / abs(change.before.value)
    if loss > limit:
        return _beyond_limit(f"{words}a {noun} of {format_value(loss, 'percent')}, beyond {allowed}", change)
    if change.is_clear:
        kind = f"a clear {noun}, within {allowed}" if loss > 0 else "clearly better than before"
    else:
        kind = f"no clear change ({_overlap(change)})"
    if worst <= limit:
        return Finding(f"{words}{kind}.", State.GOOD)
    hidden = f"a {noun} of up to {format_value(worst, 'percent')}, beyond {allowed}"
    told = f"{words}{kind}; but intervals this wide could hide {hidden}: measure on more text to settle it."
    return Finding(told, State.UNCLEAR)


def _beyond_limit(words: str, change: Change) -> Finding:
    if change.is_clear:
        return Finding(f"{words}; clearly so.", State.BAD)
    return Finding(
        f"{words}, but no clear change ({_overlap(change)}): measure on more text to settle it.",
        State.UNCLEAR,
    )


def _writing_findings(rows: Sequence[Measurement]) -> Iterator[Finding]:
    """Yield what got worse in what the model writes by itself, by a tenth of answers or more; it decides nothing."""
    for style, about in _STYLES.items():
        name = f"generation/{style}/loops"
        before, after = first_at(rows, "base", name), last_trained(rows, name)
        if before and after and after.value - before.value >= _MORE_LOOPS:
            told = f"{format_share(after.value)} of its {about} end in a loop, {format_share(before.value)} before"
            yield Finding(f"What it writes: {told} ({after.count} prompts; they do not decide).", State.UNCLEAR)
        new = last_trained(rows, f"generation/{style}/distinct_new_tokens")
        if new is not None and new.value == 0 and first_at(rows, "expanded", "norm/input/new"):
            told = f"in its {about} there is no new token ({new.count} prompts; they do not decide)."
            yield Finding(f"What it writes: {told}", State.UNCLEAR)


def _fertility_finding(rows: Sequence[Measurement], target: str) -> tuple[Finding, ...]:
    before, after = (
        first_at(rows, "base", "fertility", target),
        first_at(rows, "expanded", "fertility", target),
    )
    if not before or not after:
        return ()
    words = Change(before, after).words()
    return (Finding(f"{language_name(target)}: tokens per word {words} (fewer is cheaper).", State.NEUTRAL),)


def _drift_finding(rows: Sequence[Measurement], source: str) -> tuple[Finding, ...]:
    row = first_at(rows, "expanded", "segmentation_drift", source)
    if row is None:
        return ()
    of = f" of {row.count:,}" if row.count else ""
    share = f"{100 * row.value:.2g} %{of} held-out documents"
    text = f"{language_name(source)}: {share} are cut into other tokens than before."
    return (Finding(text, State.NEUTRAL),)


def _shift_finding(rows: Sequence[Measurement]) -> tuple[Finding, ...]:
    kinds = {kind: last_trained(rows, f"shift/{kind}/relative_l2") for kind in ("attention", "mlp", "embeddings_old")}
    found = [f"{kind.replace('_', ' ')} {format_value(row.value, 'small')}" for kind, row in kinds.items() if row]
    if not found:
        return ()
    text = f"Weights moved by this share of their own size: {', '.join(found)}."
    return (Finding(text, State.NEUTRAL),)
