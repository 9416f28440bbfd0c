"""Tasks of a recipe: sets, folders, names, and what is refused before anything is trained."""

import importlib.util
import json
from pathlib import Path

import pytest

from lingraft.errors import MeasurementError, MissingExtraError, RecipeError
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.task_plan import loaded_tasks, refuse_unusable_tasks, task_orders, tasks_digest

pytest.importorskip("lm_eval")


@pytest.fixture
def folder(choice_tasks: Path) -> Path:
    """Two tasks of six items in a folder beside the recipe."""
    return choice_tasks


def test_a_set_is_its_tasks_with_their_shots(make_recipe) -> None:
    orders = task_orders(make_recipe("measure.tasks=[set:ar, {name: piqa, label: en-piqa, shots: 2}]"))
    told = [(order.name, order.filed_as, order.shots, order.language) for order in orders]
    assert told[0] == ("arabicmmlu", "arabicmmlu", 5, "ar")
    assert told[-1] == ("piqa", "en-piqa", 2, None)
    assert len(told) == 5


def test_a_folder_is_seen_from_the_recipe_and_everything_in_it_is_read(make_recipe, recipe_path, folder) -> None:
    text = recipe_path.read_text() + (
        "measure: {tasks_folder: tasks, tasks: [colours, {name: numbers, folder: ./tasks, shots: 1, items: 4}]}\n"
    )
    recipe_path.write_text(text)
    recipe = make_recipe()
    assert [order.folder for order in task_orders(recipe)] == [folder, folder]
    refuse_unusable_tasks(recipe)
    tasks = [task for order in task_orders(recipe) for task in loaded_tasks(order, recipe.seed)]
    assert [(task.name, len(task.items), task.record["shots"]) for task in tasks] == [
        ("colours", 6, 0),
        ("numbers", 4, 1),
    ]
    before = tasks_digest(recipe)
    (folder / "colours.test.jsonl").write_text('{"question": "?", "options": ["x", "y"], "answer": 1}\n')
    assert tasks_digest(recipe).keys() == before.keys()
    assert tasks_digest(recipe) != before
    assert len(loaded_tasks(task_orders(recipe)[0], recipe.seed)[0].items) == 1


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("[colors]", r"measure\.tasks: no YAML file in .*tasks states a task 'colors', did you mean 'colours'\?"),
        ("[colours, colours]", r"measure\.tasks\.1: 'colours' is there already"),
        ("[set:xx]", r"measure\.tasks\.0: no set of tasks is named 'set:xx'"),
        ("[{name: colours, folder: gone}]", r"there is no folder gone"),
    ],
)
def test_unknown_tasks_are_refused_with_the_nearest_name(make_recipe, folder, tasks: str, message: str) -> None:
    recipe = make_recipe(f"measure.tasks_folder={folder}", f"measure.tasks={tasks}")
    with pytest.raises(RecipeError, match=message):
        make_plan(recipe)


def test_lm_evals_own_names_are_known_without_a_hub(make_recipe) -> None:
    refuse_unusable_tasks(make_recipe("measure.tasks=[set:eu, set:en]"))
    with pytest.raises(RecipeError, match="lm-eval has no task, group or tag 'xstorycloze_eus', did you mean 'xstory"):
        make_plan(make_recipe("measure.tasks=[xstorycloze_eus]"))


def test_without_lm_eval_the_plan_says_what_to_install(make_recipe, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "lm_eval" else find(name, *rest)
    )
    with pytest.raises(MissingExtraError, match=r"measure\.tasks: .*pip install 'lingraft\[eval\]'"):
        make_plan(make_recipe("measure.tasks=[piqa]"))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{name: colours, labels: [1, 2, 3]}", "has 2 labels"),
        ("{name: colours, shots: 6}", "6 demonstrations are asked for, and there are 5 other items"),
        ("{name: colours, cluster: passage}", "items have no field 'passage'"),
    ],
)
def test_what_does_not_fit_a_task_is_refused_by_the_plan(make_recipe, folder, entry: str, message: str) -> None:
    recipe = make_recipe(f"measure.tasks_folder={folder}", f"measure.tasks=[{entry.replace('[1, 2, 3]', '[a, b, c]')}]")
    with pytest.raises(MeasurementError, match=message):
        make_plan(recipe)


def test_a_missing_file_of_a_task_is_refused_by_the_plan(make_recipe, folder) -> None:
    (folder / "colours.test.jsonl").unlink()
    with pytest.raises(MeasurementError, match=r"no data for its split 'test': there is no .*colours\.test\.jsonl"):
        make_plan(make_recipe(f"measure.tasks_folder={folder}", "measure.tasks=[colours]"))


def test_an_answer_that_the_base_could_not_be_asked_is_refused_by_the_plan(make_recipe, folder) -> None:
    text = (folder / "colours.yaml").read_text().replace('["A", "B"]', '"{{options}}"')
    (folder / "colours.yaml").write_text(text)
    row = {"question": "?", "options": ["x", "night " * 3000], "answer": 1}
    (folder / "colours.test.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(MeasurementError, match=r"task 'colours', item \w+: an answer .*; the model sees \d+ at once"):
        make_plan(make_recipe(f"measure.tasks_folder={folder}", "measure.tasks=[colours]"))


def test_code_of_a_folder_is_refused_by_the_plan_and_allowed_by_the_recipe(make_recipe, folder) -> None:
    text = (folder / "colours.yaml").read_text()
    (folder / "colours.yaml").write_text(text + "process_docs: !function own.keep\n")
    (folder / "own.py").write_text("def keep(rows):\n    return rows\n")
    told = (f"measure.tasks_folder={folder}", "measure.tasks=[colours]")
    with pytest.raises(MeasurementError, match=r"names the Python function 'own\.keep'.*measure\.tasks_code: true"):
        make_plan(make_recipe(*told))
    refuse_unusable_tasks(make_recipe(*told, "measure.tasks_code=true"))


def test_a_set_takes_no_settings_of_single_tasks(make_recipe) -> None:
    with pytest.raises(RecipeError, match="shots is each task's own; name the tasks of set:eu one by one"):
        make_recipe("measure.tasks=[{name: set:eu, shots: 3}]")
