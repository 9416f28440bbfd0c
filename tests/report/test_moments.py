"""Where a run stands, by its folder alone: waiting, working, quiet, finished; torn and foreign files do no harm."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lingraft.measurement import Measurement, write_measurements
from lingraft.report.moments import Moment, WatchedRun, moments_block

MARKERS = [
    "corpus-eu",
    "corpus-en",
    "base",
    "vocabulary",
    "embeddings",
    "measure-base",
    "measure-expanded",
    "stage-1-embeddings-only",
    "stage-2-continued-pretraining",
    "export",
    "samples",
]


def _finish(folder: Path, *names: str) -> None:
    (folder / "steps").mkdir(exist_ok=True)
    for name in names:
        (folder / "steps" / f"{name}.json").write_text('{"inputs": "x", "record": {}}', encoding="utf-8")


def _age(folder: Path, seconds: float) -> float:
    """Make everything look as old as that, and return the time that it is now."""
    now = 1_800_000_000.0
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (now - seconds, now - seconds))
    return now


@pytest.fixture
def begun(tmp_path: Path, write: Callable[..., Path]) -> Path:
    """A run of 20 and 80 steps of 1,024 tokens that has come to step 30, at 256 tokens a second."""
    folder = write(tmp_path / "begun", "begun")
    (folder / "measurements.jsonl").unlink()
    rows = [
        Measurement(stage, step * 1024, "tokens_per_second", speed)
        for stage, steps, speed in (
            ("embeddings-only", range(1, 21), 999.0),
            ("continued-pretraining", range(21, 31), 256.0),
        )
        for step in steps
    ]
    write_measurements(folder / "measurements.jsonl", rows)
    _finish(folder, *MARKERS[:8])
    return folder


def test_a_folder_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    for folder in (tmp_path / "later", tmp_path):
        assert WatchedRun(folder).moment().state == "waiting"
        assert WatchedRun(folder).moment().quiet_for is None
    assert "later is not a run folder yet" in moments_block([WatchedRun(tmp_path / "later").moment()])


def test_the_step_of_a_stage_its_speed_and_what_is_left(begun: Path) -> None:
    """30 of 100 steps: 10 of the 80 of the second stage; 70 × 1,024 tokens at 256 a second are 280 s."""
    found = WatchedRun(begun).moment(_age(begun, 5))
    assert (found.state, found.stage, found.step, found.num_steps) == ("working", "continued-pretraining", 10, 80)
    assert (found.tokens, found.total_tokens) == (30 * 1024, 100 * 1024)
    assert (found.tokens_per_second, found.seconds_left, found.quiet_for) == (256.0, 280.0, 5.0)
    assert found.doing == "stage continued-pretraining"
    assert [done for _, done in found.steps] == [True] * 7 + [False] * 3
    block = moments_block([found])
    for words in ("step 10 of 80", "30,720 of 102,400", "256 tokens a second", "about 4.7 min of training left",
                  "last change 5 s ago", 'value="30"'):  # fmt: skip
        assert words in block, words


def test_a_run_in_which_nothing_moves_says_for_how_long(begun: Path) -> None:
    found = WatchedRun(begun).moment(_age(begun, 1200))
    assert (found.state, found.quiet_for) == ("quiet", 1200.0)
    block = moments_block([found])
    assert "For 20.0 min nothing has changed" in block
    assert "a second" not in block


def test_between_stages_the_stage_that_is_done_is_not_in_training(begun: Path) -> None:
    _finish(begun, *MARKERS[:9])
    found = WatchedRun(begun).moment(_age(begun, 1))
    assert (found.stage, found.doing, found.tokens) == (None, "export", 30_720)


def test_a_finished_run_is_finished_however_old(begun: Path) -> None:
    _finish(begun, *MARKERS)
    found = WatchedRun(begun).moment(_age(begun, 1e6))
    assert (found.state, found.doing) == ("finished", None)
    assert 'value="100"' in moments_block([found])


def test_a_step_that_was_left_out_counts_as_done(begun: Path) -> None:
    (begun / "steps" / "vocabulary.json").unlink()
    assert dict(WatchedRun(begun).moment().steps)["vocabulary"]


def test_torn_foreign_and_damaged_lines_do_no_harm(begun: Path) -> None:
    lines = [b"\x00\xff{", b"[1]", b'{"name": "tokens_per_second", "stage": "no-such", "tokens": 1, "value": 2}',
             b'{"name": "tokens_per_second", "stage": [], "tokens": 1, "value": 2}', b"[" * 100_000,
             b'{"name": "tokens_per_second", "stage": "continued-pretraining", "tokens": "many", "value": 2}',
             b'{"name": "tokens_per_second", "stage": "continued-pretraining", "tokens": 31744, "value": NaN}',
             b'{"name": "tokens_per_second", "stage": "continued-pretr']  # fmt: skip
    rows = (begun / "measurements.jsonl").read_bytes()
    (begun / "measurements.jsonl").write_bytes(b"\n".join([b"x" * 70_000, *lines[:4], rows[:-1], *lines[5:]]))
    assert WatchedRun(begun).moment().step == 10


def test_a_recipe_that_cannot_be_read_is_told(begun: Path) -> None:
    (begun / "recipe.yaml").write_text("name: [", encoding="utf-8")
    found = WatchedRun(begun).moment(_age(begun, 1))
    assert (found.name, found.state, found.steps) == ("begun", "working", ())
    assert "its recipe cannot be read" in moments_block([found])


def test_the_signature_changes_with_what_the_page_is_made_from_and_with_nothing_else(begun: Path) -> None:
    watched = WatchedRun(begun)
    before = watched.signature()
    (begun / "base_bits.json").write_text("{}")
    assert watched.signature() == before
    write_measurements(begun / "measurements.jsonl", [Measurement("base", 0, "x", 1)])
    after = watched.signature()
    assert after != before
    _finish(begun, "export")
    assert watched.signature() != after


def test_hostile_names_stay_text() -> None:
    name = "<script>x</script>\x1b[31m\u202e"
    block = moments_block(
        [Moment(name, Path("/x") / "<b>", "waiting"), Moment(name, Path("/x"), "working", ((f"stage {name}", False),))]
    )
    assert "<script" not in block
    assert "<b>" not in block.replace('<b dir="auto">', "")
    assert "\u202e" not in block
    assert json.dumps("\x1b") not in json.dumps(block)
