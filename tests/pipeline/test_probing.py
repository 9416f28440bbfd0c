"""Probes of a recipe: what is refused, what becomes a row or a record, and what makes models comparable."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lingraft import plan
from lingraft.errors import RecipeError
from lingraft.item_records import ItemRecord
from lingraft.measure.comparison import scores_of
from lingraft.measure.probes import ProbeContext, ProbeResult, ProbeScore
from lingraft.measure.probes.probe import ItemScore
from lingraft.measurement import Measurement
from lingraft.pipeline.probing import (
    BaseAnswers,
    BoundProbe,
    bind_probes,
    comparability_rows,
    difference_rows,
    probe_files,
    probe_texts,
    run_probes,
)
from lingraft.vocabulary import TokenizerFile, VocabularyExpansion

SHORT = "measure.probes=[{name: random_copy}, {name: sort, num_items: 2, shots: 1}]"


def fixed(context: ProbeContext) -> ProbeResult:
    return ProbeResult([ProbeScore("min/exact_match", 0.5, 0.1, 0.9, 2)], [ItemScore("min", "7", {"exact_match": 1.0})])


BOUND = [BoundProbe("copain", False, True, fixed), BoundProbe("light", True, False, fixed)]


def test_scores_become_rows_and_items_records() -> None:
    rows, records = run_probes(BOUND, ProbeContext(None, None), "end", 64, heavy=True, averaged=True)
    assert [row.name for row in rows] == ["probe/copain/min/exact_match", "probe/light/min/exact_match"]
    assert (rows[0].stage, rows[0].tokens, rows[0].low, rows[0].high, rows[0].count) == ("end", 64, 0.1, 0.9, 2)
    first = records[0]
    assert (first.name, first.item, first.scores, first.averaged) == (
        "probe/copain/min",
        "7",
        {"exact_match": 1.0},
        True,
    )


def test_items_that_stand_beside_are_recorded_as_such() -> None:
    items = [ItemScore("k3", "0", {"exact_match": 1.0}), ItemScore("k0", "0", {"exact_match": 0.0}, beside=True)]
    bound = [BoundProbe("sort", False, True, lambda context: ProbeResult([], items))]
    _, records = run_probes(bound, ProbeContext(None, None), "end", 64, heavy=True)
    assert [(record.name, record.beside) for record in records] == [("probe/sort/k3", False), ("probe/sort/k0", True)]


def test_during_training_only_light_probes_run() -> None:
    rows, records = run_probes(BOUND, ProbeContext(None, None), "end", 64, heavy=False)
    assert ([row.name for row in rows], len(records)) == (["probe/light/min/exact_match"], 1)


def _asked(stage: str, right: int, score: str = "exact_match") -> list[ItemRecord]:
    return [ItemRecord(stage, 0, "probe/copain/min", str(n), {score: float(n < right)}) for n in range(40)]


def _base(right: int) -> BaseAnswers:
    return BaseAnswers({"probe/copain/exact_match": right / 40}, scores_of(_asked("base", right), "base"))


def test_scores_are_held_against_the_base_item_by_item() -> None:
    """30 right answers, then 10 of the same: the mean of 20 changes of −1 and 20 of 0."""
    now = [Measurement("end", 64, "probe/copain/exact_match", 0.25)]
    (found,) = difference_rows(now, _asked("end", 10), _base(30))
    assert (found.stage, found.tokens, found.name) == ("end", 64, "probe/copain/exact_match/difference")
    assert (found.value, found.count) == (-0.5, 40)
    assert -0.7 < found.low < -0.5 < found.high < -0.3
    (same,) = difference_rows([Measurement("end", 64, "probe/copain/exact_match", 0.75)], _asked("end", 30), _base(30))
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


def test_what_is_not_of_the_same_items_is_not_held_against_the_base() -> None:
    now = [Measurement("end", 64, "probe/copain/exact_match", 0.25)]
    assert list(difference_rows(now, _asked("end", 10)[:-1], _base(30))) == []
    assert list(difference_rows(now, _asked("end", 11), _base(30))) == []
    assert list(difference_rows(now, _asked("end", 10), BaseAnswers({}, {}))) == []
    assert list(difference_rows([], [], _base(30))) == []


def test_the_score_that_the_alarm_looks_at_is_held_against_the_base_too() -> None:
    now = [Measurement("end", 64, "probe/copain/validity", 0.25)]
    items = [*_asked("end", 10, "validity")]
    base = BaseAnswers({"probe/copain/validity": 0.75}, scores_of(_asked("base", 30, "validity"), "base"))
    for records in (items, [replace(one, scores=one.scores | {"exact_match": 1.0}) for one in items]):
        (found,) = difference_rows(now, records, base, "copain/validity")
        assert (found.name, found.value) == ("probe/copain/validity/difference", -0.5)


def test_texts_are_the_prompts_with_their_answers(make_recipe) -> None:
    texts = probe_texts(bind_probes(make_recipe(SHORT)))
    # Two items behind none, one, and one exchanged demonstration, which is the same.
    assert len(texts) == 4
    assert all(text.endswith("\n") and " -> " in text for text in texts)


def test_the_same_tokens_are_comparable_and_others_are_not(make_recipe, tokenizer: TokenizerFile) -> None:
    bound = bind_probes(make_recipe(SHORT))
    same = VocabularyExpansion("keep", tokenizer, tokenizer, ())
    rows = {row.name: row for row in comparability_rows(bound, same)}
    assert [*rows] == [
        f"probe/sort/prompts_{end}" for end in ("tokenised_differently", "tokens_base", "tokens_adapted")
    ]
    assert rows["probe/sort/prompts_tokenised_differently"].value == 0
    assert rows["probe/sort/prompts_tokens_base"].value == rows["probe/sort/prompts_tokens_adapted"].value > 0
    arrow = tokenizer.extended(["->"], [("-", ">")])
    other = VocabularyExpansion("expand", tokenizer, arrow, ())
    changed = {row.name: row for row in comparability_rows(bound, other)}
    assert changed["probe/sort/prompts_tokenised_differently"].value == 4
    assert changed["probe/sort/prompts_tokens_adapted"].value < changed["probe/sort/prompts_tokens_base"].value


def test_a_token_whose_id_moved_is_the_same_token(make_recipe, tokenizer: TokenizerFile) -> None:
    raw = json.loads(tokenizer.text)
    vocabulary = raw["model"]["vocab"]
    vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
    moved = TokenizerFile(json.dumps(raw), "moved")
    rows = comparability_rows(bind_probes(make_recipe(SHORT)), VocabularyExpansion("expand", tokenizer, moved, ()))
    assert next(rows).value == 0


@pytest.mark.parametrize(
    ("probes", "message"),
    [
        ("[random_cop]", r"measure\.probes\.0: unknown probe 'random_cop', did you mean 'random_copy'"),
        ("[copain, {name: sort, shot: 3}]", r"measure\.probes\.1\.shot: .* did you mean 'shots'"),
        ("[{name: sort, shots: 0}]", r"measure\.probes\.0: shots: a whole number of at least 1 is needed, not 0"),
        ("[{name: copain, templates: arow}]", r"measure\.probes\.0: copain.templates: .* did you mean 'arrow'"),
        ("[{name: copain, original: nowhere}]", r"measure\.probes\.0: nowhere.*test.jsonl: there is no such file"),
    ],
)
def test_the_plan_refuses_what_the_run_would(make_recipe, probes: str, message: str) -> None:
    recipe = make_recipe(f"measure.probes={probes}")
    for refuse in (plan, bind_probes):
        with pytest.raises(RecipeError, match=message):
            refuse(recipe)


def test_a_changed_file_of_original_items_is_another_input(make_recipe, tmp_path: Path) -> None:
    (tmp_path / "min_integer_in_list").mkdir()
    file = tmp_path / "min_integer_in_list" / "test.jsonl"
    recipe = make_recipe(f"measure.probes=[random_copy, {{name: copain, original: '{tmp_path}'}}]")
    found = []
    for text in ("{}\n", "[]\n"):
        file.write_text(text)
        found.append(probe_files(recipe))
    assert [*found[0]] == ["1"]
    assert found[0] != found[1]
    assert probe_files(make_recipe("measure.probes=[random_copy]")) == {}
