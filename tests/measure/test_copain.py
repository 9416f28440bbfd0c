"""Contextual pattern inference, asked of models whose answers are known."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.probes import ProbeContext, copain, questions_of
from lingraft.measure.probes.copain import TASKS, make_item
from lingraft.measure.probes.list_item import ListItem, baselines
from lingraft.measure.scoring import Scorer

ONE_FORM = {"num_items": 6, "shots": 3, "templates": "arrow"}

# Every rule that a list of numbers or letters may follow, written down once more and in another way.
RULES: dict[str, Callable[[Sequence[str]], str]] = {
    "smallest": lambda m: sorted(m)[0],
    "greatest": lambda m: sorted(m)[-1],
    "in between": lambda m: sorted(m)[len(m) // 2],
    "odd one": lambda m: "".join(x for x in m if x[-1] in "13579"),
    "even one": lambda m: "".join(x for x in m if x[-1] in "02468"),
}


def inferred(prompt: str, choices: tuple[str, ...]) -> str:
    """Infer the rule as the task wants it: take the one that all demonstrations follow."""
    lines = [line.split(" -> ") for line in prompt.split("\n")[:-1]]
    shown = [(members.split(", "), answer) for members, answer in lines]
    fitting = [rule for rule in RULES.values() if all(rule(members) == answer for members, answer in shown)]
    return fitting[0]([choice.strip() for choice in choices])


def scores(answerer, **options) -> dict[str, float]:
    result = copain(ProbeContext(None, None, answerer=answerer), **(ONE_FORM | options))
    return {score.name: score.value for score in result.scores}


def of_last_line(rule: Callable[[list[str]], str]) -> Callable[[str, tuple[str, ...]], str]:
    return lambda prompt, choices: rule([choice.strip() for choice in choices])


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("shots", [0, 3, 5])
def test_an_item_is_demonstrations_of_one_rule_and_a_query(task: str, shots: int) -> None:
    kind = TASKS[task]
    for index in range(20):
        item = make_item(task, index, shots=shots, seed=0)
        assert len(item.shown) == shots
        assert kind.answer(item.members) == item.answer
        assert len(set(item.members)) == len(item.members) == kind.size
        for members, answer in item.shown:
            assert kind.answer(members) == answer != item.answer
            assert sorted(members) != sorted(item.members)


@pytest.mark.parametrize("task", list(TASKS))
def test_the_place_of_the_answer_gives_nothing_away(task: str) -> None:
    kind = TASKS[task]
    items = [make_item(task, index, shots=kind.size, seed=0) for index in range(12 * kind.size)]
    assert Counter(i.members.index(i.answer) for i in items) == dict.fromkeys(range(kind.size), 12)
    for item in items:
        assert sorted(m.index(a) for m, a in item.shown) == list(range(kind.size))


def test_rules_by_hand() -> None:
    assert [TASKS[t].answer(["31", "10", "25"]) for t in ("min", "max", "median")] == ["10", "31", "25"]
    assert TASKS["odd_in_even"].answer(["12", "14", "31", "90"]) == "31"
    assert TASKS["even_in_odd"].answer(["13", "15", "30", "91"]) == "30"
    assert [TASKS[t].answer(["q", "b", "x"]) for t in ("first_letter", "last_letter")] == ["b", "x"]


def test_items_never_change_and_follow_the_seed() -> None:
    item = make_item("max", 0, shots=1, seed=0)
    assert item.question("max", "0", "arrow").prompt == "92, 22, 56 -> 92\n86, 11, 32 ->"
    asked = item.question("max", "0", "input_output")
    assert asked.prompt == "Input: 92, 22, 56\nOutput: 92\n\nInput: 86, 11, 32\nOutput:"
    assert (asked.choices, asked.answer) == ((" 86", " 11", " 32"), " 86")
    assert make_item("max", 0, shots=1, seed=1) != item


def test_a_model_that_infers_the_rule_is_right_everywhere(oracle) -> None:
    found = scores(oracle(inferred), num_items=40)
    assert (found["exact_match"], found["validity"], found["choice_accuracy"]) == (1, 1, 1)
    assert found["gold_log_probability"] == pytest.approx(-0.1)
    assert all(found[f"{task}/exact_match"] == 1 for task in TASKS)


def test_a_model_that_guesses_among_the_members_is_an_element_picker(guesser) -> None:
    result = copain(ProbeContext(None, None, answerer=guesser), num_items=150, shots=3, templates="arrow")
    found = {score.name: score for score in result.scores}
    exact, picker = found["exact_match"], found["element_picker"].value
    assert picker == pytest.approx((5 / 3 + 2 / 4) / 7)
    assert exact.low < picker < exact.high
    assert exact.high - exact.low == pytest.approx(0.055, abs=0.01)
    assert (exact.value, found["validity"].value) == (found["choice_accuracy"].value, 1)


@pytest.mark.parametrize("task", ["min", "max"])
def test_a_model_that_knows_one_rule_gets_that_task(oracle, task: str) -> None:
    found = scores(oracle(of_last_line({"min": min, "max": max}[task])))
    other = {"min": "max", "max": "min"}[task]
    letters = {"min": "first_letter", "max": "last_letter"}[task]
    for name in ("exact_match", "choice_accuracy"):
        assert (found[f"{task}/{name}"], found[f"{letters}/{name}"], found[f"{other}/{name}"]) == (1, 1, 0)
    assert all(found[f"{t}/validity"] == 1 for t in TASKS)
    assert found["exact_match"] == pytest.approx(sum(found[f"{t}/exact_match"] for t in TASKS) / 7)


def test_a_model_that_has_lost_the_format_is_below_the_element_picker(oracle) -> None:
    found = scores(oracle(lambda prompt, choices: "nothing"))
    assert (found["exact_match"], found["validity"], found["gold_log_probability"]) == (0, 0, -3)


def test_baselines_by_hand() -> None:
    item = ListItem(((("1", "2", "3"), "3"), (("4", "6", "5"), "5"), (("9", "8", "7"), "9")), ("6", "7", "8"), "8")
    assert baselines(item) == {
        "first": 0,
        "last": 1,
        "middle": 0,
        "repeat_last": 0,
        "majority_place": 1,
        "element_picker": 1 / 3,
    }
    four = ListItem((), ("a", "b", "c", "d"), "b")
    assert baselines(four) == {
        "first": 0,
        "last": 0,
        "middle": 1,
        "repeat_last": 0,
        "majority_place": 0,
        "element_picker": 1 / 4,
    }


def test_no_baseline_beats_the_element_picker_where_places_are_balanced(guesser) -> None:
    found = scores(guesser, num_items=12)
    assert {n: v for n, v in found.items() if n.startswith("baseline/")} == {
        "baseline/first": pytest.approx(found["element_picker"]),
        "baseline/last": pytest.approx(found["element_picker"]),
        "baseline/middle": pytest.approx(found["element_picker"]),
        "baseline/repeat_last": 0,
        "baseline/majority_place": pytest.approx(found["element_picker"], abs=0.1),
    }


def test_every_form_has_a_name_and_the_first_the_plain_one(guesser) -> None:
    found = scores(guesser, num_items=1, shots=[3, 5], templates=["arrow", "input_output"])
    places = {n.rpartition("/")[0] for n in found if n.endswith("/exact_match")} - set(TASKS)
    forms = ("3-shot-input_output", "5-shot-arrow", "5-shot-input_output")
    assert places == {f"{form}{task}" for form in forms for task in ("", *(f"/{t}" for t in TASKS))}
    assert found["original_items"] == 0


def test_the_full_form_is_seven_tasks_of_150_items_in_four_forms() -> None:
    asked = questions_of(copain)
    assert len(asked) == 4 * 7 * 150
    assert Counter(q.task for q in asked)["min"] == 150
    assert len({(q.task, q.item) for q in asked}) == len(asked)


def test_each_item_leaves_its_scores(oracle) -> None:
    items = copain(ProbeContext(None, None, answerer=oracle(inferred)), **ONE_FORM).items
    assert [(i.task, i.item) for i in items[:2]] == [("min", "0"), ("min", "1")]
    assert items[0].scores["exact_match"] == 1
    assert len(items) == 42


def test_a_real_model_gets_through(model, tokenizer) -> None:
    context = ProbeContext(Scorer(model, num_ids=tokenizer.num_ids, condition_id=0), tokenizer)
    found = copain(context, num_items=2, shots=1, templates="arrow").scores
    shares = [score for score in found if "log_probability" not in score.name]
    assert all(0 <= score.value <= 1 for score in shares)
    assert all(s.low <= s.value <= s.high for s in found if s.low is not None and s.high is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_items": 0}, "copain.num_items: a whole number of at least 1 is needed, not 0"),
        ({"shots": -1}, "copain.shots: a whole number of at least 0 is needed, not -1"),
        ({"shots": [3, -5]}, r"copain.shots: .* not -5"),
        ({"shots": []}, "copain.shots: at least one number is needed"),
        ({"shots": [3, 3]}, "none twice"),
        ({"templates": []}, "copain.templates: at least one is needed"),
        ({"templates": "arow"}, "there is none named 'arow', did you mean 'arrow'"),
    ],
)
def test_options_that_mean_nothing_are_refused(guesser, options: dict, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        scores(guesser, **options)


def test_it_needs_a_model_or_an_answerer() -> None:
    with pytest.raises(MeasurementError, match="this needs a model"):
        copain(ProbeContext(None, None), **ONE_FORM)
