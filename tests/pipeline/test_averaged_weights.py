"""A run with a shadow average: measured beside the raw weights, exported beside them, and never mistaken for them."""

import json
import re
from pathlib import Path

import pytest
import torch

from lingraft.model import export
from lingraft.model.base import load_model
from lingraft.model.locate import describe_base, locate_base
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.outline import path_length, stage_memory
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.rates import stage_rates
from lingraft.pipeline.settings import average_in_words
from lingraft.pipeline.training import stage_plan
from lingraft.recipe_file import load_recipe
from lingraft.run import Run

TEXT = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{method: keep}}
precision: fp32
stages:
  - name: only
    tokens: 1024
    mix: {{eu: 1.0}}
    lr: {{peak: 1e-2, warmup: 10%}}
    ema: {{kind: shadow, decay: 0.9, every: 2}}
    guards: [{{name: ewc, strength: 10.0, tokens: 64}}, {{name: source_shielded, tokens: 64}}]
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 4}}
measure: {{at: [50%, 100%], validation_bytes: 1000, probes: [], samples: [a], sample_tokens: 1}}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tied_folder: Path, corpora_folder: Path) -> Run:
    folder = tmp_path_factory.mktemp("averaged")
    path = folder / "tiny.yaml"
    path.write_text(TEXT.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    # Loading in another process is what tests/test_end_to_end.py is about, and takes seconds for each model.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_load_elsewhere", lambda *_: {})
        return adapt(load_recipe(path), folder / "run")


def test_both_are_measured_at_every_point_on_the_same_text(finished: Run) -> None:
    rows = [row for row in finished.measurements() if row.stage == "only" and row.language == "eu"]
    raw = [row for row in rows if row.name == "bits_per_byte"]
    averaged = [row for row in rows if row.name == "averaged/bits_per_byte"]
    assert [row.tokens for row in raw] == [row.tokens for row in averaged] == [512, 1024]
    assert [row.count for row in raw] == [row.count for row in averaged]
    assert all(one.value != other.value for one, other in zip(raw, averaged, strict=True))


def test_both_are_exported_and_neither_is_the_other(finished: Run) -> None:
    raw, averaged = (dict(load_model(finished.path(name)).named_parameters()) for name in ("model", "model-averaged"))
    assert raw.keys() == averaged.keys()
    assert all(not torch.equal(raw[name], averaged[name]) for name in raw)
    assert {finished.finished(name) is not None for name in ("export", "export-averaged")} == {True}


def test_the_exported_average_is_what_was_measured(finished: Run) -> None:
    from lingraft.measure.bits_per_byte import measure_bits_per_byte
    from lingraft.measure.scoring import Scorer
    from lingraft.pipeline.prepare import texts_of
    from lingraft.vocabulary import TokenizerFile

    measured = {
        row.name: row for row in finished.measurements() if row.language == "eu" and row.tokens == 1024
    }  # the last stage's end
    tokenizer = TokenizerFile.open(finished.path("model"))
    texts = list(texts_of(finished, finished.recipe, "eu", "validation"))
    for folder, name in (("model", "bits_per_byte"), ("model-averaged", "averaged/bits_per_byte")):
        model = load_model(finished.path(folder))
        condition = tokenizer.id_of(
            json.loads((finished.path(folder) / "tokenizer_config.json").read_text())["bos_token"]
        )
        scorer = Scorer(
            model, num_ids=tokenizer.num_ids, condition_id=condition, window=2050, batch_size=8, dtype=torch.float32
        )
        again = measure_bits_per_byte(scorer, tokenizer, texts[: measured[name].count], segment_bytes=2048)
        assert again.value == pytest.approx(measured[name].value, rel=1e-5)


def test_card_and_report_say_which_is_which(finished: Run) -> None:
    raw, averaged = (finished.path(name, "README.md").read_text() for name in ("model", "model-averaged"))
    assert "These are the **raw** weights" in raw
    assert "These are the **averaged** weights" in averaged
    assert "shadow, decay 0.9 every 2" in averaged
    last = {row.name: row.value for row in finished.measurements() if row.language == "eu" and row.tokens == 1024}
    assert f"{last['bits_per_byte']:.3f}" in raw
    assert f"{last['averaged/bits_per_byte']:.3f}" in averaged
    assert f"{last['averaged/bits_per_byte']:.3f}" not in raw
    assert "The same of the averaged weights" in finished.path("report.html").read_text()


def test_guards_hold_their_columns_in_what_is_exported_too(finished: Run, tied_folder: Path) -> None:
    base = dict(load_model(tied_folder).named_parameters())
    name = "model.layers.0.mlp.up_proj.weight"
    columns = []
    for folder in ("model", "model-averaged"):
        now = dict(load_model(finished.path(folder)).named_parameters())[name]
        columns.append((now == base[name]).all(dim=0))
    assert torch.equal(*columns)
    assert int(columns[0].sum()) == len(columns[0]) // 2
    assert not list(finished.path("stages").rglob("guards"))


def test_a_run_without_one_says_nothing_of_averages(make_recipe, tmp_path) -> None:
    from lingraft.report.averaged import averaged_record
    from lingraft.report.reading import read_record

    assert averaged_record(read_record(tmp_path)) is None


def test_the_plan_prints_half_life_and_what_is_left_of_the_start(make_recipe) -> None:
    def told(ema: str) -> tuple[str, str, str]:
        return average_in_words(make_recipe(f"stages.1.ema={ema}").stages[1])

    assert told("{}") == ("live, decay 0.92", "8.3 steps", "0.02%")  # 0.92 ** 100
    assert told("{every: 10}") == ("live, decay 0.92 every 10", "83.1 steps", "43.44%")  # 0.92 ** 10
    assert told("{kind: shadow, warmup: false}") == ("shadow, decay 0.999", "692.8 steps", "90.48%")
    assert told("{kind: lr_matched}") == ("lr_matched, decay 0.92", "–", "rate × 0.08")
    assert told("{kind: uniform}") == ("uniform every 10", "–", "none of it")
    assert told("{kind: to_start}")[1:] == ("689.7 steps to the start", "1.00% each time")
    assert average_in_words(make_recipe().stages[1]) == ("none", "–", "–")
    assert make_plan(make_recipe("stages.1.ema={}")).stages[1].averaging == told("{}")


def test_the_control_runs_at_the_rate_that_the_average_amounts_to(make_recipe) -> None:
    recipe = make_recipe("stages.1.ema={kind: lr_matched, decay: 0.9}")
    assert stage_plan(recipe, 1).peak_rate == pytest.approx(0.1 * recipe.stages[1].lr.peak)
    assert stage_plan(recipe, 1).companions == ()


def test_o60_the_plan_counts_one_copy_of_what_learns(make_recipe) -> None:
    base = describe_base(locate_base(make_recipe().base_model))

    def bytes_with(*overrides: str) -> int:
        recipe = make_recipe(*overrides)
        return stage_memory(recipe, base, recipe.stages[1], 1000, 1000, 50)

    for kind in ("live", "lookahead", "to_start", "shadow", "uniform"):
        assert bytes_with(f"stages.1.ema={{kind: {kind}}}") - bytes_with() == 4 * 1000
    assert bytes_with("stages.1.ema={kind: lr_matched}") == bytes_with()


def path_of(recipe) -> float:
    return path_length(recipe.stages[1], stage_rates(recipe, 1))


def test_o58_much_rate_for_few_tokens_over_many_steps_is_warned_of(make_recipe) -> None:
    """The case's numbers, batch 8 and 100,000 steps at a default-sized rate, and a thousand steps as bad as those."""
    many = ("stages.1.tokens=25600000", "stages.1.batch={tokens: 256, sequence_length: 32}", "stages.1.lr.peak=4e-4")
    assert path_of(make_recipe(*many)) == pytest.approx(100_000 * 4e-4 / 2, rel=0.1)
    assert path_of(make_recipe(*many, "stages.1.ema={}")) == pytest.approx(0.08 * 20, rel=0.1)
    few = ("corpora.eu.max_epochs=1e9", "corpora.en.max_epochs=1e9", "stages.1.tokens=128000", "stages.1.lr.peak=4e-2")
    found = [text for text in make_plan(make_recipe(*few)).warnings if "lr.peak" in text]
    assert len(found) == 1
    assert re.search(r"stages\.1\.lr\.peak: 0\.04 every 128 tokens .* add up to \d\d\.\d", found[0])
