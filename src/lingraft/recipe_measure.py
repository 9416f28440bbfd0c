"""What a recipe says about measuring: what, when, and on how much."""

from typing import Annotated

from pydantic import Field, field_validator

from lingraft.quantities import Fraction, LanguageCode
from lingraft.recipe_forgetting import Drift
from lingraft.recipe_part import Choice, NonEmpty, Part, as_tuple

__all__ = ["Measure"]


class Measure(Part):
    """What is measured, when, and on how much.

    ``at`` lists points of every stage, dense early because that is where forgetting happens
    (arXiv 2506.00288, sec. 4); the base model is always measured first. Heavy probes run at stage ends only.
    """

    at: tuple[Fraction, ...] = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
    bits_per_byte: tuple[LanguageCode, ...] | None = None
    validation_bytes: Annotated[int, Field(ge=1000)] = 200_000
    segment_bytes: Annotated[int, Field(ge=64)] = 2048
    probes: tuple[Choice, ...] = (Choice(name="random_copy"), Choice(name="copain"))
    benchmark_files: tuple[NonEmpty, ...] = ()
    parameter_shift: bool = True
    drift: Drift = Drift()
    batch_size: Annotated[int, Field(ge=1)] = 8
    samples: tuple[str, ...] = ()
    sample_tokens: Annotated[int, Field(ge=1)] = 40

    _tuples = field_validator("at", "bits_per_byte", "probes", "samples", "benchmark_files", mode="before")(as_tuple)
