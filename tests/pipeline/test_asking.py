"""Tasks asked of a finished model: the numbers are those of plain transformers, and of a run."""

import json
from pathlib import Path

import pytest
import torch

from lingraft.errors import MeasurementError, MissingExtraError, RecipeError
from lingraft.measure.tasks.prompting import item_name
from lingraft.pipeline import inspecting
from lingraft.pipeline.asking import ask_tasks, prepare_tasks, stated_tasks, write_answers
from lingraft.pipeline.inspecting import find_model

pytest.importorskip("lm_eval")

ENDS = """
task: ends
test_split: test
output_type: multiple_choice
doc_to_text: "{{begin}}"
target_delimiter: ""
doc_to_choice: "{{ends}}"
doc_to_target: "{{right}}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sentences with four ends each, of unlike lengths in characters and bytes."""
    made = tmp_path / "tasks"
    made.mkdir()
    (made / "ends.yaml").write_text(ENDS.lstrip(), encoding="utf-8")
    words = ["the cell", "a folder", "ñandú", "東京", "light", "the window of the file", "kaixo", "night"]
    rows = [
        {"begin": f"Open {words[n]} and", "ends": [f" {words[(n + k) % 8]}." for k in range(1, 5)], "right": n % 4}
        for n in range(8)
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (made / "ends.test.jsonl").write_text(lines, encoding="utf-8")
    return made


def test_scores_are_those_of_plain_transformers_item_by_item(tied_folder, folder, tmp_path) -> None:
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    found = find_model(str(tied_folder))
    prepared = prepare_tasks(found, stated_tasks(["ends"], {}), folder=str(folder))
    answers = ask_tasks(found.load(), prepared)
    write_answers(tmp_path / "out.json", found, answers)
    told = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    scores = {item["item"]: item["scores"] for item in told["items"]}
    plain = AutoModelForCausalLM.from_pretrained(tied_folder, dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tied_folder / "tokenizer.json"))
    right = 0
    for line in (folder / "ends.test.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        begin = tokenizer.encode(row["begin"], add_special_tokens=False)
        sums = []
        for end in row["ends"]:
            ids = tokenizer.encode(row["begin"] + end, add_special_tokens=False)
            assert ids[: len(begin)] == begin
            with torch.no_grad():
                logits = plain(torch.tensor([[0, *ids]])).logits[0, :, : found.tokenizer.num_ids]
            table = logits.double().log_softmax(-1)
            sums.append(sum(table[place, ids[place]].item() for place in range(len(begin), len(ids))))
        best = {
            "acc": sums,
            "acc_norm": [value / len(end) for value, end in zip(sums, row["ends"], strict=True)],
            "acc_bytes": [value / len(end.encode()) for value, end in zip(sums, row["ends"], strict=True)],
        }
        mine = scores[item_name(row)]
        assert mine["gold_log_probability"] == pytest.approx(sums[row["right"]], abs=1e-3)
        for name, values in best.items():
            assert mine[name] == float(max(range(4), key=values.__getitem__) == row["right"]), name
        right += mine["acc"]
    rows = {row["name"]: row for row in told["measurements"]}
    assert (rows["task/ends/acc"]["value"], rows["task/ends/acc"]["count"]) == (right / 8, 8)
    assert told["tasks"][0]["chance"] == 0.25
    assert told["tasks"][0]["lm_eval"]  # O-73: the harness version stands beside every number


def test_o67_prompt_language_and_labels_are_recorded(tied_folder, tmp_path) -> None:
    text = ENDS.replace('"{{begin}}"', '"A: {{ends[0]}}\\nB: {{ends[1]}}\\nErantzuna:"')
    text = text.replace('"{{ends}}"', '["A", "B"]')
    (tmp_path / "ends.yaml").write_text(text.lstrip(), encoding="utf-8")
    (tmp_path / "ends.test.jsonl").write_text('{"ends": ["x", "y"], "right": 0}\n{"ends": ["y", "x"], "right": 1}\n')
    stated = stated_tasks(["ends"], {"labels": ("a", "b"), "prompt_language": "eu", "shots": None})
    found = find_model(str(tied_folder))
    prepared = prepare_tasks(found, stated, folder=str(tmp_path))
    assert prepared.tasks[0].items[0].requests[0].args == ("a: x\nb: y\nErantzuna:", "a")
    record = ask_tasks(found.load(), prepared, label_items=0).records[0]
    assert (record["prompt_language"], record["labels"]) == ("eu", ["a", "b"])


def test_seams_and_names_are_looked_at_before_weights_are_loaded(tied_folder, folder, monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(inspecting, "load_model", refuse)
    found = find_model(str(tied_folder))
    prepared = prepare_tasks(found, stated_tasks(["ends"], {"items": 3}), folder=str(folder))
    assert [len(task.items) for task in prepared.tasks] == [3]
    assert [check.crossed for check in prepared.checks] == [()]
    with pytest.raises(RecipeError, match=r"--task: no YAML file in .* states a task 'end', did you mean 'ends'\?"):
        prepare_tasks(found, stated_tasks(["end"], {}), folder=str(folder))
    long = {"begin": "x", "ends": [" night" * 2000, " y"], "right": 0}
    (folder / "ends.test.jsonl").write_text(json.dumps(long) + "\n")
    with pytest.raises(MeasurementError, match=r"task 'ends', item \w+: an answer .* tokens; the model sees \d+ at"):
        prepare_tasks(found, stated_tasks(["ends"], {}), folder=str(folder))


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([" , "], {}, "name a task or set, as in set:eu"),
        (["set:eu"], {"shots": 2}, r"--task set:eu: shots is each task's own"),
        (["a"], {"prompt_language": "basque!"}, r"--task a: prompt_language: "),
        (["a"], {"labels": ("A", "")}, r"--task a: labels\.1: "),
    ],
)
def test_what_a_recipe_would_refuse_is_refused(names, options, message) -> None:
    with pytest.raises(RecipeError, match=message):
        stated_tasks(names, options)


def test_the_same_task_twice_is_one_name_too_many(tied_folder, folder) -> None:
    found = find_model(str(tied_folder))
    assert list(stated_tasks(["ends, piqa", "ends"], {})) == ["--task ends", "--task piqa"]
    with pytest.raises(RecipeError, match="no set of tasks is named 'set:xx'"):
        prepare_tasks(found, stated_tasks(["set:xx"], {}), folder=str(folder))


def test_without_lm_eval_its_pip_line_is_named(tied_folder, folder, monkeypatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    with pytest.raises(MissingExtraError, match=r"--task: .*pip install 'lingraft\[eval\]'"):
        prepare_tasks(find_model(str(tied_folder)), stated_tasks(["ends"], {}), folder=str(folder))
