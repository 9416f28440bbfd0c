"""What a task was asked with: kept with a run's results, and looked at before two runs are compared.

Two versions of one harness have given 8.8 and 13.0 for the same model and text, so the versions are part of it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lingraft.errors import MeasurementError

__all__ = ["read_task_records", "record_path", "task_conditions"]

_BASE = "base_tasks.json"
_DECIDING = {
    "lm_eval": "version of lm-eval",
    "task_version": "version of the task",
    "shots": "number of demonstrations",
    "prompt_language": "language of the prompt",
    "labels": "names of the options",
    "asked_sha256": "items and prompts",
}


def record_path(run_folder: Path, stage: str, tokens: int, *, averaged: bool = False) -> Path:
    """Return the file that tells what was asked at one moment of a run."""
    if stage == "base":
        return run_folder / _BASE
    return run_folder / "tasks" / f"{stage}-{tokens}{'-averaged' if averaged else ''}.json"


def read_task_records(path: Path) -> list[dict[str, Any]]:
    """Return what a file of :func:`record_path` tells of each task; nothing where there is no file.

    Raises:
        MeasurementError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise MeasurementError(f"{path}: not a record of tasks that can be read: {error}") from error
    if not isinstance(found, list) or not all(isinstance(one, dict) and "filed_as" in one for one in found):
        raise MeasurementError(f"{path}: not a list of records of tasks, each with the name it is filed as")
    records: list[dict[str, Any]] = [one | {"filed_as": str(one["filed_as"])} for one in found]
    return records


def task_conditions(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each task, ``task/NAME`` or ``task/NAME/LANGUAGE``, what must be the same wherever it is compared.

    Of a group, items and prompts of all its tasks count.
    """
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        language = record.get("language")
        key = f"task/{record['filed_as'].partition('/')[0]}" + (f"/{language}" if language else "")
        told = found.setdefault(key, {})
        for name, words in _DECIDING.items():
            value = record.get(name)
            short = str(value)[:8] if name == "asked_sha256" else value
            told[words] = f"{told[words]} {short}" if name == "asked_sha256" and words in told else short
    return found
