"""Builds lm-eval's task objects: from a folder of files, or by name from those that lm-eval brings, with data of a hub.

A task may bring Python code of its own (``!function`` in its YAML file), which lm-eval runs: take folders from people
whose code you would run.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lingraft.errors import MeasurementError, MissingExtraError, nearest
from lingraft.measure.tasks.adapter import quiet_harness
from lingraft.measure.tasks.files import SPLITS, read_splits, yaml_names
from lingraft.measure.tasks.order import TaskOrder
from lingraft.measure.tasks.prompting import HashedShots, item_name, prompt_changes

try:
    from datasets import Dataset
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml
except ImportError as error:
    raise MissingExtraError("running downstream tasks", "eval") from error

__all__ = ["AskedItem", "LoadedTask", "known_tasks", "load_tasks"]

_FETCHED = (
    "fetch its data where a hub is reachable, put them with the task's YAML file into a folder, and name the folder"
)
_STRUCTURE = ("tag", "group", "task_list")
_PASSAGES = ("flores_passage", "passage", "context", "article")


@dataclass
class AskedItem:
    """One item with its requests to the model.

    Attributes:
        name: what names it in every run.
        doc: its fields.
        cluster: what it shares with other items, if anything.
        requests: lm-eval's, one for each answer of a multiple-choice item.
    """

    name: str
    doc: Any
    cluster: str | None
    requests: list[Any] = field(default_factory=list)


@dataclass
class LoadedTask:
    """A task ready to be asked.

    Attributes:
        order: by which it was asked for.
        name: its own, which differs from the order's where that names a group.
        task: lm-eval's object.
        items: with their requests, in the task's order.
        sha256: of items and prompts: what was asked.
        record: everything that decides the number, for the record.
    """

    order: TaskOrder
    name: str
    task: Any
    items: list[AskedItem]
    sha256: str
    record: dict[str, Any]

    @property
    def filed_as(self) -> str:
        """The name in measurements: ``LABEL``, or ``LABEL/TASK`` for a task of a group."""
        return self.order.filed_as if self.name == self.order.name else f"{self.order.filed_as}/{self.name}"

    @property
    def requests(self) -> list[Any]:
        """All requests, in the order of the items."""
        return [request for item in self.items for request in item.requests]


def load_tasks(order: TaskOrder, *, seed: int = 0) -> list[LoadedTask]:
    """Return the task that an order names, or all tasks of the group or tag, with the prompts of all their items.

    Raises:
        MeasurementError: there is no such task, its data cannot be had, or the order does not fit it.
    """
    with quiet_harness():
        built = _from_folder(order) if order.folder is not None else _from_hub(order)
        return [_prepared(order, name, task, data, seed) for name, task, data in built]


def known_tasks(folder: Path | None) -> dict[str, Path | None]:
    """Return the names that a folder, or lm-eval itself, has tasks, groups and tags under; no data are looked at."""
    return yaml_names(folder) if folder is not None else _shipped()


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Path | None]:
    import lm_eval.tasks

    return yaml_names(Path(lm_eval.tasks.__file__).parent)


@lru_cache(maxsize=1)
def _whole_manager() -> Any:
    return TaskManager()


def _from_folder(order: TaskOrder) -> list[tuple[str, Any, str]]:
    assert order.folder is not None
    index = TaskManager(include_path=str(order.folder), include_defaults=False).task_index
    return [_built_from_file(name, index) for name in _leaves(order.name, index, order)]


def _leaves(name: str, index: Mapping[str, Any], order: TaskOrder) -> list[str]:
    """Return the tasks behind a name of a folder's index."""
    if name not in index:
        listed = ", ".join(sorted(index)) or "none"
        raise MeasurementError(f"{order.folder}: no task is named {name!r}{nearest(name, index)} (tasks: {listed})")
    entry = index[name]
    if entry.kind.name == "TAG":
        return sorted(entry.tags)
    if entry.kind.name != "GROUP":
        return [name]
    members = [member if isinstance(member, str) else member.get("task", "") for member in entry.cfg.get("task") or ()]
    return list(dict.fromkeys(leaf for member in members for leaf in _leaves(member, index, order)))


def _built_from_file(name: str, index: Mapping[str, Any]) -> tuple[str, Any, str]:
    path = index[name].yaml_path
    config = load_yaml(path, resolve_func=True)
    if "class" in config:
        raise MeasurementError(f"{path}: task {name!r} is a Python class; tasks of a folder are YAML and data alone")
    data = read_splits(config, path)
    made = {split: _dataset(rows, path, split) for split, rows in data.splits.items()}
    config = {key: value for key, value in config.items() if key not in (*_STRUCTURE, "dataset_kwargs")}
    metadata = config.get("metadata")
    config["metadata"] = metadata if isinstance(metadata, dict) else {"version": metadata}
    config["custom_dataset"] = lambda **_: made
    return name, _build(lambda: ConfigurableTask(config=config), f"{path}: task {name!r}"), data.sha256


def _dataset(rows: Sequence[Mapping[str, Any]], path: Path, split: str) -> Any:
    keys = dict.fromkeys(key for row in rows for key in row)
    try:
        return Dataset.from_dict({key: [row.get(key) for row in rows] for key in keys})
    except (ValueError, TypeError, OverflowError) as error:
        raise MeasurementError(
            f"{path}: rows of the split {split!r} do not agree in a field's type: {error}"
        ) from error


def _from_hub(order: TaskOrder) -> list[tuple[str, Any, str]]:
    known = known_tasks(None)
    path = known.get(order.name)
    manager = _whole_manager()
    if path is not None:
        # Reading all of lm-eval's files takes long; a single task needs those beside its own.
        near = TaskManager(include_path=str(path.parent), include_defaults=False)
        entry = near.task_index.get(order.name)
        manager = near if entry is not None and entry.kind.name == "TASK" else manager
    if order.name not in manager.task_index:
        raise MeasurementError(f"lm-eval has no task {order.name!r}{nearest(order.name, manager.task_index)}")
    tasks = _build(lambda: manager.load([order.name])["tasks"], f"task {order.name!r}")
    for name, task in tasks.items():
        if not isinstance(task, ConfigurableTask):
            raise MeasurementError(f"task {name!r} of lm-eval is a Python class, whose prompts cannot be looked at")
    return [(name, task, "") for name, task in tasks.items()]


def _build(make: Any, what: str) -> Any:
    try:
        return make()
    except MeasurementError:
        raise
    except (ConnectionError, TimeoutError, FileNotFoundError) as error:
        raise MeasurementError(f"{what}: its data cannot be had ({error}); {_FETCHED}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError, SyntaxError) as error:
        raise MeasurementError(f"{what} cannot be built: {type(error).__name__}: {error}") from error


def _prepared(order: TaskOrder, name: str, task: Any, data: str, seed: int) -> LoadedTask:
    changes = prompt_changes(order, task.config.to_dict(keep_callable=True))
    for key, value in changes.items():
        task.set_config(key, value)
        if hasattr(task.fewshot_cfg, key):
            setattr(task.fewshot_cfg, key, value)
    if order.shots is not None:
        task.set_config("num_fewshot", order.shots)
    shots = task.config.num_fewshot or 0
    if (sampler := getattr(task, "sampler", None)) is not None and task.fewshot_cfg.sampler == "default":
        sampler = task.sampler = HashedShots(list(task.fewshot_docs()), name, seed)
    items = _items(order, name, task, seed)
    for place, item in enumerate(items):
        if isinstance(sampler, HashedShots):
            sampler.asked = item.name.partition("-")[0]
        item.requests = _requests(task, name, item.doc, shots, place)
    _refuse_lost_labels(order, task, items)
    asked = [[request.args for request in item.requests] for item in items]
    digest = hashlib.sha256(json.dumps(asked, ensure_ascii=False, default=str).encode(errors="surrogatepass"))
    record = {
        "task": name,
        "asked_for": order.name,
        "lm_eval": version("lm_eval"),
        "datasets": version("datasets"),
        "task_version": task.VERSION,
        "kind": task.OUTPUT_TYPE,
        "shots": shots,
        "shots_chosen": "by hash" if isinstance(sampler, HashedShots) else str(task.fewshot_cfg.sampler),
        "seed": seed,
        "language": order.language,
        "prompt_language": order.prompt_language,
        "labels": task.config.doc_to_choice if isinstance(task.config.doc_to_choice, list) else None,
        "prompt": task.config.doc_to_text if isinstance(task.config.doc_to_text, str) else None,
        "description": task.config.description or None,
        "items": len(items),
        "chance": _chance(task, items),
        "data_sha256": data or None,
        "asked_sha256": digest.hexdigest(),
        "splits": {key: getattr(task.config, key) for key in SPLITS if getattr(task.config, key)},
    }
    return LoadedTask(order, name, task, items, digest.hexdigest(), record)


def _chance(task: Any, items: Sequence[AskedItem]) -> float | None:
    """Return the share of items that guessing gets right, of a multiple-choice task."""
    if task.OUTPUT_TYPE != "multiple_choice":
        return None
    return sum(1 / len(task.doc_to_choice(item.doc)) for item in items) / len(items)


def _items(order: TaskOrder, name: str, task: Any, seed: int) -> list[AskedItem]:
    """Return all items, or as many as the order says; equal ones get a number behind their name."""
    found: list[AskedItem] = []
    seen: dict[str, int] = {}
    clusters = _clusters(order, list(task.eval_docs))
    for doc, cluster in zip(task.eval_docs, clusters, strict=True):
        plain = item_name(doc)
        seen[plain] = seen.get(plain, 0) + 1
        found.append(AskedItem(plain if seen[plain] == 1 else f"{plain}-{seen[plain]}", doc, cluster))
    if not found:
        raise MeasurementError(f"task {name!r} has no items")
    if order.items is None or order.items >= len(found):
        return found
    ranked = sorted(found, key=lambda item: hashlib.sha256(f"{seed}\0{name}\0{item.name}".encode()).digest())
    chosen = {item.name for item in ranked[: order.items]}
    return [item for item in found if item.name in chosen]


def _clusters(order: TaskOrder, docs: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return what each item shares with others: the hash of its passage, where several items have the same one."""
    fields = (order.cluster,) if order.cluster else _PASSAGES
    for name in fields:
        values = [doc.get(name) for doc in docs]
        if order.cluster and all(value is None for value in values):
            listed = ", ".join(docs[0]) if docs else ""
            raise MeasurementError(
                f"task {order.name!r}: items have no field {name!r}{nearest(name, docs[0])} ({listed})"
            )
        marks = [hashlib.sha256(str(value).encode(errors="surrogatepass")).hexdigest()[:12] for value in values]
        if any(value is not None for value in values) and len(set(marks)) < len(marks):
            return [mark if value is not None else None for mark, value in zip(marks, values, strict=True)]
    return [None] * len(docs)


def _requests(task: Any, name: str, doc: Any, shots: int, place: int) -> list[Any]:
    try:
        prompt = task.fewshot_context(doc, num_fewshot=shots, gen_prefix=task.doc_to_prefix(doc))
        made = task.construct_requests(
            doc=doc,
            ctx=prompt,
            metadata=(name, place, task.config.repeats),
            apply_chat_template=False,
            chat_template=None,
        )
    except MeasurementError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, SyntaxError) as error:
        raise MeasurementError(f"task {name!r}, item {place}: its prompt cannot be made: {error}") from error
    return made if isinstance(made, list) else [made]


def _refuse_lost_labels(order: TaskOrder, task: Any, items: Sequence[AskedItem]) -> None:
    if not order.labels:
        return
    for item in items:
        target = task.doc_to_target(item.doc)
        if isinstance(target, str) and target not in order.labels:
            raise MeasurementError(
                f"task {order.name!r}: items name their answer {target!r}, which is none of {list(order.labels)}"
            )
