"""Guards in a run: source text for them, what is kept when a stage is interrupted, and what the plan says."""

import numpy as np
import pytest
import torch

from lingraft.errors import CorpusError, RecipeError
from lingraft.pipeline.companions import SourceReader
from lingraft.pipeline.guard_plan import guard_copies
from lingraft.pipeline.outline import stage_memory
from lingraft.pipeline.plan import make_plan


class Store:
    def __init__(self, *tokens) -> None:
        self.tokens = np.array(tokens, dtype=np.uint16)
        self.document_ends = np.array([len(tokens)])


def reader(stores, tmp_path, key="k") -> SourceReader:
    return SourceReader(stores, 4, tmp_path, key, torch.device("cpu"))


def test_sequences_are_spread_over_each_corpus(tmp_path) -> None:
    stores = {"en": Store(*range(41)), "more": Store(*range(100, 109))}
    found = [piece.tolist() for piece in reader(stores, tmp_path).sequences(16)]
    assert found == [[0, 1, 2, 3, 4], [20, 21, 22, 23, 24], [100, 101, 102, 103, 104], [104, 105, 106, 107, 108]]


def test_a_short_corpus_gives_what_it_has_and_none_at_all_is_refused(tmp_path) -> None:
    assert len(reader({"en": Store(*range(9))}, tmp_path).sequences(1000)) == 2
    with pytest.raises(CorpusError, match="guards: en hold less than one sequence of 4 tokens"):
        reader({"en": Store(1, 2, 3, 4)}, tmp_path).sequences(16)


def test_what_was_computed_is_computed_once_for_its_inputs(tmp_path) -> None:
    calls = []

    def make():
        calls.append(1)
        return {"w": torch.tensor([1 / 3])}

    first = reader({}, tmp_path).kept("ewc", make)
    again = reader({}, tmp_path).kept("ewc", make)
    assert torch.equal(first["w"], again["w"])
    assert len(calls) == 1
    reader({}, tmp_path, key="other").kept("ewc", make)
    reader({}, tmp_path).kept("source_shielded", make)
    assert len(calls) == 3
    kept = next(tmp_path.rglob("ewc-*/made.safetensors"))
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert torch.equal(reader({}, tmp_path).kept("ewc", make)["w"], torch.tensor([1 / 3]))
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("guards", "message"),
    [
        ("[ewc]", r"stages\.1\.guards\.0: 'ewc' needs strength"),
        (
            "[{name: l2_start, strength: 1.0}, {name: ecw}]",
            r"stages\.1\.guards\.1: unknown guard 'ecw', did you mean 'ewc'",
        ),
        ("[{name: l2_start, strength: -1.0}]", r"stages\.1\.guards\.0\.strength: must be at least 0"),
        ("[source_shielded, {name: nope}]", r"stages\.1\.guards\.1: unknown guard 'nope'"),
        ("[source_shielded, source_shielded]", r"stages\.1\.guards: a guard is named twice"),
    ],
)
def test_the_plan_refuses_what_the_run_would(make_recipe, guards: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make_plan(make_recipe(f"stages.1.guards={guards}"))


def test_a_guard_of_the_body_has_nothing_to_do_where_rows_train_alone(make_recipe) -> None:
    """The run would find out at the beginning of the stage, which may be days after its own."""
    message = r"stages\.0\.guards\.0: source_shielded is about matrices of the body, and stages\.0\.train is new_emb"
    with pytest.raises(RecipeError, match=message):
        make_plan(make_recipe("stages.0.guards=[source_shielded]"))


def test_the_plan_counts_what_guards_hold_and_takes_them_for_a_guard(make_recipe) -> None:
    recipe = make_recipe("stages.1.guards=[{name: ewc, strength: 1e3}, source_shielded]", "stages.1.mix={eu: 1.0}")
    assert guard_copies(recipe.stages[1]) == 3
    plan = make_plan(recipe)
    assert not [text for text in plan.warnings if "no en text" in text]
    plain = stage_memory(make_recipe(), plan.base, make_recipe().stages[1], 1000, 1000, 50)
    assert stage_memory(recipe, plan.base, recipe.stages[1], 1000, 1000, 50) - plain == 3 * 4 * 1000
