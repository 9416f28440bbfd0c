"""Reads under which licence a model says it is."""

from pathlib import Path
from typing import Any

import yaml

from lingraft.model.locate import BaseLocation, open_gguf

__all__ = ["stated_license"]

# A card's front matter is short; what comes behind is text.
_LONGEST = 65_536


def stated_license(location: BaseLocation, folder: Path) -> str | None:
    """Return the licence that a model states, as it spells it; None where it states none.

    A folder states it in the front matter of README.md (https://huggingface.co/docs/hub/model-cards): ``license``, or
    ``license_name`` where that is ``other``. A GGUF file has ``general.license``.

    Args:
        location: where the model is.
        folder: its files, where it is a folder or comes from the hub.
    """
    if location.kind == "gguf":
        assert location.path is not None
        field = open_gguf(location.path).fields.get("general.license")
        return _spelled(field.contents()) if field else None
    card = folder / "README.md"
    if not card.is_file():
        return None
    with card.open(encoding="utf-8", errors="replace") as file:
        fields = _front_matter(file.read(_LONGEST))
    named = _spelled(fields.get("license"))
    return _spelled(fields.get("license_name")) or named if named == "other" else named


def _front_matter(text: str) -> dict[str, Any]:
    parts = text.removeprefix("\ufeff").split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        found = yaml.safe_load(parts[1])
    except yaml.YAMLError:
        # Somebody else's card; that it cannot be read says nothing about the model.
        return {}
    return found if isinstance(found, dict) else {}


def _spelled(value: Any) -> str | None:
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    told = ", ".join(name.strip() for name in names if isinstance(name, str) and name.strip())
    return told or None
