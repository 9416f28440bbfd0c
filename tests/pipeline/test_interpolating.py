"""The sweep back to the base in a run: the rule for the best λ, what is recorded, shown and exported."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lingraft.cli import app
from lingraft.errors import RunFolderError
from lingraft.model import export
from lingraft.model.base import load_model
from lingraft.pipeline.adapt import adapt, interpolate_back, step_names
from lingraft.pipeline.interpolating import best_weight
from lingraft.recipe import Interpolation
from lingraft.recipe_file import load_recipe
from lingraft.run import Run

TEXT = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{new_tokens: 20, min_count: 3, row_multiple: 16}}
embeddings: {{max_source_rise: 5.0, max_source_mass: 0.5}}
precision: fp32
stages:
  - name: only
    tokens: 1024
    mix: {{eu: 1.0}}
    lr: {{peak: 1e-2, warmup: 10%}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 4}}
interpolate: {{weights: [0.0, 0.5, 1.0], export: true}}
measure: {{at: [100%], validation_bytes: 1000, probes: [], samples: [a], sample_tokens: 1}}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tied_folder: Path, corpora_folder: Path) -> Run:
    folder = tmp_path_factory.mktemp("interpolated")
    path = folder / "tiny.yaml"
    path.write_text(TEXT.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_load_elsewhere", lambda *_: {})
        return adapt(load_recipe(path), folder / "run")


@pytest.mark.parametrize(
    ("target", "source", "best"),
    [
        ([3.0, 2.0, 1.0], [1.0, 1.0, 1.0], 1.0),  # nothing is forgotten: all the way
        ([3.0, 2.0, 1.0], [1.0, 1.1, 1.5], 0.5),  # the end forgets too much
        ([3.0, 2.0, 1.0], [1.3, 1.2, 1.5], 0.5),  # all do: the least
        ([2.0, 2.0, 3.0], [1.0, 1.0, 1.0], 0.0),  # of equals the nearer to the base
    ],
)
def test_the_rule_by_hand(target, source, best) -> None:
    assert best_weight([0.0, 0.5, 1.0], target, source, 1.1) == best


def test_the_ends_of_the_line_are_what_was_measured_there(finished: Run) -> None:
    record = finished.finished("interpolate")["record"]
    rows = {(r.stage, r.language): r.value for r in finished.measurements() if r.name == "bits_per_byte"}
    assert record["target"][2] == pytest.approx(rows["only", "eu"], rel=1e-6)
    assert record["source"][2] == pytest.approx(rows["only", "en"], rel=1e-6)
    assert record["base_source"] == rows["base", "en"]
    assert record["limit"] == pytest.approx(rows["base", "en"] + 0.01)
    named = {r.name: r.value for r in finished.measurements() if r.stage == "interpolated" and r.language == "eu"}
    assert list(named) == [f"interpolation/{weight}/bits_per_byte" for weight in ("0", "0.5", "1")]
    assert list(named.values()) == record["target"]


def test_the_best_is_exported_and_what_was_trained_is_left_as_it_is(finished: Run) -> None:
    best = finished.finished("interpolate")["record"]["best"]
    folders = (finished.path("embeddings", "model"), finished.path("model"), finished.path("model-interpolated"))
    base, tuned, between = (dict(load_model(folder).named_parameters()) for folder in folders)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(between[name], torch.lerp(base[name], tuned[name], best))
    card = (folders[2] / "README.md").read_text()
    assert f"**λ = {best:g}**" in card
    assert "λ" not in (folders[1] / "README.md").read_text()


def test_the_report_shows_the_sweep(finished: Run) -> None:
    page = finished.path("report.html").read_text()
    assert "Interpolation back to the base" in page
    assert "(best)" in page


def test_the_command_does_it_with_other_points_and_once(finished: Run) -> None:
    wanted = ["interpolate", str(finished.folder), "--weights", "0,1"]
    done = CliRunner().invoke(app, wanted)
    assert done.exit_code == 0, done.output
    record = finished.finished("interpolate")["record"]
    assert done.output.splitlines()[0].startswith(f"0: target {record['target'][0]:.4f}, source")
    assert done.output.count("best") == 1
    marker = finished.path("steps", "interpolate.json")
    before = marker.stat().st_mtime_ns
    assert CliRunner().invoke(app, wanted).output == done.output
    assert marker.stat().st_mtime_ns == before
    assert CliRunner().invoke(app, [*wanted[:3], "0,2"]).exit_code != 0


def test_a_run_that_is_not_trained_has_no_line(tmp_path, finished: Run) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(finished.path("recipe.yaml").read_text())
    with pytest.raises(RunFolderError, match="its last stage is not done"):
        interpolate_back(folder, Interpolation())


def test_the_step_has_a_name_only_where_there_is_one(finished: Run, make_recipe) -> None:
    assert step_names(finished.recipe)[-4:] == ("interpolate", "export", "samples", "report")
    assert "interpolate" not in step_names(make_recipe())
    assert json.loads(finished.path("steps", "interpolate.json").read_text())["record"]["weights"]
