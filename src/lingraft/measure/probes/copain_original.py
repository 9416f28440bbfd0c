"""The user's copy of the benchmark's own items: the data set ``ahmedselhady/CoPain`` of arXiv 2506.00288.

A folder with a folder for each of seven tasks and a ``test.jsonl`` in it. What its columns are called is not known to
us, so a few names are taken for each (:data:`COLUMNS`), and any other is refused by its name.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lingraft.errors import MeasurementError, nearest
from lingraft.measure.items import ItemStream
from lingraft.measure.probes.list_item import ListItem

__all__ = ["COLUMNS", "SUBSETS", "original_items"]

SUBSETS = {
    "min": "min_integer_in_list",
    "max": "max_integer_in_list",
    "median": "median_integer_in_list",
    "odd_in_even": "odd_integer_in_even_group",
    "even_in_odd": "even_integer_in_odd_group",
    "first_letter": "first_character_in_list",
    "last_letter": "last_character_in_list",
}
"""Our name of a task → the folder with its items."""

COLUMNS = {
    "question": ("input", "question", "prompt", "query", "text", "list"),
    "answer": ("output", "answer", "target", "label", "completion"),
    "choices": ("choices", "options", "candidates"),
    "id": ("id", "idx", "index"),
}
"""What a row may hold, under which names: one question and one answer; choices and an id may be absent."""

_MEMBER = re.compile(r"-?\d+|(?<!\w)[^\W\d_](?!\w)")
_BEGINS_AN_ANSWER = ("->", "=>", ":", "=")


def original_items(folder: str, *, shots: int, seed: int) -> dict[str, list[ListItem]]:
    """Return the items of each task.

    A question is a list, as JSON or as text, or a whole prompt: one of several lines, or one that ends in an arrow, a
    colon or an equals sign, is asked as it stands. Other questions get ``shots`` demonstrations from the task's other
    items. The members of a list are its choices if given, or the numbers and single letters of its last line.

    Raises:
        MeasurementError: a file is missing or empty, a line is no object, a column is missing, double or unknown, or an
            answer is no member; the message names file and line.
    """
    root = Path(folder)
    found = {}
    for task, subset in SUBSETS.items():
        path = root / subset / "test.jsonl"
        if not path.is_file():
            wanted = ", ".join(SUBSETS.values())
            raise MeasurementError(f"{path}: there is no such file (a folder with test.jsonl is needed for: {wanted})")
        rows = [_read(f"{path}:{n}", line) for n, line in enumerate(path.read_text("utf-8").splitlines(), 1) if line]
        if len(rows) <= shots:
            raise MeasurementError(f"{path}: {len(rows)} items are too few for {shots} demonstrations of other items")
        found[task] = [_with_demonstrations(rows, n, ("copain_original", seed, task, shots)) for n in range(len(rows))]
    return found


def _read(where: str, line: str) -> ListItem:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise MeasurementError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise MeasurementError(f"{where}: a row is an object with columns, not {line[:40]!r}")
    _refuse_unknown_columns(where, row)
    question, answer = (row[_column(where, row, kind)] for kind in ("question", "answer"))
    named = [name for name in COLUMNS["choices"] if name in row]
    listed = row[named[0]] if named else question
    members = tuple(map(str, listed)) if isinstance(listed, list) else _members(str(listed))
    text = str(answer).strip()
    if text not in members:
        raise MeasurementError(f"{where}: the answer {text!r} is no member of the list {', '.join(members)!r}")
    is_prompt = isinstance(question, str) and ("\n" in question.strip() or _begins_an_answer(question))
    prompt = question.rstrip() if is_prompt else None
    if prompt is not None and not _begins_an_answer(prompt):
        prompt += " ->"
    return ListItem((), members, text, prompt)


def _begins_an_answer(question: str) -> bool:
    return question.rstrip().endswith(_BEGINS_AN_ANSWER)


def _members(question: str) -> tuple[str, ...]:
    return tuple(_MEMBER.findall(question.strip().splitlines()[-1] if question.strip() else ""))


def _refuse_unknown_columns(where: str, row: Mapping[str, Any]) -> None:
    known = [name for names in COLUMNS.values() for name in names]
    for name in row:
        if name not in known:
            raise MeasurementError(
                f"{where}: the column {name!r} is not one that is known{nearest(name, known)} ("
                + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in COLUMNS.items())
                + "); rename it, or leave it out"
            )


def _column(where: str, row: Mapping[str, Any], kind: str) -> str:
    named = [name for name in COLUMNS[kind] if name in row]
    if len(named) != 1:
        listed = " and ".join(named) or "none of its names"
        raise MeasurementError(f"{where}: one column holds the {kind} ({', '.join(COLUMNS[kind])}); found {listed}")
    return named[0]


def _with_demonstrations(rows: list[ListItem], index: int, key: tuple[str | int, ...]) -> ListItem:
    item = rows[index]
    if item.prompt is not None:
        return item
    others = [other for n, other in enumerate(rows) if n != index and other.members != item.members]
    drawn = ItemStream(*key, index).sample(others, key[-1] if isinstance(key[-1], int) else 0)
    return ListItem(tuple((other.members, other.answer) for other in drawn), item.members, item.answer)
