"""Prompts in another language, options under other names, demonstrations by hash."""

from collections import Counter

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.tasks.loading import load_tasks
from lingraft.measure.tasks.order import TaskOrder
from lingraft.measure.tasks.prompting import HashedShots, item_name, prompt_changes, relabelled
from lingraft.measure.tasks.running import run_tasks

DOCS = [{"n": n} for n in range(8)]


def shots(pool, asked, n=3, task="t", seed=0):
    sampler = HashedShots(pool, task, seed)
    sampler.asked = item_name(asked)
    return sampler.sample(n)


def test_demonstrations_depend_on_item_task_and_seed_and_on_nothing_else() -> None:
    mine = shots(DOCS, DOCS[0])
    assert mine == shots(DOCS[::-1], dict(reversed(DOCS[0].items())))
    assert len({tuple(d["n"] for d in shots(DOCS, DOCS[0], seed=seed)) for seed in range(10)}) > 1
    assert len({tuple(d["n"] for d in shots(DOCS, DOCS[0], task=task)) for task in "abcdef"}) > 1
    assert len({tuple(d["n"] for d in shots(DOCS, doc)) for doc in DOCS}) > 1


def test_an_item_is_never_its_own_demonstration_and_none_comes_twice() -> None:
    seen = Counter()
    for doc in DOCS:
        for seed in range(20):
            found = shots([*DOCS, *DOCS], doc, n=7, seed=seed)
            assert doc not in found
            assert len({d["n"] for d in found}) == 7
            seen[found[0]["n"]] += 1
    # Each of eight is first in a share of 160 that is not far from an eighth.
    assert all(8 <= count <= 36 for count in seen.values())


def test_too_few_candidates_are_an_error() -> None:
    with pytest.raises(MeasurementError, match="8 demonstrations are asked for, and there are 7 other items"):
        shots(DOCS, DOCS[0], n=8)


def prompts_of(folder, **options) -> tuple[str, dict]:
    (loaded,) = load_tasks(TaskOrder("colours", folder=folder, **options))
    return loaded.items[0].requests[0].args[0], loaded.record


def test_o67_the_same_items_in_two_prompt_languages_both_recorded(tasks_folder, adapter) -> None:
    basque, one = prompts_of(tasks_folder, prompt_language="eu", label="colours-eu")
    english, other = prompts_of(tasks_folder, prompt_language="en", label="colours-en")
    assert basque.startswith("Hona hemen galdera batzuk.\n\nGaldera:")
    assert basque.count("Galdera:") == 3
    assert english.count("Question:") == 3
    assert "Galdera" not in english
    assert (one["prompt_language"], other["prompt_language"]) == ("eu", "en")
    assert one["asked_sha256"] != other["asked_sha256"]
    orders = [TaskOrder("colours", label=f"colours-{c}", folder=tasks_folder, prompt_language=c) for c in ("eu", "en")]
    results = run_tasks([loaded for order in orders for loaded in load_tasks(order)], adapter)
    assert [r.loaded.filed_as for r in results] == ["colours-eu", "colours-en"]
    names = [[item.name for item in result.items] for result in results]
    assert names[0] == names[1]


def test_o67_options_get_other_names_in_prompt_demonstrations_and_answers(tasks_folder) -> None:
    (loaded,) = load_tasks(TaskOrder("colours", folder=tasks_folder, labels=("ا", "ب", "ج")))
    prompt = loaded.items[0].requests[0].args[0]
    assert prompt.count("\nا: ") == prompt.count("\nب: ") == prompt.count("\nج: ") == 3
    assert not any(f"\n{label}: " in prompt for label in "ABC")
    assert [request.args[1] for request in loaded.items[0].requests] == [" ا", " ب", " ج"]
    assert loaded.record["labels"] == ["ا", "ب", "ج"]
    # The demonstrations are answered by the new names too.
    assert sum(prompt.count(f"Erantzuna: {label}") for label in "ابج") == 2


def test_labels_in_another_order_are_exchanged_at_once() -> None:
    config = {"doc_to_choice": ["A", "B"], "doc_to_text": "Q\nA: x\nB: y"}
    assert relabelled(TaskOrder("t", labels=("B", "A")), config) == ("Q\nB: x\nA: y", ["B", "A"])


@pytest.mark.parametrize(
    ("options", "config", "message"),
    [
        ({"labels": ("1", "2")}, {"doc_to_choice": "{{x}}"}, "not labels that have a name"),
        ({"labels": ("1",)}, {"doc_to_choice": ["A", "B"]}, "has 2 labels"),
        ({"labels": ("1", "1")}, {"doc_to_choice": ["A", "B"]}, "has 2 labels"),
        ({"labels": ("1", "2")}, {"doc_to_choice": ["A", "B"], "doc_to_text": "A or B"}, "give the whole prompt"),
        ({"prompt_language": "ar"}, {"metadata": {"prompts": {"eu": {}, "en": {}}}}, r"no prompt in 'ar'.*has en, eu"),
    ],
)
def test_changes_that_do_not_fit_are_refused(options: dict, config: dict, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        prompt_changes(TaskOrder("t", **options), config)


def test_a_prompt_of_ones_own_and_its_description_are_taken(tasks_folder) -> None:
    prompt, record = prompts_of(tasks_folder, prompt="{{question}} ->", description="Say it.\n\n", shots=0)
    assert prompt.startswith("Say it.\n\nWhich is")
    assert prompt.endswith(" ->")
    assert (record["prompt"], record["description"], record["shots"]) == ("{{question}} ->", "Say it.\n\n", 0)
