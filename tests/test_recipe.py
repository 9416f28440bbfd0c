"""The recipe: what it takes, what it refuses and in which words."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import RecipeError
from lingraft.recipe import Choice, Recipe
from lingraft.recipe_file import differing_paths, dump_recipe, load_recipe, parse_recipe

TEXT = """\
name: tiny
base_model: org/model
languages: {source: en, target: no}
corpora:
  no: {path: data/no.jsonl}
  en: {path: data/en.jsonl, validation: 2%}
stages:
  - name: first
    train: embeddings
    tokens: 4.1M
    mix: {no: 0.9, en: 0.1}
    lr: {peak: 1e-3}
    batch: {tokens: 4096, sequence_length: 128}
  - name: second
    tokens: 1B
    mix: {schedule: step, at: 10%, before: {no: 0.8, en: 0.2}, after: {no: 1.0}}
    lr: {schedule: cosine, peak: 1e-4, warmup: 10%, floor: 3.3%}
    ema: {decay: 0.92, every: 2}
measure: {at: [0, 1%, 100%], probes: [random_copy, {name: copain, num_items: 5}], samples: ["1e-4", "no", "a: b"]}
"""


@pytest.fixture
def recipe() -> Recipe:
    return parse_recipe(TEXT, "r.yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "r.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path / "r.yaml"


def test_values_are_what_they_say(recipe: Recipe) -> None:
    first, second = recipe.stages
    assert (recipe.languages.target, first.lr.peak, second.lr.warmup, second.lr.floor) == ("no", 1e-3, 0.1, 0.033)
    assert second.mix.options == {"at": 0.1, "before": {"no": 0.8, "en": 0.2}, "after": {"no": 1.0}}
    assert recipe.measure.probes == (Choice(name="random_copy"), Choice(name="copain", options={"num_items": 5}))


def test_steps_are_derived_and_rounded_up(recipe: Recipe) -> None:
    assert [(s.num_steps, s.batch.sequences) for s in recipe.stages] == [(1001, 32), (15259, 128)]
    assert recipe.total_tokens == 1001 * 4096 + 15259 * 65_536


def test_languages_follow_the_corpora(recipe: Recipe) -> None:
    assert (recipe.language_of("no"), recipe.measured_languages()) == ("no", ("no", "en"))
    assert recipe.stages[1].mix.corpora() == {"no", "en"}


def test_what_is_dumped_parses_to_an_equal_recipe(recipe: Recipe) -> None:
    assert parse_recipe(dump_recipe(recipe), "dump") == recipe


@settings(deadline=None)
@given(st.lists(st.text(), max_size=3), st.sampled_from(["1e-4", "0o17", "true", "12", "no", "a.b"]))
def test_any_sample_and_any_name_survive_the_dump(samples: list[str], name: str) -> None:
    plain = parse_recipe(TEXT, "r.yaml").model_dump(mode="json")
    recipe = Recipe.model_validate(plain | {"name": name, "measure": {"samples": samples}})
    assert parse_recipe(dump_recipe(recipe), "dump") == recipe


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("name: tiny", "nmae: tiny", 1, "nmae: unknown key 'nmae', did you mean 'name'?"),
        ("train: embeddings", "trian: embeddings", 9, "stages.0.trian: unknown key 'trian', did you mean 'train'?"),
        ("train: embeddings", "train: embedings", 9, "stages.0.train: 'embedings' is not one of all, body, embeddings"),
        ("train: embeddings", "train: []", 9, "stages.0.train: an empty list of patterns"),
        ("train: embeddings", "train: 3", 9, "stages.0.train: "),
        ("mix: {no: 0.9, en: 0.1}", "mix: {no: 0.9, en: 0.2}", 11,
         "stages.0.mix: the shares of a mix must sum to 1; these sum to 1.1 (no 0.9, en 0.2)"),
        ("mix: {no: 0.9, en: 0.1}", "mix: {no: 1.9, en: 0.1}", 11,
         "stages.0.mix: the share of 'no' must lie between 0 and 1"),
        ("mix: {no: 0.9, en: 0.1}", "mix: {no: 0.9, e: 0.1}", 11, "stages.0.mix: unknown corpus 'e'"),
        ("mix: {no: 0.9, en: 0.1}", "mix: {}", 11, "stages.0.mix: the shares of a mix must sum to 1"),
        ("after: {no: 1.0}", "after: {no: 0.5}", 16, "stages.1.mix: after: the shares"),
        ("target: no", "target: false", 3,
         "languages.target: must be a language code in quotes, not the truth value false"),
        ("target: no", "target: xx", 3, "languages.target: no corpus is in 'xx' (corpora are in: en, no)"),
        ("target: no", "target: en", 3, "languages: source and target are both 'en'"),
        ("tokens: 4.1M", "tokens: many", 10, "stages.0.tokens: must be a number of tokens such as 200k"),
        ("tokens: 4.1M", "tokens: 1e400", 10, "stages.0.tokens: must be a whole number"),
        ("    tokens: 4.1M\n", "", 8, "stages.0.tokens: Field required"),
        ("peak: 1e-3", "peak: 0", 12, "stages.0.lr.peak: "),
        ("peak: 1e-3", "peak: '1e-3'", 12, "stages.0.lr.peak: "),
        ("tokens: 4096", "tokens: 4000", 13, "stages.0.batch: tokens 4000 must be a multiple of sequence_length 128"),
        ("name: second", "name: first", 14, "stages.1.name: 'first' is taken"),
        ("name: second", "name: base", 14, "stages.1.name: 'base' is taken"),
        ("name: second", "name: ../x", 14, "stages.1.name: "),
        ("path: data/no.jsonl", "path: 3", 5, "corpora.no.path: "),
        ("validation: 2%", "validation: 200%", 6, "corpora.en.validation: must lie between 0 and 1"),
        ("decay: 0.92", "decay: 1", 18, "stages.1.ema.decay: "),
    ],
)  # fmt: skip
def test_every_fault_names_file_line_and_path(old: str, new: str, line: int, message: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(RecipeError) as error:
        parse_recipe(TEXT.replace(old, new), "r.yaml")
    assert str(error.value).startswith(f"r.yaml:{line}: {message}")


def test_all_faults_are_listed_at_once() -> None:
    text = TEXT.replace("peak: 1e-3", "peak: 2").replace("decay: 0.92", "decay: 3").replace("4.1M", "-1")
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, "r.yaml")
    assert [line.split(": ")[0] for line in str(error.value).split("\n")] == ["r.yaml:10", "r.yaml:12", "r.yaml:18"]


@pytest.mark.parametrize("text", ["", "[]", "3", "name: x"])
def test_what_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=r"r\.yaml"):
        parse_recipe(text, "r.yaml")


def test_new_embeddings_need_new_rows() -> None:
    text = TEXT.replace("train: embeddings", "train: new_embeddings") + "vocabulary: {method: keep}\n"
    with pytest.raises(RecipeError, match=r"r.yaml:9: stages\.0\.train: new_embeddings needs new rows"):
        parse_recipe(text, "r.yaml")


def test_overrides_reach_into_lists_by_the_same_rules(file: Path) -> None:
    found = load_recipe(
        file, ["stages.1.mix={no: 0.7, en: 0.3}", "stages.0.lr.peak=2e-4", "languages.target=no", "seed=7"]
    )
    assert found.stages[1].mix.options == {"mix": {"no": 0.7, "en": 0.3}}
    assert (found.stages[0].lr.peak, found.languages.target, found.seed) == (2e-4, "no", 7)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.0.mix.en=0.2", "stages.0.mix: the shares of a mix must sum to 1; these sum to 1.1"),
        ("stages.5.name=x", "--set stages.5: '5' is not a position in a list of 2"),
        ("sead=1", "sead: unknown key 'sead', did you mean 'seed'?"),
        ("seed", "--set seed: write path=value"),
        ("seed=[", "--set:1: not valid YAML"),
    ],
)
def test_an_override_that_cannot_be_used_is_refused(file: Path, override: str, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(file, [override])
    assert message in str(error.value)


def test_paths_are_relative_to_the_recipes_own_folder(file: Path) -> None:
    assert load_recipe(file).corpora["no"].path == str(file.parent / "data/no.jsonl")
    assert load_recipe(file).base_model == "org/model"


def test_a_dataset_of_the_hub_keeps_its_name(file: Path) -> None:
    file.write_text(TEXT.replace("path: data/en.jsonl", "path: org/data, split: train"), encoding="utf-8")
    assert load_recipe(file).corpora["en"].path == "org/data"


def test_a_missing_or_undecodable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such recipe file"):
        load_recipe(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(RecipeError, match="byte 9 is not UTF-8"):
        load_recipe(tmp_path / "latin.yaml")


def test_a_recipe_cannot_be_changed(recipe: Recipe) -> None:
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 3


def test_differences_are_listed_by_path(recipe: Recipe) -> None:
    other = recipe.model_copy(update={"seed": 5})
    assert differing_paths(recipe, other) == ["seed: 0 → 5"]
    assert differing_paths(recipe, recipe) == []


def test_files_of_vocabulary_and_init_methods_are_seen_from_the_recipe(tmp_path):
    for name in ("second.json", "words.vec", "donor"):
        (tmp_path / name).write_text("x")
    text = """
name: x
base_model: org/model
languages: {source: en, target: eu}
corpora: {eu: {path: eu}, en: {path: en}}
vocabulary: {second_tokenizer: second.json}
embeddings:
  choose: [mean, {name: similarity, vectors: words.vec}, {input: {name: omp, donor: donor}, output: mean}]
stages: [{name: a, tokens: 1M, mix: {eu: 1.0}, lr: {peak: 1e-3}}]
"""
    (tmp_path / "r.yaml").write_text(text)
    recipe = load_recipe(tmp_path / "r.yaml")
    assert recipe.vocabulary.second_tokenizer == str(tmp_path / "second.json")
    named, pair = recipe.embeddings.choose[1:]
    assert named.input.options == {"vectors": str(tmp_path / "words.vec")}
    assert (pair.input.options, pair.output.name) == ({"donor": str(tmp_path / "donor")}, "mean")
    far = load_recipe(tmp_path / "r.yaml", ["vocabulary.second_tokenizer=org/other"])
    (tmp_path / "s.yaml").write_text(
        text[: text.index("embeddings")]
        + "embeddings: {input: {name: omp, donor: donor}}\n"
        + text[text.index("stages") :]
    )
    assert load_recipe(tmp_path / "s.yaml").embeddings.input.options == {"donor": str(tmp_path / "donor")}
    assert far.vocabulary.second_tokenizer == "org/other"


@pytest.mark.parametrize(
    ("ema", "filled"),
    [
        ({}, ("live", 0.92, 1, None, None)),
        ({"kind": "lookahead"}, ("lookahead", 0.5, 5, None, None)),
        ({"kind": "to_start", "every": 3}, ("to_start", 0.01, 3, None, None)),
        ({"kind": "shadow"}, ("shadow", 0.999, 1, True, None)),
        ({"kind": "uniform", "after": 0.25}, ("uniform", None, 10, None, 0.25)),
        ({"kind": "lr_matched", "decay": 0.9}, ("lr_matched", 0.9, None, None, None)),
    ],
)
def test_each_average_has_its_own_defaults_and_survives_the_dump(ema, filled) -> None:
    from lingraft.recipe import Ema

    made = Ema(**ema)
    assert (made.kind, made.decay, made.every, made.warmup, made.after) == filled
    assert Ema(**made.model_dump()) == made


@pytest.mark.parametrize(
    ("ema", "message"),
    [
        ("{kind: live, warmup: true}", r"stages\.1\.ema\.warmup: 'live' has no warmup \(options: decay, every\)"),
        ("{kind: uniform, decay: 0.9}", r"stages\.1\.ema\.decay: 'uniform' has no decay"),
        ("{kind: lr_matched, every: 10}", r"stages\.1\.ema\.every: 'lr_matched' has no every"),
        ("{kind: polyak}", r"stages\.1\.ema\.kind: "),
    ],
)
def test_options_of_another_average_are_refused(tmp_path, ema: str, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(TEXT.replace("ema: {decay: 0.92, every: 2}", f"ema: {ema}"))
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


def test_a_probe_that_is_named_twice_is_refused(tmp_path) -> None:
    """Both would write rows of the same name."""
    path = tmp_path / "r.yaml"
    path.write_text(TEXT)
    twice = "measure.probes=[random_copy, {name: random_copy, num_items: 2}]"
    with pytest.raises(RecipeError, match=r"measure\.probes: a probe is named twice: random_copy, random_copy"):
        load_recipe(path, [twice])


@pytest.mark.parametrize(
    ("ema", "kept"),
    [
        ("{kind: uniform, every: 4}", True),  # step 8, behind step 4
        ("{kind: uniform, every: 5, after: 62.5%}", False),  # step 5 is not behind step 5
        ("{kind: uniform, every: 1, after: 100%}", False),
        ("{kind: shadow, every: 9}", False),
        ("{kind: shadow, every: 8}", True),
        ("{kind: live, every: 9}", True),
    ],
)
def test_an_average_beside_the_weights_that_takes_nothing_in_is_refused(ema: str, *, kept: bool) -> None:
    """There would be no averaged weights at the end of the stage, which is when it would be found out."""
    stage = (
        "{name: s, tokens: 128, mix: {eu: 1.0}, lr: {peak: 1e-3}, batch: {tokens: 16, sequence_length: 8}, ema: EMA}"
    )
    text = "name: x\nbase_model: y\nlanguages: {source: en, target: eu}\ncorpora: {eu: {path: a}, en: {path: b}}\n"
    text += f"stages: [{stage.replace('EMA', ema)}]\n"
    if kept:
        assert parse_recipe(text, "r.yaml").stages[0].ema is not None
        return
    with pytest.raises(RecipeError, match=r"stages\.0\.ema\.every: of the stage's 8 steps none is every .* would keep"):
        parse_recipe(text, "r.yaml")


@pytest.mark.parametrize(
    ("mix", "corpora", "options"),
    [
        (
            "{schedule: temperature, corpora: [no, en], alpha: 0.3}",
            {"no", "en"},
            {"corpora": ["no", "en"], "alpha": 0.3},
        ),
        (
            "{schedule: piecewise, points: [{at: 0%, mix: {no: 1.0}}, {at: 50 %, mix: {no: 0.7, en: 0.3}}]}",
            {"no", "en"},
            {"points": [{"at": 0.0, "mix": {"no": 1.0}}, {"at": 0.5, "mix": {"no": 0.7, "en": 0.3}}]},
        ),
        (
            "{schedule: step, until: warmup_end, before: {no: 1.0, en: 0.0}, after: {no: 1.0}}",
            {"no"},
            {"until": "warmup_end", "before": {"no": 1.0, "en": 0.0}, "after": {"no": 1.0}},
        ),
    ],
)
def test_every_form_of_a_mix_names_its_corpora(file, mix: str, corpora: set[str], options: dict) -> None:
    found = load_recipe(file, [f"stages.0.mix={mix}"])
    assert found.stages[0].mix.corpora() == corpora
    assert found.stages[0].mix.options == options
    assert parse_recipe(dump_recipe(found), "again") == found


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("{schedule: temperature, corpora: [no, n], alpha: 0.3}", "stages.0.mix: unknown corpus 'n'"),
        ("{schedule: piecewise, points: [{at: 0%, mix: {no: 1.0, e: 0.0}}]}", "stages.0.mix: unknown corpus 'e'"),
        (
            "{schedule: piecewise, points: [{at: 0%, mix: {no: 0.9}}]}",
            "points.0.mix: the shares of a mix must sum to 1",
        ),
    ],
)
def test_a_wrong_mix_is_refused_at_any_depth(file, mix: str, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(file, [f"stages.0.mix={mix}"])
    assert message in str(error.value)


def test_files_that_a_corpus_names_are_seen_from_the_recipe(tmp_path):
    """A model file, benchmark files, and a folder that holds a dataset, which has a split as one on the hub has."""
    (tmp_path / "saved").mkdir()
    (tmp_path / "lid.bin").touch()
    said = "path: saved, split: train, language_id: {model: lid.bin}"
    text = TEXT.replace("path: data/en.jsonl", said).replace("measure: {", "measure: {benchmark_files: [items.jsonl], ")
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    recipe = load_recipe(tmp_path / "r.yaml")
    assert recipe.corpora["en"].path == str(tmp_path / "saved")
    assert recipe.corpora["en"].language_id.model == str(tmp_path / "lid.bin")
    assert recipe.measure.benchmark_files == (str(tmp_path / "items.jsonl"),)


def test_probes_may_be_named_by_a_set(file: Path) -> None:
    full = load_recipe(file, ["measure.probes=full"]).measure.probes
    assert len(full) == 9
    assert Choice(name="copain") in full
    assert (
        Choice(name="random_copy", options={"num_items": 16})
        in load_recipe(file, ["measure.probes=short"]).measure.probes
    )
    with pytest.raises(RecipeError, match=r"measure\.probes: .*no set of probes 'ful', did you mean 'full'"):
        load_recipe(file, ["measure.probes=ful"])


def test_a_rule_needs_the_weights_that_it_names(file: Path) -> None:
    """No rule names weights that a run does not keep: averaged ones need an average beside, a best moment there is not."""
    for override in ("measure.checkpoint_rule=averaged", "measure.checkpoint_rule=best"):
        with pytest.raises(RecipeError, match=r"measure\.checkpoint_rule"):
            load_recipe(file, overrides=[override])
    kept = ["measure.checkpoint_rule=averaged", "stages.1.ema={kind: shadow}"]
    assert load_recipe(file, overrides=kept).measure.checkpoint_rule == "averaged"
