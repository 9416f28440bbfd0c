"""The plan by hand: tokens, passes, rows, mix and rate over time, memory, warnings, and what is refused."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lingraft.corpus import Document, is_held_out
from lingraft.errors import CorpusError, LingraftError, ModelError, RecipeError, VocabularyError
from lingraft.pipeline import plan as plan_module
from lingraft.pipeline.data import prepare_corpora
from lingraft.pipeline.outline import stage_memory
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.progress import Silent
from lingraft.run import Run

KEEP = ("vocabulary={method: keep}", "stages.0.train=embeddings", "stages.0.mix={eu: 0.5, en: 0.5}")


def test_stages_by_hand(make_recipe):
    plan = make_plan(make_recipe())
    assert [(s.num_steps, s.tokens) for s in plan.stages] == [(4, 512), (100, 12_800)]
    assert [mix.get("en", 0.0) for mix in plan.stages[1].mix] == [0.5] * 5 + [0.0] * 5
    # Linear from 1e-3 to 0 over the 90 steps behind 10 of warm-up.
    assert plan.stages[1].rates == pytest.approx([1e-4, *(1e-3 * (1 - n / 9) for n in range(9))])
    assert all(stage.seconds > 0 for stage in plan.stages)


def test_tokens_needed_and_passes_by_hand(make_recipe):
    plan = make_plan(make_recipe(*KEEP))
    # Half of the first stage's 16 sequences of 32 tokens; 300 and 100 of the second's.
    assert {c.name: c.needed for c in plan.corpora} == {"eu": (8 + 300) * 32, "en": (8 + 100) * 32}
    assert all(c.epochs == c.needed / c.tokens for c in plan.corpora)


def test_without_new_tokens_a_small_corpus_is_counted_exactly(make_recipe, corpora_folder):
    from lingraft.corpus import Preparation, find_place, prepare_corpus, read_prepared

    recipe = make_recipe(*KEEP)
    plan, corpus = make_plan(recipe), recipe.corpora["eu"]
    folder = corpora_folder.parent / "counted"
    place = find_place(corpus.paths, "corpora.eu")
    prepare_corpus("eu", folder, place, Preparation(validation=corpus.validation))
    texts = [d.text for d in read_prepared(folder / "train.jsonl")]
    ids = plan.base.tokenizer.encode_batch(texts)
    assert not plan.corpora[0].is_estimate
    assert plan.corpora[0].tokens == sum(map(len, ids)) + len(texts)  # an end token behind each document
    assert plan.corpora[0].bytes == sum(len(text.encode()) for text in texts)


def test_new_tokens_shorten_target_text_only(make_recipe):
    plan = make_plan(make_recipe())
    eu, en = plan.corpora
    before, after = plan.vocabulary.fertility
    assert eu.tokens / eu.base_tokens == pytest.approx(after / before, rel=0.01)
    assert (after < 0.8 * before, eu.is_estimate) == (True, True)
    assert (en.tokens == en.base_tokens, en.is_estimate) == (True, False)


def test_the_plan_of_the_vocabulary_holds_curve_cuts_and_cost(make_recipe):
    plan = make_plan(make_recipe("vocabulary.new_tokens=20"))
    found = plan.vocabulary
    assert [point.num_new for point in found.curve.points] == [0, 8, 16, 20]
    assert found.curve.per_word("eu")[0][1] == pytest.approx(found.fertility[0])
    assert found.curve.per_word("eu")[-1][1] == pytest.approx(found.fertility[1])
    assert (found.cuts.cut, found.is_patched, found.normaliser.changed) == (0, False, 0)
    before, after = found.cost
    assert (before.rows, after.rows) == (420, plan.num_rows)
    assert before.matrix_bytes == 420 * 32 * 4
    per_byte = plan.corpora[0].base_tokens / plan.corpora[0].bytes
    assert before.head_flops == pytest.approx(2 * 420 * 32 * per_byte, rel=0.05)
    assert after.body_flops < before.body_flops


def test_auto_plans_for_the_most_that_it_may_come_to(make_recipe):
    plan = make_plan(make_recipe("vocabulary.new_tokens=auto", "vocabulary.max_new_tokens=50"))
    assert plan.num_rows >= plan.base.tokenizer.num_ids + 50
    assert plan.vocabulary.curve.points[-1].num_new <= 50


def test_replacement_adds_no_rows(make_recipe):
    assert make_plan(make_recipe("vocabulary.method=replace", "vocabulary.new_tokens=5")).num_rows == 420


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("embeddings.input={name: omp, donor: nowhere}", r"embeddings\.input\.donor: there is no 'nowhere'"),
        (
            "embeddings.input={name: subword_mean, weights: lenght}",
            r"embeddings\.input\.weights: .*did you mean 'length'",
        ),
        ("embeddings.input=similarity", r"embeddings\.input: 'similarity' needs exactly one of vectors, encoder"),
        ("embeddings.choose=[subword_men]", r"embeddings\.choose\.0\.input: unknown init method"),
        ("embeddings.choose=[{input: mean, output: zero}]", r"embeddings\.choose\.0\.output: 'zero' differs"),
        ("embeddings.calibrate=true", r"embeddings\.calibrate: True is for the input rows of untied models"),
        ("vocabulary.languages=[eu, en]", r"vocabulary\.languages\.1: 'en' is the source language"),
        ("vocabulary.languages=[eu, fr]", r"vocabulary\.languages\.1: no corpus is in 'fr'"),
        ("vocabulary.languages=[en]", r"vocabulary\.languages: the target 'eu' must be among them"),
        (
            "vocabulary.languages=[eu, eu]",
            r"vocabulary\.languages: the target 'eu' must be among them, and each only once",
        ),
        ("embeddings={input: mean, choose: [zero]}", r"embeddings: choose and input or output are given"),
        ("embeddings.choose=[mean, mean]", r"embeddings: choose names a candidate twice"),
        ("vocabulary.second_tokenizer=/nowhere/tokenizer.json", r"vocabulary\.second_tokenizer: there is no"),
    ],
)
def test_what_an_init_method_or_the_vocabulary_cannot_use_is_refused(make_recipe, override, message):
    with pytest.raises(RecipeError, match=message):
        make_plan(make_recipe(override))


def test_an_init_method_whose_extra_is_not_installed_is_refused(make_recipe, monkeypatch):
    monkeypatch.setattr("lingraft.pipeline.init_plan._is_installed", lambda package: False)
    with pytest.raises(RecipeError, match=r"embeddings\.input: 'focus' needs the package 'fasttext' \(pip install"):
        make_plan(make_recipe("embeddings.input={name: focus, engine: fasttext}"))


def test_a_bakeoff_longer_than_the_first_stage_is_refused(make_recipe):
    with pytest.raises(RecipeError, match=r"embeddings\.choose_steps: 900 steps are more than the"):
        make_plan(make_recipe("embeddings.choose=[mean, zero]", "embeddings.choose_steps=900"))


def test_a_single_candidate_is_not_tried_so_its_steps_do_not_count(make_recipe):
    make_plan(make_recipe("embeddings.choose=[mean]", "embeddings.choose_steps=900"))


@pytest.mark.parametrize(
    ("overrides", "rows"),
    [
        (("vocabulary.row_multiple=1",), 434),  # 394 ids + 40
        (("vocabulary.row_multiple=16",), 448),
        (("vocabulary.row_multiple=64",), 448),
        (("vocabulary.new_tokens=26",), 420),  # they fit into the padding that is there
        (("vocabulary.new_tokens=27", "vocabulary.row_multiple=1"), 421),
        (KEEP, 420),
    ],
)
def test_rows_are_rounded_up_and_padding_is_used(make_recipe, overrides, rows):
    assert make_plan(make_recipe(*overrides)).num_rows == rows


@pytest.mark.parametrize(("asked", "trained", "is_told"), [(130, 256, True), (250, 256, False)])
def test_much_more_than_was_asked_for_is_told(make_recipe, asked, trained, is_told):
    """A step is 128 tokens, and a stage is made of whole steps."""
    warnings = make_plan(make_recipe(f"stages.0.tokens={asked}")).warnings
    told = f"stages.0.tokens: {asked} are asked for and {trained} are trained on, since a step is 128 (batch.tokens)"
    assert any(warning.startswith(told) for warning in warnings) is is_told


def test_weights_behind_a_pattern_are_counted_as_at_most_all(make_recipe):
    whole, pattern = (make_plan(make_recipe(f"stages.1.train={train}")).stages[1] for train in ("all", "['*norm*']"))
    assert (whole.is_most, pattern.is_most) == (False, True)
    assert pattern.trainable == whole.trainable


@pytest.mark.parametrize(
    ("train", "tied", "trainable"),
    [
        ("new_embeddings", True, 40 * 32),
        ("new_embeddings", False, 40 * 32 * 2),
        ("embeddings", True, 448 * 32),
        ("embeddings", False, 448 * 32 * 2),
    ],
)
def test_weights_that_learn_by_hand(make_recipe, tied_folder, untied_folder, train, tied, trainable):
    base = tied_folder if tied else untied_folder
    plan = make_plan(make_recipe(f"stages.0.train={train}", f"base_model={base}"))
    assert plan.stages[0].trainable == trainable
    assert plan.stages[1].trainable == plan.base.num_parameters + (448 - 420) * 32 * (1 if tied else 2)


@pytest.mark.parametrize(
    ("overrides", "stepped", "copies", "kept", "of_loss"),
    [
        ((), 1000, 3, 90, 128 * 50 * (4 + 4)),
        (("precision=bf16",), 1000, 3, 60, 128 * 50 * (2 + 4) + 50 * 100 * 2),
        (("stages.1.ema={decay: 0.5}",), 1000, 4, 90, 128 * 50 * (4 + 4)),
        (("stages.1.train=embeddings",), 10, 3, 60, 128 * 50 * (4 + 4)),
        (("stages.1.train=new_embeddings", "precision=bf16"), 10, 3, 35, 128 * 50 * (2 + 4) + 50 * 100 * 2),
        (("stages.1.train=['*norm*']",), 10, 3, 90, 128 * 50 * (4 + 4)),
    ],
)
def test_memory_by_hand(make_recipe, overrides, stepped, copies, kept, of_loss):
    recipe = make_recipe(*overrides)
    base = dataclasses.replace(make_plan(recipe).base, hidden_size=100, num_layers=10)
    counted = stage_memory(recipe, base, recipe.stages[1], 1000, stepped, 50)
    # Weights; gradient and two moments (and the anchor); 4 sequences of 32 tokens kept; logits of all 128 positions in
    # the type of the products and in fp32, and the matrix where that type is another.
    assert counted == 4 * 1000 + 4 * stepped * copies + 4 * 32 * 100 * 10 * kept + of_loss


def test_memory_of_the_loss_stops_growing_with_the_rows(make_recipe):
    recipe = make_recipe()
    base = dataclasses.replace(make_plan(recipe).base, hidden_size=0)
    few, many, wide, wider = (
        stage_memory(recipe, base, recipe.stages[1], 0, 0, rows) for rows in (1000, 1 << 17, 1 << 20, 1 << 21)
    )
    assert few == 128 * 1000 * (4 + 4)
    assert many == 128 * (1 << 17) * 4 + (1 << 21) * 4
    assert wide == wider == (1 << 26) * 4 + (1 << 21) * 4


def test_memory_of_a_checkpoint_that_is_written_beside_training(make_recipe):
    base = make_plan(make_recipe()).base
    before, beside = (
        stage_memory(recipe, base, recipe.stages[1], 1000, 1000, 50)
        for recipe in (
            make_recipe("stages.1.ema={decay: 0.5}", f"stages.1.saves_beside={way}") for way in ("false", "true")
        )
    )
    assert beside - before == 4 * 1000 * 4  # weights, two moments and the anchor


def test_memory_of_activations_that_are_made_again(make_recipe):
    recipe = make_recipe("stages.1.batch.checkpoint_activations=true")
    base = dataclasses.replace(make_plan(recipe).base, hidden_size=100, num_layers=10)
    kept = stage_memory(recipe, base, recipe.stages[1], 0, 0, 0)
    assert kept == 4 * 32 * 100 * (10 * 4 + 90)  # of each layer its input, of one layer all


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (("stages.0.train=embeddings",), r"stages\.0: every row trains and no en text is in the mix"),
        (
            ("stages.1.mix={eu: 1.0}",),
            r"stages\.1: no en text, no averaging and no guard: in-context learning collapses",
        ),
        (("stages.1.tokens=100k",), r"corpora\.eu: \d+\.\d passes over the same text"),
        (("stages.1.mix={eu: 1.0}", "stages.1.ema={}"), r"corpora\.en: no stage trains on it"),
        (("stages.1.tokens=1280",), r"only 1\.79k training tokens in all"),
        (("stages.1.batch={tokens: 128M, sequence_length: 64, micro_batch: 1000000000}",), r"GiB are needed at the pe"),
    ],
)
def test_warnings(make_recipe, overrides, warning):
    given = make_plan(make_recipe("corpora.eu.max_epochs=1e9", "corpora.en.max_epochs=1e9", *overrides)).warnings
    assert any(re.search(warning, text) for text in given), given


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("stages.0.train=embeddings", "stages.0.mix={eu: 0.9, en: 0.1}"),
        ("stages.1.mix={eu: 1.0}", "stages.1.ema={}"),
    ],
)
def test_replay_or_averaging_or_new_rows_only_give_no_warning_of_forgetting(make_recipe, overrides):
    warnings = make_plan(make_recipe(*overrides)).warnings
    assert not [text for text in warnings if "no en text" in text]


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (("corpora.eu.max_epochs=0.5",), CorpusError, r"corpora\.eu: its share is .* \(estimated\)"),
        (("corpora.en.max_epochs=0.1", *KEEP), CorpusError, r"corpora\.en: its share is [\d,]+ tokens"),
        (("stages.1.lr.warmup=12.9k",), RecipeError, r"stages\.1\.lr\.warmup: 12900 is longer than the stage's 12800"),
        (
            ("stages.0.batch={tokens: 512, sequence_length: 512}",),
            RecipeError,
            r"stages\.0\.batch\.sequence_length: 512 is longer than the base model's 256 positions",
        ),
        (("embeddings.output=mean",), RecipeError, r"embeddings\.output: 'mean' differs from .* one matrix for both"),
        (("stages.1.lr.schedule=lineal",), RecipeError, r"stages\.1\.lr\.schedule: unknown .* did you mean 'linear'"),
        (("corpora.eu.min_characters=9999",), LingraftError, r"corpora\.eu: an empty corpus"),
    ],
)
def test_what_cannot_work_is_refused(make_recipe, overrides, error, message):
    with pytest.raises(error, match=message):
        make_plan(make_recipe(*overrides))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("corpora.eu.validation=0.001%",),
            r"corpora\.eu: none of the 48 documents is held out, at corpora\.eu\.valid",
        ),
        (("corpora.en.validation=99.999%",), r"corpora\.en: all 48 documents are held out, none is left to train on"),
        (("corpora.en.validation=0",), r"corpora\.en\.validation: no text in 'en' is held out"),
        (("corpora.eu.validation=0",), r"corpora\.eu\.validation: no text in 'eu' is held out"),
        (("corpora.eu.path={folder}/one.txt",), r"corpora\.eu: none of the 1 documents is held out"),
    ],
)
def test_a_corpus_that_holds_nothing_out_is_refused_as_the_run_refuses_it(make_recipe, tmp_path, overrides, message):
    (tmp_path / "one.txt").write_text("Gelaxka batek zenbaki bat eduki dezake. " * 40, encoding="utf-8")
    recipe = make_recipe(*(override.format(folder=tmp_path) for override in overrides))
    said = []
    for refused in (lambda: make_plan(recipe), lambda: prepare_corpora(Run(tmp_path / "run"), recipe, Silent())):
        with pytest.raises(CorpusError, match=message) as caught:
            refused()
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_of_a_large_corpus_too_a_held_out_document_is_looked_for(make_recipe, tmp_path, monkeypatch):
    """The sample ends before the first held-out document; further on there is one, or there is none."""
    monkeypatch.setattr(plan_module, "_WHOLE_BYTES", 20_000)
    monkeypatch.setattr(plan_module, "_SAMPLE_BYTES", 2_000)
    texts = [f"Gelaxka batek zenbaki bat eduki dezake, eta orriak haren balioa erakusten du {n}." for n in range(600)]
    (tmp_path / "big.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    held_out = [n for n, text in enumerate(texts) if is_held_out(Document(text, "eu", str(n)), 0.005, "content")]
    assert held_out[0] > 2_000 / len(texts[0]) + 1
    big = (f"corpora.eu.path={tmp_path}/big.jsonl", "vocabulary.min_count=2", "corpora.eu.max_epochs=1e9")
    assert make_plan(make_recipe(*big, "corpora.eu.validation=0.5%")).corpora[0].is_estimate
    with pytest.raises(CorpusError, match=r"none of the 600 documents is held out"):
        make_plan(make_recipe(*big, "corpora.eu.validation=0.0000001%"))


def test_a_corpus_that_is_held_out_whole_needs_no_text_to_train_on(make_recipe, tmp_path):
    (tmp_path / "held.txt").write_text("Text that is only measured on.")
    held = f"corpora.held={{path: {tmp_path}/held.txt, language: en, validation: 100%}}"
    assert make_plan(make_recipe(held)).corpora[2].tokens == 0


def test_o41_two_corpora_may_read_different_fields_of_one_file(make_recipe, tmp_path):
    lines = [json.dumps({"text": f"One {n}.", "translation": f"Another {n}."}) for n in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    names = ("text", "translation")
    fields = [f"corpora.{name}={{path: {tmp_path}/pairs.jsonl, text: {name}, language: fr}}" for name in names]
    make_plan(make_recipe(*fields, "stages.1.mix={eu: 0.98, text: 0.01, translation: 0.01}"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("corpora.eu.quality=[lettres]", r"corpora\.eu\.quality\.0: unknown quality filter 'lettres', did you mean"),
        ("corpora.eu.near_duplicates={num_bands: 7}", r"corpora\.eu\.near_duplicates\.num_bands: 128 hashes"),
        ("corpora.eu.scripts=[Latn]", r"corpora\.eu\.scripts\.0: 'Latn' is no script, did you mean 'Latin'"),
        (
            "corpora.eu.language_id={labels: [Basque]}",
            r"corpora\.eu\.language_id\.labels\.0: 'Basque' is not the label",
        ),
        (
            "corpora.eu.language_id={model: no.bin}",
            r"corpora\.eu\.language_id\.model: there is no model file|needs the",
        ),
        ("measure.benchmark_files=[nothing.jsonl]", r"measure\.benchmark_files: .*nothing\.jsonl' does not exist"),
    ],
)
def test_options_of_a_corpus_that_cannot_be_used_are_refused_by_the_plan(make_recipe, override, message):
    with pytest.raises(LingraftError, match=message):
        make_plan(make_recipe(override))


@pytest.mark.parametrize("method", ["expand", "replace"])
def test_target_text_without_letters_names_its_corpus(make_recipe, tmp_path, method):
    lines = [json.dumps({"text": f"{n} + {n} = {2 * n}; 12:30, 100 %"}) for n in range(400)]
    (tmp_path / "sums.jsonl").write_text("\n".join(lines), encoding="utf-8")
    recipe = (f"corpora.eu.path={tmp_path}/sums.jsonl", "corpora.eu.max_epochs=999")
    message = r"^corpora\.eu: no word with a letter is in this text.*'eu'.* vocabulary\.method: keep"
    with pytest.raises(VocabularyError, match=message):
        make_plan(make_recipe(*recipe, f"vocabulary={{method: {method}, new_tokens: 5}}"))
    assert make_plan(make_recipe(*recipe, *KEEP)).vocabulary is None
    other = f"corpora.sums={{path: {tmp_path}/sums.jsonl, language: fr}}"
    with pytest.raises(VocabularyError, match=r"^corpora\.sums: no word.*leave 'fr' out of vocabulary\.languages"):
        make_plan(make_recipe(other, "vocabulary.languages=[eu, fr]"))


def test_a_pattern_that_will_be_changed_is_told_with_what_llama_cpp_makes_of_it(make_recipe, tmp_path):
    lines = [json.dumps({"text": f"दस्तावेज़ खोलने के लिए फ़ाइल चुनें और फिर खोलें दबाएँ {n}"}) for n in range(60)]
    (tmp_path / "hi.jsonl").write_text("\n".join(lines), encoding="utf-8")
    hindi = (f"corpora.eu.path={tmp_path}/hi.jsonl", "corpora.eu.max_epochs=999")
    patched, kept = (make_plan(make_recipe(*hindi, f"vocabulary.pre_tokenizer={wish}")) for wish in ("auto", "keep"))
    assert (patched.vocabulary.is_patched, kept.vocabulary.is_patched) == (True, False)
    said = [text for text in patched.warnings if "GGUF" in text]
    assert len(said) == 1
    assert "takes such a model without an error and then gives target text wrong ids" in said[0]
    assert said[0].endswith("vocabulary.pre_tokenizer: keep avoids that")
    assert not [text for text in kept.warnings if "GGUF" in text]


def test_one_method_named_twice_is_fine_on_a_tied_model(make_recipe):
    make_plan(make_recipe("embeddings.output=subword_mean"))


def _with_tokenizer(folder: Path, tied_folder: Path, change) -> Path:
    shutil.copytree(tied_folder, folder)
    raw = json.loads((folder / "tokenizer.json").read_text())
    change(raw)
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    return folder


def test_o76_ids_beyond_the_matrix_are_refused(make_recipe, tied_folder, tmp_path):
    def grow(raw):
        raw["model"]["vocab"] |= {f"more{n}": n for n in range(len(raw["model"]["vocab"]), 421)}

    base = _with_tokenizer(tmp_path / "overfull", tied_folder, grow)
    with pytest.raises(ModelError, match="gives 'more420' the id 420, the embedding matrix has 420 rows"):
        make_plan(make_recipe(f"base_model={base}"))


def test_a_tokenizer_that_cannot_be_expanded_is_refused_unless_it_is_kept(make_recipe, tied_folder, tmp_path):
    base = _with_tokenizer(tmp_path / "other", tied_folder, lambda raw: raw["model"].update(dropout=0.1))
    with pytest.raises(VocabularyError, match=r"vocabulary\.method: .*model\.dropout is 0\.1; expansion is not exact"):
        make_plan(make_recipe(f"base_model={base}"))
    assert make_plan(make_recipe(f"base_model={base}", *KEEP)).num_rows == 420


def test_a_large_corpus_is_sampled_and_scaled(make_recipe, tmp_path, monkeypatch):
    line = json.dumps({"text": "Gelaxka batek zenbaki bat eduki dezake, eta orriak haren balioa erakusten du NUM."})
    with (tmp_path / "big.jsonl").open("w") as file:
        for number in range(100_000):
            file.write(line.replace("NUM", f"{number:06d}") + "\n")
    size, read = (tmp_path / "big.jsonl").stat().st_size, []
    inner = plan_module.read_place

    def counting(*args, **kwargs):
        for document in inner(*args, **kwargs):
            read.append(document)
            yield document

    monkeypatch.setattr(plan_module, "read_place", counting)
    eu = make_plan(make_recipe(f"corpora.eu.path={tmp_path}/big.jsonl")).corpora[0]
    assert len(read) < 10_000
    assert eu.is_estimate
    assert eu.bytes == pytest.approx(0.8 * size, rel=0.01)
    assert 0.5 < eu.bytes / (0.8 * 100_000 * 85) < 1.5


def test_a_large_file_of_which_few_documents_are_asked_for_is_not_scaled_up(make_recipe, tmp_path):
    lines = [json.dumps({"text": f"Botoia sakatzean leihoa itxi egiten da {n:06d}. " * 40}) for n in range(4000)]
    (tmp_path / "big.jsonl").write_text("\n".join(lines))
    few = (f"corpora.eu.path={tmp_path}/big.jsonl", "corpora.eu.max_documents=100")
    assert make_plan(make_recipe(*few)).corpora[0].bytes < 100 * 2000
    many = make_plan(make_recipe(few[0], "corpora.eu.max_documents=1000")).corpora[0]
    assert many.bytes == pytest.approx(800 * 48 * 40, rel=0.1)


def test_a_hub_corpus_is_not_fetched(make_recipe, monkeypatch):
    import lingraft.corpus.hub

    for name in lingraft.corpus.hub.__all__:
        monkeypatch.setattr(lingraft.corpus.hub, name, lambda *_, **__: pytest.fail("the hub was asked"))
    plan = make_plan(make_recipe("corpora.en={path: org/text, split: train}"))
    assert (plan.corpora[1].files, plan.corpora[1].tokens, plan.corpora[1].epochs) == (0, 0, 0.0)
    assert any(text.startswith("corpora.en: a hub data set") for text in plan.warnings)


def test_a_hub_target_leaves_fertility_unknown(make_recipe):
    assert make_plan(make_recipe("corpora.eu={path: org/text, split: train}")).vocabulary is None


def _write_gguf(path: Path, tokenizer) -> None:
    import gguf
    import numpy as np

    tokens = sorted(tokenizer.vocabulary, key=tokenizer.vocabulary.__getitem__)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i in tokenizer.special_ids else 1 for i in range(len(tokens))])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer.merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_planning_loads_no_torch(kind, recipe_path, tmp_path, tied_folder, tokenizer):
    base = tied_folder
    if kind == "gguf":
        base = tmp_path / "tiny.gguf"
        _write_gguf(base, tokenizer)
    code = (
        "import sys; from lingraft.recipe_file import load_recipe; from lingraft.pipeline.plan import make_plan; "
        f"plan = make_plan(load_recipe({str(recipe_path)!r}, ['base_model={base}'])); "
        "print(plan.num_rows, sorted({'torch', 'transformers'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=_environment(), check=False)
    assert (done.stdout, done.stderr) == ("448 []\n", "")


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def test_isolation_that_an_architecture_cannot_give_is_refused_before_a_weight_is_loaded(make_recipe, monkeypatch):
    described = plan_module.describe_base
    for known in ({"architecture": "bloom"}, {"architecture": "falcon", "has_alibi": True}):
        monkeypatch.setattr(
            plan_module,
            "describe_base",
            lambda location, known=known: dataclasses.replace(described(location), **known),
        )
        with pytest.raises(RecipeError, match=rf"stages\.1\.batch\.isolate: {known['architecture']} takes no mask"):
            make_plan(make_recipe("stages.1.batch.isolate=true"))
    monkeypatch.undo()
    make_plan(make_recipe("stages.1.batch.isolate=true"))


def test_memory_that_files_were_read_into_can_be_had(tmp_path):
    """Pages that are free alone are fewer: 1 GiB here, where 20 can be had."""
    accounts = tmp_path / "meminfo"
    accounts.write_text("MemTotal: 33554432 kB\nMemFree: 1048576 kB\nMemAvailable:   20971520 kB\nCached: 9 kB\n")
    assert plan_module._available_memory(accounts) == 20 * 2**30
    accounts.write_text("MemTotal: 33554432 kB\n")
    assert plan_module._available_memory(accounts) == 0
    assert plan_module._available_memory(tmp_path / "none") == 0
