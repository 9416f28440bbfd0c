"""Writes docs/probe_items.json: the items of every text probe in its full form, by count, chance and SHA-256.

python scripts/write_probe_manifest.py [FILE]
"""

import json
import sys
from pathlib import Path
from typing import Any

from lingraft.measure.probes import items_manifest, probes, questions_of

PATH = Path(__file__).parents[1] / "docs" / "probe_items.json"


def manifest() -> list[dict[str, Any]]:
    """Return the manifests of all text probes that lingraft has itself."""
    made = []
    for entry in probes:
        if entry.marks.get("text"):
            options = {name: option.default for name, option in entry.options().items()}
            made.append(items_manifest(entry.name, options, questions_of(entry.function)))
    return made


def main() -> int:
    """Write the file."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    path.write_text(json.dumps(manifest(), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
