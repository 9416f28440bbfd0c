"""Probability on a range of rows."""

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.mass import probability_mass
from lingraft.model.base import load_model


def test_a_uniform_model_spreads_it_evenly(tied_folder) -> None:
    blank = load_model(tied_folder)
    torch.nn.init.zeros_(blank.get_input_embeddings().weight)
    mass = probability_mass(blank, [[5, 6], [7]], condition_id=0, begin=380, end=400, num_ids=400)
    assert mass == pytest.approx(20 / 400)


def test_it_is_the_mean_over_positions_of_the_softmax(model) -> None:
    sequences = [[5, 6, 7, 8], [9]]
    masses = []
    for ids in sequences:
        with torch.no_grad():
            masses += model(torch.tensor([[0, *ids]])).logits[0].softmax(1)[:, 410:].sum(1).tolist()
    found = probability_mass(model, sequences, condition_id=0, begin=410, end=420, num_ids=420)
    assert found == pytest.approx(sum(masses) / 7, rel=1e-5)


def test_parts_sum_to_the_whole(model) -> None:
    parts = [
        probability_mass(model, [[3]], condition_id=0, begin=a, end=b, num_ids=410) for a, b in ((0, 380), (380, 410))
    ]
    assert sum(parts) == pytest.approx(1)


def test_no_sequence_is_an_error(model) -> None:
    with pytest.raises(MeasurementError, match="at least one sequence"):
        probability_mass(model, [], condition_id=0, begin=0, end=1, num_ids=410)
