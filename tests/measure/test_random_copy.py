"""Copying a random sequence, asked of models whose answer is known."""

import dataclasses

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.probes import ProbeContext, probes, random_copy
from lingraft.measure.scoring import Scored, Scorer


class Copier(Scorer):
    """Foresees a token exactly when it stands in the second half; remembers what it was asked."""

    def score(self, sequences):
        self.asked = [list(s) for s in sequences]
        return [self._of(torch.tensor(s)) for s in sequences]

    def _of(self, ids: torch.Tensor) -> Scored:
        half = len(ids) // 2
        is_known = torch.arange(len(ids)) > half
        return Scored(torch.where(is_known, -0.25, -6.0), torch.where(is_known, ids, torch.zeros_like(ids)))


@pytest.fixture
def context(model, tokenizer) -> ProbeContext:
    return ProbeContext(Copier(model, num_ids=410, condition_id=0), tokenizer, frozenset(range(300)))


def scores(context: ProbeContext, **options) -> dict:
    return {score.name: score for score in random_copy(context, **({"num_items": 4, "length": 8} | options)).scores}


def test_a_perfect_copier_by_hand(context) -> None:
    found = scores(context)
    assert {n: s.value for n, s in found.items() if n != "chance"} == {"accuracy": 1, "nll": 0.25, "nll_drop": 5.75}
    assert (found["accuracy"].low, found["accuracy"].high) == pytest.approx((1 - 3.8415 / (28 + 3.8415), 1), abs=1e-3)
    assert found["accuracy"].count == 4


def test_every_item_leaves_its_scores(context) -> None:
    items = random_copy(context, num_items=4, length=8).items
    assert [item.item for item in items] == ["0", "1", "2", "3"]
    assert {tuple(sorted(item.scores.items())) for item in items} == {
        (("accuracy", 1), ("nll", 0.25), ("nll_drop", 5.75))
    }


def test_items_are_old_ids_without_control_tokens_written_twice_and_seeded(context) -> None:
    scores(context)
    asked = context.scorer.asked
    assert all(row[:8] == row[8:] and len(row) == 16 for row in asked)
    drawn = {i for row in asked for i in row}
    assert not drawn & context.tokenizer.special_ids
    assert max(drawn) < 300
    scores(context)
    assert context.scorer.asked == asked


def test_ids_that_new_tokens_took_are_not_drawn(context) -> None:
    """Ids 2 to 99 now mean other tokens than they did to the base model."""
    shared = dataclasses.replace(context, shared_ids=frozenset(range(100, 110)))
    assert scores(shared)["chance"].value == 1 / 10
    assert {i for row in shared.scorer.asked for i in row} <= set(range(100, 110))


def test_chance_is_one_over_the_ids_that_are_drawn_from(context) -> None:
    assert scores(context)["chance"].value == 1 / 298


def test_an_untrained_model_is_at_chance(model, tokenizer) -> None:
    context = ProbeContext(Scorer(model, num_ids=410, condition_id=0), tokenizer, frozenset(range(410)))
    found = scores(context, num_items=8, length=16)
    assert found["accuracy"].value < 0.1
    assert found["accuracy"].low <= found["accuracy"].value <= found["accuracy"].high


@pytest.mark.parametrize("options", [{"num_items": 0}, {"length": 1}])
def test_nothing_to_score_is_refused(context, options: dict) -> None:
    with pytest.raises(MeasurementError, match="at least one item"):
        scores(context, **options)


def test_it_is_registered_as_light() -> None:
    assert probes.get("random_copy", "here").marks["light"]
