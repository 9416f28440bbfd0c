"""The learning rate of each stage, from a recipe's words. Loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lingraft.errors import RecipeError, TrainingError
from lingraft.pipeline.settings import warmup_steps
from lingraft.quantities import length_in_tokens
from lingraft.recipe import Optimizer, Recipe, Stage
from lingraft.training.learning_rate import end_rate, learning_rate
from lingraft.training.optimizer import optimizers

__all__ = ["StageRates", "optimizer_options", "refuse_unusable_optimizer", "stage_rates"]

_LENGTHS = ("decay", "cooldown")
_POINTS = 1000


@dataclass(frozen=True)
class StageRates:
    """The rates of one stage, as numbers; see :func:`lingraft.training.learning_rate.learning_rate`.

    ``table_factor`` is the rate of embedding matrices over that of the body.
    """

    num_steps: int
    warmup_steps: int
    peak: float
    floor: float
    schedule: str
    options: Mapping[str, float]
    table_factor: float

    def at(self, step: int) -> float:
        """Return the rate of a step, from 0."""
        return learning_rate(
            step,
            num_steps=self.num_steps,
            warmup_steps=self.warmup_steps,
            peak=self.peak,
            floor=self.floor,
            schedule=self.schedule,
            options=self.options,
        )

    @property
    def end(self) -> float:
        """The rate behind the last step."""
        return end_rate(peak=self.peak, floor=self.floor, schedule=self.schedule, options=self.options)


def stage_rates(recipe: Recipe, index: int) -> StageRates:
    """Return the rates of a stage; with ``rewarm: false`` its peak is where the stage before ended.

    Raises:
        RecipeError: the warm-up or a part of the schedule does not fit, the schedule or an option is unknown, its
            function is no shape, or a step would be made at rate 0, from which nothing is learned.
    """
    stage, where = recipe.stages[index], f"stages.{index}.lr"
    rate, warmup = stage.lr, warmup_steps(stage)
    if warmup > stage.num_steps:
        raise RecipeError(f"{where}.warmup: {rate.warmup} is longer than the stage's {stage.tokens} tokens")
    options = _options(stage, warmup, where)
    peak = rate.peak if rate.peak is not None else _rate_before(recipe, index)
    factor = rate.embeddings / peak if rate.embeddings else 1.0
    rates = StageRates(stage.num_steps, warmup, peak * _kept(stage), rate.floor, rate.schedule, options, factor)
    _refuse_no_rate(rates, where)
    return rates


def _kept(stage: Stage) -> float:
    """Return what of the rate is left: with the control ``lr_matched`` 1 − α of the average that it stands for."""
    matched = stage.ema is not None and stage.ema.kind == "lr_matched"
    return 1 - stage.ema.decay if matched and stage.ema is not None and stage.ema.decay is not None else 1.0


def _options(stage: Stage, warmup: int, where: str) -> dict[str, float]:
    """Return what a schedule is given: lengths as shares of the way behind the warm-up."""
    rate, options = stage.lr, {}
    way = (stage.num_steps - warmup) * stage.batch.tokens
    for name in _LENGTHS:
        if (length := getattr(rate, name)) is not None:
            tokens = length_in_tokens(length, stage.num_steps * stage.batch.tokens)
            if tokens > way:
                raise RecipeError(f"{where}.{name}: {length} is longer than the {way} tokens behind the warm-up")
            options[name] = tokens / way if way else 0.0
    return options | ({} if rate.plateau is None else {"plateau": rate.plateau})


def _rate_before(recipe: Recipe, index: int) -> float:
    """Return the rate that the stage before ended with; a control, what the average that it stands for ended with.

    So a control stays one in the stages behind: they begin at the rate that those of the averaged run begin with, and
    are scaled by what they say themselves.
    """
    before = stage_rates(recipe, index - 1)
    if not before.end > 0:
        raise RecipeError(
            f"stages.{index}.lr.rewarm: the stage before, {recipe.stages[index - 1].name!r}, ends at rate 0, from "
            "which nothing is learned; give that stage a floor, or this one a peak"
        )
    return before.end / _kept(recipe.stages[index - 1])


def _refuse_no_rate(rates: StageRates, where: str) -> None:
    """Ask a schedule at up to a thousand steps, so that a function that is no shape is found out before a run."""
    steps = {min(rates.num_steps - 1, point * rates.num_steps // _POINTS) for point in range(_POINTS)}
    for step in sorted(steps | {rates.num_steps - 1}):
        try:
            rates.at(step)
        except RecipeError as error:
            raise RecipeError(f"{where}.{str(error).removeprefix('lr.')}") from error
        except TrainingError as error:
            raise RecipeError(f"{where}.{str(error).removeprefix('lr.')}") from error


def optimizer_options(stage: Stage) -> dict[str, Any]:
    """Return the options of a stage's optimiser: those it knows, and those that the recipe sets on purpose."""
    chosen = stage.optimizer
    known = optimizers.get(chosen.name, "optimizer.name").options()
    given = {"betas": chosen.betas, "eps": chosen.eps}
    options = {name: value for name, value in given.items() if name in known or value != _default(name)}
    return options | ({} if chosen.momentum is None else {"momentum": chosen.momentum})


def _default(name: str) -> Any:
    return Optimizer.model_fields[name].default


def refuse_unusable_optimizer(recipe: Recipe, index: int) -> None:
    """Raise a RecipeError where a stage's optimiser is unknown, has no such option, or carries no moments on."""
    stage, where = recipe.stages[index], f"stages.{index}.optimizer"
    entry = optimizers.get(stage.optimizer.name, f"{where}.name")
    entry.bind(optimizer_options(stage), where)
    if stage.optimizer.start == "carry" and not entry.marks.get("carries"):
        able = ", ".join(known.name for known in optimizers if known.marks.get("carries"))
        raise RecipeError(f"{where}.start: the moments of {entry.name!r} cannot be carried on (those of {able} can)")
