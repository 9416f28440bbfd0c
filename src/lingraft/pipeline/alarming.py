"""The alarm on forgetting in a run: judged at every measuring point, told with advice that fits the recipe, answered.

All that it knows stands in measurements, so a run that goes on from a checkpoint knows what it knew there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lingraft.errors import ForgettingError, InterruptedRunError, RecipeError, nearest
from lingraft.measure.alarm import Finding, ForgettingLimits, judge_forgetting
from lingraft.measurement import Measurement, prompts_gate
from lingraft.pipeline.progress import Progress
from lingraft.recipe import Recipe
from lingraft.run import Run

__all__ = ["ALARM", "ForgettingWatch", "advice", "limits_of", "refuse_unwatchable", "share_of"]

ALARM = "alarm/forgetting/"
_ACCEPTED = f"{ALARM}accepted"
_LITTLE_SOURCE = 0.2


def limits_of(recipe: Recipe) -> ForgettingLimits:
    """Return the limits of a recipe."""
    alarm = recipe.measure.alarm
    return ForgettingLimits(alarm.probe, alarm.probe_drop, alarm.source_rise, alarm.shift)


def refuse_unwatchable(recipe: Recipe) -> None:
    """Raise a RecipeError where a recipe names a probe for its alarm that it does not measure."""
    alarm = recipe.measure.alarm
    # The default's probe is measured by default; where it is not, the other rules watch.
    if alarm.action == "off" or alarm.probe is None or alarm.probe == type(alarm)().probe:
        return
    measured = [choice.name.rpartition(":")[2] for choice in recipe.measure.probes]
    if alarm.probe.partition("/")[0] not in measured:
        listed = ", ".join(measured) or "none"
        raise RecipeError(f"measure.alarm.probe: {alarm.probe!r} is not measured (measure.probes: {listed})")


def share_of(language: str, read: Mapping[str, int | float], shares: Mapping[str, Mapping[str, float]]) -> float:
    """Return how much of what is read is in a language.

    Args:
        language: its code.
        read: corpus → how much of it is read.
        shares: corpus → language → share of its tokens.
    """
    spoken = sum(count * shares[name].get(language, 0.0) for name, count in read.items())
    return spoken / max(1, sum(read.values()))


def advice(recipe: Recipe, index: int, source_share: float) -> list[str]:
    """Return what may keep a stage from forgetting more, as far as the recipe does not do it already.

    Args:
        recipe: the recipe.
        index: of the stage.
        source_share: how much of the stage's tokens is in the source language.
    """
    stage, where = recipe.stages[index], f"stages.{index}"
    source, target = recipe.languages.source, recipe.languages.target
    found = []
    if source_share < _LITTLE_SOURCE:
        has = f"only {source_share:.0%} of the stage is {source}" if source_share else f"no {source} text is in the mix"
        found.append(
            f"more replay: {has}; {where}.mix with 20 % and more of it, at least in the first tenth (schedule step), "
            "goes on from the checkpoint with --accept-changed mix"
        )
    if stage.lr.peak is None:
        found.append(f"a lower rate: {where} goes on at the rate of the stage before; lower that, in a new run folder")
    else:
        found.append(f"a lower rate: {where}.lr.peak is {stage.lr.peak:g}; try a third, in a new run folder")
    if stage.ema is None:
        found.append(f"averaging: {where}.ema={{decay: 0.92}}, which did as well as replay in {target} (2506.00288)")
    if not stage.guards and "all" in stage.trains:
        found.append(f"guards: {where}.guards, see lingraft list guards")
    return found


@dataclass
class ForgettingWatch:
    """Judges each moment of a run's stages.

    Attributes:
        run: where rows go and come from.
        recipe: its recipe.
        progress: who is told.
        due: what stops the run, where something does.
    """

    run: Run
    recipe: Recipe
    progress: Progress
    due: str | None = None
    _known: list[Measurement] = field(default_factory=list)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Train a stage inside: a stop that the alarm asked for is told as such.

        Raises:
            ForgettingError: in place of InterruptedRunError.
        """
        self.open()
        try:
            yield
        except InterruptedRunError as error:
            if self.due is None:
                raise
            raise ForgettingError(self.due) from error

    def open(self) -> None:
        """Begin a stage, or go on in it: learn what is known, and refuse to go on over an alarm without an answer.

        An answer is another mix or the word for it (``--accept-changed mix``, ``alarm``), or limits that allow it.

        Raises:
            ForgettingError: the last moment that was judged stopped the run, and nothing was said to that.
            RecipeError: the recipe names a score that the probe did not give of the base: the alarm would never sound.
        """
        self.due, self._known = None, self._read()
        self._refuse_unscored()
        standing = self._standing()
        if not standing:
            return
        last = standing[-1]
        if self.run.accepted & {"mix", "alarm"}:
            self._write([Measurement(last.stage, last.tokens, _ACCEPTED, 1.0)])
        elif self.recipe.measure.alarm.action == "stop":
            told = ", ".join(f"{row.name.removeprefix(ALARM)} {row.value:.3g}" for row in standing)
            raise ForgettingError(
                f"the alarm on forgetting stopped this run in stage {last.stage!r} at {last.tokens:,} tokens ({told}), "
                f"and nothing has changed since. {_ways_on()}"
            )

    def _refuse_unscored(self) -> None:
        alarm = self.recipe.measure.alarm
        if alarm.action == "off" or alarm.probe is None or alarm.probe == type(alarm)().probe:
            return
        scores = [row.name.removeprefix("probe/") for row in self._known if row.name.startswith("probe/")]
        if scores and alarm.probe not in scores:
            of_it = [score for score in scores if score.startswith(f"{alarm.probe.partition('/')[0]}/")]
            raise RecipeError(
                f"measure.alarm.probe: {alarm.probe!r} is no score of that probe{nearest(alarm.probe, of_it)} (scores: "
                f"{', '.join(of_it)})"
            )

    def _read(self) -> list[Measurement]:
        stages, source = {stage.name for stage in self.recipe.stages}, self.recipe.languages.source
        judged, gate = ("bits_per_byte", source), self._gate()
        return [
            row
            for row in self.run.measurements()
            if row.stage == "base"
            or row.name == gate
            or row.name.startswith(ALARM)
            or (row.stage in stages and (row.name, row.language) == judged)
        ]

    def _gate(self) -> str:
        return prompts_gate((self.recipe.measure.alarm.probe or "").partition("/")[0])

    def _write(self, rows: Iterable[Measurement]) -> None:
        made = [row for row in rows if row not in self._known]
        self.run.measure(made)
        self._known += made

    def _alarms(self) -> list[Measurement]:
        return [row for row in self._known if row.name.startswith(ALARM) and row.name != _ACCEPTED]

    def _accepted_values(self) -> Mapping[str, float]:
        """Return rule → the largest loss that was accepted."""
        places = {(row.stage, row.tokens) for row in self._known if row.name == _ACCEPTED}
        found: dict[str, float] = {}
        for row in self._alarms():
            if (row.stage, row.tokens) in places:
                found[row.name] = max(row.value, found.get(row.name, row.value))
        return found

    def _standing(self) -> list[Measurement]:
        """Return the alarms of the last moment that was judged, which no answer and no limit of today allows."""
        trained = [row for row in self._known if row.stage not in ("base", "expanded")]
        moment = (trained[-1].stage, trained[-1].tokens) if trained else None
        accepted = self._accepted_values()
        limits = limits_of(self.recipe)
        today = {"icl": limits.probe_drop, "source": limits.source_rise, "shift": limits.shift}
        return [
            row
            for row in self._alarms()
            if (row.stage, row.tokens) == moment
            and (limit := today.get(row.name.removeprefix(ALARM))) is not None
            and row.value > max(limit, accepted.get(row.name, limit))
        ]

    def judge(self, rows: Sequence[Measurement], index: int, source_share: float) -> list[Finding]:
        """Judge a moment by its rows: write what is alarming, say it with advice when it is new, stop where asked to.

        A loss that was accepted stops nothing until it has become larger.

        Args:
            rows: of the raw weights, all of one moment.
            index: of the stage.
            source_share: how much of the stage's tokens is in the source language.
        """
        alarm = self.recipe.measure.alarm
        if alarm.action == "off" or not rows:
            return []
        base = [row for row in self._known if row.stage == "base" or row.name == self._gate()]
        found = judge_forgetting(base, rows, limits_of(self.recipe), self.recipe.languages.source)
        if not found:
            return []
        stage, tokens = rows[0].stage, rows[0].tokens
        heard = {row.name for row in self._alarms()}
        accepted = self._accepted_values()
        worse = [f for f in found if f.value > accepted.get(f"{ALARM}{f.rule}", 0.0)]
        made = [Measurement(stage, tokens, f"{ALARM}{f.rule}", f.value) for f in found]
        if "alarm" in self.run.accepted:
            made.append(Measurement(stage, tokens, _ACCEPTED, 1.0))
        self._write(made)
        told = "; ".join(f"{f.text} (limit {f.limit:g})" for f in found)
        words = f"forgetting at {tokens:,} tokens of stage {stage!r}: {told}"
        if any(f"{ALARM}{f.rule}" not in heard for f in found):
            words += ". What may help: " + "; ".join(advice(self.recipe, index, source_share))
        self.progress.note(words)
        if alarm.action == "stop" and worse and "alarm" not in self.run.accepted:
            self.due = f"{words}. A checkpoint is kept. {_ways_on()}"
        return found


def _ways_on() -> str:
    return (
        "Go on with another mix (--accept-changed mix), with other limits or another action in measure.alarm, or all "
        "the same (--accept-changed alarm)"
    )
