"""The user's copy of the benchmark's own items, in every layout that is taken."""

import json
from pathlib import Path

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.probes import ProbeContext, copain, questions_of
from lingraft.measure.probes.copain_original import SUBSETS, original_items

NUMBERS = [
    {"input": "3, 1, 2", "output": "1"},
    {"input": "7, 9, 8", "output": "7"},
    {"input": "5, 6, 4", "output": "4"},
]
LETTERS = [
    {"input": "b, a, c", "output": "a"},
    {"input": "x, z, y", "output": "x"},
    {"input": "m, n, o", "output": "m"},
]


def write(folder: Path, changed: dict[str, list[dict]] | None = None) -> str:
    for task, subset in SUBSETS.items():
        rows = (changed or {}).get(task, LETTERS if "letter" in task else NUMBERS)
        (folder / subset).mkdir()
        lines = [json.dumps(row) for row in rows]
        (folder / subset / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder)


def test_lists_get_demonstrations_of_other_items(tmp_path: Path) -> None:
    items = original_items(write(tmp_path), shots=2, seed=0)["min"]
    assert [(i.members, i.answer) for i in items] == [
        (("3", "1", "2"), "1"),
        (("7", "9", "8"), "7"),
        (("5", "6", "4"), "4"),
    ]
    asked = items[0].question("min", "0", "arrow")
    assert sorted(asked.prompt.split("\n")) == ["3, 1, 2 ->", "5, 6, 4 -> 4", "7, 9, 8 -> 7"]
    assert (asked.choices, asked.answer) == ((" 3", " 1", " 2"), " 1")


@pytest.mark.parametrize(
    ("row", "prompt", "members"),
    [
        ({"question": [31, 10], "answer": 10}, None, ("31", "10")),
        ({"text": "q b", "label": " b ", "id": 4}, None, ("q", "b")),
        ({"prompt": "1, 2 -> 1\n4, 3 ->", "target": "3"}, "1, 2 -> 1\n4, 3 ->", ("4", "3")),
        ({"prompt": "1, 2 -> 1\n4, 3", "target": "3"}, "1, 2 -> 1\n4, 3 ->", ("4", "3")),
        ({"prompt": "Input: 4, 3\nOutput: ", "target": "3", "choices": [4, 3]}, "Input: 4, 3\nOutput:", ("4", "3")),
    ],
)
def test_columns_and_prompts_that_are_taken(tmp_path: Path, row: dict, prompt: str | None, members: tuple) -> None:
    other = {next(iter(row)): "5, 6", "answer" if "answer" in row else list(row)[1]: "5"}
    item = original_items(write(tmp_path, {"min": [row, other]}), shots=0, seed=0)["min"][0]
    assert (item.prompt, item.members) == (prompt, members)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": "1, 2", "outptu": "1"}, r"test.jsonl:2: the column 'outptu' is not one .*did you mean 'output'"),
        ({"input": "1, 2"}, r"one column holds the answer \(output, answer, .*found none of its names"),
        ({"input": "1, 2", "prompt": "1, 2", "output": "1"}, "one column holds the question .*found input and prompt"),
        ({"input": "1, 2", "output": "3"}, "the answer '3' is no member of the list '1, 2'"),
        (["1, 2", "3"], "a row is an object with columns"),
    ],
)
def test_rows_that_cannot_be_understood_are_refused_by_file_and_line(tmp_path: Path, row: object, message: str) -> None:
    folder = write(tmp_path, {"max": [NUMBERS[0], row, *NUMBERS]})
    with pytest.raises(MeasurementError, match=message):
        original_items(folder, shots=2, seed=0)


def test_a_line_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = Path(write(tmp_path)) / SUBSETS["median"] / "test.jsonl"
    path.write_text('{"input": 3\n', encoding="utf-8")
    with pytest.raises(MeasurementError, match=r"median_integer_in_list/test.jsonl:1: not JSON"):
        original_items(str(tmp_path), shots=0, seed=0)


def test_a_missing_file_names_all_that_are_needed(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (tmp_path / SUBSETS["median"] / "test.jsonl").unlink()
    with pytest.raises(MeasurementError, match=r"no such file .*min_integer_in_list, .*last_character_in_list"):
        original_items(folder, shots=0, seed=0)


def test_too_few_items_for_the_demonstrations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="3 items are too few for 3 demonstrations"):
        original_items(write(tmp_path), shots=3, seed=0)


def test_the_probe_asks_them_and_says_so(tmp_path: Path, guesser) -> None:
    folder = write(tmp_path)
    options = {"shots": 2, "templates": "arrow", "original": folder}
    found = {s.name: s for s in copain(ProbeContext(None, None, answerer=guesser), **options).scores}
    assert found["original_items"].value == 1
    assert (found["exact_match"].count, found["min/exact_match"].count) == (21, 3)
    asked = questions_of(lambda context: copain(context, **options))
    assert {q.answer for q in asked if q.task == "first_letter"} == {" a", " x", " m"}
