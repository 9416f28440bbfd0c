"""The run folder: what appears, appears whole."""

import errno
import os
import stat
from pathlib import Path

import pytest
from safetensors import SafetensorError

from lingraft.errors import RunFolderError
from lingraft.measurement import Measurement
from lingraft.recipe import Export, Recipe
from lingraft.run import (
    Run,
    describe_environment,
    fingerprint,
    hash_file,
    publish_folder,
    read_own,
    refused_write,
    write_file,
)


@pytest.fixture
def recipe() -> Recipe:
    stage = {"name": "s", "tokens": 65_536, "mix": {"eu": 1.0}, "lr": {"peak": 1e-3}}
    corpora = {"eu": {"path": "eu"}, "en": {"path": "en"}}
    languages = {"source": "en", "target": "eu"}
    return Recipe.model_validate(
        {"name": "r", "base_model": "m", "languages": languages, "corpora": corpora, "stages": [stage]}
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_fingerprints_depend_on_values_not_on_order() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert len({fingerprint(v) for v in (1, 1.5, "1", [1], {"a": 1}, None)}) == 6


def test_a_written_file_is_whole_and_alone(tmp_path: Path) -> None:
    write_file(tmp_path / "new" / "a.txt", "one\n")
    write_file(tmp_path / "new" / "a.txt", "two\n")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.txt"]
    assert (tmp_path / "new" / "a.txt").read_text() == "two\n"
    assert hash_file(tmp_path / "new" / "a.txt")[:8] == "27dd8ed4"


def test_a_folder_is_published_whole_with_the_usual_modes(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "a").write_text("x")
        (folder / "inner" / "a").chmod(0o600)

    published = publish_folder(tmp_path / "out", fill)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((published / "inner" / "a").stat().st_mode) == 0o666 & ~umask
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failed_fill_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    publish_folder(tmp_path / "out", lambda f: (f / "a").write_text("old") and None)

    def fail(folder: Path) -> None:
        (folder / "a").write_text("new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish_folder(tmp_path / "out", fail)
    assert (tmp_path / "out" / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    publish_folder(tmp_path / "out", lambda f: (f / "a").write_text("old") and None)
    publish_folder(tmp_path / "out", lambda f: (f / "b").write_text("new") and None)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["b"]


def test_two_processes_cannot_hold_a_run(run: Run) -> None:
    with run, pytest.raises(RunFolderError, match="another process is working"), Run(run.folder):
        pass
    with Run(run.folder):
        pass


def test_orphans_of_a_killed_process_are_cleared(run: Run) -> None:
    (run.folder / "tokens" / ".eu.123.tmp").mkdir(parents=True)
    (run.folder / ".recipe.yaml.123.tmp").write_text("x")
    (run.folder / "recipe.yaml").write_text("x")
    (run.folder / ".notes.tmp").write_text("the user's own")
    with run:
        assert sorted(p.name for p in run.folder.rglob("*")) == [".lock", ".notes.tmp", "recipe.yaml", "tokens"]


def test_a_run_is_adopted_once_and_again(run: Run, recipe: Recipe) -> None:
    with run:
        run.adopt(recipe)
        run.adopt(recipe)
        assert run.recipe == recipe


def test_another_recipe_is_refused_with_the_differences(run: Run, recipe: Recipe) -> None:
    with run:
        run.adopt(recipe)
        with pytest.raises(RunFolderError, match="seed: 0 → 3"):
            run.adopt(recipe.model_copy(update={"seed": 3}))


def test_what_a_published_folder_says_of_itself_may_be_said_later(run: Run, recipe: Recipe) -> None:
    corpora = {name: corpus.model_copy(update={"license": "mit"}) for name, corpus in recipe.corpora.items()}
    said = recipe.model_copy(update={"export": Export(license="apache-2.0"), "corpora": corpora})
    with run:
        run.adopt(recipe)
        run.adopt(said)
    assert run.recipe == said
    assert not run.path("changes.jsonl").exists()


def test_a_folder_of_something_else_is_refused(run: Run, recipe: Recipe) -> None:
    run.folder.mkdir()
    (run.folder / "thesis.tex").write_text("x")
    (run.folder / ".cache.1.tmp").mkdir()
    with pytest.raises(RunFolderError, match=r"not a run folder.*thesis\.tex"), run:
        run.adopt(recipe)
    assert sorted(p.name for p in run.folder.iterdir()) == [".cache.1.tmp", "thesis.tex"]
    with pytest.raises(RunFolderError, match=r"no recipe\.yaml"):
        _ = run.recipe


def test_a_run_killed_while_it_was_adopted_can_be_adopted(run: Run, recipe: Recipe, monkeypatch) -> None:
    def killed(_: Recipe) -> str:
        raise KeyboardInterrupt

    with run:
        with monkeypatch.context() as patch:
            patch.setattr("lingraft.run.dump_recipe", killed)
            with pytest.raises(KeyboardInterrupt):
                run.adopt(recipe)
        run.adopt(recipe)
        assert run.recipe == recipe


def test_a_step_is_done_once_per_inputs(run: Run) -> None:
    calls: list[int] = []

    def action() -> dict[str, int]:
        calls.append(1)
        return {"n": len(calls)}

    assert [run.step("learn", {"seed": s}, action)["n"] for s in (1, 1, 2, 2, 1)] == [1, 1, 2, 2, 3]
    assert run.finished("other") is None


def test_a_failed_step_leaves_no_marker(run: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        run.step("learn", {}, lambda: {"x": 1 // 0})
    assert run.finished("learn") is None


@pytest.fixture
def measured(run: Run) -> Run:
    run.folder.mkdir()
    rows = [("base", "loss", 1.0), ("a", "fertility", 2.0), ("a", "loss", 3.0), ("b", "loss", 4.0)]
    run.measure([Measurement(stage, 0, name, value) for stage, name, value in rows])
    return run


def values(run: Run) -> list[int | float]:
    return [row.value for row in run.measurements()]


def test_measurements_after_a_checkpoint_are_forgotten(measured: Run) -> None:
    measured.measure([Measurement("b", 1, "loss", 5.0), Measurement("c", 2, "loss", 6.0)])
    measured.forget_measurements_after("b", 1)
    assert values(measured) == [1, 2, 3, 4, 5, 6]
    measured.forget_measurements_after("b", 0)
    assert values(measured) == [1, 2, 3, 4, 6]


def test_measurements_of_a_stage_or_name_are_forgotten(measured: Run) -> None:
    measured.forget_measurements_of("a")
    assert values(measured) == [1, 2, 4]
    measured.forget_measurements_named("loss")
    assert values(measured) == [2]
    assert [p.name for p in measured.folder.iterdir()] == ["measurements.jsonl"]


def test_a_run_without_measurements_has_none(run: Run) -> None:
    assert run.measurements() == []


def test_the_environment_names_no_person_and_no_path() -> None:
    described = str(describe_environment())
    assert "torch" in described
    assert not any(secret in described for secret in (str(Path.home()), os.environ.get("USER") or "\0"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inputs": "x"}'])
def test_a_marker_that_cannot_be_read_counts_as_none(text: str, run: Run) -> None:
    (run.folder / "steps").mkdir(parents=True)
    (run.folder / "steps" / "learn.json").write_text(text)
    assert run.finished("learn") is None


def test_a_failed_step_leaves_no_marker_that_vouches_for_what_it_wrote(run: Run) -> None:
    run.step("learn", {"a": 1}, dict)
    with pytest.raises(ZeroDivisionError):
        run.step("learn", {"a": 2}, lambda: {"x": 1 / 0})
    assert run.finished("learn") is None


def test_a_step_whose_files_are_gone_is_done_again(run: Run) -> None:
    run.folder.mkdir()
    made = run.folder / "made"
    for _ in range(2):
        run.step("learn", {}, lambda: made.touch() or {}, makes=[made])
        assert made.exists()
        made.unlink()


def test_changed_sources_are_refused_and_the_record_stays(run: Run) -> None:
    run.step("read", {"text": 1}, lambda: {"n": 1}, source="the text")
    with pytest.raises(RunFolderError, match="the text has changed since this run was begun"):
        run.step("read", {"text": 2}, lambda: {"n": 2}, source="the text")
    assert run.step("read", {"text": 1}, dict, source="the text") == {"n": 1}


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_where_no_folder_can_be_made_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(RunFolderError, match=r"a file, not a run folder|no run folder can be made"),
        Run(tmp_path / place),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "x"), "No space left on device"),
        (OSError(errno.EFBIG, "x"), "File too large"),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), "No space left"),
        (SafetensorError("Error while deserializing header: header too large"), None),
        (OSError(errno.ENOENT, "x"), None),
        (ValueError("os error 28"), None),
        (None, None),
    ],
)
def test_o66_a_write_that_the_system_refused_is_told_from_other_errors(error, said: str | None) -> None:
    found = refused_write(error)
    assert found == said or (found is not None and said is not None and found.startswith(said))


def test_o66_a_full_disk_is_an_error_of_our_own_with_the_folder(run: Run) -> None:
    with (
        pytest.raises(RunFolderError, match=r"run: nothing more can be written there: No space left .* make room"),
        run,
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError), run:
        raise FileNotFoundError


def test_a_file_that_could_not_be_written_leaves_the_old_one_alone(tmp_path: Path, monkeypatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_file(tmp_path / "a", "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "a", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_what_a_run_wrote_is_read_or_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content in (None, b"{", b"\xff", b"\x00\x00"):
        path.write_bytes(content) if content else None
        with pytest.raises(RunFolderError, match=r"a\.json: missing or damaged .*delete it"):
            read_own(path)
    path.write_text('{"n": 1}')
    assert read_own(path) == {"n": 1}


def test_a_hash_is_of_every_byte_and_can_be_stopped_in_between(tmp_path: Path) -> None:
    import hashlib

    path, calls = tmp_path / "a", []
    path.write_bytes(content := bytes(range(256)) * 2**15)
    assert hash_file(path, lambda: calls.append(1)) == hash_file(path) == hashlib.sha256(content).hexdigest()
    assert len(calls) == len(content) // 2**22
