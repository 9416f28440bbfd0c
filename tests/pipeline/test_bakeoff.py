"""The bake-off: the same short run for each candidate, the one that learned most wins, and nothing tried is tried twice."""

import json

import pytest

from lingraft.errors import InterruptedRunError, ModelError
from lingraft.model.export import check_folder
from lingraft.pipeline import bakeoff
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.bakeoff import Tasting, tastings
from lingraft.pipeline.progress import Silent

LOOSE = ("embeddings.max_source_rise=9", "embeddings.max_source_mass=1", "measure.validation_bytes=1500")
STEPS = ("embeddings.choose_steps=3",)


class Notes(Silent):
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def recipe(make_recipe):
    return make_recipe(*LOOSE, *STEPS, "embeddings.choose=[subword_mean, zero, {name: random_normal, std: 0.5}]")


def test_the_candidate_with_the_fewest_bits_after_the_last_step_fills_the_rows(recipe, tmp_path):
    run = adapt(recipe, tmp_path / "run", until="embeddings")
    record = run.finished("bakeoff")["record"]
    found = tastings(record)
    assert [tasting.label for tasting in found] == ["subword_mean", "zero", "random_normal(std=0.5)"]
    assert all(sorted(tasting.target) == [0, 1, 2, 3] == sorted(tasting.source) for tasting in found)
    best = min(found, key=lambda tasting: tasting.target[3])
    assert record["chosen"] == best.label == run.finished("embeddings")["record"]["methods"]
    assert len({tasting.target[0] for tasting in found}) == 3
    check_folder(run.path("embeddings", "model"))


def test_candidates_start_from_one_state_and_tasting_leaves_it_alone(recipe, tmp_path, make_recipe):
    fewer = make_recipe(*LOOSE, *STEPS, "embeddings.choose=[{name: random_normal, std: 0.5}, zero]")
    runs = [adapt(chosen, tmp_path / name, until="bakeoff") for chosen, name in ((recipe, "many"), (fewer, "few"))]
    many, few = (tastings(run.finished("bakeoff")["record"]) for run in runs)
    assert (many[2], many[1]) == (few[0], few[1])


def test_rows_are_those_of_the_method_whether_it_was_tried_or_named(make_recipe, tmp_path, monkeypatch):
    # The second candidate has no rows to offer, so the first is sure to win.
    (tmp_path / "own_short.py").write_text("def rows(context):\n    return context.old[:1]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    tried = make_recipe(*LOOSE, *STEPS, 'embeddings.choose=[{name: random_normal, std: 0.5}, "own_short:rows"]')
    named = make_recipe(*LOOSE, "embeddings.input={name: random_normal, std: 0.5}")
    digests = [
        adapt(chosen, tmp_path / name, until="embeddings").finished("embeddings")["record"]["weights_sha256"]
        for chosen, name in ((tried, "tried"), (named, "named"))
    ]
    assert digests[0] == digests[1]


def test_what_was_tried_is_not_tried_again(recipe, tmp_path, monkeypatch):
    inner, tried = bakeoff._taste, []

    def stopped_at_the_second(kitchen, pair):
        if tried:
            raise InterruptedRunError("stopped")
        tried.append(pair.label)
        return inner(kitchen, pair)

    monkeypatch.setattr(bakeoff, "_taste", stopped_at_the_second)
    with pytest.raises(InterruptedRunError):
        adapt(recipe, tmp_path / "run", until="bakeoff")
    again = []
    monkeypatch.setattr(bakeoff, "_taste", lambda kitchen, pair: (again.append(pair.label), inner(kitchen, pair))[1])
    adapt(recipe, tmp_path / "run", until="bakeoff")
    assert (tried, again) == (["subword_mean"], ["zero", "random_normal(std=0.5)"])


def test_a_candidate_that_fails_is_told_and_the_others_go_on(make_recipe, tmp_path, monkeypatch):
    (tmp_path / "own_failing.py").write_text(
        "def rows(context):\n    return context.old[:1]\n\nagain = rows\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recipe = make_recipe(*LOOSE, *STEPS, 'embeddings.choose=["own_failing:rows", mean]')
    run = adapt(recipe, tmp_path / "run", until="bakeoff")
    failed, sound = tastings(run.finished("bakeoff")["record"])
    assert "must return a tensor of shape" in failed.failure
    assert (failed.last, sound.failure) == (float("inf"), None)
    recipe = make_recipe(*LOOSE, *STEPS, 'embeddings.choose=["own_failing:rows", "own_failing:again"]')
    with pytest.raises(ModelError, match=r"embeddings\.choose: no candidate could be tried \(own_failing:rows: "):
        adapt(recipe, tmp_path / "none", until="bakeoff")


def test_bits_are_measured_rows_of_the_report(recipe, tmp_path):
    run = adapt(recipe, tmp_path / "run", until="bakeoff")
    rows = [row for row in run.measurements() if row.stage == "bakeoff"]
    assert len(rows) == 3 * 2 * 4
    assert {row.tokens for row in rows} == {0, 128, 256, 384}
    json.dumps([row.value for row in rows])


def test_without_candidates_nothing_is_tried(make_recipe, tmp_path):
    run = adapt(make_recipe(*LOOSE), tmp_path / "run", until="bakeoff")
    assert run.finished("bakeoff") is None


def test_a_single_candidate_fills_the_rows_untried_and_the_run_says_so(make_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(bakeoff, "train_stage", lambda *_, **__: pytest.fail("the only candidate was trained"))
    notes = Notes()
    recipe = make_recipe(*LOOSE, *STEPS, "embeddings.choose=[zero]")
    run = adapt(recipe, tmp_path / "run", until="embeddings", progress=notes)
    assert "embeddings.choose names one candidate: zero fills the rows, nothing is tried" in notes.notes
    assert run.finished("bakeoff") is None
    assert run.finished("embeddings")["record"]["methods"] == "zero"


def test_last_is_the_last_step():
    assert Tasting("x", {0: 3.0, 10: 2.0, 5: 1.0}, {}).last == 2.0
