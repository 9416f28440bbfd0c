"""Downstream tasks in a run: rows, items and records at the base and where the recipe says."""

import json
import textwrap
from pathlib import Path

import pytest

from lingraft.measure.tasks.conditions import read_task_records, record_path, task_conditions
from lingraft.pipeline.adapt import adapt

pytest.importorskip("lm_eval")

TASK = """
task: colours
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}\\nA: {{options[0]}}\\nB: {{options[1]}}\\nErantzuna:"
doc_to_choice: ["A", "B"]
doc_to_target: answer
"""
GROUP = """
group: both
task: [colours, endings]
"""
CLOZE = """
task: endings
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{endings}}"
doc_to_target: 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task about passages, one of endings, and a group of the two."""
    made = tmp_path / "tasks"
    made.mkdir()
    for name, text in (("colours", TASK), ("endings", CLOZE), ("both", GROUP)):
        (made / f"{name}.yaml").write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    rows = [
        {"passage": str(n // 2), "question": f"Which {n}?", "options": ["x", "y"], "answer": n % 2} for n in range(6)
    ]
    (made / "colours.test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rows = [{"text": f"Open the {n}", "endings": [" file", " folder"]} for n in range(4)]
    (made / "endings.test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return made


@pytest.fixture
def finished(make_recipe, folder, tmp_path):
    """A run of two stages with the tasks at its end."""
    recipe = make_recipe(
        "stages.1.tokens=256",
        "measure.at=[100%]",
        "measure.validation_bytes=1000",
        "measure.probes=[]",
        "measure.drift={tokens: 0, spectral_layers: 0}",
        f"measure.tasks_folder={folder}",
        "measure.tasks=[{name: both, language: eu}, {name: colours, label: own, language: eu, prompt_language: eu}]",
        "measure.label_items=3",
        "embeddings.max_source_rise=9",
        "embeddings.max_source_mass=0.9",
    )
    return adapt(recipe, tmp_path / "run", until="second")


def test_tasks_run_on_the_base_and_at_the_end_and_their_labels_at_every_point(finished) -> None:
    rows = finished.measurements()
    found = {}
    for row in rows:
        found.setdefault(row.name, []).append((row.stage, row.language, row.count))
    ends = [("base", "eu", 6), ("second", "eu", 6)]
    assert found["task/own/acc"] == ends
    assert found["task/both/colours/acc"] == ends
    assert [moment[0] for moment in found["task/both/endings/acc_bytes"]] == ["base", "second"]
    assert found["task/both/acc"] == [("base", "eu", 10), ("second", "eu", 10)]
    stages = ["base", "expanded", "first", "second"]
    assert found["label_perplexity/own/gold"] == [(stage, "eu", 3) for stage in stages]
    assert [moment[0] for moment in found["label_perplexity/both/endings/all"]] == stages
    values = {row.name: row.value for row in rows if row.stage == "second"}
    means = [values["task/both/colours/acc"], values["task/both/endings/acc"]]
    assert values["task/both/acc"] == pytest.approx(sum(means) / 2)
    assert values["task/own/seams_crossed"] == values["task/own/prompts_cut"] == 0


def test_every_item_leaves_its_scores_with_the_passage_it_is_about(finished) -> None:
    items = [item for item in finished.items() if item.name == "task/own"]
    assert [item.stage for item in items] == ["base"] * 6 + ["second"] * 6
    assert {item.item for item in items[:6]} == {item.item for item in items[6:]}
    assert len({item.cluster for item in items}) == 3
    assert {"acc", "acc_norm", "acc_bytes", "gold_log_probability", "gold_tokens"} == items[0].scores.keys()


def test_o73_the_version_of_the_harness_and_the_prompt_stand_in_every_record(finished) -> None:
    import lm_eval

    tokens = finished.measurements()[-1].tokens
    for path in (record_path(finished.folder, "base", 0), record_path(finished.folder, "second", tokens)):
        records = read_task_records(path)
        assert [record["filed_as"] for record in records] == ["both/colours", "both/endings", "own"]
        assert {record["lm_eval"] for record in records} == {lm_eval.__version__}
        assert records[2]["prompt_language"] == "eu"
    told = task_conditions(read_task_records(record_path(finished.folder, "base", 0)))
    assert told.keys() == {"task/both/eu", "task/own/eu"}
    assert told["task/own/eu"]["version of lm-eval"] == lm_eval.__version__
    # Of a group the items of both tasks count.
    assert len(told["task/both/eu"]["items and prompts"].split()) == 2


def test_there_is_no_record_where_nothing_was_asked(tmp_path) -> None:
    assert read_task_records(record_path(tmp_path, "base", 0)) == []
