"""Mixtures of corpora, and schedules of them over a stage.

All sequences of a stage have the same length, so a share of sequences is a share of tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lingraft.errors import RecipeError, nearest
from lingraft.registry import Registry

__all__ = [
    "Mixture",
    "Schedule",
    "constant",
    "linear",
    "make_schedule",
    "mix_schedule",
    "mix_schedules",
    "piecewise",
    "step",
    "temperature",
]

Mixture = Mapping[str, float]
"""Corpus → share of the tokens; the shares sum to 1."""

mix_schedules: Registry[Callable[..., Mixture]] = Registry("mix schedule")
mix_schedule = mix_schedules.register

_TOLERANCE = 1e-6
_JUST = 1e-9


@dataclass(frozen=True)
class Schedule:
    """The mixture over a stage.

    Attributes:
        mixture: fraction of the stage that has passed, in [0, 1) → the mixture that holds then.
        knots: the fractions at which it jumps or bends; between two of them it is constant or straight.
    """

    mixture: Callable[[float], Mixture]
    knots: tuple[float, ...] = ()

    def __call__(self, fraction: float) -> Mixture:
        """Return the mixture at a fraction of the stage."""
        return self.mixture(fraction)


def _is_fraction(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1


def _moment(name: str, value: Any) -> float:
    if not _is_fraction(value):
        raise ValueError(f"{name} must be a fraction of the stage such as 10%, or warmup_end, not {value!r}")
    return float(value)


@mix_schedule("constant", reference="arXiv 2407.12869")
def constant(fraction: float, *, mix: Mixture) -> Mixture:  # noqa: ARG001 - every schedule is asked with the fraction
    """Return the same mixture at all times."""
    return mix


def _switch(at: Any, until: Any) -> float:
    if (at is None) == (until is None):
        raise ValueError("one of at and until says when the mix changes")
    return _moment("at", at) if until is None else _moment("until", until)


@mix_schedule(
    "step",
    reference="arXiv 2506.00288, curriculum",
    knots=lambda given: (_switch(given.get("at"), given.get("until")),),
)
def step(fraction: float, *, before: Mixture, after: Mixture, at: Any = None, until: Any = None) -> Mixture:
    """Return ``before`` until a fraction of the stage has passed, ``after`` from there on.

    The paper's curriculum is a bilingual mix for the first 10 % of the steps, which is its warm-up, and the target
    language alone after that: ``until: warmup_end``. ``at`` and ``until`` mean the same.

    Raises:
        ValueError: neither or both of ``at`` and ``until`` are given, or it does not lie between 0 and 1.
    """
    return before if fraction < _switch(at, until) else after


@mix_schedule(
    "linear",
    reference="https://numpy.org/doc/stable/reference/generated/numpy.interp.html",
    knots=lambda given: (given.get("start", 0.0), given.get("end", 1.0)),
)
def linear(fraction: float, *, before: Mixture, after: Mixture, start: Any = 0.0, end: Any = 1.0) -> Mixture:
    """Return ``before`` up to ``start``, ``after`` from ``end``, and in between what lies on the straight line.

    Raises:
        ValueError: ``start`` or ``end`` is no fraction of the stage, or they are in the wrong order.
    """
    begin, stop = _moment("start", start), _moment("end", end)
    if begin >= stop:
        raise ValueError(f"start must come before end, not {begin:g} and {stop:g}")
    return _between(before, after, min(1.0, max(0.0, (fraction - begin) / (stop - begin))))


def _between(before: Mixture, after: Mixture, weight: float) -> Mixture:
    names = dict.fromkeys([*before, *after])
    return {name: (1 - weight) * before.get(name, 0.0) + weight * after.get(name, 0.0) for name in names}


@mix_schedule(
    "piecewise",
    reference="https://numpy.org/doc/stable/reference/generated/numpy.interp.html",
    knots=lambda given: tuple(point["at"] for point in given["points"]),
)
def piecewise(fraction: float, *, points: Sequence[Mapping[str, Any]]) -> Mixture:
    """Return what lies on the straight lines between ``points``, each ``{at: FRACTION, mix: {...}}``.

    Two points at the same place make a jump. Before the first point its mixture holds, after the last point the last's.

    Raises:
        ValueError: there is no point, one is not of that form, or they are not in order.
    """
    if not points or not all(isinstance(point, Mapping) and set(point) == {"at", "mix"} for point in points):
        raise ValueError("points must be a list of {at: FRACTION, mix: {...}}")
    places = [_moment("points: at", point["at"]) for point in points]
    if places != sorted(places):
        raise ValueError(f"points must be in order, not {', '.join(f'{place:g}' for place in places)}")
    passed = sum(place <= fraction for place in places)
    if passed in (0, len(points)):
        return dict(points[min(passed, len(points) - 1)]["mix"])
    begin, stop = places[passed - 1], places[passed]
    return _between(points[passed - 1]["mix"], points[passed]["mix"], (fraction - begin) / (stop - begin))


@mix_schedule("temperature", reference="arXiv 1911.02116, sec. 3.1")
def temperature(
    fraction: float,  # noqa: ARG001 - every schedule is asked with the fraction
    *,
    corpora: Sequence[str],
    alpha: Any,
    tokens: Mapping[str, int] | None = None,
) -> Mixture:
    """Return shares that follow the sizes of the corpora, flattened: share ∝ (tokens of the corpus) ^ ``alpha``.

    With ``alpha`` 1 every corpus is passed over equally often, with 0 all have the same share; the paper takes 0.3.
    ``tokens`` are counted, so a recipe leaves them out.

    Raises:
        ValueError: ``alpha`` is not between 0 and 1, there is no corpus, or one is named twice or unknown.
    """
    if not _is_fraction(alpha):
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha!r}")
    if isinstance(corpora, str) or not corpora or len(set(corpora)) < len(corpora):
        raise ValueError(f"corpora must be a list of different corpora, not {corpora!r}")
    if missing := [name for name in corpora if name not in (tokens or {})]:
        raise ValueError(f"corpora: unknown corpus {missing[0]!r}{nearest(missing[0], tokens or {})}")
    weights = {name: float(max(1, (tokens or {})[name])) ** alpha for name in corpora}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def make_schedule(
    name: str, options: Mapping[str, Any], where: str, *, moments: Mapping[str, float] | None = None, **given: Any
) -> Schedule:
    """Return a registered schedule with its options bound and its mixtures checked: at both ends and at its knots.

    Args:
        name: of the schedule.
        options: from the recipe.
        where: the recipe path.
        moments: words that may stand for a fraction of the stage, as ``warmup_end`` does.
        given: options that lingraft fills in where the schedule has them and the recipe does not (``tokens``).

    Raises:
        RecipeError: the name or an option is unknown, or a mixture is not one; the message names the path ``where``.
    """
    entry = mix_schedules.get(name, where)
    known = entry.options()
    filled = {key: _resolved(value, moments or {}) for key, value in options.items()}
    filled |= {key: value for key, value in given.items() if key in known and key not in filled}
    bound = entry.bind(filled, where)
    try:
        bound(0.0)
        knots = tuple(sorted({float(knot) for knot in entry.marks.get("knots", lambda _: ())(filled)}))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise RecipeError(f"{where}: {error}") from error
    for fraction in dict.fromkeys([0.0, *_beside(knots), 0.999999]):
        _refuse_no_mixture(bound, fraction, where)
    return Schedule(bound, knots)


def _resolved(value: Any, moments: Mapping[str, float]) -> Any:
    """Put fractions in the place of the words that stand for them, at any depth."""
    if isinstance(value, list | tuple):
        return [_resolved(item, moments) for item in value]
    if isinstance(value, Mapping):
        return {key: _resolved(item, moments) for key, item in value.items()}
    return moments[value] if isinstance(value, str) and value in moments else value


def _beside(knots: Iterable[float]) -> list[float]:
    return [place for knot in knots for place in (knot - _JUST, knot) if 0 <= place < 1]


def _refuse_no_mixture(bound: Callable[[float], Mixture], fraction: float, where: str) -> None:
    try:
        mixture = bound(fraction)
    except (ValueError, TypeError, AttributeError) as error:
        raise RecipeError(f"{where}: {error}") from error
    total = sum(mixture.values()) if isinstance(mixture, Mapping) else None
    if total is None or abs(total - 1) > _TOLERANCE or min(mixture.values()) < 0:
        raise RecipeError(
            f"{where}: the shares of a mix must be positive and sum to 1, at {fraction:g} they are {mixture!r}"
        )
