"""The stages of a recipe: what trains, on which mix, for how long, how fast."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lingraft.errors import nearest
from lingraft.quantities import Fraction, Length, TokenCount, length_in_tokens
from lingraft.recipe_guard import Ema, Slices
from lingraft.recipe_part import Choice, Name, Part, as_tuple

__all__ = [
    "MEMORY",
    "SAVING",
    "TRAIN_WORDS",
    "Alarms",
    "Batch",
    "BpeDropout",
    "Layers",
    "LearningRate",
    "MixSpec",
    "Optimizer",
    "Stage",
]

_SHARES_TOLERANCE = 1e-6
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
TRAIN_WORDS = (
    "all",
    "body",
    "embeddings",
    "input_embeddings",
    "output_embeddings",
    "new_embeddings",
    "new_input_embeddings",
    "new_output_embeddings",
    "blocks",
)

# What decides how much lies in memory at once: sums come in another order with it, and nothing else changes.
MEMORY = {"micro_batch", "checkpoint_activations"}
# When a stage is saved, and whether beside its steps, is in no bit of what it trains.
SAVING = {"checkpoint_every", "saves_beside"}

Beta = Annotated[float, Field(ge=0, lt=1)]


class MixSpec(Part):
    """Which share of the training tokens each corpus supplies, over the course of a stage.

    Written short, ``{eu: 0.9, en: 0.1}``, it is constant; with ``schedule`` it names a registered schedule and
    carries its options, as in ``{schedule: step, until: warmup_end, before: {eu: 0.8, en: 0.2}, after: {eu: 1.0}}``.
    Wherever a fraction of the stage is asked for, ``warmup_end`` stands for the end of the learning rate's warm-up.
    """

    schedule: str = "constant"
    options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "options" in data:
            return data
        if "schedule" not in data:
            return {"schedule": "constant", "options": {"mix": _shares(data, ())}}
        options = {key: value for key, value in data.items() if key != "schedule"}
        return {"schedule": data["schedule"], "options": {k: _option(k, v) for k, v in options.items()}}

    def corpora(self) -> set[str]:
        """Return the names of the corpora that have a positive share at some time."""
        return {name for name, share in _mentioned(self.options) if share > 0}

    def named(self) -> set[str]:
        """Return the names of all corpora that are mentioned, those with a share of 0 as well."""
        return {name for name, _ in _mentioned(self.options)}


def _mentioned(options: Any) -> Iterator[tuple[str, float]]:
    """Yield the corpora of options: keys of mixtures, at any depth, and what ``corpora`` lists."""
    for name, value in options.items():
        if name == "corpora" and isinstance(value, list | tuple):
            yield from ((str(corpus), 1.0) for corpus in value)
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, dict) and _is_mixture(part):
                yield from part.items()
            elif isinstance(part, dict):
                yield from _mentioned(part)


def _is_mixture(value: dict[str, Any]) -> bool:
    """Whether a mapping gives shares; a point of ``piecewise`` has a mixture inside."""
    return not any(isinstance(part, dict) for part in value.values())


def _option(name: str, value: Any) -> Any:
    if isinstance(value, dict) and _is_mixture(value):
        return _shares(value, (name,))
    if isinstance(value, dict):
        return {key: _option(f"{name}.{key}", part) for key, part in value.items()}
    if isinstance(value, list):
        return [_option(f"{name}.{number}", part) for number, part in enumerate(value)]
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        return float(percent[1]) / 100
    return value


def _shares(shares: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, float]:
    prefix = "".join(f"{part}: " for part in path)
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"{prefix}the share of {name!r} must lie between 0 and 1, not {share!r}")
    total = sum(shares.values())
    if abs(total - 1) > _SHARES_TOLERANCE:
        listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ValueError(f"{prefix}the shares of a mix must sum to 1; these sum to {total:g} ({listed})")
    return {name: float(share) for name, share in shares.items()}


class LearningRate(Part):
    """A peak, a linear warm-up to it, and a shape that leads from it to ``floor`` × peak at the stage's end.

    ``decay``, ``cooldown`` and ``plateau`` belong to the shapes that have such parts. With ``rewarm: false`` there is
    no warm-up and no peak: the stage begins at the rate that the one before ended with, if that is not 0. The embedding
    matrices may have a peak of their own, ``embeddings``; it follows the same shape.
    """

    schedule: str = "cosine"
    peak: Annotated[float, Field(gt=0, lt=1)] | None = None
    embeddings: Annotated[float, Field(gt=0, lt=1)] | None = None
    warmup: Length = 0.05
    rewarm: bool = True
    floor: Fraction = 0.033
    decay: Length | None = None
    cooldown: Length | None = None
    plateau: Fraction | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_warmup_without_rewarm(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("rewarm") is False and "warmup" not in data:
            return data | {"warmup": 0}
        return data

    @model_validator(mode="after")
    def _one_beginning(self) -> "LearningRate":
        if self.rewarm and self.peak is None:
            raise ValueError("peak is needed (or rewarm: false, to go on at the rate that the stage before ended with)")
        if not self.rewarm and (self.peak is not None or self.warmup):
            raise ValueError("with rewarm: false the rate begins where the stage before ended: no peak, no warmup")
        return self


class Optimizer(Part):
    """The optimiser, with the constants of arXiv 2506.00288's released configuration for AdamW (arXiv 1711.05101).

    Tables of embeddings are never decayed while only some of their rows learn. With ``start: carry`` the moments of
    what the stage before trained too go on, row by row, each with the steps that it has made; everything else begins
    with none, as with ``fresh``.
    """

    name: str = "adamw"
    start: Literal["fresh", "carry"] = "fresh"
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    momentum: Beta | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    clip: Annotated[float, Field(gt=0)] = 1.0

    _tuple = field_validator("betas", mode="before")(as_tuple)


class Alarms(Part):
    """What follows a step that looks wrong.

    A loss or gradient that is not finite is never learned from; ``bad_steps`` of them in a row stop the stage. A spike
    is a loss or gradient more than ``sigmas`` standard deviations above the mean of the last ``window`` steps; it is
    noted, its update is left out, or the stage stops.
    """

    spikes: Literal["log", "skip", "stop"] = "log"
    sigmas: Annotated[float, Field(gt=0)] = 6.0
    window: Annotated[int, Field(ge=8)] = 128
    bad_steps: Annotated[int, Field(ge=1)] = 3


class BpeDropout(Part):
    """Merges left out at random while training text is encoded, so that the pieces of long tokens stay in use.

    ``rate`` is how often a merge that could be made is not (arXiv 1910.13267). ``merges`` says which may be left out:
    those of new tokens, so that only text that has new tokens is encoded anew, or all. Every pass over a corpus is
    encoded anew. Text that is measured is never encoded so.
    """

    rate: Annotated[Fraction, Field(gt=0, lt=1)] = 0.1
    merges: Literal["new", "all"] = "new"


class Layers(Part):
    """So many layers at either end of the model; ``also`` names what else trains, in the words of a stage's ``train``.

    Two layers at each end, with the embeddings, are what arXiv 2406.11477 trains on few texts.
    """

    top_layers: Annotated[int, Field(ge=0)] = 0
    bottom_layers: Annotated[int, Field(ge=0)] = 0
    also: tuple[str, ...] = ()

    _tuple = field_validator("also", mode="before")(as_tuple)

    @model_validator(mode="after")
    def _some(self) -> "Layers":
        if not self.top_layers + self.bottom_layers:
            raise ValueError("top_layers and bottom_layers are both 0; a list of words says the same")
        return self


class Batch(Part):
    """How many tokens an optimiser step sees, how they are cut into forward passes, and what a token sees of them.

    A sequence holds several documents. With ``isolate`` none sees another: attention stays inside each, and positions
    count from its first token. Otherwise attention runs on across their borders, as in the two papers'
    runs. In neither case is the beginning of a document foretold from the end of the one before.
    ``checkpoint_activations`` trades time for memory: what a layer computed is dropped and made again in the backward
    pass, so that memory for activations grows with one layer, not with all.
    """

    tokens: TokenCount = 65_536
    sequence_length: Annotated[int, Field(ge=8)] = 512
    micro_batch: Annotated[int, Field(ge=1)] = 4
    isolate: bool = False
    checkpoint_activations: bool = False

    @model_validator(mode="after")
    def _whole_sequences(self) -> "Batch":
        if self.tokens == 0 or self.tokens % self.sequence_length:
            raise ValueError(
                f"tokens {self.tokens} must be a multiple of sequence_length {self.sequence_length}, at least one"
            )
        return self

    @property
    def sequences(self) -> int:
        """Sequences per optimiser step."""
        return self.tokens // self.sequence_length


def _kind_of_train(value: Any) -> str:
    return "word" if isinstance(value, str) else "layers" if isinstance(value, dict | Layers) else "list"


Train = Annotated[
    Annotated[str, Tag("word")] | Annotated[tuple[str, ...], Tag("list")] | Annotated[Layers, Tag("layers")],
    Discriminator(_kind_of_train),
]


class Stage(Part):
    """One stage: what trains, on which mix, for how many tokens, how fast.

    ``train`` is a word, a list of words and of patterns over parameter names (``*.layers.0.*``), or layers at the ends
    (``{top_layers: 2, bottom_layers: 2, also: [embeddings]}``). The words:

    - ``all``; ``body``, everything but the embedding matrices;
    - ``embeddings``, ``input_embeddings``, ``output_embeddings``, with every row (one matrix where they are tied);
    - ``new_embeddings``, ``new_input_embeddings``, ``new_output_embeddings``, only the rows of new tokens;
    - ``blocks``, the blocks that were inserted into the model.

    ``guards`` are registered guards against forgetting, called in their order before gradients are clipped.
    """

    name: Name
    train: Train = "all"
    tokens: Annotated[TokenCount, Field(gt=0)]
    mix: MixSpec
    lr: LearningRate
    batch: Batch = Batch()
    optimizer: Optimizer = Optimizer()
    ema: Ema | None = None
    guards: tuple[Choice, ...] = ()
    slices: Slices | None = None
    z_loss: Annotated[float, Field(ge=0)] = 0.0
    extra_heads: Annotated[int, Field(ge=0, le=8)] = 0
    bpe_dropout: BpeDropout | None = None
    alarms: Alarms = Alarms()
    checkpoint_every: Length = 0.25
    saves_beside: bool = False

    _tuple = field_validator("guards", mode="before")(as_tuple)

    @field_validator("guards")
    @classmethod
    def _each_once(cls, value: tuple[Choice, ...]) -> tuple[Choice, ...]:
        names = [choice.name for choice in value]
        if len(set(names)) < len(names):
            raise ValueError(f"a guard is named twice: {', '.join(names)}")
        return value

    @field_validator("train", mode="before")
    @classmethod
    def _known_word(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in TRAIN_WORDS:
            known = ", ".join(TRAIN_WORDS)
            raise ValueError(f"{value!r} is not one of {known}, nor a list of patterns{nearest(value, TRAIN_WORDS)}")
        if value in ([], ()):
            raise ValueError("an empty list of patterns trains nothing")
        return as_tuple(value)

    @model_validator(mode="after")
    def _whole_slices(self) -> "Stage":
        if self.slices and self.num_steps % self.slices.count:
            raise ValueError(
                f"{self.num_steps} steps cannot be cut into {self.slices.count} equal slices; change tokens"
            )
        if self.slices and self.ema is not None and self.ema.is_beside:
            raise ValueError(
                f"slices with ema.kind {self.ema.kind}: a merge has no average beside it; use live or none"
            )
        return self

    @model_validator(mode="after")
    def _something_to_keep(self) -> "Stage":
        if self.ema is not None and self.ema.is_beside and not self._num_averaged(self.ema):
            begin = "" if self.ema.after is None else f" and behind step {self._steps_in(self.ema.after)}"
            raise PydanticCustomError(
                "inconsistent",
                "of the stage's {steps} steps none is every {every}th{begin}: {kind} would keep nothing",
                {
                    "steps": self.num_steps,
                    "every": self.ema.every,
                    "begin": begin,
                    "kind": self.ema.kind,
                    "tail": "ema.every",
                },
            )
        return self

    def _num_averaged(self, ema: Ema) -> int:
        """How many steps an average takes in: those that ``every`` divides, behind ``after``."""
        every = ema.every or 1
        return self.num_steps // every - (0 if ema.after is None else self._steps_in(ema.after) // every)

    def _steps_in(self, length: int | float) -> int:
        return length_in_tokens(length, self.num_steps * self.batch.tokens) // self.batch.tokens

    @property
    def is_guarded(self) -> bool:
        """Whether an average, a guard or merges hold the weights near where they were; the control counts as one."""
        return self.ema is not None or bool(self.guards) or self.slices is not None

    @property
    def trains(self) -> tuple[str, ...]:
        """The words and patterns of ``train``, with layers at the ends as ``top_layers:2``."""
        if isinstance(self.train, Layers):
            ends = {"top_layers": self.train.top_layers, "bottom_layers": self.train.bottom_layers}
            return (*(f"{side}:{count}" for side, count in ends.items() if count), *self.train.also)
        return (self.train,) if isinstance(self.train, str) else self.train

    @property
    def trains_new_rows(self) -> bool:
        """Whether rows of new tokens are chosen by themselves."""
        return any(word.startswith("new_") and word in TRAIN_WORDS for word in self.trains)

    @property
    def num_steps(self) -> int:
        """Optimiser steps: the stage's tokens over the batch's, rounded up."""
        return -(-self.tokens // self.batch.tokens)
