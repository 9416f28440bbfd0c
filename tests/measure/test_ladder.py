"""The ladder: its sums by hand, its controls, and oracles that climb it."""

import math
from collections import Counter

import pytest

from lingraft.errors import MeasurementError
from lingraft.measure.answering import Question
from lingraft.measure.items import ItemStream
from lingraft.measure.probes import (
    ProbeContext,
    ProbeResult,
    arbitrary_labels,
    associative_recall,
    constant_offset,
    copy_reverse,
    flipped_labels,
    position,
    probes,
    questions_of,
    sort,
)
from lingraft.measure.probes.ladder import Chain, Query, climb, exchanged
from lingraft.measure.scoring import Scorer

LADDER = (arbitrary_labels, associative_recall, constant_offset, copy_reverse, flipped_labels, position, sort)
SHOTS = (1, 3, 8, 16)


def run(probe, answerer, **options) -> dict[str, float]:
    result = probe(ProbeContext(None, None, answerer=answerer), **({"num_items": 18} | options))
    return {score.name: score.value for score in result.scores}


def asked(probe, **options) -> list[Question]:
    return questions_of(lambda context: probe(context, **({"num_items": 18} | options)))


def lines(prompt: str) -> tuple[list[tuple[str, str]], str]:
    """A prompt's demonstrations and its query."""
    *shown, query = prompt.split("\n")
    return [tuple(line.split(" -> ")) for line in shown], query.removesuffix(" ->")


# Exchanged answers ----------------------------------------------------------------------------------------------------


def test_answers_go_in_a_circle_between_two_rungs() -> None:
    shown = [(f"x{n}", f"y{n}") for n in range(16)]
    for index in range(50):
        mixed = exchanged(ItemStream("t", index), shown, SHOTS)
        assert [x for x, _ in mixed] == [x for x, _ in shown]
        assert mixed[0] == shown[0]
        assert all(one != other for one, other in zip(mixed[1:], shown[1:], strict=True))
        for count in SHOTS:
            assert sorted(y for _, y in mixed[:count]) == sorted(y for _, y in shown[:count])


# Sums by hand ---------------------------------------------------------------------------------------------------------


def test_sums_by_hand(oracle) -> None:
    """The answerer is right with three or more true demonstrations, and with exchanged ones never."""

    def make(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
        shown = tuple((f"{n}", f"true{n}") for n in range(shots[-1]))
        return Chain(shown, dict.fromkeys((0, *shots), Query("q", "yes", ("no", "yes"))))

    def rule(prompt: str, choices: tuple[str, ...]) -> str:
        shown, _ = lines(prompt)
        is_true = all(answer == f"true{number}" for number, answer in shown)
        return "yes" if len(shown) >= 3 and is_true else "no"

    context = ProbeContext(None, None, answerer=oracle(rule))
    result = climb(context, make, key="t", num_items=4, shots=[1, 3, 8], score="exact_match", control=True)
    found = {score.name: score.value for score in result.scores}
    assert {n: v for n, v in found.items() if n.endswith("exact_match")} == {
        "k0/exact_match": 0,
        "k1/exact_match": 0,
        "k3/exact_match": 1,
        "k8/exact_match": 1,
        "shuffled/k1/exact_match": 0,
        "shuffled/k3/exact_match": 0,
        "shuffled/k8/exact_match": 0,
    }
    # Trapezoids over log2 k: half of the step from 1 to 3, all of that from 3 to 8, of three octaves.
    assert found["auc"] == pytest.approx((math.log2(3) / 2 + math.log2(8 / 3)) / 3)
    # k = 1 has nothing to exchange and takes no part.
    assert found["icl_gain"] == 1
    assert found["k3/chance"] == 1 / 2
    assert [(i.task, i.item) for i in result.items[:7]] == [
        *[(f"k{k}", "0") for k in (0, 1, 3, 8)],
        *[(f"shuffled/k{k}", "0") for k in (1, 3, 8)],
    ]


@pytest.mark.parametrize(("shots", "area"), [([1, 2, 4], 3 / 4), ([1], 1.0)])
def test_where_there_is_one_choice_choosing_tells_nothing(oracle, shots: list[int], area: float) -> None:
    """Right behind four, right every second time behind two: (1/2 + 1) / 2; behind one there is nothing to choose."""

    def make(stream: ItemStream, index: int, shots: tuple[int, ...]) -> Chain:
        shown = tuple((f"{n}", f"{n}") for n in range(shots[-1]))
        told = ("yes", "no") if index % 2 else ("no", "yes")
        return Chain(shown, {k: Query("q", "yes", ("yes",) if k == 1 else told) for k in shots})

    def rule(prompt: str, choices: tuple[str, ...]) -> str:
        return "yes" if len(lines(prompt)[0]) == 4 else choices[0].strip()

    context = ProbeContext(None, None, answerer=oracle(rule))
    result = climb(context, make, key="t", num_items=4, shots=shots, score="choice_accuracy", control=False)
    assert next(one.value for one in result.scores if one.name == "auc") == pytest.approx(area)


def test_the_score_that_a_probe_is_judged_by_stands_first_in_its_items(guesser) -> None:
    for probe, score in ((associative_recall, "choice_accuracy"), (position, "exact_match")):
        result = probe(ProbeContext(None, None, answerer=guesser), num_items=2, shots=3)
        assert {next(iter(item.scores)) for item in result.items} == {score}


@pytest.mark.parametrize(
    ("probe", "rungs"),
    [
        (position, {"k1", "k3", "k8"}),
        # Behind one pair there is but one value to choose.
        (associative_recall, {"k3", "k8"}),
        (copy_reverse, {f"{place}/k{k}" for place in ("copy", "reverse") for k in (1, 3, 8)}),
    ],
)
def test_models_are_compared_on_the_rungs_that_sum_a_probe_up(guesser, probe, rungs: set[str]) -> None:
    """Not on what was asked without demonstrations, with one choice, or with exchanged answers."""
    result = probe(ProbeContext(None, None, answerer=guesser), num_items=2, shots=[1, 3, 8])
    assert {item.task for item in result.items if not item.beside} == rungs
    assert {item.task.rpartition("/")[2] for item in result.items if item.beside} >= {"k0", "k3"}


def test_one_rung_is_its_own_area(oracle) -> None:
    found = run(sort, oracle(lambda prompt, choices: choices[0].strip()), shots=3, num_items=6)
    assert found["auc"] == found["k3/exact_match"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_items": 0}, "num_items: a whole number of at least 1 is needed, not 0"),
        ({"shots": 0}, "shots: a whole number of at least 1 is needed, not 0"),
        ({"shots": [3, 3]}, "shots: at least one number is needed, and none twice"),
    ],
)
def test_options_that_mean_nothing_are_refused(guesser, options: dict, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        run(position, guesser, **options)


def test_all_of_the_ladder_run_at_stage_ends_and_ask_in_text() -> None:
    for probe in LADDER:
        marks = probes.get(probe.__name__, "here").marks
        assert (marks["light"], marks["text"]) == (False, True)


# Every probe ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe", LADDER, ids=lambda probe: probe.__name__)
def test_prompts_have_k_demonstrations_and_the_answer_among_the_choices(probe) -> None:
    for question in asked(probe):
        shown, query = lines(question.prompt)
        count = int(question.task.rpartition("k")[2])
        assert len(shown) == count + 4 * (probe is flipped_labels)
        assert question.answer in question.choices
        assert len(set(question.choices)) == len(question.choices)
        if probe is not associative_recall:
            assert query not in [x for x, _ in shown]


@pytest.mark.parametrize("probe", LADDER, ids=lambda probe: probe.__name__)
def test_the_control_has_the_same_query_inputs_and_answers(probe) -> None:
    by_name = {(q.task, q.item): q for q in asked(probe)}
    controls = [q for q in by_name.values() if "shuffled/" in q.task]
    assert len(controls) * 9 == len(by_name) * 4
    changed = 0
    for control in controls:
        true = by_name[control.task.replace("shuffled/", ""), control.item]
        (mixed, query), (shown, same) = lines(control.prompt), lines(true.prompt)
        assert (query, control.answer, control.choices) == (same, true.answer, true.choices)
        assert [x for x, _ in mixed] == [x for x, _ in shown]
        assert sorted(y for _, y in mixed) == sorted(y for _, y in shown)
        changed += mixed != shown
    assert changed > len(controls) / 2


@pytest.mark.parametrize("probe", LADDER, ids=lambda probe: probe.__name__)
def test_items_do_not_depend_on_how_many_are_asked(probe) -> None:
    few, many = (asked(probe, num_items=n) for n in (2, 5))
    assert {(q.task, q.item): q for q in few}.items() <= {(q.task, q.item): q for q in many}.items()


@pytest.mark.parametrize("probe", LADDER, ids=lambda probe: probe.__name__)
def test_a_guesser_is_at_chance(probe, guesser) -> None:
    result: ProbeResult = probe(ProbeContext(None, None, answerer=guesser), num_items=120)
    found = {score.name: score for score in result.scores}
    rungs = [name.removesuffix("/chance") for name in found if name.endswith("/chance")]
    assert len(rungs) == 5 * (1 + (probe is copy_reverse))
    outside = [
        rung
        for rung in rungs
        if not found[f"{rung}/exact_match"].low <= found[f"{rung}/chance"].value <= found[f"{rung}/exact_match"].high
    ]
    # Of ten 95 % intervals one may miss.
    assert len(outside) <= 1, outside
    gains = [score for name, score in found.items() if name.endswith("icl_gain")]
    assert all(gain.low < 0.05 and gain.high > -0.05 for gain in gains)


@pytest.mark.parametrize("probe", LADDER, ids=lambda probe: probe.__name__)
def test_a_real_model_gets_through(probe, model, tokenizer) -> None:
    scorer = Scorer(model, num_ids=tokenizer.num_ids, condition_id=0)
    result = probe(ProbeContext(scorer, tokenizer), num_items=2, shots=[1, 3])
    assert all(0 <= s.value <= 1 for s in result.scores if "log_probability" not in s.name and "gain" not in s.name)
    assert all(s.low <= s.value <= s.high for s in result.scores if s.low is not None and s.high is not None)
    assert scorer._takes_trees


# Oracles --------------------------------------------------------------------------------------------------------------


def test_recall_by_hand(oracle) -> None:
    """Who looks the key up is always right, and always wrong where the values were exchanged."""
    found = run(associative_recall, oracle(lambda prompt, choices: dict(lines(prompt)[0]).get(lines(prompt)[1], "")))
    assert [found[f"k{k}/exact_match"] for k in (0, *SHOTS)] == [0, 1, 1, 1, 1]
    assert [found[f"k{k}/chance"] for k in SHOTS] == pytest.approx([1, 1 / 3, 1 / 8, 1 / 16])
    assert found["shuffled/k1/choice_accuracy"] == 1
    assert found["shuffled/k16/choice_accuracy"] <= 2 / 18
    assert found["icl_gain"] > 0.7
    places = Counter(
        [x for x, _ in lines(q.prompt)[0]].index(lines(q.prompt)[1])
        for q in asked(associative_recall)
        if q.task == "k3"
    )
    assert places == {0: 6, 1: 6, 2: 6}


def label_of(prompt: str, before: int = 0) -> str:
    """Sort as the demonstrations behind the first few do, by whichever of three rules fits them."""
    shown, query = lines(prompt)
    rules = [
        lambda x: x.isdigit() and int(x) % 2,
        lambda x: x.isdigit() and int(x) > 50,
        lambda x: x[0] in "aeiou",
    ]
    shown = shown[before:]
    for rule in rules:
        kinds = {bool(rule(x)): y for x, y in shown}
        if len(kinds) == 2 and len(set(kinds.values())) == 2 and all(kinds[bool(rule(x))] == y for x, y in shown):
            return kinds[bool(rule(query))]
    return "nothing"


def test_labels_by_hand(oracle) -> None:
    found = run(arbitrary_labels, oracle(lambda prompt, choices: label_of(prompt)), num_items=30)
    # Of few demonstrations two rules may be true; sixteen leave one.
    assert (found["k16/choice_accuracy"], found["k16/chance"]) == (1, 1 / 2)
    assert found["k8/choice_accuracy"] >= 0.9
    balance = Counter(q.choices.index(q.answer) for q in asked(arbitrary_labels, num_items=30) if q.task == "k8")
    assert balance == {0: 15, 1: 15}


def test_kinds_are_balanced_in_every_pair_of_demonstrations() -> None:
    for question in asked(arbitrary_labels):
        if question.task in ("k8", "k16"):
            labels = [y for _, y in lines(question.prompt)[0]]
            assert all(one != other for one, other in zip(labels[::2], labels[1::2], strict=True))


def test_flipped_labels_by_hand(oracle) -> None:
    """Who follows the last block is right; who follows the first four is wrong, with or without more."""
    last = run(flipped_labels, oracle(lambda prompt, choices: label_of(prompt, before=4)), num_items=30)
    assert last["k16/choice_accuracy"] == 1

    def first(prompt: str, choices: tuple[str, ...]) -> str:
        shown, query = lines(prompt)
        frame = "".join(f"{x} -> {y}\n" for x, y in shown[:4])
        kept = label_of(f"{frame}{query} ->")
        return kept if kept != "nothing" else choices[0].strip()

    stubborn = run(flipped_labels, oracle(first), num_items=30)
    assert stubborn["k0/choice_accuracy"] == stubborn["k16/choice_accuracy"] <= 0.4


def test_position_by_hand(oracle) -> None:
    def rule(prompt: str, choices: tuple[str, ...]) -> str:
        shown, query = lines(prompt)
        places = [n for n in range(5) if all(x.split()[n] == y for x, y in shown)]
        return query.split()[places[0]] if places else ""

    found = run(position, oracle(rule), num_items=20)
    assert [found[f"k{k}/exact_match"] for k in SHOTS] == [1, 1, 1, 1]
    assert (found["k0/exact_match"], found["auc"], found["k3/chance"]) == pytest.approx((0.2, 1, 1 / 5))


def test_copy_and_reverse_by_hand(oracle) -> None:
    found = run(copy_reverse, oracle(lambda prompt, choices: lines(prompt)[1]), shots=[1, 3])
    assert (found["copy/k3/exact_match"], found["reverse/k3/exact_match"]) == (1, 0)
    assert (found["reverse/k3/validity"], found["copy/k3/chance"]) == (1, 1 / 2)
    both = run(
        copy_reverse,
        oracle(lambda p, c: lines(p)[1][:: 1 if all(x == y for x, y in lines(p)[0]) else -1]),
        shots=[1, 3],
    )
    assert (both["copy/auc"], both["reverse/auc"]) == (1, 1)


def test_offset_by_hand(oracle) -> None:
    def rule(prompt: str, choices: tuple[str, ...]) -> str:
        shown, query = lines(prompt)
        offsets = {int(y) - int(x) for x, y in shown}
        return str(int(query) + offsets.pop()) if len(offsets) == 1 else "?"

    found = run(constant_offset, oracle(rule))
    assert [found[f"k{k}/exact_match"] for k in (0, *SHOTS)] == [0, 1, 1, 1, 1]
    assert (found["shuffled/k3/exact_match"], found["icl_gain"], found["k3/chance"]) == pytest.approx((0, 1, 1 / 9))


def test_sort_by_hand(oracle) -> None:
    found = run(sort, oracle(lambda prompt, choices: " ".join(sorted(lines(prompt)[1].split()))))
    assert (found["k0/exact_match"], found["auc"], found["icl_gain"], found["k3/chance"]) == pytest.approx(
        (1, 1, 0, 1 / 6)
    )
    copied = run(sort, oracle(lambda prompt, choices: lines(prompt)[1]))
    assert copied["k8/exact_match"] == pytest.approx(1 / 6)
