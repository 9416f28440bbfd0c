"""A vocabulary replacement puts new rows among the old ones: every step goes by their ids."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.corpus import open_store
from lingraft.model.preflight import refuse_untrained_rows
from lingraft.pipeline.adapt import adapt
from lingraft.vocabulary import TokenizerFile

TABLE = "model.embed_tokens.weight"


def stores_of(run):
    """Return the token stores of a run."""
    stores = {}
    for folder in run.path("tokens").iterdir():
        manifest = json.loads((folder / "manifest.json").read_text())
        keys = {name: manifest[name] for name in ("tokenizer_sha256", "corpus_sha256")}
        stores[folder.name] = open_store(folder, **keys)
    return stores


def test_new_rows_among_old_ones_learn_alone_and_are_counted_alone(make_recipe, tied_folder, tmp_path):
    recipe = make_recipe(
        "vocabulary.method=replace",
        "vocabulary.new_tokens=12",
        "vocabulary.max_source_drift=0.5",
        "embeddings.max_source_rise=9",
        "measure.validation_bytes=1000",
        "measure.probes=[{name: random_copy, num_items: 2, length: 8}]",
    )
    run = adapt(recipe, tmp_path / "run", until="first")
    expansion = json.loads(run.path("vocabulary", "expansion.json").read_text())
    new_ids = sorted(token["id"] for token in expansion["new_tokens"])
    assert len(new_ids) == 12
    assert new_ids[0] < expansion["num_old"] - 12  # they lie among the old ones
    start, now, base = (
        load_file(folder / "model.safetensors")[TABLE]
        for folder in (run.path("embeddings", "model"), run.path("stages", "1-first", "model"), tied_folder)
    )
    kept = [i for i in range(len(base)) if i not in new_ids]
    assert torch.equal(start[kept], base[kept])
    assert set((start != now).any(dim=1).nonzero().flatten().tolist()) == set(new_ids)
    rows = [json.loads(line) for line in run.path("measurements.jsonl").read_text().splitlines()]
    shift = {row["name"]: row["value"] for row in rows if row["stage"] == "first" and "shift/" in row["name"]}
    before, after = start[new_ids].double(), now[new_ids].double()
    assert shift["shift/embeddings_new/relative_l2"] == pytest.approx(((after - before).norm() / before.norm()).item())
    assert shift["shift/embeddings_old/relative_l2"] == 0

    # O-30: what lay at a new token's id in the base model is gone before training, so it may be anything.
    base[new_ids] = 0.0
    save_file({TABLE: base}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tokenizer = TokenizerFile.open(run.path("vocabulary"))
    assert refuse_untrained_rows(tmp_path, stores_of(run), tokenizer, new_ids) == []
