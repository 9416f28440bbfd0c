"""The whole way on a tiny Llama: every step, every output, stopping and going on, and bad input."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lingraft import Run, adapt, load_recipe
from lingraft.errors import CorpusError, InterruptedRunError, LingraftError, ModelError, RecipeError, RunFolderError
from lingraft.pipeline.adapt import step_names
from lingraft.pipeline.progress import Silent

RECIPE = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{new_tokens: 40, min_count: 3, row_multiple: 16}}
embeddings: {{max_source_rise: 5.0, max_source_mass: 0.5}}
precision: fp32
stages:
  - name: embeddings-only
    train: new_embeddings
    tokens: 512
    mix: {{eu: 1.0}}
    lr: {{peak: 1e-2}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 2}}
  - name: everything
    train: all
    tokens: 1280
    mix: {{schedule: step, at: 50%, before: {{eu: 0.5, en: 0.5}}, after: {{eu: 1.0}}}}
    lr: {{schedule: cosine, peak: 3e-3, warmup: 10%, floor: 10%}}
    ema: {{decay: 0.5, every: 2}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 3}}
    checkpoint_every: 20%
measure:
  at: [50%, 100%]
  validation_bytes: 1500
  probes: [{{name: random_copy, num_items: 2, length: 8}}, {{name: copain, num_items: 2, shots: 3, templates: arrow}}]
  sample_tokens: 4
"""


def write_recipe(folder: Path, base: Path, corpora: Path) -> Path:
    """Write the tiny recipe and return its path."""
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(base=base, corpora=corpora), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tied_folder: Path, corpora_folder: Path) -> tuple[Path, Run]:
    """A finished run of the tiny recipe, and the recipe's path."""
    folder = tmp_path_factory.mktemp("finished")
    path = write_recipe(folder, tied_folder, corpora_folder)
    return path, adapt(load_recipe(path), folder / "run")


def last_weights(run: Run) -> str:
    """Return the digest of the last stage's weights."""
    marker = run.finished("stage-2-everything")
    assert marker is not None
    return marker["record"]["weights_sha256"]


def ids_of(run: Run) -> tuple[int, int]:
    """Return the ids of the old and of the new tokenizer; some must have been added."""
    expansion = json.loads(run.path("vocabulary", "expansion.json").read_text())
    assert expansion["num_new"] > 5
    return expansion["num_old"], expansion["num_old"] + expansion["num_new"]


def test_every_output_of_the_run_folder_is_there(finished: tuple[Path, Run]) -> None:
    names = ["recipe.yaml", "environment.json", "measurements.jsonl", "samples.jsonl", "report.html", "model/README.md"]
    names += ["vocabulary/gates.json", "vocabulary/tokenizer.json", "embeddings/origins-input.jsonl"]
    assert [name for name in names if not finished[1].path(name).is_file()] == []


def test_every_number_that_the_report_needs_was_measured(finished: tuple[Path, Run]) -> None:
    found = {(row.stage, row.name) for row in finished[1].measurements()}
    for stage in ("base", "expanded", "embeddings-only", "everything"):
        assert {(stage, "bits_per_byte"), (stage, "probe/random_copy/accuracy")} <= found
    assert {("base", "fertility"), ("expanded", "segmentation_drift"), ("everything", "shift/mean_l2")} <= found
    assert {("everything", "probe/copain/exact_match"), ("everything", "loss"), ("expanded", "new_token_mass")} <= found


def test_o19_the_loss_on_new_tokens_is_logged_and_falls(finished):
    rows = [row for row in finished[1].measurements() if row.name == "new_token_nats" and row.language == "eu"]
    assert [row.stage for row in rows] == ["expanded", *["embeddings-only"] * 2, *["everything"] * 2]
    assert rows[-1].value < rows[0].value
    assert len({row.count for row in rows}) == 1
    assert rows[0].count > 0


def test_o19_rows_do_not_depend_on_what_a_library_does_by_default(finished, tmp_path, monkeypatch):
    """The same rows come out where transformers' own resizing cannot be used at all."""
    import transformers

    def refuse(*_, **__):
        raise AssertionError("the library's own resizing was used")

    monkeypatch.setattr(transformers.PreTrainedModel, "resize_token_embeddings", refuse)
    again = adapt(load_recipe(finished[0]), tmp_path / "again", until="embeddings")
    digests = [run.finished("embeddings")["record"]["weights_sha256"] for run in (finished[1], again)]
    assert digests[0] == digests[1]


def test_base_and_adapted_model_are_measured_on_the_same_bytes(finished: tuple[Path, Run]) -> None:
    rows = [row for row in finished[1].measurements() if row.name == "bits_per_byte" and row.language == "eu"]
    assert len({row.count for row in rows}) == 1


def test_every_document_leaves_its_bits_at_every_point(finished: tuple[Path, Run]) -> None:
    run = finished[1]
    items = [item for item in run.items() if item.name == "bits_per_byte" and not item.averaged]
    names = {}
    for row in run.measurements():
        if row.name == "bits_per_byte":
            mine = [i for i in items if (i.stage, i.tokens, i.language) == (row.stage, row.tokens, row.language)]
            assert len({item.item for item in mine}) == len(mine) == row.count
            bits, sizes = (sum(item.scores[score] for item in mine) for score in ("bits", "bytes"))
            assert row.value == pytest.approx(bits / sizes)
            names.setdefault(row.language, set()).add(tuple(item.item for item in mine))
    assert names.keys() == {"eu", "en"}
    assert all(len(same) == 1 for same in names.values())


def test_what_is_told_beside_bits_per_byte_is_there_at_the_base_and_at_stage_ends(finished: tuple[Path, Run]) -> None:
    rows = finished[1].measurements()
    for name in ("bits_per_byte/full_window", "bits_per_byte/per_character", "bits_per_byte/per_word"):
        told = {(row.stage, row.tokens, row.language) for row in rows if row.name == name}
        moments = [("base", 0), ("embeddings-only", 512), ("everything", 1792)]
        assert told == {(*moment, code) for moment in moments for code in ("eu", "en")}
    assert not [row for row in rows if row.name == "token_perplexity"]
    dead = {row.stage for row in rows if row.name == "bits_per_byte/dead_mass"}
    assert dead == {"base", "expanded", "embeddings-only", "everything"}


def test_training_lowers_the_target_loss(finished: tuple[Path, Run]) -> None:
    values = [row.value for row in finished[1].measurements() if (row.name, row.language) == ("bits_per_byte", "eu")]
    assert values[-1] < values[0]


def test_the_curriculum_is_what_was_trained_on(finished: tuple[Path, Run]) -> None:
    rows = [row for row in finished[1].measurements() if (row.stage, row.name) == ("everything", "share")]
    english = [row.tokens for row in rows if row.language == "en"]
    assert english == [512 + 128 * step for step in range(1, 6)]


def test_plain_transformers_loads_the_model_in_another_process(finished: tuple[Path, Run]) -> None:
    record = finished[1].finished("export")
    assert record is not None
    ids = ids_of(finished[1])[1]
    told = {"identical_logits": True, "rows": -(-ids // 16) * 16, "ids": ids}
    assert record["record"] == told | {"tokenizer_class": "PreTrainedTokenizerFast"}


def test_old_rows_are_bitwise_those_of_the_base(finished: tuple[Path, Run], tied_folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    name = "model.embed_tokens.weight"
    base = load_file(tied_folder / "model.safetensors")[name]
    for folder in ("embeddings/model", "stages/1-embeddings-only/model"):
        num_old = ids_of(finished[1])[0]
        assert torch.equal(load_file(finished[1].path(folder, "model.safetensors"))[name][:num_old], base[:num_old])


def test_the_embedding_stage_moves_nothing_but_new_rows(finished: tuple[Path, Run]) -> None:
    from safetensors.torch import load_file

    before = load_file(finished[1].path("embeddings/model/model.safetensors"))
    after = load_file(finished[1].path("stages/1-embeddings-only/model/model.safetensors"))
    moved = [name for name in before if not bool((before[name] == after[name]).all())]
    assert moved == ["model.embed_tokens.weight"]
    rows = (before[moved[0]] != after[moved[0]]).any(dim=1).nonzero().flatten().tolist()
    assert min(rows) >= ids_of(finished[1])[0]
    assert max(rows) < ids_of(finished[1])[1]


def test_the_same_command_again_does_nothing_and_changes_nothing(finished: tuple[Path, Run]) -> None:
    path, run = finished
    before = {file: file.stat().st_mtime_ns for file in run.folder.rglob("*.safetensors")}
    numbers = run.path("measurements.jsonl").read_bytes()
    adapt(load_recipe(path), run.folder)
    assert {file: file.stat().st_mtime_ns for file in run.folder.rglob("*.safetensors")} == before
    assert run.path("measurements.jsonl").read_bytes() == numbers


def test_another_recipe_in_the_same_folder_is_refused_with_the_difference(finished: tuple[Path, Run]) -> None:
    path, run = finished
    with pytest.raises(RunFolderError, match=r"seed: 0 → 1"):
        adapt(load_recipe(path, ["seed=1"]), run.folder)


def test_a_second_process_is_refused(finished: tuple[Path, Run]) -> None:
    path, run = finished
    with Run(run.folder), pytest.raises(RunFolderError, match="another process"):
        adapt(load_recipe(path), run.folder)


@pytest.mark.parametrize(
    "overrides",
    [
        ("embeddings.input=gaussian", "embeddings.output=mean"),
        ("stages.0.train=embeddings", "stages.0.mix={eu: 0.5, en: 0.5}"),
        ("precision=bf16", "vocabulary.row_multiple=1", "stages.0.mix={eu: 0.999, en: 0.001}"),
    ],
)
def test_an_untied_model_goes_the_whole_way(
    overrides: tuple[str, ...], tmp_path: Path, untied_folder: Path, corpora_folder: Path
) -> None:
    recipe = load_recipe(write_recipe(tmp_path, untied_folder, corpora_folder), overrides)
    run = adapt(recipe, tmp_path / "run")
    record = run.finished("export")
    assert record is not None
    assert record["record"]["ids"] == ids_of(run)[1]


def test_vocabulary_keep_is_the_control_arm(tmp_path: Path, tied_folder: Path, corpora_folder: Path) -> None:
    path = write_recipe(tmp_path, tied_folder, corpora_folder)
    recipe = load_recipe(path, ["vocabulary={method: keep}", "stages.0.train=all"])
    run = adapt(recipe, tmp_path / "run")
    drift = [row.value for row in run.measurements() if row.name == "segmentation_drift"]
    assert drift == [0.0]


def test_until_stops_early_and_the_same_command_goes_on(
    finished: tuple[Path, Run], tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tied_folder, corpora_folder))
    run = adapt(recipe, tmp_path / "run", until="embeddings")
    assert not run.path("stages").exists()
    assert last_weights(adapt(recipe, run.folder)) == last_weights(finished[1])


def test_until_names_the_steps_when_there_is_no_such_step(finished: tuple[Path, Run]) -> None:
    with pytest.raises(RecipeError, match="did you mean 'embeddings'"):
        adapt(load_recipe(finished[0]), finished[1].folder, until="embedings")


class InterruptAtStep(Silent):
    """A listener that presses Ctrl-C once, after a step of the second stage."""

    def __init__(self) -> None:
        self.stages = 0

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        self.stages += 1

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        if self.stages == 2 and step == 3:
            signal.raise_signal(signal.SIGINT)


def test_a_stop_in_a_stage_is_saved_and_gone_on_from(
    finished: tuple[Path, Run], tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tied_folder, corpora_folder))
    with pytest.raises(InterruptedRunError, match="after step 3 of 10; it is saved"):
        adapt(recipe, tmp_path / "run", progress=InterruptAtStep())
    run = adapt(recipe, tmp_path / "run")
    assert last_weights(run) == last_weights(finished[1])
    losses = [[(r.tokens, r.value) for r in each.measurements() if r.name == "loss"] for each in (run, finished[1])]
    assert losses[0] == losses[1]


def _start(recipe: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lingraft", "run", str(recipe), "--to", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(("what", "number"), [("kill -9", signal.SIGKILL), ("Ctrl-C", signal.SIGINT)])
def test_a_run_that_is_stopped_ends_with_the_same_weights(
    what: str, number: int, finished: tuple[Path, Run], tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    path = write_recipe(tmp_path, tied_folder, corpora_folder)
    process = _start(path, tmp_path / "run")
    checkpoints = tmp_path / "run" / "stages" / "2-everything" / "checkpoints"
    while process.poll() is None and not any(checkpoints.glob("step-*")):
        time.sleep(0.005)
    process.send_signal(number)
    said = process.communicate()[0]
    if number == signal.SIGINT and process.returncode != 0:
        assert process.returncode == 130
        assert "The same command goes on from here" in said
    assert last_weights(adapt(load_recipe(path), tmp_path / "run")) == last_weights(finished[1])


def _bad(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("override", "error", "message"),
    [
        ("corpora.eu.path={tmp}/missing.jsonl", CorpusError, r"corpora\.eu\.path: .*missing\.jsonl.* does not exist"),
        ("corpora.eu.pth=x", RecipeError, r"corpora\.eu\.pth: unknown key 'pth', did you mean 'path'"),
        (
            "stages.0.mix={eu: 0.5}",
            RecipeError,
            r"stages\.0\.mix: the shares of a mix must sum to 1; these sum to 0\.5",
        ),
        ("corpora.eu.max_epochs=0.01", CorpusError, r"corpora\.eu: its share is .* tokens and it has"),
        (
            "languages.target=false",
            RecipeError,
            r"languages\.target: must be a language code in quotes, not the truth value",
        ),
        ("corpora.eu.path={tmp}/empty.jsonl", LingraftError, r"corpora\.eu: .*no document|corpora\.eu: .*empty"),
        ("corpora.eu.path={tmp}/latin1.jsonl", CorpusError, r"latin1\.jsonl:2: byte \d+: .*UTF-8"),
        ("base_model={tmp}/nowhere", RecipeError, r"base_model: there is no"),
        (
            "base_model={tmp}/overfull",
            ModelError,
            r"base_model: the tokenizer gives .* the id 420, the embedding matrix has 420 rows",
        ),
        (
            "stages.0.lr.schedule=cosin",
            RecipeError,
            r"stages\.0\.lr\.schedule: unknown .* 'cosin', did you mean 'cosine'",
        ),
        (
            "measure.probes=[random_cop]",
            RecipeError,
            r"measure\.probes\.0: unknown probe 'random_cop', did you mean 'random_copy'",
        ),
        ("stages.0.batch.sequence_length=512", RecipeError, r"stages\.0\.batch"),
        ("documents.end='<|eos|>'", RecipeError, r"documents\.end: '<\|eos\|>' is not in the base vocabulary"),
        (
            "embeddings.input=subword_men",
            RecipeError,
            r"embeddings\.input: unknown init method 'subword_men', did you mean",
        ),
    ],
)
def test_bad_input_is_refused_before_a_weight_is_loaded(
    override: str,
    error: type[Exception],
    message: str,
    tmp_path: Path,
    tied_folder: Path,
    corpora_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import shutil

    _bad(tmp_path, "empty.jsonl", b"")
    _bad(tmp_path, "latin1.jsonl", b'{"text": "kaixo"}\n{"text": "a\xf1o"}\n')
    shutil.copytree(tied_folder, tmp_path / "overfull")
    tokenizer = json.loads((tied_folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {f"extra{n}": n for n in range(len(vocabulary), 421)}
    (tmp_path / "overfull" / "tokenizer.json").write_text(json.dumps(tokenizer))
    monkeypatch.setattr("lingraft.model.base.load_model", lambda *_: pytest.fail("weights were loaded"))
    path = write_recipe(tmp_path, tied_folder, corpora_folder)
    with pytest.raises(error, match=message):
        adapt(load_recipe(path, [override.replace("{tmp}", str(tmp_path))]), tmp_path / "run")
    assert not (tmp_path / "run" / "embeddings").exists()


def test_bad_input_loses_no_work_that_was_done(finished: tuple[Path, Run], corpora_folder: Path) -> None:
    path, run = finished
    before = sorted(file.name for file in run.folder.rglob("*"))
    with pytest.raises(LingraftError):
        adapt(load_recipe(path, ["corpora.eu.path=/nowhere.jsonl"]), run.folder)
    assert sorted(file.name for file in run.folder.rglob("*")) == before


def test_errors_reach_the_terminal_as_one_message(tmp_path: Path, tied_folder: Path, corpora_folder: Path) -> None:
    path = write_recipe(tmp_path, tied_folder, corpora_folder)
    path.write_text(path.read_text().replace("precision", "precison"))
    process = _start(path, tmp_path / "run")
    said = process.communicate()[0]
    line = 1 + path.read_text().split("\n").index("precison: fp32")
    assert (process.returncode, said.count("\n")) == (1, 1)
    assert f"tiny.yaml:{line}: precison: unknown key 'precison', did you mean 'precision'" in said


def test_the_steps_are_named_in_order(finished: tuple[Path, Run]) -> None:
    names = step_names(load_recipe(finished[0]))
    assert names[:3] == ("corpora", "base", "vocabulary")
    assert names[-5:] == ("embeddings-only", "everything", "export", "samples", "report")


def test_a_users_own_init_method_is_reached_by_module_and_name(
    tmp_path: Path, tied_folder: Path, corpora_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_method.py").write_text(
        textwrap.dedent('''
            """A user's init method."""
            def halves(context, *, factor=0.5):
                """Return half the mean."""
                return context.old.mean(dim=0).repeat(context.expansion.num_new, 1) * factor
        ''')
    )
    monkeypatch.syspath_prepend(tmp_path)
    recipe = load_recipe(write_recipe(tmp_path, tied_folder, corpora_folder), ["embeddings.input=own_method:halves"])
    run = adapt(recipe, tmp_path / "run", until="embeddings")
    assert '"own_method:halves"' in run.path("embeddings", "origins-input.jsonl").read_text()


def test_what_was_deleted_is_made_again_and_what_stands_is_not(
    tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    import shutil

    recipe = load_recipe(write_recipe(tmp_path, tied_folder, corpora_folder))
    run = adapt(recipe, tmp_path / "run", until="measure-expanded")
    tokenizer = run.path("vocabulary", "tokenizer.json").read_bytes()
    shutil.rmtree(run.path("vocabulary"))
    untouched = run.path("embeddings", "model", "model.safetensors").stat().st_mtime_ns
    adapt(recipe, run.folder, until="measure-expanded")
    assert run.path("vocabulary", "tokenizer.json").read_bytes() == tokenizer
    assert run.path("embeddings", "model", "model.safetensors").stat().st_mtime_ns == untouched


def test_changed_text_is_refused_and_the_results_stay(tmp_path: Path, tied_folder: Path, corpora_folder: Path) -> None:
    import shutil

    shutil.copytree(corpora_folder, tmp_path / "texts")
    recipe = load_recipe(write_recipe(tmp_path, tied_folder, tmp_path / "texts"))
    run = adapt(recipe, tmp_path / "run", until="embeddings")
    before = run.path("corpora", "eu", "train.jsonl").read_bytes()
    text = tmp_path / "texts" / "eu.jsonl"
    text.write_text(text.read_text().replace("Dokumentu", "Dokumentx"))
    with pytest.raises(RunFolderError, match=r"the text of corpora\.eu has changed since this run was begun"):
        adapt(recipe, run.folder)
    assert run.path("corpora", "eu", "train.jsonl").read_bytes() == before


def test_weights_that_were_altered_between_stages_are_refused(
    tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tied_folder, corpora_folder))
    run = adapt(recipe, tmp_path / "run", until="embeddings-only")
    weights = run.path("stages", "1-embeddings-only", "model", "model.safetensors")
    altered = bytearray(weights.read_bytes())
    altered[-1] ^= 1
    weights.write_bytes(bytes(altered))
    with pytest.raises(RunFolderError, match="the weights are not those that were written there"):
        adapt(recipe, run.folder)


def test_another_base_model_under_the_same_name_is_refused(
    tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    base = Path(shutil.copytree(tied_folder, tmp_path / "base"))
    recipe = load_recipe(write_recipe(tmp_path, base, corpora_folder))
    run = adapt(recipe, tmp_path / "run", until="base")
    weights = load_file(base / "model.safetensors")
    save_file({n: t + torch.ones_like(t) for n, t in weights.items()}, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(RunFolderError, match="the base model base has changed since this run was begun"):
        adapt(recipe, run.folder)


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (
            ["stages.1.train=['*nothing*']"],
            RecipeError,
            r"stages\.1\.train\.0: the pattern '\*nothing\*' matches no parameter",
        ),
        (["corpora.eu.validation=0"], CorpusError, r"corpora\.eu\.validation: no text in 'eu' is held out"),
        (
            ["embeddings.input={name: subword_mean, sigma: 3}"],
            RecipeError,
            r"embeddings\.input\.sigma: 'subword_mean' has no such option",
        ),
        (
            ["measure.probes=[{name: copain, shots: many}]"],
            RecipeError,
            r"measure\.probes\.0: copain\.shots: a whole number of at least 0 is needed, not 'many'",
        ),
        (
            ["measure.bits_per_byte=[eu]"],
            RecipeError,
            r"measure\.bits_per_byte: the source language 'en' must be among them",
        ),
        (["stages.0.optimizer.betas=[0.9, 1.5]"], RecipeError, r"stages\.0\.optimizer\.betas"),
        (["stages.0.tokens=0"], RecipeError, r"stages\.0\.tokens"),
        (["corpora.eu.max_epochs=1e999"], RecipeError, r"corpora\.eu\.max_epochs"),
        (["corpora.eu.path=''"], RecipeError, r"corpora\.eu\.path"),
        (["stages.0.lr.schedule=os:getcwd"], RecipeError, r"stages\.0\.lr\.schedule: 'os:getcwd' does not take"),
    ],
)
def test_almost_right_recipes_are_refused_before_anything_is_trained(
    overrides: list[str], error: type[Exception], message: str, tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    path = write_recipe(tmp_path, tied_folder, corpora_folder)
    with pytest.raises(error, match=message):
        adapt(load_recipe(path, overrides), tmp_path / "run")
    assert not (tmp_path / "run" / "vocabulary").exists()


@pytest.mark.parametrize("family", ["gpt2", "neox"])
def test_other_architectures_go_the_whole_way(
    family: str, tmp_path: Path, tied_folder: Path, corpora_folder: Path
) -> None:
    """GPT-2 has few learned positions, tied Conv1D layers and dropout; GPT-NeoX is untied and saved under other names."""
    import shutil

    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    small = {"vocab_size": 420, "bos_token_id": 0, "eos_token_id": 0}
    if family == "gpt2":
        model: torch.nn.Module = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=96, **small))
    else:
        wide = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 128}
        model = GPTNeoXForCausalLM(
            GPTNeoXConfig(num_hidden_layers=2, num_attention_heads=2, tie_word_embeddings=False, **wide, **small)
        )
    base = tmp_path / "base"
    model.save_pretrained(base)  # type: ignore[operator]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tied_folder / name, base / name)
    recipe = load_recipe(
        write_recipe(tmp_path, base, corpora_folder), ["measure.sample_tokens=90", "measure.segment_bytes=64"]
    )
    record = adapt(recipe, tmp_path / "run").finished("export")
    assert record is not None
    assert record["record"]["identical_logits"]


def test_scripts_without_spaces_have_a_fertility_of_their_own(tokenizer) -> None:
    from lingraft.vocabulary import measure_fertility

    assert measure_fertility(tokenizer, ["北京大观园"]).words == 5
