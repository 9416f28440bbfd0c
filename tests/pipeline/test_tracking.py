"""Trackers see every row and can hurt nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from accelerate import tracking as accelerate_tracking
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lingraft import adapt
from lingraft.errors import RecipeError
from lingraft.measurement import Measurement
from lingraft.pipeline.tracking import metric_name, refuse_unusable_trackers, tracked
from lingraft.recipe import Choice, Recipe
from lingraft.recipe_file import load_recipe
from lingraft.run import Run

ROWS = [
    Measurement("first", 100, "learning_rate", 0.5),
    Measurement("first", 100, "loss", 2.0, "eu"),
    Measurement("first", 200, "loss", 1.5, "eu"),
]


@pytest.fixture
def recipe(recipe_path: Path) -> Recipe:
    return load_recipe(recipe_path)


def watched(recipe: Recipe, *choices: dict[str, Any] | str) -> Recipe:
    return recipe.model_copy(update={"track": tuple(Choice.model_validate(choice) for choice in choices)})


class _Recorder:
    """A tracker that keeps what it is told, and fails where it is asked to."""

    told: list[Any]
    name = "tensorboard"

    def __init__(self, run_name: str, logging_dir: str, fails: str = "") -> None:
        self.fails = fails
        self.told.append(("made", run_name))

    def _tell(self, what: str, *values: Any) -> None:
        if what == self.fails:
            raise OSError(f"no network for {what}")
        self.told.append((what, *values))

    def start(self) -> None:
        self._tell("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._tell("configuration", values)

    def log(self, values: dict[str, float], step: int) -> None:
        self._tell("log", step, values)

    def finish(self) -> None:
        self._tell("finish")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[_Recorder]:
    monkeypatch.setattr(_Recorder, "told", [], raising=False)
    monkeypatch.setitem(accelerate_tracking.LOGGER_TYPE_TO_CLASS, "tensorboard", _Recorder)
    return _Recorder


def test_rows_are_sent_by_tokens_and_language(tmp_path: Path, recipe: Recipe, recorder: type[_Recorder]) -> None:
    with Run(tmp_path / "run") as run, tracked(run, watched(recipe, "tensorboard"), pytest.fail):
        run.measure(ROWS)
    assert [entry for entry in recorder.told if entry[0] == "log"] == [
        ("log", 100, {"learning_rate": 0.5, "loss/eu": 2.0}),
        ("log", 200, {"loss/eu": 1.5}),
    ]
    assert recorder.told[-1] == ("finish",)
    configuration = next(entry[1] for entry in recorder.told if entry[0] == "configuration")
    assert configuration["languages.target"] == "eu"
    assert all(isinstance(value, str | int | float | bool) for value in configuration.values())
    assert run.measurements() == ROWS


def test_a_run_that_goes_on_stores_its_configuration_once(
    tmp_path: Path, recipe: Recipe, recorder: type[_Recorder]
) -> None:
    for _ in range(2):
        with Run(tmp_path / "run") as run, tracked(run, watched(recipe, "tensorboard"), pytest.fail):
            run.adopt(recipe)
            run.measure(ROWS[:1])
    assert [entry[0] for entry in recorder.told].count("configuration") == 1
    assert json.loads((tmp_path / "run" / "tracking.json").read_text()).keys() == {"tensorboard"}


@pytest.mark.parametrize("fails", ["start", "configuration", "log", "finish"])
def test_a_tracker_that_fails_is_named_once_and_the_rows_are_kept(
    tmp_path: Path, recipe: Recipe, recorder: type[_Recorder], fails: str
) -> None:
    notes: list[str] = []
    choice = {"name": "tensorboard", "fails": fails}
    with Run(tmp_path / "run") as run, tracked(run, watched(recipe, choice), notes.append):
        run.measure(ROWS[:2])
        run.measure(ROWS[2:])
    assert notes == [f"the tracker tensorboard is switched off: OSError: no network for {fails}"]
    assert run.measurements() == ROWS


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (["tensorbord"], "track.0: unknown tracker 'tensorbord', did you mean 'tensorboard'?"),
        (["tensorboard", "tensorboard"], "track.1: 'tensorboard' is named twice"),
        (["swanlab"], "pip install swanlab"),
    ],
)
def test_unusable_trackers_are_refused(recipe: Recipe, choices: list[Any], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        refuse_unusable_trackers(watched(recipe, *choices))
    assert message in str(error.value)


def test_an_option_that_a_tracker_does_not_have_is_refused(recipe: Recipe, recorder: type[_Recorder]) -> None:
    choice = {"name": "tensorboard", "failz": "x"}
    with pytest.raises(RecipeError, match=r"track\.0\.failz: 'tensorboard' has no such option, did you mean 'fails'"):
        refuse_unusable_trackers(watched(recipe, choice))


def test_metric_names() -> None:
    assert [metric_name(row) for row in ROWS[:2]] == ["learning_rate", "loss/eu"]


def test_tensorboard_holds_what_a_run_measured(tmp_path: Path, recipe: Recipe) -> None:
    run = adapt(watched(recipe, "tensorboard"), tmp_path / "run", until="measure-base")
    events = EventAccumulator(str(tmp_path / "run" / "tracking" / recipe.name)).Reload()
    stored = {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
    expected = {metric_name(row): row.value for row in run.measurements()}
    assert {name: pytest.approx(value) for name, value in expected.items()} == stored
    # Another tracker may watch the run tomorrow; everything else of the recipe stays fixed.
    adapt(recipe, tmp_path / "run", until="measure-base")
