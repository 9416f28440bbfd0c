"""A run with inserted blocks: only they and new rows learn, the base's body keeps its bits, the plan counts them."""

from pathlib import Path

import pytest
import torch

from lingraft.errors import ModelError, RecipeError
from lingraft.model import export
from lingraft.model.base import load_model
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.guard_plan import deeper_base
from lingraft.pipeline.plan import make_plan
from lingraft.recipe import Blocks
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
blocks: {{after: [0]}}
precision: fp32
stages:
  - name: only
    train: [blocks, new_embeddings]
    tokens: 512
    mix: {{eu: 1.0}}
    lr: {{peak: 1e-2, warmup: 10%}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 4}}
measure: {{at: [100%], validation_bytes: 1000, probes: [], samples: [a], sample_tokens: 1}}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tied_folder: Path, corpora_folder: Path) -> Run:
    folder = tmp_path_factory.mktemp("deeper")
    path = folder / "tiny.yaml"
    path.write_text(TEXT.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_load_elsewhere", lambda *_: {})
        return adapt(load_recipe(path), folder / "run")


def test_the_body_of_the_base_keeps_its_bits_and_the_copy_learns(finished: Run, tied_folder: Path) -> None:
    base, now = load_model(tied_folder), load_model(finished.path("model"))
    assert type(now) is type(base)
    assert len(now.model.layers) == len(base.model.layers) + 1
    for position, original in ((0, 0), *((n + 1, n) for n in range(1, len(base.model.layers)))):
        pairs = zip(now.model.layers[position].parameters(), base.model.layers[original].parameters(), strict=True)
        assert all(torch.equal(new, old) for new, old in pairs)
    assert now.model.layers[1].mlp.down_proj.weight.any()
    assert now.model.layers[1].self_attn.o_proj.weight.any()


def test_the_expanded_model_is_measured_with_its_blocks_and_the_record_names_them(finished: Run) -> None:
    assert finished.finished("embeddings")["record"]["inserted_blocks"] == ["model.layers.1"]
    rows = {(r.stage, r.language): r.value for r in finished.measurements() if r.name == "bits_per_byte"}
    assert rows["only", "eu"] < rows["expanded", "eu"]
    assert "Inserted blocks: `model.layers.1`" in finished.path("model", "README.md").read_text()


def test_a_run_that_is_begun_again_does_nothing_anew(finished: Run) -> None:
    marker = finished.path("steps", "stage-1-only.json")
    before = marker.stat().st_mtime_ns
    adapt(finished.recipe, finished.folder)
    assert marker.stat().st_mtime_ns == before


def test_the_plan_counts_them(make_recipe) -> None:
    recipe = make_recipe("blocks=1", "stages.1.train=blocks")
    plan = make_plan(recipe)
    per_block = (plan.base.num_parameters - 420 * 32) // plan.base.num_layers
    assert plan.stages[1].trainable == per_block
    assert plan.stages[0].trainable == 40 * 32
    deeper, weights = deeper_base(recipe, plan.base)
    assert (deeper.num_layers, weights) == (plan.base.num_layers + 1, per_block)
    assert deeper_base(make_recipe(), plan.base) == (plan.base, 0)


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (("blocks=99",), ModelError, "blocks: 99 copies of"),
        (("blocks={after: [7]}",), ModelError, r"blocks: \[7\] must be ascending numbers of the base's"),
        (("stages.1.train=blocks",), RecipeError, r"stages\.1\.train: blocks has nothing to train"),
        (("blocks={count: 1, after: [0]}",), RecipeError, "blocks: give count or after, one of the two"),
        (("blocks={after: [1, 0]}",), RecipeError, "blocks: after must be ascending"),
        (("blocks=0",), RecipeError, "blocks: Input should be greater than or equal to 1"),
    ],
)
def test_what_cannot_work_is_refused_by_the_plan(make_recipe, overrides, error, message: str) -> None:
    with pytest.raises(error, match=message):
        make_plan(make_recipe(*overrides))


def test_a_number_is_enough_and_survives_the_dump() -> None:
    assert Blocks.model_validate(3) == Blocks(count=3)
    assert Blocks(**Blocks(after=(0, 2)).model_dump()) == Blocks(after=(0, 2))
    assert (Blocks(count=3).where, Blocks(after=(0, 2)).where) == (3, (0, 2))
    assert (Blocks(count=3).number, Blocks(after=(0, 2)).number) == (3, 2)
