"""``eval --task`` and ``list tasks`` as they are typed, on the tiny model."""

import json
import re
import sys
from pathlib import Path

import pytest

from lingraft.measure.tasks.sets import TASK_SETS, TASKS_TOLD

pytest.importorskip("lm_eval")


@pytest.fixture
def folder(choice_tasks: Path) -> Path:
    """Two tasks and a group of them."""
    (choice_tasks / "both.yaml").write_text("group: both\ntask: [colours, numbers]\n")
    return choice_tasks


def test_eval_shows_tasks_and_text_and_writes_every_item(
    tied_folder, folder, corpora_folder, tmp_path, lingraft
) -> None:
    words = ("eval", tied_folder, "--text", corpora_folder / "eu.jsonl", "--max-bytes", 500, "--task", "both")
    options = ("--tasks-folder", folder, "--shots", 1, "--items", 4, "--prompt-language", "eu", "--labels", "a,b")
    code, out, err = lingraft(*words, *options, "--json", tmp_path / "out.json")
    assert (code, err) == (0, "")
    assert out.startswith("both/colours: 4 items, 8 answers to score\nboth/numbers: ")
    assert re.search(r"^[\d.]+ bits per byte, 95 % interval .* tokens$", out, re.MULTILINE)
    assert re.search(
        r"^both/colours: 4 items, 1 demonstrations, prompt in eu, labels a b, guessing gets 50\.0 %; lm-eval [\d.]+, ",
        out,
        re.MULTILINE,
    )
    for words in ("acc ", "acc_norm (per character)", "acc_bytes (per byte)", "label perplexity, right one"):
        assert len(re.findall(rf"│ {re.escape(words)} *│ +[\d.,]+( %)? │ +[\d.,]+", out)) >= 2, words
    assert "both: mean of the tasks of the group\n" in out
    told = json.loads((tmp_path / "out.json").read_text())
    assert [(item["name"], set(item["scores"])) for item in told["items"]] == [
        (f"task/both/{name}", {"acc", "acc_norm", "acc_bytes", "gold_log_probability", "gold_tokens"})
        for name in ("colours", "numbers")
        for _ in range(4)
    ]
    before = (tmp_path / "out.json").read_bytes()
    code, out, err = lingraft("eval", tied_folder, "--task", "both", "--json", tmp_path / "out.json")
    assert (code, out) == (1, "")
    assert "out.json is there already; nothing was measured" in err
    assert (tmp_path / "out.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to measure: --text PATH for bits per byte, --task NAME"),
        (["--text", "x", "--shots", "1"], "--shots is about downstream tasks; name one with --task"),
        (["--task", "colors", "--tasks-folder", "{folder}"], "did you mean 'colours'?"),
        (["--task", "piqua"], "lm-eval has no task, group or tag 'piqua', did you mean 'piqa'?"),
        (["--task", "colours", "--tasks-folder", "gone"], "there is no folder gone"),
        (["--task", "colours", "--tasks-folder", "{folder}", "--shots", "6"], "there are 5 other items"),
        (["--task", "colours", "--tasks-folder", "{folder}", "--labels", "a,b,c"], "has 2 labels"),
    ],
)
def test_mistakes_are_one_message(tied_folder, folder, words, message, lingraft) -> None:
    code, out, err = lingraft("eval", tied_folder, *(word.format(folder=folder) for word in words))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err


def test_list_tasks_tells_of_every_set_and_of_a_folder(folder, lingraft) -> None:
    assert {name for tasks in TASK_SETS.values() for name, _ in tasks} == TASKS_TOLD.keys()
    code, out, _ = lingraft("list", "tasks")
    assert code == 0
    for language, tasks in TASK_SETS.items():
        assert f"set:{language} (" in out
        assert all(name in out for name, _ in tasks)
    (folder / "piqa.yaml").write_text((folder / "colours.yaml").read_text().replace("colours", "piqa"))
    _, out, _ = lingraft("list", "tasks", "--tasks-folder", folder)
    assert re.search(r"│ piqa .*│ yes +│", out)
    assert re.search(r"│ mmlu .*│ no +│", out)
    assert "both, colours, numbers" in out
    assert "there is no folder gone" in lingraft("list", "tasks", "--tasks-folder", "gone")[2]
    assert "--tasks-folder is about tasks, not probes" in lingraft("list", "probes", "--tasks-folder", folder)[2]


def test_list_tasks_needs_no_lm_eval(monkeypatch, lingraft) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert lingraft("list", "tasks")[0] == 0
