"""Builds lm-eval's task objects: from a folder of files, or by name from those that lm-eval brings, with data of a hub.

What is wrong with a task is said by file and item, before any model is asked: an item without answers, or without a
right one, would otherwise count as an error of the model.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lingraft.errors import MeasurementError, MissingExtraError, nearest
from lingraft.measure.tasks.adapter import quiet_harness
from lingraft.measure.tasks.code import refuse_code, sandbox_templates
from lingraft.measure.tasks.files import SPLITS, files_by_name, read_splits, yaml_names
from lingraft.measure.tasks.order import TaskOrder
from lingraft.measure.tasks.prompting import HashedShots, item_name, prompt_changes, written_fields

try:
    from datasets import Dataset
    from jinja2 import TemplateError
    from lm_eval.api.registry import METRIC_REGISTRY
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml
    from yaml import YAMLError
except ImportError as error:
    raise MissingExtraError("running downstream tasks", "eval") from error

__all__ = ["AskedItem", "LoadedTask", "gold_places", "known_tasks", "load_tasks"]

_FETCHED = (
    "fetch its data where a hub is reachable, put them with the task's YAML file into a folder, and name the folder"
)
_CHOICE = "multiple_choice"
_FAULTS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    SyntaxError,
    ArithmeticError,
    AssertionError,
    TemplateError,
    YAMLError,
)
"""What lm-eval and the templates and functions of a task raise where the task is at fault."""

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
    sandbox_templates()
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
    folder = order.folder or Path()
    stating = files_by_name(folder)
    for path in stating.get(order.name, ()):
        # lm-eval passes over files that it cannot read.
        _refuse_code(order, path, order.name)
    index = TaskManager(include_path=str(folder), include_defaults=False).task_index
    for path in stating.get(order.name, ()) if order.name not in index else ():
        _build(lambda path=path: load_yaml(path, resolve_func=False), f"{path}: task {order.name!r}")
    leaves = list(dict.fromkeys(_leaves(order.name, index, folder, ())))
    if not leaves:
        raise MeasurementError(f"{folder}: the group {order.name!r} has no tasks")
    return [_built_from_file(name, Path(index[name].yaml_path), stating.get(name, ()), order) for name in leaves]


def _leaves(name: str, index: Mapping[str, Any], folder: Path, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the tasks behind a name of a folder's index."""
    if name in above:
        raise MeasurementError(f"{folder}: the group {name!r} is a member of itself")
    if name not in index:
        listed = ", ".join(sorted(index)) or "none"
        inside = f" (group {above[-1]!r} names it)" if above else ""
        raise MeasurementError(
            f"{folder}: no task can be read that is named {name!r}{inside}{nearest(name, index)} (tasks: {listed})"
        )
    entry = index[name]
    if entry.kind.name == "TAG":
        yield from sorted(entry.tags)
        return
    if entry.kind.name != "GROUP":
        yield name
        return
    for member in _members(entry, name):
        yield from _leaves(member, index, folder, (*above, name))


def _members(entry: Any, name: str) -> Iterator[str]:
    """Yield the names of a group's members, which may not be changed there."""
    listed = entry.cfg.get("task") or ()
    for member in [listed] if isinstance(listed, str) else listed:
        told = {"task": member} if isinstance(member, str) else member
        if not isinstance(told, dict) or set(told) != {"task"} or not isinstance(told["task"], str):
            raise MeasurementError(
                f"{entry.yaml_path}: group {name!r}: a member is the name of a task of the folder, not "
                f"{str(member)[:80]}; what is set for one goes into its own file"
            )
        yield told["task"]


def _refuse_code(order: TaskOrder, path: Path, name: str) -> None:
    if not order.code:
        refuse_code(path, name)


def _built_from_file(name: str, path: Path, stating: Sequence[Path], order: TaskOrder) -> tuple[str, Any, str]:
    beside = [one for one in stating if one.resolve().is_relative_to(path.parent.resolve())]
    if len(beside) > 1:
        raise MeasurementError(f"task {name!r} is stated twice: in {beside[0]} and in {beside[1]}")
    _refuse_code(order, path, name)
    config = _build(lambda: load_yaml(path, resolve_func=True), f"{path}: task {name!r}")
    if "class" in config:
        raise MeasurementError(f"{path}: task {name!r} is a Python class; tasks of a folder are YAML and data alone")
    _refuse_settings(config, path, name)
    data = read_splits(config, path)
    made = {split: _dataset(rows, path, split) for split, rows in data.splits.items()}
    config = {key: value for key, value in config.items() if key not in (*_STRUCTURE, "dataset_kwargs")}
    metadata = config.get("metadata")
    config["metadata"] = metadata if isinstance(metadata, dict) else {"version": metadata}
    config["custom_dataset"] = lambda **_: made
    first = next(iter(data.splits.values()))[0]
    what = f"{path}: task {name!r}, tried on its first item {str(first)[:80]},"
    return name, _build(lambda: ConfigurableTask(config=config), what), data.sha256


def _refuse_settings(config: Mapping[str, Any], path: Path, name: str) -> None:
    """Refuse what lm-eval would fill in, or fetch from a hub, without a word."""
    what = f"{path}: task {name!r}"
    if not isinstance(config.get("output_type"), str):
        raise MeasurementError(f"{what} states no output_type, as in output_type: {_CHOICE}")
    if not any(config.get(key) for key in ("test_split", "validation_split")):
        raise MeasurementError(f"{what} states neither a test_split nor a validation_split: there is nothing to ask")
    shots = config.get("num_fewshot")
    if shots is not None and (not isinstance(shots, int) or isinstance(shots, bool) or shots < 0):
        raise MeasurementError(f"{what}: num_fewshot is a number from 0 on, not {shots!r}")
    for entry in config.get("metric_list") or ():
        metric = entry.get("metric") if isinstance(entry, dict) else entry
        if callable(metric):
            continue
        if not isinstance(metric, str) or entry.get("hf_evaluate") or metric not in METRIC_REGISTRY:
            known = sorted(METRIC_REGISTRY)
            raise MeasurementError(
                f"{what}: no metric of lm-eval is named {metric!r}{nearest(str(metric), known)} (metrics: "
                f"{', '.join(known)}); others, whose code would come from a hub, are not run"
            )


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
    except _FAULTS as error:
        raise MeasurementError(f"{what} cannot be built: {_fault(error)}") from error


def _fault(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")


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
    needed = _needed_fields(task, items[0].doc)
    for place, item in enumerate(items):
        _refuse_missing_fields(needed, f"task {name!r}, item {place}", item.doc)
        _refuse_unanswerable(task, f"task {name!r}, item {place}", item.doc)
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
    sizes = [len(task.doc_to_choice(item.doc)) for item in items] if task.OUTPUT_TYPE == _CHOICE else []
    return sum(1 / size for size in sizes) / len(sizes) if sizes and all(sizes) else None


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
    except _FAULTS as error:
        raise MeasurementError(f"task {name!r}, item {place}: its prompt cannot be made: {_fault(error)}") from error
    return made if isinstance(made, list) else [made]


def gold_places(task: Any, doc: Any) -> list[int]:
    """Return the places of the right answers among an item's; none where it names none of them."""
    choices = task.doc_to_choice(doc)
    gold = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    places = []
    for one in gold if isinstance(gold, list) else [gold]:
        place = choices.index(one) if isinstance(one, str) and one in choices else one
        if isinstance(place, int) and 0 <= place < len(choices):
            places.append(place)
    return places


def _needed_fields(task: Any, doc: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each field that prompts or answers are made of in any case, with what of the task says so.

    All items of a task have the same fields; those that one lacks are null.
    """
    said = [(key, getattr(task.config, key)) for key in ("doc_to_text", "doc_to_target")]
    texts = [(key, text) for key, text in said if isinstance(text, str)]
    return [(name, key) for key, text in texts for name in ([text] if text in doc else written_fields(text))]


def _refuse_missing_fields(needed: Sequence[tuple[str, str]], what: str, doc: Mapping[str, Any]) -> None:
    """Refuse an item without a field that it needs: in its place would stand ``None``."""
    for name, key in needed:
        if doc.get(name, "") is None:
            raise MeasurementError(f"{what}: its field {name!r}, which {key} is made of, is missing or null")


def _refuse_unanswerable(task: Any, what: str, doc: Any) -> None:
    """Refuse a multiple-choice item that no model could get right, or whose answers are not there."""
    if task.OUTPUT_TYPE != _CHOICE:
        return
    try:
        choices = task.doc_to_choice(doc)
        # What is right may be left to a function of the task.
        is_scored_elsewhere = callable(task.config.process_results)
        gold = () if is_scored_elsewhere else gold_places(task, doc)
    except _FAULTS as error:
        raise MeasurementError(f"{what}: its answers cannot be had: {_fault(error)}") from error
    if not choices or not all(isinstance(choice, str) and choice for choice in choices):
        raise MeasurementError(f"{what}: its answers are {str(choices)[:80]}; each is a text that is not empty")
    if not gold and not is_scored_elsewhere:
        target = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
        raise MeasurementError(
            f"{what}: its right answer is {str(target)[:80]!r}, which is none of the places 0 to {len(choices) - 1} "
            "and none of the answers"
        )


def _refuse_lost_labels(order: TaskOrder, task: Any, items: Sequence[AskedItem]) -> None:
    if not order.labels:
        return
    for item in items:
        target = task.doc_to_target(item.doc)
        if isinstance(target, str) and target not in order.labels:
            raise MeasurementError(
                f"task {order.name!r}: items name their answer {target!r}, which is none of {list(order.labels)}"
            )
