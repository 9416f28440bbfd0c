"""The items as text: byte for byte, and the manifest that is committed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from lingraft.measure.answering import Question
from lingraft.measure.probes import item_lines, items_manifest

ROOT = Path(__file__).parents[2]
QUESTIONS = [Question("min", "0", "ñ, a ->", (" ñ", " a"), " a"), Question("k1", "0", "b ->", (" b",), " b")]


def test_a_line_by_hand() -> None:
    line = '{"task":"min","item":"0","prompt":"\\u00f1, a ->","choices":[" \\u00f1"," a"],"answer":" a"}\n'
    assert next(item_lines(QUESTIONS)) == line
    assert items_manifest("copain", {"shots": (3, 5), "num_items": 1}, QUESTIONS) == {
        "probe": "copain",
        "options": {"num_items": 1, "shots": [3, 5]},
        "items": 2,
        "tasks": {
            "min": {"items": 1, "chance": 0.5, "sha256": hashlib.sha256(line.encode()).hexdigest()},
            "k1": {
                "items": 1,
                "chance": 1.0,
                "sha256": hashlib.sha256(list(item_lines(QUESTIONS))[1].encode()).hexdigest(),
            },
        },
    }


def test_the_generators_reproduce_the_committed_manifest(tmp_path: Path) -> None:
    """In a fresh interpreter with another hash seed: nothing may hang on either."""
    made, committed = tmp_path / "items.json", ROOT / "docs" / "probe_items.json"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "7"}
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_probe_manifest.py"), str(made)], env=environment, check=True
    )
    assert made.read_bytes() == committed.read_bytes(), "run: python scripts/write_probe_manifest.py"
    by_probe = {one["probe"]: one for one in json.loads(committed.read_text())}
    assert by_probe["copain"]["items"] == 4 * 7 * 150
    assert by_probe["sort"]["tasks"]["k8"]["items"] == 300
