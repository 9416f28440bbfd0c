"""The tasks that a language is judged by by default."""

import pytest

from lingraft.errors import RecipeError
from lingraft.measure.tasks.loading import known_tasks
from lingraft.measure.tasks.sets import TASK_SETS, tasks_of_set


def test_every_task_of_every_set_is_one_of_lm_evals() -> None:
    known = known_tasks(None)
    assert [name for tasks in TASK_SETS.values() for name, _ in tasks if name not in known] == []


def test_shots_are_those_of_the_paper() -> None:
    assert dict(tasks_of_set("set:eu", "x")) == {
        "eus_trivia": 5,
        "eus_proficiency": 5,
        "eus_exams_eu": 5,
        "eus_reading": 1,
        "belebele_eus_Latn": 5,
        "xstorycloze_eu": 0,
        "xnli_eu": 0,
    }


def test_an_unknown_set_names_those_there_are() -> None:
    with pytest.raises(RecipeError, match=r"measure\.tasks\.0: no set of tasks is named 'set:ez'.*set:eu"):
        tasks_of_set("set:ez", "measure.tasks.0")
