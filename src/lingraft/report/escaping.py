"""The one door to the page: everything untrusted is made visible, escaped, or refused here.

Corpus text, tokens, names and recipes come from strangers. Two types keep them apart from markup: a
``str`` is text and is escaped when it becomes a child or an attribute; an :class:`Html` is markup that
was built here. Nothing else in this package writes an angle bracket around a value.
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

__all__ = [
    "Html",
    "chart_text",
    "element",
    "isolated",
    "join",
    "json_for_script",
    "markdown_text",
    "redacted",
    "visible",
]

# Marks, embeddings, overrides and isolates: legal text, but they reorder what stands around them.
_BIDI_CONTROLS = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_INVISIBLE = {0x00AD, 0x200B, 0x2028, 0x2029, 0x2060, 0xFEFF}
_PLAIN = re.compile(r"[ -~]*")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@]+@")
_SECRET = re.compile(r"\b(?:hf|sk|ghp|gho|glpat|xox[abp])[_-][A-Za-z0-9_-]{16,}")
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
_SAFE_LINKS = ("#", "https://")


class Html(str):
    """Markup that was built by :func:`element`; a plain ``str`` is text and gets escaped."""

    __slots__ = ()


def visible(text: str, keep: str = "\n\t") -> str:
    """Return text in which control and bidirectional control characters can be seen.

    ESC becomes ``␛``, U+202E becomes ``⟦U+202E⟧``; right-to-left letters, joiners and emoji stay as they are.

    Args:
        text: anything, lone surrogates included.
        keep: control characters that stay, by default newline and tab.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(c if c in keep else _visible_character(c) for c in text)


def _visible_character(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if code < 0x7F:
        return character
    hidden = code in _BIDI_CONTROLS or code in _INVISIBLE or unicodedata.category(character) in ("Cc", "Cs")
    return f"⟦U+{code:04X}⟧" if hidden else character


def redacted(text: str) -> str:
    """Return text without passwords in URLs and without strings that look like access tokens."""
    return _SECRET.sub("⟦redacted⟧", _USERINFO.sub(r"\1⟦redacted⟧@", text))


def _escaped(text: str) -> str:
    return text if isinstance(text, Html) else html.escape(redacted(visible(text)), quote=True)


def element(tag: str, *children: str | Iterable[str], **attributes: str | bool | None) -> Html:
    """Return one element; ``str`` children and all attribute values are escaped, ``Html`` children are not.

    Args:
        tag: the element's name, ours and never data.
        children: text, markup, or iterables of them.
        attributes: ``class_`` is class, ``aria_label`` is aria-label; True is a bare attribute, None and
            False none.

    Raises:
        ValueError: an event handler, or a link that is neither a fragment nor https.
    """
    opened = tag + "".join(_attribute(name, value) for name, value in attributes.items())
    return Html(f"<{opened}>{join(*children)}</{tag}>")


def _attribute(name: str, value: str | bool | None) -> str:
    name = name.rstrip("_").replace("_", "-")
    if name.startswith("on"):
        raise ValueError(f"{name}: event handlers are not allowed on the page")
    if name in ("href", "src") and not str(value).startswith(_SAFE_LINKS):
        raise ValueError(f"{name}={value!r}: a link is a fragment (#…) or https")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def join(*children: str | Iterable[str]) -> Html:
    """Return children one after another, text among them escaped."""
    parts = (c for child in children for c in ((child,) if isinstance(child, str) else child))
    return Html("".join(_escaped(part) for part in parts))


def isolated(text: str, tag: str = "bdi", **attributes: str | bool | None) -> Html:
    """Return untrusted text in an element of its own direction: it neither is reordered nor reorders."""
    return element(tag, text, dir="auto", **attributes)


def chart_text(text: str) -> str:
    """Return text for a chart label: plotly reads tags and entities in labels, so both are made literal."""
    return redacted(visible(text, keep="")).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def json_for_script(value: Any) -> Html:
    """Return JSON that can stand in a ``<script>`` element: ASCII only, no ``<``, ``>`` or ``&``.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON has no words for.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)


def markdown_text(text: str) -> str:
    """Return text as one line of Markdown that shows literally: no markup, no HTML, no table cell break."""
    line = " ".join(redacted(visible(text)).split())
    # A backslash before each mark, and entities for HTML, which passes Markdown. Brackets gone, only bare
    # addresses could still become links: an entity inside keeps them text.
    text = html.escape(_MARKDOWN.sub(r"\\\1", line), quote=False)
    return text.replace("://", ":&#47;/").replace("www.", "www&#46;").replace("@", "&#64;")
