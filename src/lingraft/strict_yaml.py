"""YAML as a recipe needs it: nothing is guessed, nothing is dropped, and every value knows its line.

PyYAML's safe loader turns the Norwegian code ``no`` into false, ``1e-4`` into a string, ``12:30`` into a
number, and keeps the last of two equal keys without a word. Here scalars follow the YAML 1.2 core schema
(https://yaml.org/spec/1.2.2/#103-core-schema), and duplicate keys, aliases, anchors and tags are refused.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from lingraft.errors import RecipeError

__all__ = ["LinedValue", "dump_yaml", "parse_value", "parse_yaml", "set_path"]

Path = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)
_MAX_DEPTH = 32
_MAX_DIGITS = 300


@dataclass
class LinedValue:
    """A parsed document and the line (from 1) on which each of its paths stands."""

    value: Any
    source: str
    lines: dict[Path, int] = field(default_factory=dict)

    def where(self, path: Path) -> str:
        """Return ``file:line: a.b.0`` for a path, with the line of the nearest parent that has one."""
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        dotted = ".".join(map(str, path))
        place = f"{self.source}:{line}" if line else self.source
        return f"{place}: {dotted}" if dotted else place


def parse_yaml(text: str, source: str) -> LinedValue:
    """Return the value of a YAML document with the lines of its parts.

    Raises:
        RecipeError: the text is not YAML, or uses an alias, an anchor, a tag or a key twice; the message
            names ``source`` and the line.
    """
    try:
        _refuse_aliases(text, source)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise RecipeError(f"{source}:{line}: not valid YAML: {getattr(error, 'problem', error)}") from error
    document = LinedValue(None, source)
    document.value = None if node is None else _build(node, (), document)
    return document


def parse_value(text: str) -> Any:
    """Return the value of one ``--set`` right-hand side, by the same rules as a whole document."""
    return parse_yaml(text, "--set").value


def dump_yaml(value: Any) -> str:
    """Return plain values as YAML that :func:`parse_yaml` reads back to equal values.

    PyYAML leaves a text such as ``1e-4`` bare, which is a number in YAML 1.2; here it gets quotes.
    """
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.Node:
        # Line ends of other kinds (U+0085, U+2028) come back as themselves from escapes only.
        style = '"' if not data.isprintable() else None if _is_text(data) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def _is_text(text: str) -> bool:
    return text not in _WORDS and not _INT.fullmatch(text) and not _FLOAT.fullmatch(text)


def _refuse_aliases(text: str, source: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise RecipeError(f"{source}:{line}: anchors and aliases are not allowed in a recipe; write the value out")
        if (tag := getattr(event, "tag", None)) not in (None, "!"):
            raise RecipeError(f"{source}:{line}: tags such as {tag!r} are not allowed in a recipe")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise RecipeError(f"{source}:{line}: nested deeper than {_MAX_DEPTH} levels")


def _build(node: yaml.Node, path: Path, document: LinedValue) -> Any:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, (*path, index), document) for index, child in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        if len(node.value) > _MAX_DIGITS and not _is_text(node.value):
            raise RecipeError(f"{document.where(path)}: a number of {len(node.value)} digits is not allowed")
        return _scalar(node.value)
    return _whole(node.value, document.where(path))


def _build_mapping(node: yaml.MappingNode, path: Path, document: LinedValue) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise RecipeError(f"{document.source}:{line}: a key must be plain text")
        key = _whole(key_node.value, f"{document.source}:{line}")
        if key in mapping:
            first = document.lines[(*path, key)]
            raise RecipeError(f"{document.source}:{line}: key {key!r} is given twice (first on line {first})")
        document.lines[(*path, key)] = line
        mapping[key] = _build(value_node, (*path, key), document)
    return mapping


def _whole(text: str, where: str) -> str:
    """Return a text with the pairs of escapes joined in which JSON writes what lies beyond U+FFFF, as an emoji does."""
    if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where}: {text!r} holds half of a character (a lone surrogate)") from error


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def set_path(root: dict[str, Any], dotted: str, value: Any) -> None:
    """Put ``value`` at a dotted path such as ``stages.1.mix.en``, making mappings on the way.

    Raises:
        RecipeError: the path runs through a value that has no parts, or past the end of a list.
    """
    *parents, last = dotted.split(".")
    current: Any = root
    for depth, part in enumerate(parents):
        current = _child(current, part, ".".join(parents[: depth + 1]))
    if isinstance(current, list):
        current[_index(current, last, dotted)] = value
    elif isinstance(current, dict):
        current[last] = value
    else:
        raise RecipeError(f"--set {dotted}: {'.'.join(parents)} is the value {current!r}, which has no parts")


def _child(current: Any, part: str, so_far: str) -> Any:
    if isinstance(current, list):
        return current[_index(current, part, so_far)]
    if isinstance(current, dict):
        return current.setdefault(part, {})
    raise RecipeError(f"--set {so_far}: the parent is the value {current!r}, which has no parts")


def _index(items: list[Any], part: str, dotted: str) -> int:
    if not part.isdecimal() or int(part) >= len(items):
        raise RecipeError(f"--set {dotted}: {part!r} is not a position in a list of {len(items)} (from 0)")
    return int(part)
