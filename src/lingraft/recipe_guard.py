"""The parts of a stage that keep it from forgetting: averages of its weights, and the words they are told in."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lingraft.quantities import Fraction, Length
from lingraft.recipe_part import Part, as_tuple

__all__ = ["Blocks", "Ema", "Interpolation", "Slices"]

_AVERAGES: dict[str, dict[str, Any]] = {
    "live": {"decay": 0.92, "every": 1},
    "lookahead": {"decay": 0.5, "every": 5},
    "to_start": {"decay": 0.01, "every": 10},
    "lr_matched": {"decay": 0.92},
    "shadow": {"decay": 0.999, "every": 1, "warmup": True},
    "uniform": {"every": 10, "after": 0.5},
}


class Ema(Part):
    """Averaging of weights over the steps of a stage.

    Three kinds replace the weights being trained: ``live`` is the average of arXiv 2506.00288 (α ``decay``, η
    ``every``), ``lookahead`` the same with the constants of arXiv 1907.08610, ``to_start`` an average with the stage's
    starting weights. Two are kept beside them, measured as ``averaged/…`` and exported as ``model-averaged``:
    ``shadow``, an exponential average whose decay grows to ``decay`` (``warmup``), and ``uniform``, the mean of the
    weights of every ``every``-th step behind ``after``. ``lr_matched`` averages nothing: it is the control of a live
    average of every step, which is the same as a rate multiplied by 1 − ``decay``.
    """

    kind: Literal["live", "lookahead", "to_start", "shadow", "uniform", "lr_matched"] = "live"
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    every: Annotated[int, Field(ge=1)] | None = None
    warmup: bool | None = None
    after: Length | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Give each kind its own defaults, and refuse options of another kind."""
        defaults = _AVERAGES.get(data.get("kind", "live")) if isinstance(data, dict) else None
        if defaults is None:
            return data
        foreign = [key for key in cls.model_fields if data.get(key) is not None and key not in ("kind", *defaults)]
        if foreign:
            kind, known = data.get("kind", "live"), ", ".join(defaults)
            raise PydanticCustomError(
                "inconsistent",
                "{kind} has no {key} (options: {known})",
                {"kind": repr(kind), "key": foreign[0], "known": known, "tail": foreign[0]},
            )
        return {**data, **{key: value for key, value in defaults.items() if data.get(key) is None}}

    @property
    def is_beside(self) -> bool:
        """Whether the average is kept beside the raw weights, to be measured and exported with them."""
        return self.kind in ("shadow", "uniform")

    @property
    def copies(self) -> int:
        """How many fp32 copies of what learns the average holds."""
        return 0 if self.kind == "lr_matched" else 1

    @property
    def label(self) -> str:
        """The average in a few words: ``live, decay 0.92``, ``shadow, decay 0.999 every 10``."""
        decay = f", decay {self.decay:g}" if self.decay is not None else ""
        return f"{self.kind}{decay}" + (f" every {self.every}" if (self.every or 1) > 1 else "")


class Interpolation(Part):
    """A sweep over θ_base + λ (θ − θ_base) when the last stage is done: how much of the way is worth going.

    θ_base is the expanded model before training; rows of new tokens are the trained ones for every λ. The best λ is the
    one with the fewest target bits per byte among those whose source bits per byte are at most ``max_source_rise``
    above the base model's; where there is none, the one with the fewest source bits per byte. With ``export`` the model
    there is published as ``model-interpolated``; ``model`` is what was trained, whatever is found.
    """

    weights: Annotated[tuple[Fraction, ...], Field(min_length=1)] = (0.0, 0.25, 0.5, 0.75, 1.0)
    max_source_rise: Annotated[float, Field(ge=0)] = 0.01
    export: bool = False

    _tuple = field_validator("weights", mode="before")(as_tuple)

    @field_validator("weights")
    @classmethod
    def _each_once(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"a weight is named twice: {', '.join(f'{weight:g}' for weight in value)}")
        return value


class Blocks(Part):
    """Copies of blocks put into the base model, which at first change nothing (arXiv 2401.02415).

    ``count`` copies stand behind groups of blocks of about the same size, so ``blocks: 8`` is enough to say; or
    ``after`` names the blocks, from 0, behind which a copy of each stands. The output projections of the copies begin
    as zero. A stage trains them alone with ``train: blocks``, with the rows of new tokens with ``train: [blocks,
    new_embeddings]``. The result is a model of the same class with more blocks.
    """

    count: Annotated[int, Field(ge=1)] | None = None
    after: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None

    _tuple = field_validator("after", mode="before")(as_tuple)

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, data: Any) -> Any:
        return {"count": data} if isinstance(data, int) and not isinstance(data, bool) else data

    @model_validator(mode="after")
    def _one_way(self) -> "Blocks":
        if (self.count is None) == (self.after is None):
            raise ValueError("give count or after, one of the two")
        if self.after is not None and list(self.after) != sorted(set(self.after)):
            raise ValueError(f"after must be ascending, each once: {', '.join(map(str, self.after))}")
        return self

    @property
    def where(self) -> int | tuple[int, ...]:
        """The count, or the blocks that are copied."""
        return self.count if self.count is not None else self.after or ()

    @property
    def number(self) -> int:
        """How many copies there are."""
        return self.count if self.count is not None else len(self.after or ())


class Slices(Part):
    """A stage in slices that are trained apart and merged: Branch-and-Merge (arXiv 2407.08699).

    The stage's steps are cut into ``count`` slices, each with a warm-up and decay of its own. ``width`` branches at a
    time train from the same weights, each on its slice; their merge (``linear`` or ``slerp``) is where the next ones
    start. The model is measured after every merge instead of at the points of ``measure.at``.
    """

    count: Annotated[int, Field(ge=2)] = 4
    width: Annotated[int, Field(ge=2)] = 2
    merge: Literal["linear", "slerp"] = "linear"

    @model_validator(mode="after")
    def _whole_rounds(self) -> "Slices":
        if self.count % self.width:
            raise ValueError(
                f"count {self.count} must be a multiple of width {self.width}: branches merge when all are done"
            )
        return self
