"""Heads that look further ahead: their loss by autograd, and that they leave no trace in the model."""

import torch
from torch.nn.functional import cross_entropy

from lingraft.model.base import Head, head_of, load_model
from lingraft.training.multi_token import ExtraHeads

DIM, ROWS, IDS = 8, 23, 20


def problem():
    generator = torch.Generator().manual_seed(2)
    head = Head(torch.randn(ROWS, DIM, generator=generator).requires_grad_(), None, None, IDS)
    hidden = torch.randn(3, 6, DIM, generator=generator).requires_grad_()
    tokens = torch.randint(IDS, (3, 7), generator=generator)
    documents = torch.tensor([[0] * 7, [0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6]])
    return head, hidden, tokens, documents


def test_the_heads_are_copies_of_the_model_s_own() -> None:
    head, *_ = problem()
    extra = ExtraHeads(head, 3)
    assert list(extra.parameters) == [f"multi_token.{k}.weight" for k in (2, 3, 4)]
    assert all(torch.equal(weight, head.weight) for weight in extra.parameters.values())
    extra.parameters["multi_token.2.weight"].data.zero_()
    assert head.weight.any()
    assert extra.parameters["multi_token.3.weight"].any()


def test_loss_and_gradients_equal_the_obvious_ones() -> None:
    """Head k is asked at t for t + k, inside documents only; each head's mean, and the heads summed."""
    head, hidden, tokens, documents = problem()
    extra = ExtraHeads(head, 2)
    extra.parameters["multi_token.3.weight"].data.mul_(0.5)
    extra.loss(hidden, tokens, documents, documents, torch.float32).backward()
    ours = [hidden.grad, *(p.grad for p in extra.parameters.values())]
    hidden.grad = None
    for p in extra.parameters.values():
        p.grad = None
    total = torch.zeros(())
    for ahead, weight in enumerate(extra.parameters.values(), start=2):
        terms = [
            cross_entropy(weight[:IDS] @ hidden[row, t], tokens[row, t + ahead])
            for row in range(3)
            for t in range(6)
            if t + ahead < 7 and documents[row, t] == documents[row, t + ahead]
        ]
        total = total + torch.stack(terms).mean()
    total.backward()
    for one, other in zip(ours, [hidden.grad, *(p.grad for p in extra.parameters.values())], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_the_mean_is_over_the_whole_step_however_it_is_cut() -> None:
    head, hidden, tokens, documents = problem()
    extra = ExtraHeads(head, 2)
    whole = extra.loss(hidden, tokens, documents, documents, torch.float32)
    parts = [
        extra.loss(hidden[n : n + 1], tokens[n : n + 1], documents[n : n + 1], documents, torch.float32)
        for n in range(3)
    ]
    torch.testing.assert_close(torch.stack(parts).sum(), whole)


def test_documents_too_short_to_look_ahead_cost_nothing() -> None:
    head, hidden, tokens, documents = problem()
    last = slice(2, 3)
    loss = ExtraHeads(head, 2).loss(hidden[last], tokens[last], documents[last], documents[last], torch.float32)
    assert float(loss.detach()) == 0


def test_no_heads_are_no_parameters() -> None:
    assert ExtraHeads(problem()[0], 0).parameters == {}


def test_a_stage_trains_them_and_the_model_it_leaves_has_none(make_trial) -> None:
    """They are in the checkpoint, change what is learned, and are gone from the model."""
    from lingraft.training.checkpoint import latest_checkpoint

    plain, aided = make_trial(tied=False).run(), make_trial(tied=False, extra_heads=2).run()
    found = latest_checkpoint(aided.checkpoints, aided.fingerprints)[0]
    saved = found.tensors("model")
    names = dict(aided.model.named_parameters()).keys()
    assert saved.keys() - names == {"multi_token.2.weight", "multi_token.3.weight"}
    assert not torch.equal(saved["multi_token.2.weight"], saved["multi_token.3.weight"])
    assert plain.digest() != aided.digest()
    head_of(aided.model, 410)
    assert names == dict(load_model(aided.base).named_parameters()).keys()


def test_frozen_rows_stay_frozen_beside_extra_heads(make_trial) -> None:
    trial = make_trial(tied=True, train="new_embeddings", extra_heads=1, weight_decay=0.5).run()
    assert trial.still > 2
