"""What init methods read belongs to a run: another file under the same name is refused."""

import pytest

from lingraft.errors import RunFolderError
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.initialising import fingerprint_of_files
from lingraft.recipe import InitPair


def test_files_and_folders_have_a_fingerprint_and_words_have_none(tmp_path):
    (tmp_path / "donor").mkdir()
    (tmp_path / "donor" / "a").write_text("1")
    (tmp_path / "words.vec").write_text("2")
    options = {"donor": str(tmp_path / "donor"), "vectors": str(tmp_path / "words.vec"), "weights": "uniform", "k": 3}
    pair = InitPair.model_validate({"input": {"name": "x", **options}})
    before = fingerprint_of_files(pair)
    assert sorted(before) == ["input.donor", "input.vectors"]
    (tmp_path / "donor" / "a").write_text("3")
    after = fingerprint_of_files(pair)
    assert (before["input.donor"] != after["input.donor"], before["input.vectors"]) == (True, after["input.vectors"])


def test_a_file_that_changed_since_the_run_began_is_refused(make_recipe, tmp_path, monkeypatch):
    (tmp_path / "own_reading.py").write_text(
        "import pathlib\n\n\ndef rows(context, *, file=''):\n"
        "    return context.old[: context.expansion.num_new] * float(pathlib.Path(file).read_text())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "factor").write_text("1")
    recipe = make_recipe(f'embeddings.input={{name: "own_reading:rows", file: {tmp_path / "factor"}}}')
    run = adapt(recipe, tmp_path / "run", until="embeddings")
    digest = run.finished("embeddings")["record"]["weights_sha256"]
    (tmp_path / "factor").write_text("2")
    with pytest.raises(RunFolderError, match="a file that the init methods of embeddings read has changed"):
        adapt(recipe, tmp_path / "run", until="embeddings")
    assert run.finished("embeddings")["record"]["weights_sha256"] == digest
