"""Stages of every kind in one run: carried moments, a rate that goes on, dropout of merges, extra heads; and resuming."""

import pytest
import torch
from safetensors.torch import load_file

from lingraft.errors import InterruptedRunError, RecipeError, RunFolderError
from lingraft.model.base import load_model
from lingraft.model.freeze import weights_digest
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.drawn_tokens import drawn_stores
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.progress import Silent

FIRST = "stages.0.lr={peak: 1e-3, warmup: 0%, schedule: constant}"
OVERRIDES = (
    FIRST,
    "stages.0.bpe_dropout={rate: 20%}",
    "stages.1.tokens=1024",
    "stages.1.lr={rewarm: false, schedule: wsd, decay: 50%}",
    "stages.1.optimizer={start: carry}",
    "stages.1.train={top_layers: 1, also: [embeddings]}",
    "stages.1.bpe_dropout={rate: 10%, merges: all}",
    "stages.1.extra_heads=1",
    "stages.1.z_loss=1e-4",
    "stages.1.checkpoint_every=256",
    "embeddings.max_source_mass=1.0",
    "embeddings.max_source_rise=9",
    "measure={at: [50%], probes: [], validation_bytes: 1000}",
)


class StopAt(Silent):
    """Sends the run a signal after a step of the second stage."""

    def __init__(self, at: int) -> None:
        self.at, self.stage_name = at, ""

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        self.stage_name = name

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        import signal

        if self.stage_name == "second" and step == self.at:
            signal.raise_signal(signal.SIGTERM)


def digest(run) -> str:
    return weights_digest(load_model(run.path("stages", "2-second", "model")))


def test_a_run_of_such_stages_ends_and_leaves_a_plain_model(make_recipe, tmp_path) -> None:
    run = adapt(make_recipe(*OVERRIDES), tmp_path / "run", until="second")
    names = load_file(run.path("stages", "2-second", "model", "model.safetensors")).keys()
    assert not [name for name in names if "multi_token" in name]
    first = run.path("stages", "1-first")
    moments = load_file(first / "optimizer.safetensors")
    ages = moments["model.embed_tokens.weight::age"].flatten()
    assert sorted(set(ages.tolist())) == [0, 4]
    assert int((ages == 4).sum()) == 40
    rates = [row.value for row in run.measurements() if row.name == "learning_rate"]
    assert rates[:4] == pytest.approx([1e-3] * 4)
    assert rates[4:] == pytest.approx([1e-3] * 5 + [1e-3 * (1 - 0.967 * n / 4) for n in (1, 2, 3)])


def test_stopped_and_gone_on_from_it_ends_with_the_same_bits(make_recipe, tmp_path) -> None:
    recipe = make_recipe(*OVERRIDES)
    with pytest.raises(InterruptedRunError, match="after step 3 of 8; it is saved"):
        adapt(recipe, tmp_path / "run", until="second", progress=StopAt(3))
    resumed = adapt(recipe, tmp_path / "run", until="second")
    assert digest(resumed) == digest(adapt(recipe, tmp_path / "whole", until="second"))


def test_moments_that_were_altered_are_refused(make_recipe, tmp_path) -> None:
    recipe = make_recipe(*OVERRIDES)
    run = adapt(recipe, tmp_path / "run", until="first")
    path = run.path("stages", "1-first", "optimizer.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunFolderError, match="the moments are not those that were written there"):
        adapt(recipe, tmp_path / "run", until="second")


def test_every_reading_of_a_corpus_is_in_other_pieces(make_recipe, tmp_path) -> None:
    from lingraft.pipeline.data import prepare_corpora
    from lingraft.pipeline.expanding import prepare_vocabulary
    from lingraft.pipeline.prepare import prepare_base, prepare_stores
    from lingraft.run import Run

    recipe = make_recipe("stages.1.bpe_dropout={rate: 30%}")
    with Run(tmp_path / "run") as run:
        run.adopt(recipe)
        prepare_corpora(run, recipe, Silent())
        base = prepare_base(run, recipe, Silent())
        expansion = prepare_vocabulary(run, recipe, base.tokenizer, Silent())
        plain = prepare_stores(run, recipe, base, expansion.new, Silent())
        dropout = recipe.stages[1].bpe_dropout
        drawn = drawn_stores(run, recipe, base, expansion, plain, dropout, Silent())
        # A process that is killed right behind making a store leaves the parts that it was made of.
        for store in (plain["eu"], drawn["eu"]):
            store.folder.with_name(f"{store.folder.name}.parts").mkdir()
        prepare_stores(run, recipe, base, expansion.new, Silent())
        again = drawn_stores(run, recipe, base, expansion, plain, dropout, Silent())
    assert drawn["eu"].folder == again["eu"].folder
    assert not list(run.path("tokens").glob("*.parts"))
    count = plain["eu"].num_documents
    readings = drawn["eu"].num_documents // count
    assert readings > 1
    assert drawn["en"].document(0).tolist() == plain["en"].document(0).tolist()
    spellings = [drawn["eu"].document(n * count).tolist() for n in range(readings)]
    assert spellings[0] != spellings[1]
    texts = {expansion.new.decode(ids) for ids in spellings}
    assert texts == {expansion.new.decode(plain["eu"].document(0).tolist())}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "stages.1.train={top_layers: 2, bottom_layers: 1}",
            r"stages\.1\.train: 3 layers are asked for .* the base has 2",
        ),
        (
            "stages.1.train={top_layer: 2}",
            r"stages\.1\.train\.top_layer: unknown key 'top_layer', did you mean 'top_layers'",
        ),
        ("stages.1.train={top_layers: 0}", r"stages\.1\.train: top_layers and bottom_layers are both 0"),
    ],
)
def test_layers_that_are_not_there_are_refused_by_the_plan(make_recipe, override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make_plan(make_recipe(override))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("[body, '*.nothing.*']", r"stages\.1\.train\.1: the pattern '\*\.nothing\.\*' matches no parameter"),
        ("blocks", r"stages\.1\.train: blocks has nothing to train: no blocks were inserted"),
        ("{top_layers: 1, also: [embedings]}", r"stages\.1\.train: the pattern 'embedings' matches no parameter"),
    ],
)
def test_what_the_base_does_not_have_is_refused_by_the_plan(make_recipe, train, message) -> None:
    with pytest.raises(RecipeError, match=message):
        make_plan(make_recipe(f"stages.1.train={train}"))


@pytest.mark.parametrize(
    ("train", "tied", "count"),
    [
        ("body", True, "body"),
        ("[new_input_embeddings, output_embeddings]", False, 40 * 32 + 448 * 32),
        ("[new_input_embeddings, output_embeddings]", True, 448 * 32),
        ("{top_layers: 1, also: [new_embeddings]}", True, "half"),
    ],
)
def test_weights_that_learn_by_words(make_recipe, tied_folder, untied_folder, train, tied, count) -> None:
    plan = make_plan(make_recipe(f"stages.0.train={train}", f"base_model={tied_folder if tied else untied_folder}"))
    body = plan.base.num_parameters - 420 * 32
    expected = {"body": body, "half": round(body / 2) + 40 * 32}.get(count, count)
    assert plan.stages[0].trainable == expected


def test_no_row_of_the_first_stage_but_new_ones_moved(make_recipe, tmp_path) -> None:
    """O-33 with dropout of merges on: rows of old tokens are read oftener, and stand still."""
    run = adapt(make_recipe(*OVERRIDES), tmp_path / "run", until="first")
    before = load_model(run.path("embeddings", "model"))
    after = load_model(run.path("stages", "1-first", "model"))
    moved = (before.get_input_embeddings().weight != after.get_input_embeddings().weight).any(dim=1)
    assert 0 < int(moved.sum()) <= 40
    assert torch.equal(before.model.norm.weight, after.model.norm.weight)
