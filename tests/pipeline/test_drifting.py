"""Drift as rows of a run: what is there, when, and that the untrained model has none."""

import pytest
import torch

from lingraft.model.base import load_model
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.drifting import DriftWatch, shift_rows
from lingraft.recipe import Drift

OVERRIDES = (
    "stages.1.tokens=512",
    "embeddings.max_source_mass=1.0",
    "embeddings.max_source_rise=9",
    "measure={at: [50%], probes: [], validation_bytes: 1000, drift: {tokens: 256, spectral_layers: 1}}",
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("drift") / "run"


@pytest.fixture
def run(run_folder, make_recipe):
    """The same run for every test: its steps are done once."""
    return adapt(make_recipe(*OVERRIDES), run_folder, until="second")


def rows(run, stage: str, prefix: str) -> dict[tuple[str, int], float]:
    return {(r.name, r.tokens): r.value for r in run.measurements() if r.stage == stage and r.name.startswith(prefix)}


def test_weights_by_layer_at_every_point_and_function_at_the_end(run) -> None:
    shift, drift = rows(run, "second", "shift/"), rows(run, "second", "drift/")
    first, last = sorted({tokens for _, tokens in shift})
    names = {name for name, tokens in shift if tokens == first}
    assert {f"shift/layer/{n}/{kind}/relative_l2" for n in (0, 1) for kind in ("attention", "mlp", "norm")} <= names
    assert {"shift/mean_relative_l2", "shift/embeddings_old/row_cosine", "shift/embeddings_new/row_cosine_low"} <= names
    assert {tokens for _, tokens in drift} == {last}
    found = {name for name, _ in drift}
    assert {"drift/kl", "drift/cka/source", "drift/cka/copy", "drift/cka/source/layer/2", "drift/stable_rank"} <= found
    assert {"drift/layer/1/mlp.up_proj/stable_rank", "drift/layer/1/self_attn.q_proj/intruders"} <= found
    assert not {name for name in found if name.startswith("drift/layer/0")}
    assert drift["drift/kl", last] > 0
    assert drift["drift/cka/source", last] < 1


def test_the_expanded_model_has_the_bases_function(run) -> None:
    """Old rows are the base's, bit for bit, and base tokens go in: nothing has drifted before training."""
    from lingraft.pipeline.expanding import prepare_vocabulary
    from lingraft.pipeline.prepare import prepare_base
    from lingraft.pipeline.progress import Silent

    base = prepare_base(run, run.recipe, Silent())
    expansion = prepare_vocabulary(run, run.recipe, base.tokenizer, Silent())
    folder = run.path("embeddings", "model")
    watch = DriftWatch(
        Drift(tokens=256), run.path("base_states.safetensors"), expansion, base.documents.condition, 4, "en"
    )
    found = {row.name: row.value for row in watch.rows(load_model(folder), "expanded", 0, folder)}
    assert found["drift/kl"] < 1e-6
    assert found["drift/cka/source"] == pytest.approx(1, abs=1e-3)
    assert found["drift/stable_rank"] == found["drift/spectral_ratio"] == found["drift/intruder_share"] == 0
    moved = load_model(folder)
    with torch.no_grad():
        for layer in moved.model.layers:
            layer.mlp.down_proj.weight.mul_(-1)
    more = {row.name: row.value for row in watch.rows(moved, "expanded", 0, folder)}
    assert more["drift/kl"] > 100 * max(found["drift/kl"], 1e-7)
    assert more["drift/cka/source"] < found["drift/cka/source"]
    shift = {row.name: row.value for row in shift_rows(moved, "expanded", 0, folder, expansion)}
    assert shift["shift/layer/0/mlp/relative_l2"] > 0 == shift["shift/layer/0/attention/relative_l2"]


def test_nothing_is_asked_where_nothing_is_wanted(make_recipe, tmp_path) -> None:
    run = adapt(
        make_recipe(*OVERRIDES[:-1], "measure={at: [50%], probes: [], drift: {tokens: 0, spectral_layers: 0}}"),
        tmp_path / "run",
        until="first",
    )
    assert not run.path("base_states.safetensors").exists()
    assert not [row for row in run.measurements() if row.name.startswith("drift/")]
