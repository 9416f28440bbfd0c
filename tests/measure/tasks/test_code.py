"""Code in folders of tasks: none of it runs unless that is asked for."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("lm_eval")

import lm_eval.tasks

from lingraft.errors import MeasurementError
from lingraft.measure.tasks.code import named_functions
from lingraft.measure.tasks.loading import load_tasks
from lingraft.measure.tasks.order import TaskOrder

TASK = """\
task: t
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: ["x", "y"]
doc_to_target: 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task of one item; ``own.py`` beside it leaves a file behind when it is imported."""
    (tmp_path / "t.yaml").write_text(TASK)
    (tmp_path / "t.test.jsonl").write_text(json.dumps({"q": "x?"}) + "\n")
    mark = tmp_path / "ran"
    (tmp_path / "own.py").write_text(
        f"open({str(mark)!r}, 'w').close()\ndef ask(doc):\n    return 'asked ' + doc['q']\n"
    )
    return tmp_path


def load(folder: Path, *, code: bool = False):
    return load_tasks(TaskOrder("t", folder=folder, code=code))


@pytest.mark.parametrize("included", [False, True])
def test_a_function_of_a_folder_runs_only_where_that_is_said(folder: Path, included: bool) -> None:
    text = TASK.replace('"{{q}}"', "!function own.ask")
    if included:
        (folder / "shared").write_text(text.replace("task: t\n", ""))
        text = "include: shared\ntask: t\n"
    (folder / "t.yaml").write_text(text)
    with pytest.raises(
        MeasurementError, match=r"names the Python function 'own\.ask', which would be run.*--tasks-code"
    ):
        load(folder)
    assert not (folder / "ran").exists()
    (task,) = load(folder, code=True)
    assert task.items[0].requests[0].args[0] == "asked x?"
    assert (folder / "ran").exists()


@pytest.mark.parametrize("place", ["process_docs: !function os.system", "class: !function own.Task"])
def test_functions_from_anywhere_are_refused(folder: Path, place: str) -> None:
    (folder / "t.yaml").write_text(TASK + place + "\n")
    with pytest.raises(MeasurementError, match="names the Python function"):
        load(folder)
    assert not (folder / "ran").exists()


def test_a_file_of_lm_evals_own_may_be_copied_with_its_functions(folder: Path) -> None:
    own = Path(lm_eval.tasks.__file__).parent / "eus_trivia"
    for name in ("eus_trivia.yaml", "utils.py"):
        shutil.copy(own / name, folder)
    assert {name for _, name in named_functions(folder / "eus_trivia.yaml")} == {
        "utils.doc_to_text",
        "utils.doc_to_choice",
    }
    row = {"question": "Zein?", "candidates": ["bat", "bi"], "answer": 1}
    (folder / "eus_trivia.test.jsonl").write_text(json.dumps(row) + "\n")
    (task,) = load_tasks(TaskOrder("eus_trivia", folder=folder))
    assert len(task.items[0].requests) == 2
    with (folder / "utils.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(MeasurementError, match=r"names the Python function 'utils\.doc_to_"):
        load_tasks(TaskOrder("eus_trivia", folder=folder))


def test_a_template_reaches_nothing_but_the_item(folder: Path) -> None:
    mark = folder / "ran"
    template = f"{{{{ cycler.__init__.__globals__.os.popen('touch {mark}').read() }}}}"
    (folder / "t.yaml").write_text(TASK.replace("{{q}}", template))
    with pytest.raises(MeasurementError, match="SecurityError: access to attribute '__init__'"):
        load(folder, code=True)
    assert not mark.exists()


def test_a_python_tag_constructs_nothing(folder: Path) -> None:
    (folder / "t.yaml").write_text(f"{TASK}x: !!python/object/apply:os.system ['touch {folder / 'ran'}']\n")
    with pytest.raises(MeasurementError, match=r"t\.yaml: task 't' cannot be built: ConstructorError"):
        load(folder, code=True)
    assert not (folder / "ran").exists()
