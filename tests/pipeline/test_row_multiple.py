"""A quantiser's multiple is asked for before anything is trained, and the planned rows are those of the folder."""

import json

import pytest
from safetensors import safe_open

from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.plan import make_plan


@pytest.mark.parametrize("multiple", [64, 256])
def test_o78_the_row_multiple_is_planned_and_written(make_recipe, tmp_path, multiple):
    recipe = make_recipe(f"vocabulary.row_multiple={multiple}")
    planned = make_plan(recipe).num_rows
    assert planned % multiple == 0
    folder = adapt(recipe, tmp_path / "run", until="embeddings").path("embeddings", "model")
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        rows = file.get_slice("model.embed_tokens.weight").get_shape()[0]
    assert (
        rows
        == planned
        == json.loads((folder / "config.json").read_text())["vocab_size"]
        == (-(-434 // multiple)) * multiple
    )
