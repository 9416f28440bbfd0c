"""What a recipe says about measuring: what, when, and on how much."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from lingraft.errors import nearest
from lingraft.quantities import Fraction, LanguageCode
from lingraft.recipe_forgetting import Drift, ForgettingAlarm, Generation
from lingraft.recipe_part import Choice, NonEmpty, Part, as_tuple
from lingraft.recipe_tasks import DownstreamTask

__all__ = ["Measure", "Windows"]


class Windows(Part):
    """How text that is longer than the model's window is scored, and what is told beside bits per byte.

    ``strided`` windows begin ``stride`` of a window apart and score what the ones before have not, so that no token has
    less context than the rest of the window; ``disjoint`` ones share no token, as lm-eval's do. With ``full`` documents
    are also scored whole, at the base and at stage ends: a second number, in which a tokenizer that needs fewer tokens
    has more context. ``with_end`` tells what bits per byte would be if the end of every document were scored too.
    """

    mode: Literal["strided", "disjoint"] = "strided"
    stride: Annotated[Fraction, Field(gt=0)] = 0.5
    full: bool = True
    with_end: bool = False


# Few items in one form: what two processor cores score in some seconds. A probe's name alone means its full form.
_SHORT_PROBES = (
    Choice(name="random_copy", options={"num_items": 16}),
    Choice(name="copain", options={"num_items": 10, "shots": 3, "templates": "arrow"}),
)

_PROBE_SETS = {
    "short": _SHORT_PROBES,
    "full": tuple(
        Choice(name=name)
        for name in (
            "random_copy",
            "copain",
            "associative_recall",
            "arbitrary_labels",
            "flipped_labels",
            "position",
            "copy_reverse",
            "constant_offset",
            "sort",
        )
    ),
}


def _named_set(value: Any) -> Any:
    """Return the probes of a set by its name, and anything else as it is."""
    if not isinstance(value, str):
        return value
    if value not in _PROBE_SETS:
        known = ", ".join(_PROBE_SETS)
        raise ValueError(
            f"there is no set of probes {value!r}{nearest(value, _PROBE_SETS)} (sets: {known}); or write a list"
        )
    return _PROBE_SETS[value]


class Measure(Part):
    """What is measured, when, and on how much.

    ``at`` lists points of every stage, dense early because that is where forgetting happens
    (arXiv 2506.00288, sec. 4); the base model is always measured first. Heavy probes run at stage ends only.
    Downstream ``tasks`` run on the base and where ``tasks_at`` says: at the end of the last stage, at the ends of all
    ``stages``, or at all ``points``. The perplexity of their answers, on ``label_items`` of each, is measured at every
    point: in-context learning is lost there before anything else shows it. ``probes`` is a list, or the name of a set:
    ``short``, a few items for small machines, or ``full``, every probe with all of its items.

    ``checkpoint_rule`` states, before anything is known, which weights comparisons take: ``last``, the raw ones of the
    run's end; ``averaged``, those of the average that the last stage keeps beside them; or ``both``, each as an arm of
    its own. No rule picks the best of several moments: a run keeps the weights of its stages' ends alone, and a best
    moment picked on held-out text is no measurement on held-out text any more.
    """

    at: tuple[Fraction, ...] = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
    bits_per_byte: tuple[LanguageCode, ...] | None = None
    checkpoint_rule: Literal["last", "averaged", "both"] = "both"
    validation_bytes: Annotated[int, Field(ge=1000)] = 200_000
    segment_bytes: Annotated[int, Field(ge=64)] = 2048
    windows: Windows = Windows()
    probes: tuple[Choice, ...] = _SHORT_PROBES
    tasks: tuple[DownstreamTask, ...] = ()
    tasks_folder: NonEmpty | None = None
    tasks_code: bool = False
    tasks_at: Literal["end", "stages", "points"] = "end"
    label_items: Annotated[int, Field(ge=0)] = 50
    benchmark_files: tuple[NonEmpty, ...] = ()
    parameter_shift: bool = True
    drift: Drift = Drift()
    alarm: ForgettingAlarm = ForgettingAlarm()
    generation: Generation = Generation()
    batch_size: Annotated[int, Field(ge=1)] = 8
    samples: tuple[str, ...] = ()
    sample_tokens: Annotated[int, Field(ge=1)] = 40

    _sets = field_validator("probes", mode="before")(_named_set)
    _tuples = field_validator("at", "bits_per_byte", "probes", "tasks", "samples", "benchmark_files", mode="before")(
        as_tuple
    )

    @field_validator("probes")
    @classmethod
    def _each_probe_once(cls, value: tuple[Choice, ...]) -> tuple[Choice, ...]:
        # Their rows would have one name, and nothing would tell the two apart.
        names = [choice.name for choice in value]
        if len(set(names)) < len(names):
            raise ValueError(f"a probe is named twice: {', '.join(names)}")
        return value
