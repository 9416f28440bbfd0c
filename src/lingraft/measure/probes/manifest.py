"""The items of a probe as text, and what proves that two machines have the same ones."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lingraft.measure.answering import Question

__all__ = ["item_lines", "items_manifest"]


def item_lines(questions: Iterable[Question]) -> Iterator[str]:
    """Yield each question as one line of JSON, byte for byte the same on every machine."""
    for question in questions:
        row = {
            "task": question.task,
            "item": question.item,
            "prompt": question.prompt,
            "choices": list(question.choices),
            "answer": question.answer,
        }
        yield json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n"


def items_manifest(probe: str, options: Mapping[str, Any], questions: Iterable[Question]) -> dict[str, Any]:
    """Return how many items each task has, what choosing at random scores there, and the SHA-256 of its lines.

    The value is plain: it becomes equal JSON wherever it is made.
    """
    by_task: dict[str, list[Question]] = {}
    for question in questions:
        by_task.setdefault(question.task, []).append(question)
    tasks = {
        task: {
            "items": len(asked),
            "chance": round(sum(1 / len(question.choices) for question in asked) / len(asked), 6),
            "sha256": hashlib.sha256("".join(item_lines(asked)).encode()).hexdigest(),
        }
        for task, asked in by_task.items()
    }
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in sorted(options.items())}
    return {"probe": probe, "options": plain, "items": sum(map(len, by_task.values())), "tasks": tasks}
