"""Python code that tasks of a folder would run: found before any of it runs, and refused unless it is asked for.

A YAML file of lm-eval may name functions (``!function module.name``), which are imported as the file is read. So a
folder of tasks from somewhere else could do whatever its author likes, already in ``lingraft plan``. Functions that
lm-eval itself ships are let through: its own files can be copied into a folder as they are. Templates run in a sandbox.
"""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from lingraft.errors import MeasurementError, MissingExtraError

try:
    import lm_eval.tasks
    import lm_eval.utils
    from jinja2.sandbox import SandboxedEnvironment
except ImportError as error:
    raise MissingExtraError("running downstream tasks", "eval") from error

__all__ = ["named_functions", "refuse_code", "sandbox_templates"]

_OWN = "lm_eval."


def named_functions(path: Path) -> list[tuple[Path, str]]:
    """Return the functions that a YAML file and those it includes name, each with the file; none is imported.

    Raises:
        MeasurementError: a file cannot be read, is not YAML, or includes itself.
    """
    return list(_functions(path, ()))


def _functions(path: Path, above: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    if path in above:
        raise MeasurementError(f"{path}: the file includes itself, by way of {above[-1]}")
    root = _composed(path)
    for node in _nodes(root):
        if node.tag == "!function":
            yield path, str(node.value)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "include":
            for one in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                yield from _functions((path.parent / str(one.value)).resolve(), (*above, path))


def _composed(path: Path) -> Any:
    try:
        root = yaml.compose(path.read_bytes().decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise MeasurementError(f"{path}: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        told = getattr(error, "problem", None) or str(error).replace("\n", " ")
        raise MeasurementError(f"{path}{line}: not YAML: {told}") from error
    except RecursionError as error:
        raise MeasurementError(f"{path}: not YAML that can be read: it is nested too deeply") from error
    if not isinstance(root, yaml.MappingNode):
        raise MeasurementError(f"{path}: a task is a mapping, as in task: NAME")
    return root


def _nodes(root: Any) -> Iterator[Any]:
    """Yield all nodes of a document once; an anchor may make one stand in many places."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def refuse_code(path: Path, task: str) -> None:
    """Refuse a task whose YAML names functions that lm-eval does not itself ship; none is imported.

    Raises:
        MeasurementError: it names such a function, or cannot be read.
    """
    for file, name in named_functions(path):
        if not _is_shipped(file, name):
            raise MeasurementError(
                f"{file}: task {task!r} names the Python function {name!r}, which would be run; where you would run "
                "code of whoever made this folder, say so: --tasks-code, or measure.tasks_code: true in a recipe"
            )


def _is_shipped(file: Path, name: str) -> bool:
    module = name.rpartition(".")[0]
    beside = (file.parent / f"{module.replace('.', '/')}.py").resolve()
    if not beside.is_file():
        return module.startswith(_OWN)
    return hashlib.sha256(beside.read_bytes()).hexdigest() in _shipped_files()


@lru_cache(maxsize=1)
def _shipped_files() -> frozenset[str]:
    own = Path(lm_eval.tasks.__file__).parent
    return frozenset(hashlib.sha256(path.read_bytes()).hexdigest() for path in own.rglob("*.py"))


def sandbox_templates() -> None:
    """Let lm-eval fill in its templates in Jinja's sandbox, where they reach nothing but the item."""
    plain = lm_eval.utils.env
    if isinstance(plain, SandboxedEnvironment):
        return
    made = SandboxedEnvironment(
        loader=plain.loader, undefined=plain.undefined, keep_trailing_newline=plain.keep_trailing_newline
    )
    made.filters |= plain.filters
    lm_eval.utils.env = made
