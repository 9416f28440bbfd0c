"""How far predictions are from the base's: by hand, and against softmax over everything."""

from pathlib import Path

import pytest
import torch

from lingraft.errors import MeasurementError
from lingraft.measure.function_drift import kept_sequences, mean_divergence, read_states, states_of, write_states
from lingraft.model.base import Head, head_of, load_model

SEQUENCES = [[5, 6, 7, 8], [9, 10, 11, 12], [300, 2, 3, 4]]


def test_divergence_over_shared_ids_by_hand() -> None:
    """Over ids 0 and 1: p = (3/4, 1/4), q = (1/2, 1/2); id 2 is new and has most of q, which does not count."""
    logs = torch.tensor([[3.0], [1.0], [9.0]]).log()
    base = Head(torch.cat([logs[:2], torch.zeros(1, 1)]), None, None, 3)
    adapted = Head(torch.tensor([[2.0], [2.0], [90.0]]).log(), None, None, 3)
    found = mean_divergence(torch.ones(1, 1), torch.ones(1, 1), (base, adapted), torch.tensor([0, 1]))
    expected = 0.75 * torch.tensor(1.5).log() + 0.25 * torch.tensor(0.5).log()
    assert found.tolist() == pytest.approx([expected.item()], rel=1e-5)


def test_it_agrees_with_the_models_own_logits(tied_folder: Path, untied_folder: Path) -> None:
    """Two models with other weights, in full: softmax of transformers' logits, then the sum."""
    base, adapted = load_model(tied_folder), load_model(untied_folder)
    one, other = (states_of(model, SEQUENCES, condition_id=0, batch_size=2) for model in (base, adapted))
    heads = (head_of(base, 394), head_of(adapted, 394))
    shared = torch.tensor([i for i in range(394) if i % 5])
    found = mean_divergence(one.last, other.last, heads, shared)
    ids = torch.tensor([[0, *sequence] for sequence in SEQUENCES])
    with torch.no_grad():
        p, q = (m(input_ids=ids).logits[:, 1:, shared].double().log_softmax(-1).flatten(0, 1) for m in (base, adapted))
    slow = (p.exp() * (p - q)).sum(dim=1)
    assert found.double().tolist() == pytest.approx(slow.tolist(), rel=1e-3)
    assert float(slow.min()) > 0


def test_a_model_has_not_drifted_from_itself(tied_folder: Path) -> None:
    model = load_model(tied_folder)
    states, head = states_of(model, SEQUENCES, condition_id=0), head_of(model, 394)
    assert mean_divergence(states.last, states.last, (head, head), torch.arange(394)).abs().max() < 1e-6


def test_states_are_those_of_transformers_without_the_first_token(tied_folder: Path) -> None:
    model = load_model(tied_folder)
    states = states_of(model, SEQUENCES, condition_id=0, batch_size=2)
    with torch.no_grad():
        every = model.base_model(input_ids=states.ids, output_hidden_states=True).hidden_states
    assert len(states.layers) == 2
    torch.testing.assert_close(states.layers[1], every[1][:, 1:].flatten(0, 1))
    torch.testing.assert_close(states.last, every[2][:, 1:].flatten(0, 1))
    assert len(states_of(model, SEQUENCES, condition_id=0, skip=[0]).layers) == 1


def test_states_survive_the_file(tied_folder: Path, tmp_path: Path) -> None:
    states = states_of(load_model(tied_folder), SEQUENCES, condition_id=0)
    write_states(tmp_path / "states.safetensors", {"source": states})
    back = read_states(tmp_path / "states.safetensors", "source")
    assert torch.equal(back.ids, states.ids)
    assert torch.equal(back.last, states.last)
    torch.testing.assert_close(back.layers, states.layers, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("content", [None, b"", b"nonsense and more of it"])
def test_states_that_are_gone_or_damaged_are_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "states.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MeasurementError, match=r"states cannot be read .* delete it, and the same command makes it"):
        read_states(path, "source")


@pytest.mark.parametrize(
    ("tokens", "expected"), [(8, [[1, 2, 3, 4], [5, 6, 7, 8]]), (3, [[1, 2, 3, 4]]), (99, [[1, 2, 3, 4], [5, 6, 7, 8]])]
)
def test_pieces_of_one_length_are_kept(tokens: int, expected: list[list[int]]) -> None:
    assert kept_sequences([[1, 2, 3, 4, 0], [9], [5, 6, 7, 8]], 4, tokens) == expected


def test_short_text_gives_shorter_pieces() -> None:
    assert kept_sequences([[1], [2, 3]], 4, 100) == [[2, 3]]
    assert kept_sequences([], 4, 100) == []
