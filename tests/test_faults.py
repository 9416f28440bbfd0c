"""Kills, stops, damage and full disks, in every phase of a run: what comes out is what would have come out, or an error.

Every run is the command itself, in a process of its own (see fault_server.py): 50 of them take two minutes, not ten.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

RECIPE = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{new_tokens: 40, min_count: 3, row_multiple: 16}}
embeddings: {{max_source_rise: 5.0, max_source_mass: 0.5}}
precision: fp32
stages:
  - name: embeddings-only
    train: new_embeddings
    tokens: 512
    mix: {{eu: 1.0}}
    lr: {{peak: 1e-2}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 2}}
  - name: everything
    train: all
    tokens: 1280
    mix: {{schedule: step, at: 50%, before: {{eu: 0.5, en: 0.5}}, after: {{eu: 1.0}}}}
    lr: {{schedule: cosine, peak: 3e-3, warmup: 10%, floor: 10%}}
    ema: {{decay: 0.5, every: 2}}
    optimizer: {{start: carry}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 3}}
    checkpoint_every: 20%
measure:
  at: [50%, 100%]
  validation_bytes: 1500
  probes: [{{name: random_copy, num_items: 2, length: 8}}, {{name: copain, num_items: 2, shots: 3, templates: arrow}}]
  sample_tokens: 4
"""

ROOT = Path(__file__).parents[1]
TIMES = ("seconds/stage", "seconds/measuring", "tokens_per_second", "peak_memory_bytes")
HEARD_WITHIN = 5.0
"""Seconds in which a stop must be heard in any phase of the tiny run, on a busy machine."""

Command = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def command() -> Iterator[Command]:
    """Return a function that runs ``lingraft`` and returns what fault_server.py tells of it."""
    environment = {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "fault_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment | {"OMP_NUM_THREADS": "1"},
    ) as server:
        assert server.stdin is not None

        def run(*arguments: str | Path, **job: Any) -> dict[str, Any]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps({"arguments": [str(each) for each in arguments], **job}) + "\n")
            server.stdin.flush()
            told: dict[str, Any] = json.loads(server.stdout.readline())
            assert "Traceback" not in told["said"], told["said"]
            return told

        yield run
        server.stdin.close()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tied_folder: Path, corpora_folder: Path) -> Path:
    """The recipe's file, beside a copy of the base and of the corpora that tests may change."""
    folder = tmp_path_factory.mktemp("faults")
    base, corpora = shutil.copytree(tied_folder, folder / "tied"), shutil.copytree(corpora_folder, folder / "texts")
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(base=base, corpora=corpora), encoding="utf-8")
    return path


def results(folder: Path) -> dict[str, Any]:
    """Return all that must be the same however a run came to its end: weights, tokens, tokenizer, every number."""
    steps = {path.stem: json.loads(path.read_text())["record"] for path in (folder / "steps").glob("*.json")}
    files = ["vocabulary/tokenizer.json", "embeddings/model/model.safetensors", "model/model.safetensors"]
    files += ["samples.jsonl", *(str(p.relative_to(folder)) for p in (folder / "tokens").rglob("tokens.ds"))]
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    return {
        "weights": {name: r["weights_sha256"] for name, r in steps.items() if "weights_sha256" in r},
        "files": {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in files if (folder / n).exists()},
        "numbers": sorted(json.dumps(row, sort_keys=True) for row in rows if row["name"] not in TIMES),
    }


@pytest.fixture(scope="module")
def whole(command: Command, recipe: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What is told of two uninterrupted runs, and their results by where they end: behind training, or at all."""
    folder = recipe.parent / "whole"
    assert command("run", recipe, "--to", folder, "--until", "everything")["status"] == 0
    trained = results(folder)
    shutil.rmtree(folder)
    told = command("run", recipe, "--to", folder)
    assert told["status"] == 0
    return told, {"everything": trained, "report": results(folder)}


def phases_of(told: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the name of each phase and the seconds that it took."""
    ends = [began for _, began in told["phases"][1:]] + [told["seconds"]]
    return [(name, end - began) for (name, began), end in zip(told["phases"], ends, strict=True)]


def aim(phases: list[tuple[str, float]], at: int, chooser: random.Random) -> dict[str, Any]:
    """Return a random moment within a phase, and where the run has to go on to: no further than it must."""
    names = [name for name, _ in phases]
    until = "everything" if at < names.index("export") else "report"
    return {"at": at, "after": chooser.uniform(0, phases[at][1]), "until": until}


def test_o63_killed_at_fifty_random_moments_each_run_ends_with_the_same_bits(command, recipe, whole, tmp_path) -> None:
    """One kill as each phase begins, one within it, then some anywhere; every fifth run is killed again as it goes on."""
    chooser, phases = random.Random(0), phases_of(whole[0])
    moments = [at for at in range(len(phases)) for _ in range(2)]
    moments += [chooser.randrange(len(phases)) for _ in range(50 - len(moments))]
    killed = set()
    for number, at in enumerate(moments):
        job, folder = aim(phases, at, chooser), tmp_path / str(number)
        if number % 2 == 0:
            job["after"] = 0
        arguments = ("run", recipe, "--to", folder, "--until", until := job.pop("until"))
        first = command(*arguments, number=signal.SIGKILL, **job)
        killed |= {first["sent"]} if first["status"] == -signal.SIGKILL else set()
        if number % 5 == 0:
            again = chooser.randrange(10)
            command(*arguments, number=signal.SIGKILL, at=again, after=chooser.uniform(0, phases[again][1]))
        assert command(*arguments)["status"] == 0
        assert results(folder) == whole[1][until], (number, phases[at], first)
        shutil.rmtree(folder)
    # On a busy machine a short phase may be over when the signal comes.
    names = {name for name, _ in phases}
    assert len(killed) >= 0.8 * len(names), names - killed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_any_phase_it_says_that_it_can_go_on_soon_and_goes_on(
    number, command, recipe, whole, tmp_path, record_property
) -> None:
    chooser, phases, slowest = random.Random(int(number)), phases_of(whole[0]), dict[str, float]()
    for at in range(len(phases)):
        job, folder = aim(phases, at, chooser), tmp_path / str(at)
        arguments = ("run", recipe, "--to", folder, "--until", until := job.pop("until"))
        told = command(*arguments, number=number, **job)
        if told["sent"]:
            slowest[told["sent"]] = max(slowest.get(told["sent"], 0.0), told["latency"])
        if told["status"] != 0:
            assert told["status"] == 130, told
            assert "The same command goes on from here." in told["said"]
            assert command(*arguments)["status"] == 0
        assert results(folder) == whole[1][until], (phases[at], told)
        shutil.rmtree(folder)
    record_property("seconds to hear", slowest)
    print(number.name, {name: round(seconds, 2) for name, seconds in slowest.items()})
    assert {name: seconds for name, seconds in slowest.items() if seconds > HEARD_WITHIN} == {}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES = (truncate, zero, flip, Path.unlink)


@pytest.fixture(scope="module")
def stopped(command, recipe, whole) -> Path:
    """A run that was killed when its second stage had made two checkpoints."""
    names = [name for name, _ in whole[0]["phases"]]
    at = names.index("stage everything") + 3
    folder = recipe.parent / "stopped"
    told = command("run", recipe, "--to", folder, at=at, after=0, number=signal.SIGKILL)
    assert told["status"] == -signal.SIGKILL
    assert len(list((folder / "stages/2-everything/checkpoints").glob("step-*"))) == 2
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_o63_each_file_of_a_checkpoint_is_missed_and_the_older_one_taken(
    damage, command, recipe, whole, stopped, tmp_path
) -> None:
    newest = max((stopped / "stages/2-everything/checkpoints").glob("step-*"))
    files = sorted(newest.iterdir())
    assert {path.suffix for path in files} == {".safetensors", ".json"}
    for file in files:
        folder = Path(shutil.copytree(stopped, tmp_path / file.name))
        damage(folder / file.relative_to(stopped))
        told = command("run", recipe, "--to", folder, "--until", "everything")
        assert told["status"] == 0
        said = " ".join(told["said"].split())
        assert newest.name in said
        assert file.name in said
        assert results(folder) == whole[1]["everything"], file


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_file_of_a_token_store_is_missed_and_named(damage, command, recipe, whole, stopped, tmp_path) -> None:
    files = sorted(path for path in (stopped / "tokens").rglob("*") if path.is_file())
    assert len(files) == 6
    for number, file in enumerate(files):
        folder = Path(shutil.copytree(stopped, tmp_path / str(number)))
        damaged = folder / file.relative_to(stopped)
        damage(damaged)
        told = command("run", recipe, "--to", folder, "--until", "everything")
        said = told["said"].replace("\n", "")
        assert (told["status"], damaged.parent.name in said, damaged.name in said) == (1, True, True), told["said"]
        shutil.rmtree(damaged.parent)
        assert command("run", recipe, "--to", folder, "--until", "everything")["status"] == 0
        assert results(folder) == whole[1]["everything"], file


@pytest.mark.parametrize(
    "file", ["embeddings/model/model.safetensors", "corpora/eu/train.jsonl", "corpora/en/validation.jsonl"]
)
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_trained_from_or_measured_on_is_checked_as_well(
    damage, file, command, recipe, whole, stopped, tmp_path
) -> None:
    """Weights that the shift is counted from, and prepared text: named, and made again once they are deleted."""
    folder = Path(shutil.copytree(stopped, tmp_path / "run"))
    damage(folder / file)
    told = command("run", recipe, "--to", folder, "--until", "everything")
    if told["status"] != 0:
        assert "delete" in told["said"]
        assert Path(file).parent.name in told["said"]
        shutil.rmtree((folder / file).parent)
        assert command("run", recipe, "--to", folder, "--until", "everything")["status"] == 0
    else:
        assert damage is Path.unlink
    assert results(folder) == whole[1]["everything"]


def test_no_damaged_file_of_a_run_folder_changes_the_weights_unnoticed(
    command, recipe, whole, stopped, tmp_path
) -> None:
    """Each file, damaged in two ways: the run ends with the weights it would have had, or with one error of its own."""
    chooser, ended = random.Random(0), {0: 0, 1: 0}
    files = sorted(path for path in stopped.rglob("*") if path.is_file() and path.stat().st_size)
    for file in [file for file in files if not {"tokens", "checkpoints"} & set(file.parts)]:
        for damage in chooser.sample(DAMAGES, 2):
            folder = Path(shutil.copytree(stopped, tmp_path / "run"))
            damage(folder / file.relative_to(stopped))
            told = command("run", recipe, "--to", folder, "--until", "everything")
            assert told["status"] in ended, (file, damage, told["said"])
            ended[told["status"]] += 1
            if told["status"] == 0:
                assert results(folder)["weights"] == whole[1]["everything"]["weights"], (file, damage)
            else:
                assert "error: " in told["said"], (file, damage)
            shutil.rmtree(folder)
    assert min(ended.values()) > 0


@pytest.mark.parametrize("limit", [0, 5_000, 60_000])
def test_o66_on_a_full_disk_a_run_ends_with_an_error_of_its_own_and_goes_on_when_there_is_room(
    limit, command, recipe, whole, tmp_path
) -> None:
    chooser, phases, refused = random.Random(limit), phases_of(whole[0]), set()
    for at in range(len(phases)):
        folder, until = tmp_path / str(at), aim(phases, at, chooser)["until"]
        arguments = ("run", recipe, "--to", folder, "--until", until)
        told = command(*arguments, at=at, limit=limit)
        assert told["status"] in (0, 1), told["said"]
        if told["status"] == 1:
            refused.add(phases[at][0])
            assert "error: " in told["said"]
            assert "File too large" in " ".join(told["said"].split()), told["said"]
            assert not [path for path in folder.rglob("*.tmp") if path.is_dir()]
            assert command(*arguments)["status"] == 0
        assert results(folder) == whole[1][until], phases[at]
        shutil.rmtree(folder)
    wanted = {"corpus eu", "tokens of eu", "checkpoint", "export", "vocabulary", "initial embeddings"}
    assert limit == 60_000 or wanted <= refused


def test_resuming_in_the_second_stage_after_the_first_gives_the_same_bits(command, recipe, whole, tmp_path) -> None:
    arguments = ("run", recipe, "--to", tmp_path / "run", "--until")
    assert command(*arguments, "embeddings-only")["status"] == 0
    names = [name for name, _ in command(*arguments, "embeddings-only")["phases"]]
    told = command(*arguments, "everything", at=len(names) + 2, after=0, number=signal.SIGTERM)
    assert (told["status"], told["sent"]) == (130, "checkpoint")
    assert command(*arguments, "everything")["status"] == 0
    assert results(tmp_path / "run") == whole[1]["everything"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("texts/eu.jsonl", "Dokumentu", "Dokumentx", "the text of corpora.eu has changed"),
        ("tied/tokenizer.json", "<|im_start|>", "<|im_begin|>", "the base model tied has changed"),
        ("tiny.yaml", "peak: 3e-3", "peak: 2e-3", "stages.1.lr.peak: 0.003 → 0.002"),
    ],
)
def test_a_run_does_not_go_on_with_other_data_another_tokenizer_or_another_recipe(
    file, old, new, message, command, recipe, whole, stopped, tmp_path
) -> None:
    folder, path = Path(shutil.copytree(stopped, tmp_path / "run")), recipe.parent / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    told = command("run", recipe, "--to", folder, "--until", "everything")
    path.write_text(text, encoding="utf-8")
    assert (told["status"], message in " ".join(told["said"].split())) == (1, True), told["said"]
    assert command("run", recipe, "--to", folder, "--until", "everything")["status"] == 0
    assert results(folder) == whole[1]["everything"]
