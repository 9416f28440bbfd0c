"""Contextual pattern inference, asked of models whose answers are known."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.probes import ProbeContext, copain
from lingraft.measure.probes.copain import TASKS, make_item
from lingraft.measure.scoring import Scored, Scorer


class Rule(Scorer):
    """Answers every list by one rule, whatever the demonstrations say."""

    def __init__(self, model, tokenizer, rule: Callable[[list[str]], str]) -> None:
        super().__init__(model, num_ids=tokenizer.num_ids, condition_id=0)
        self.tokenizer, self.rule = tokenizer, rule

    def score(self, sequences):
        return [self._of(list(s)) for s in sequences]

    def _of(self, ids: list[int]) -> Scored:
        query, member = self.tokenizer.decode(ids).rstrip("\n").split("\n")[-1].split(" -> ")
        is_right = member == self.rule(query.split(", "))
        greedy = torch.tensor(ids if is_right else [1] * len(ids))
        return Scored(torch.full((len(ids),), -0.1 if is_right else -3.0), greedy)


def scores(model, tokenizer, rule, **options) -> dict[str, float]:
    context = ProbeContext(Rule(model, tokenizer, rule), tokenizer, frozenset(range(410)))
    return {score.name: score.value for score in copain(context, **({"num_items": 6} | options))}


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("shots", [0, 3, 5])
def test_an_item_is_demonstrations_of_one_rule_and_a_query(task: str, shots: int) -> None:
    kind = TASKS[task]
    for index in range(20):
        item = make_item(task, index, shots=shots, seed=0)
        *shown, query = item.prompt.split("\n")
        assert (len(shown), query) == (shots, ", ".join(item.members) + " ->")
        assert kind.answer(item.members) == item.answer
        assert len(set(item.members)) == len(item.members) == kind.size
        for line in shown:
            members, answer = line.split(" -> ")
            assert kind.answer(members.split(", ")) == answer != item.answer


@pytest.mark.parametrize("task", list(TASKS))
def test_the_place_of_the_answer_gives_nothing_away(task: str) -> None:
    kind = TASKS[task]
    items = [make_item(task, index, shots=kind.size, seed=0) for index in range(12 * kind.size)]
    assert Counter(i.members.index(i.answer) for i in items) == dict.fromkeys(range(kind.size), 12)
    for item in items:
        lines = [line.split(" -> ") for line in item.prompt.split("\n")[:-1]]
        assert sorted(m.split(", ").index(a) for m, a in lines) == list(range(kind.size))


def test_rules_by_hand() -> None:
    assert [TASKS[t].answer(["31", "10", "25"]) for t in ("min", "max", "median")] == ["10", "31", "25"]
    assert TASKS["odd_in_even"].answer(["12", "14", "31", "90"]) == "31"
    assert TASKS["even_in_odd"].answer(["13", "15", "30", "91"]) == "30"
    assert [TASKS[t].answer(["q", "b", "x"]) for t in ("first_letter", "last_letter")] == ["b", "x"]


def test_items_never_change_and_follow_the_seed() -> None:
    assert make_item("max", 0, shots=1, seed=0).prompt == "53, 35, 31 -> 53\n98, 87, 19 ->"
    assert make_item("max", 0, shots=1, seed=1) != make_item("max", 0, shots=1, seed=0)


@pytest.mark.parametrize("task", ["min", "max"])
def test_a_model_that_knows_one_rule_gets_that_task(model, tokenizer, task: str) -> None:
    found = scores(model, tokenizer, {"min": min, "max": max}[task])
    other = {"min": "max", "max": "min"}[task]
    letters = {"min": "first_letter", "max": "last_letter"}[task]
    for name in ("exact_match", "choice_accuracy"):
        assert (found[f"{task}/{name}"], found[f"{letters}/{name}"], found[f"{other}/{name}"]) == (1, 1, 0)
    assert all(found[f"{t}/validity"] == 1 for t in TASKS)
    assert found["exact_match"] == pytest.approx(sum(found[f"{t}/exact_match"] for t in TASKS) / 7)


def test_a_model_that_takes_the_first_member_is_an_element_picker(model, tokenizer) -> None:
    found = scores(model, tokenizer, lambda members: members[0], num_items=12)
    assert found["exact_match"] == pytest.approx(found["element_picker"]) == pytest.approx((5 / 3 + 2 / 4) / 7)
    assert found["validity"] == 1


def test_a_model_that_has_lost_the_format_is_below_the_element_picker(model, tokenizer) -> None:
    found = scores(model, tokenizer, lambda members: "nothing")
    assert (found["exact_match"], found["validity"]) == (0, 0)


def test_a_real_model_gets_through(model, tokenizer) -> None:
    context = ProbeContext(Scorer(model, num_ids=410, condition_id=0), tokenizer, frozenset(range(410)))
    found = copain(context, num_items=2, shots=1)
    assert all(0 <= score.value <= 1 for score in found)
    assert all(s.low <= s.value <= s.high for s in found if s.low is not None and s.high is not None)


def test_no_item_is_refused(model, tokenizer) -> None:
    with pytest.raises(MeasurementError, match="at least one item"):
        scores(model, tokenizer, max, num_items=0)
