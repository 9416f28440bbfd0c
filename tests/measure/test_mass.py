"""Probability on some rows."""

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.mass import probability_mass
from lingraft.model.base import load_model


def test_a_uniform_model_spreads_it_evenly(tied_folder) -> None:
    blank = load_model(tied_folder)
    torch.nn.init.zeros_(blank.get_input_embeddings().weight)
    mass = probability_mass(blank, [[5, 6], [7]], condition_id=0, ids=range(380, 400), num_ids=400)
    assert mass == pytest.approx(20 / 400)


def test_it_is_the_mean_over_positions_of_the_softmax(model) -> None:
    sequences = [[5, 6, 7, 8], [9]]
    masses = []
    for ids in sequences:
        with torch.no_grad():
            masses += model(torch.tensor([[0, *ids]])).logits[0].softmax(1)[:, 410:].sum(1).tolist()
    found = probability_mass(model, sequences, condition_id=0, ids=range(410, 420), num_ids=420)
    assert found == pytest.approx(sum(masses) / 7, rel=1e-5)


def test_parts_sum_to_the_whole(model) -> None:
    new = [0, 5, 6, 409]
    parts = [
        probability_mass(model, [[3]], condition_id=0, ids=ids, num_ids=410)
        for ids in (new, [i for i in range(410) if i not in new])
    ]
    assert sum(parts) == pytest.approx(1)


def test_rows_may_lie_anywhere(model) -> None:
    with torch.no_grad():
        wanted = model(torch.tensor([[0, 3, 4]])).logits[0, :, :410].softmax(1)[:, [2, 100, 300]].sum(1).mean().item()
    found = probability_mass(model, [[3, 4]], condition_id=0, ids=[2, 100, 300], num_ids=410)
    assert found == pytest.approx(wanted, rel=1e-5)
    assert probability_mass(model, [[3, 4]], condition_id=0, ids=[], num_ids=410) == 0


def test_no_sequence_is_an_error(model) -> None:
    with pytest.raises(MeasurementError, match="at least one sequence"):
        probability_mass(model, [], condition_id=0, ids=[0], num_ids=410)
