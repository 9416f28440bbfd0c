"""Sends what a run measures to an experiment tracker, beside ``measurements.jsonl``, which is always written.

The trackers are those of accelerate (https://huggingface.co/docs/accelerate/usage_guides/tracking): TensorBoard,
Weights & Biases, MLflow, trackio and others, by name. A tracker is a spectator: when it fails, it is switched off with
a remark, and the run goes on.
"""

import contextlib
import importlib.util
import inspect
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from lingraft.errors import RecipeError, nearest
from lingraft.measurement import Measurement
from lingraft.recipe import Choice, Recipe
from lingraft.run import Run, write_file

__all__ = ["metric_name", "refuse_unusable_trackers", "tracked"]

_PACKAGES = {"comet_ml": "comet-ml"}
"""Names under which a tracker's package is installed, where it is not the tracker's own."""
_EXTRAS = ("tensorboard", "wandb", "mlflow")
_MEMORY = "tracking.json"


def refuse_unusable_trackers(recipe: Recipe) -> None:
    """Raise a RecipeError when a tracker of ``track`` is unknown, not installed, given twice, or has no such option."""
    if not recipe.track:
        # accelerate imports torch, which a plan can do without.
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS as KNOWN

    for index, choice in enumerate(recipe.track):
        where, name = f"track.{index}", choice.name
        if name not in KNOWN:
            raise RecipeError(
                f"{where}: unknown tracker {name!r}{nearest(name, KNOWN)} (known: {', '.join(sorted(KNOWN))})"
            )
        if name in [earlier.name for earlier in recipe.track[:index]]:
            raise RecipeError(f"{where}: {name!r} is named twice")
        if importlib.util.find_spec(name) is None:
            extra = f"'lingraft[{name}]'" if name in _EXTRAS else _PACKAGES.get(name, name)
            raise RecipeError(f"{where}: {name!r} is not installed: pip install {extra}")
        _refuse_unknown_options(choice, inspect.signature(KNOWN[name].__init__).parameters, where)


def _refuse_unknown_options(choice: Choice, known: Mapping[str, inspect.Parameter], where: str) -> None:
    """Refuse an option that the tracker's class does not take; what it hands on to its library is not known here."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for option in choice.options:
        if option not in known:
            listed = ", ".join(name for name in known if name != "self")
            raise RecipeError(
                f"{where}.{option}: {choice.name!r} has no such option{nearest(option, known)} (options: {listed})"
            )


def metric_name(row: Measurement) -> str:
    """Return the name under which a tracker files a row: ``bits_per_byte/eu``, ``loss/en``, ``learning_rate``."""
    return f"{row.name}/{row.language}" if row.language else row.name


@contextlib.contextmanager
def tracked(run: Run, recipe: Recipe, note: Callable[[str], None]) -> Iterator[None]:
    """Send every row that is measured inside to the trackers of the recipe; the step is the number of training tokens.

    A run that goes on after a stop goes on in the tracker's run too, where the tracker knows such a thing (its id is
    kept in ``tracking.json``); rows made after the last checkpoint are sent again, with the same values.
    """
    spectators = [_Spectator(choice.name, note) for choice in recipe.track]
    for choice, spectator in zip(recipe.track, spectators, strict=True):
        spectator.attempt(lambda c=choice, s=spectator: s.start(run, recipe, c))  # type: ignore[misc]
        run.watch(spectator.see)
    try:
        yield
    finally:
        for spectator in spectators:
            run.unwatch(spectator.see)
            spectator.attempt(spectator.finish)


class _Spectator:
    """One tracker, whose failures are remarks."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        self._name = name
        self._note = note
        self._tracker: Any = None

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something with the tracker; if it fails, say so once and leave the tracker alone from there on."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever a spectator trips over, the run is not to suffer
            self._tracker = None
            self._note(f"the tracker {self._name} is switched off: {type(error).__name__}: {error}")

    def start(self, run: Run, recipe: Recipe, choice: Choice) -> None:
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        PartialState(cpu=True)  # accelerate's trackers ask it whether they are on the main process
        known = _remembered(run)
        is_new = choice.name not in known
        run_id = known.get(choice.name) or (None if choice.name == "mlflow" else uuid.uuid4().hex)
        tracker = LOGGER_TYPE_TO_CLASS[choice.name](**_arguments(run, recipe, choice, run_id))
        tracker.start()
        self._tracker = tracker
        if is_new:
            tracker.store_init_configuration(_flat(recipe.model_dump(mode="json")))
            run_id = tracker.tracker.info.run_id if choice.name == "mlflow" else run_id
            write_file(run.path(_MEMORY), json.dumps(known | {choice.name: run_id}, indent=1))

    def see(self, rows: Sequence[Measurement]) -> None:
        """Send rows on, those of one number of tokens together."""
        for tokens, group in groupby(rows, key=lambda row: row.tokens):
            values = {metric_name(row): row.value for row in group}
            if self._tracker is not None:
                self.attempt(lambda v=values, t=tokens: self._tracker.log(v, step=t))  # type: ignore[misc]

    def finish(self) -> None:
        if self._tracker is not None:
            self._tracker.finish()


def _remembered(run: Run) -> dict[str, str]:
    """Return tracker -> the id of its run; what cannot be read is as good as none."""
    try:
        return dict(json.loads(run.path(_MEMORY).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _arguments(run: Run, recipe: Recipe, choice: Choice, run_id: str | None) -> dict[str, Any]:
    """Return the arguments of a tracker's class: where it writes, what it is called, and what it goes on from."""
    folder = str(run.path("tracking"))
    ours: dict[str, dict[str, Any]] = {
        "mlflow": {"experiment_name": "lingraft", "run_name": recipe.name, "run_id": run_id},
        "wandb": {"run_name": "lingraft", "name": recipe.name, "id": run_id, "resume": "allow", "dir": folder},
        "trackio": {"run_name": "lingraft", "name": recipe.name, "resume": "allow"},
        "tensorboard": {"run_name": recipe.name, "logging_dir": folder},
    }
    return ours.get(choice.name, {"run_name": recipe.name}) | choice.options


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values under dotted names, lists as text: trackers keep plain values only."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | bool):
            found[prefix + name] = value
        elif value is not None:
            found[prefix + name] = json.dumps(value, ensure_ascii=False)
    return found
