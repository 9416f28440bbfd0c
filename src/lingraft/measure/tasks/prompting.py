"""Changes of a task's prompt: its language, the names of its options, and which items are shown as demonstrations.

A translated benchmark that mixes English headers and Latin letters with questions in another language measures another
thing than one that does not, so both are settings, and both are recorded with the result.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from lingraft.errors import MeasurementError, nearest
from lingraft.measure.tasks.order import TaskOrder

__all__ = ["HashedShots", "item_name", "prompt_changes", "relabelled", "written_fields"]

_CHANGEABLE = ("doc_to_text", "doc_to_choice", "description", "target_delimiter", "fewshot_delimiter")


def item_name(doc: Mapping[str, Any]) -> str:
    """Return what names an item in every run: a hash of all that it holds."""
    text = json.dumps(doc, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def written_fields(template: str) -> Iterator[str]:
    """Yield the names that a template writes out in any case: those in conditions, loops and defaults are passed over.

    Raises:
        jinja2.TemplateError: it is no template.
    """
    from jinja2 import Environment, nodes

    conditional = (nodes.If, nodes.For, nodes.CondExpr, nodes.And, nodes.Or)

    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, conditional) or (isinstance(node, nodes.Filter) and node.name in ("default", "d")):
            return
        if isinstance(node, nodes.Name):
            yield node.name
        for below in node.iter_child_nodes():
            yield from walk(below)

    for statement in Environment().parse(template).body:
        if isinstance(statement, nodes.Output):
            yield from walk(statement)


class HashedShots:
    """Chooses the demonstrations of an item by hashes of (seed, task, item, number of the draw).

    So they do not depend on which items are asked, in which order, or on a generator's state; two models see the same.
    An item is never its own demonstration. It stands in the place of lm-eval's sampler.

    Args:
        pool: the candidates.
        task: its name.
        seed: of the choice.

    Attributes:
        asked: the item whose prompt is made next.
    """

    def __init__(self, pool: Sequence[Mapping[str, Any]], task: str, seed: int) -> None:
        self._pool = {item_name(doc): doc for doc in pool}
        self._names = sorted(self._pool)
        self._task = task
        self._seed = seed
        self.asked = ""

    def sample(self, n: int, eval_doc: Any = None, df: Any = None, **_: Any) -> list[Mapping[str, Any]]:  # noqa: ARG002
        """Return ``n`` demonstrations for the item in ``asked``.

        Raises:
            MeasurementError: there are not so many other items.
        """
        others = len(self._names) - (self.asked in self._pool)
        if others < n:
            raise MeasurementError(
                f"task {self._task!r}: {n} demonstrations are asked for, and there are {others} other items to take "
                "them from"
            )
        chosen: dict[str, None] = {}
        for draw in count():
            if len(chosen) == n:
                break
            name = self._names[self._number(draw) % len(self._names)]
            if name != self.asked:
                chosen[name] = None
        return [self._pool[name] for name in chosen]

    def _number(self, draw: int) -> int:
        text = f"{self._seed}\0{self._task}\0{self.asked}\0{draw}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def set_rnd(self, rnd: int | None) -> "HashedShots":  # noqa: ARG002 - the interface of lm-eval
        """Do nothing: there is no generator."""
        return self


def prompt_changes(order: TaskOrder, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a task that an order changes, by lm-eval's names.

    A task may hold prompts in several languages in its file, as ``metadata: {prompts: {eu: {doc_to_text: …}, en: …}}``;
    ``prompt_language`` chooses one of them. Where it holds none, it is what the user states about the task's own.

    Raises:
        MeasurementError: the task has prompts in other languages only, or labels cannot be put into its prompt.
    """
    changes: dict[str, Any] = {}
    metadata = config.get("metadata")
    prompts = metadata.get("prompts") if isinstance(metadata, dict) else None
    if prompts and order.prompt_language is not None:
        if order.prompt_language not in prompts:
            raise MeasurementError(
                f"task {order.name!r} has no prompt in {order.prompt_language!r}"
                f"{nearest(order.prompt_language, prompts)} (it has {', '.join(sorted(prompts))})"
            )
        changes |= {key: value for key, value in prompts[order.prompt_language].items() if key in _CHANGEABLE}
    if order.prompt is not None:
        changes["doc_to_text"] = order.prompt
    if order.description is not None:
        changes["description"] = order.description
    if order.labels:
        merged = dict(config) | changes
        changes["doc_to_text"], changes["doc_to_choice"] = relabelled(order, merged)
    return changes


def relabelled(order: TaskOrder, config: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Return ``doc_to_text`` with other names of the options at the beginnings of lines, and those names.

    A prompt that is given with the order is taken as it is: it spells the labels that it is to be asked with.

    Raises:
        MeasurementError: the task has no fixed labels, another number of them, or they do not stand in its prompt.
    """
    old, text = config.get("doc_to_choice"), config.get("doc_to_text")
    if not isinstance(old, list) or not all(isinstance(label, str) for label in old):
        raise MeasurementError(f"task {order.name!r}: its answers are texts of its items, not labels that have a name")
    if len(old) != len(order.labels) or len(set(order.labels)) < len(order.labels):
        raise MeasurementError(f"task {order.name!r} has {len(old)} labels; {list(order.labels)} are given in place")
    if order.prompt is not None or list(order.labels) == old:
        return text, list(order.labels)
    patterns = [re.compile(rf"^(\s*\(?){re.escape(label)}(?=[.:)،])", re.MULTILINE) for label in old]
    if not isinstance(text, str) or any(len(pattern.findall(text)) != 1 for pattern in patterns):
        raise MeasurementError(
            f"task {order.name!r}: {', '.join(old)} do not each stand at the beginning of one line of its prompt, so "
            "other labels cannot be put there; give the whole prompt with them"
        )
    # All at once: where the new labels are the old ones in another order, one must not be renamed twice.
    places = sorted(
        ((m.end(1), m.end(), new) for p, new in zip(patterns, order.labels, strict=True) for m in p.finditer(text)),
        reverse=True,
    )
    for begin, end, new in places:
        text = text[:begin] + new + text[end:]
    return text, list(order.labels)
