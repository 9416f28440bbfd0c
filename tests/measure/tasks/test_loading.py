"""Hostile folders: each fault is one error that names file or item, before any model is asked."""

import json
from pathlib import Path

import pytest

pytest.importorskip("lm_eval")

from lingraft.errors import MeasurementError
from lingraft.measure.tasks.loading import load_tasks
from lingraft.measure.tasks.order import TaskOrder
from lingraft.measure.tasks.running import run_tasks

TASK = """\
task: t
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{c}}"
doc_to_target: "{{a}}"
"""
GOOD = {"q": "Which", "c": ["x", "y"], "a": 1}


def write(folder: Path, *rows: object, yaml: str = TASK, **files: str) -> Path:
    """Write a task with its rows, and other YAML files."""
    (folder / "t.yaml").write_text(yaml, newline="")
    lines = "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)
    (folder / "t.test.jsonl").write_text(lines)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def refused(folder: Path, name: str = "t") -> str:
    with pytest.raises(MeasurementError) as caught:
        load_tasks(TaskOrder(name, folder=folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"c": []}, "its answers are []; each is a text that is not empty"),
        ({"c": ["", "y"]}, "its answers are ['', 'y']"),
        ({"a": 7}, "its right answer is '7', which is none of the places 0 to 1"),
        ({"a": -1}, "its right answer is '-1'"),
        ({"a": None}, "item 1: its field 'a', which doc_to_target is made of, is missing or null"),
        ({"q": None}, "item 1: its field 'q', which doc_to_text is made of, is missing or null"),
    ],
)
def test_an_item_that_no_model_could_get_right_is_refused(tmp_path: Path, row: dict, message: str) -> None:
    """Counted as the model's error it would lower the score without a word."""
    told = refused(write(tmp_path, GOOD, GOOD | row, yaml=TASK.replace('"{{a}}"', "a") if "a" in row else TASK))
    assert message in told


def test_a_field_that_only_some_items_have_may_be_asked_for(tmp_path: Path) -> None:
    asks = TASK.replace("{{q}}", "{% if hint %}{{hint}} {% endif %}{{hint or ''}}{{hint | default('', true)}}{{q}}")
    folder = write(tmp_path, GOOD | {"hint": "h"}, GOOD, yaml=asks)
    assert asks != TASK
    (loaded,) = load_tasks(TaskOrder("t", folder=folder))
    assert len(loaded.items) == 2


def test_an_answer_that_is_none_of_the_choices_is_refused(tmp_path: Path) -> None:
    assert "its right answer is 'w', which is none of" in refused(write(tmp_path, GOOD | {"a": "w"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("task: t\n", "task: t\n  bad: [1,\n"), "t.yaml:2: not YAML: mapping values are not allowed here"),
        (("task: t\n", "task: t\nx: \0\n"), "t.yaml: not YAML: unacceptable character #x0000"),
        (("task: t\n", "task: t\ninclude: gone\n"), "gone: cannot be read: No such file"),
        (("task: t\n", "task: t\ninclude: t.yaml\n"), "t.yaml: the file includes itself"),
        (("output_type: multiple_choice\n", ""), "states no output_type"),
        (("test_split: test\n", ""), "neither a test_split nor a validation_split"),
        (("multiple_choice", "multiple_chioce"), "Got invalid output_type 'multiple_chioce'"),
        (("task: t\n", "task: t\nnum_fewshot: -1\n"), "num_fewshot is a number from 0 on, not -1"),
        (("task: t\n", "task: t\ndataset_kwargs: [1]\n"), "dataset_kwargs is a mapping"),
        (("task: t\n", "task: t\nmetric_list: [{metric: accc}]\n"), "named 'accc', did you mean 'acc'?"),
        (
            ("task: t\n", "task: t\nmetric_list: [{metric: acc, hf_evaluate: true}]\n"),
            "whose code would come from a hub",
        ),
        (("{{q}}", "{{ q "), "TemplateSyntaxError"),
        (("{{q}}", "{{ other }}"), "tried on its first item {'q': 'Which'"),
        (("{{q}}", "{{ 1 / 0 }}"), "ZeroDivisionError"),
    ],
)
def test_a_fault_of_the_file_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert message in refused(write(tmp_path, GOOD, yaml=TASK.replace(*change)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[" * 100_000, "t.test.jsonl:2: not JSON that can be read"),
        ('{"q": "x", "c": ["y"], "a": ' + "9" * 5000 + "}", "t.test.jsonl:2: not JSON that can be read"),
        ('{"q": "\\ud800", "c": ["x", "y"], "a": 0}', "surrogates not allowed"),
        ({"q": 1, "c": "y", "a": "1"}, "do not agree in a field's type"),
    ],
)
def test_a_fault_of_the_data_is_named(tmp_path: Path, row: object, message: str) -> None:
    assert message in refused(write(tmp_path, GOOD, row))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("[t, gone]", "no task can be read that is named 'gone' (group 'g' names it)"),
        ("[t, g]", "the group 'g' is a member of itself"),
        ("[]", "the group 'g' has no tasks"),
        ("[{task: t, num_fewshot: 1}]", "what is set for one goes into its own file"),
        ("[{group: h, task: [t]}]", "a member is the name of a task of the folder"),
    ],
)
def test_a_fault_of_a_group_is_named(tmp_path: Path, group: str, message: str) -> None:
    assert message in refused(write(tmp_path, GOOD, g=f"group: g\ntask: {group}\n"), "g")


def test_a_name_that_two_files_state_is_refused(tmp_path: Path) -> None:
    assert "'t' is stated twice: in " in refused(write(tmp_path, GOOD, second=TASK.replace("{{q}}", "other {{q}}")))


def test_a_broken_file_beside_a_task_does_not_concern_it(tmp_path: Path) -> None:
    (task,) = load_tasks(TaskOrder("t", folder=write(tmp_path, GOOD, other="a: [\n")))
    assert len(task.items) == 1


def test_a_mark_of_byte_order_is_no_part_of_a_name(tmp_path: Path) -> None:
    (task,) = load_tasks(TaskOrder("t", folder=write(tmp_path, GOOD, yaml="\ufeff" + TASK)))
    assert task.name == "t"


def test_odd_text_is_asked_as_it_is(tmp_path: Path, adapter) -> None:
    rows = [{"q": "a\0b", "c": ["x\0", "y"], "a": 0}, {"q": "👩‍👩‍👧 \u202e", "c": ["🙂", "y"], "a": 0}]
    (result,) = run_tasks(load_tasks(TaskOrder("t", folder=write(tmp_path, *rows))), adapter)
    assert [request.args for request in result.loaded.items[0].requests] == [("a\0b", " x\0"), ("a\0b", " y")]
    assert [item.scores["gold_tokens"] >= 1 for item in result.items] == [True, True]


def test_several_right_answers_are_each_right(tmp_path: Path, adapter) -> None:
    text = TASK.replace('"{{a}}"', "a")
    rows = [{"q": "x", "c": ["y", "z", "w"], "a": [0, 2]}, {"q": "x", "c": ["w", "z", "y"], "a": [0, 1, 2]}]
    (result,) = run_tasks(load_tasks(TaskOrder("t", folder=write(tmp_path, *rows, yaml=text))), adapter)
    assert result.items[1].scores["acc"] == 1.0


def test_a_text_without_bytes_is_an_error_and_not_infinite(tmp_path: Path, adapter) -> None:
    text = """\
task: t
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}}"
metric_list: [{metric: bits_per_byte}]
"""
    tasks = load_tasks(TaskOrder("t", folder=write(tmp_path, {"q": ""}, yaml=text)))
    with pytest.raises(MeasurementError, match="task 't': bits_per_byte of its items cannot be had: ZeroDivisionError"):
        run_tasks(tasks, adapter)
