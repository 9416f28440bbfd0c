"""A folder of tasks made here: questions with options, cloze, a text to roll over, an answer to generate."""

import json
from pathlib import Path

import pytest

from lingraft.measure.scoring import Scorer

pytest.importorskip("lm_eval")

CHOICE = """
task: colours
tag: made
dataset_path: json
dataset_kwargs: {data_files: {train: rows/train.jsonl, test: rows/test.jsonl}}
training_split: train
test_split: test
fewshot_split: train
output_type: multiple_choice
doc_to_text: "Galdera: {{question}}\\nA: {{options[0]}}\\nB: {{options[1]}}\\nC: {{options[2]}}\\nErantzuna:"
doc_to_choice: ["A", "B", "C"]
doc_to_target: answer
num_fewshot: 2
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata:
  version: 1.0
  prompts:
    eu: {description: "Hona hemen galdera batzuk.\\n\\n"}
    en:
      doc_to_text: "Question: {{question}}\\nA: {{options[0]}}\\nB: {{options[1]}}\\nC: {{options[2]}}\\nAnswer:"
"""

CLOZE = """
task: endings
tag: made
dataset_path: someone/not-on-this-machine
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{endings}}"
doc_to_target: "{{right}}"
"""

ROLLING = """
task: pages
dataset_path: text
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}
"""

GENERATED = """
task: sums
dataset_path: json
test_split: test
output_type: generate_until
doc_to_text: "{{a}} + {{b}} ="
doc_to_target: "{{a + b}}"
generation_kwargs: {until: ["\\n"], do_sample: false, max_gen_toks: 6}
filter_list: [{name: strip, filter: [{function: remove_whitespace}, {function: take_first}]}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""

WORDS = ["cell", "number", "text", "formula", "sheet", "value", "button", "window", "light", "night", "file", "folder"]


def write_rows(path: Path, rows: list[dict]) -> None:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def colour_rows(count: int, start: int = 0) -> list[dict]:
    """Return questions of three options; four at a time are about one passage."""
    return [
        {
            "passage": f"passage {n // 4}",
            "question": f"Which is {WORDS[n % 12]} {n}?",
            "options": [WORDS[(n + k) % 12] for k in range(3)],
            "answer": n % 3,
        }
        for n in range(start, start + count)
    ]


@pytest.fixture
def tasks_folder(tmp_path: Path) -> Path:
    """Four tasks, one of them with its data beside it by name alone."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name, text in (("colours", CHOICE), ("endings", CLOZE), ("pages", ROLLING), ("sums", GENERATED)):
        (folder / f"{name}.yaml").write_text(text.lstrip(), encoding="utf-8")
    write_rows(folder / "rows" / "train.jsonl", colour_rows(6, start=100))
    write_rows(folder / "rows" / "test.jsonl", colour_rows(12))
    rows = [{"text": f"Open the {a} and", "endings": [f"the {b}.", f"close a {c}", "kaixo"], "right": n % 2}
            for n, (a, b, c) in enumerate(zip(WORDS, WORDS[1:], WORDS[2:], strict=False))]  # fmt: skip
    write_rows(folder / "endings.test.jsonl", rows)
    write_rows(
        folder / "pages.test.jsonl", [{"text": "The light in the night is bright. " * 3}, {"text": "東京 ñandú"}]
    )
    write_rows(folder / "sums.test.jsonl", [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    return folder


@pytest.fixture(scope="session")
def scorer(model, tokenizer) -> Scorer:
    """The tiny model with its start token."""
    return Scorer(model, num_ids=tokenizer.num_ids, condition_id=0)


@pytest.fixture
def adapter(scorer, tokenizer):
    """The tiny model as lm-eval asks it."""
    from lingraft.measure.tasks.adapter import ScorerLM

    return ScorerLM(scorer, tokenizer, end_id=0)
