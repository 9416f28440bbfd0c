"""Elastic weight consolidation ("ewc"): the Fisher information against a slow obvious version, the pull by hand."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lingraft.model.base import head_of, load_model
from lingraft.training.companion import StageStart
from lingraft.training.guards import Ewc, SourceText, diagonal_fisher

NUM_IDS = 410


def start_of(folder, names=None) -> StageStart:
    model = load_model(folder)
    every = dict(model.named_parameters())
    return StageStart(model, head_of(model, NUM_IDS), {n: every[n] for n in names or every}, 1)


def test_the_fisher_is_the_mean_square_of_whole_sequences_gradients(tied_folder, source) -> None:
    start = start_of(tied_folder)
    found = diagonal_fisher(start, source, 32)
    model, slow = load_model(tied_folder), {}
    sequences = source.sequences(32)
    assert len(sequences) == 4
    for sequence in sequences:
        model.zero_grad()
        logits = model(sequence[None, :-1]).logits[0, :, :NUM_IDS]
        cross_entropy(logits, sequence[1:], reduction="sum").backward()
        for name, p in model.named_parameters():
            slow[name] = slow.get(name, 0) + p.grad.square() / (4 * 8)
    assert found.keys() == slow.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, slow[name], rtol=1e-3, atol=1e-9)


def test_only_what_trains_has_one(tied_folder, source) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    assert diagonal_fisher(start_of(tied_folder, [name]), source, 8).keys() == {name}


def test_a_sequence_repeated_weighs_as_much_as_once(tied_folder, source) -> None:
    """The mean over sequences does not grow with their number."""
    one = source.sequences(8)[:1]
    once, twice = (
        diagonal_fisher(start_of(tied_folder), SourceText(lambda _, n=n: one * n, source.kept), 8) for n in (1, 2)
    )
    for name in once:
        torch.testing.assert_close(once[name], twice[name], rtol=1e-5, atol=1e-12)


def test_the_pull_by_hand(bare_start) -> None:
    """F = (2, 0), θ₀ = (1, 1), θ = (4, 4), λ = 3: gradient + 3 · 2 · 3 and + 0."""
    weight = nn.Parameter(torch.ones(2))
    text = SourceText(lambda _: [], lambda name, make: {"w": torch.tensor([2.0, 0.0])})
    guard = Ewc(bare_start({"w": weight}), text, strength=3.0)
    with torch.no_grad():
        weight.fill_(4.0)
    weight.grad = torch.tensor([1.0, 1.0])
    guard.before_update(1)
    assert weight.grad.tolist() == [19.0, 1.0]
