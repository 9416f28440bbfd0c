"""What trains, and the proof that nothing else moved by a single bit."""

import hashlib

import pytest
import torch

from lingraft.errors import FrozenMovedError, TrainingError
from lingraft.model.base import load_model
from lingraft.model.freeze import choose_trainable, frozen_digests, kind_of, prove_frozen, row_digests, weights_digest

OLD, IDS, ROWS = 394, 410, 420


def train(model, trainable, *, steps=20, decay=0.0, mask=True):
    """Train on ids of all kinds with AdamW, as a stage does."""
    parameters = dict(model.named_parameters())
    optimiser = torch.optim.AdamW([parameters[name] for name in trainable.names], lr=1e-2, weight_decay=decay)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        ids = torch.randint(0, ROWS, (2, 16), generator=generator)
        model(input_ids=ids, labels=ids).loss.backward()
        if mask:
            trainable.mask_gradients(parameters)
        optimiser.step()
        optimiser.zero_grad()


def tables(model):
    both = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return [weight.detach().clone() for weight in both]


@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_o33_frozen_rows_stay_bit_identical_and_new_ones_learn(request, fixture):
    model = load_model(request.getfixturevalue(fixture))
    trainable = choose_trainable(model, "new_embeddings", OLD, IDS)
    before, still = tables(model), frozen_digests(model, trainable)
    train(model, trainable)
    for old, new in zip(before, tables(model), strict=True):
        assert torch.equal(new[:OLD], old[:OLD])
        assert torch.equal(new[IDS:], old[IDS:])
        assert (new[OLD:IDS] != old[OLD:IDS]).any(dim=1).all()
    assert prove_frozen(model, trainable, still) == len(still)


def test_o33_weight_decay_on_masked_rows_is_caught(tied_folder):
    """The case: gradients are zero, and the rows shrink all the same."""
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    train(model, trainable, steps=1, decay=0.01)
    with pytest.raises(
        FrozenMovedError, match=r"2 frozen pieces moved, the first is .*embed_tokens\.weight\[old rows\]"
    ):
        prove_frozen(model, trainable, still)


def test_rows_without_a_mask_move_and_are_caught(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    train(model, trainable, steps=1, mask=False)
    with pytest.raises(FrozenMovedError):
        prove_frozen(model, trainable, still)


@pytest.mark.parametrize("row", [0, OLD - 1, IDS, ROWS - 1])
def test_one_bit_of_a_frozen_row_is_enough(tied_folder, row):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.get_input_embeddings().weight.view(torch.int32)[row, 5] ^= 1
    with pytest.raises(FrozenMovedError, match="1 frozen pieces moved"):
        prove_frozen(model, trainable, still)


@pytest.mark.parametrize("row", [OLD, IDS - 1])
def test_new_rows_may_move(tied_folder, row):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.get_input_embeddings().weight[row] += 1
    assert prove_frozen(model, trainable, still) == len(still)


def test_body_of_an_embedding_stage_does_not_move(untied_folder):
    model = load_model(untied_folder)
    trainable = choose_trainable(model, "embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    assert trainable.names == trainable.tables == ("model.embed_tokens.weight", "lm_head.weight")
    assert still.keys() == {name for name, _ in model.named_parameters()} - set(trainable.names)
    train(model, trainable, decay=0.1)
    assert prove_frozen(model, trainable, still) == len(still) > 10


def test_body_that_moved_is_named(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.model.norm.weight[3] += 1e-6
    with pytest.raises(FrozenMovedError, match=r"1 frozen pieces moved, the first is \['model\.norm\.weight'\]"):
        prove_frozen(model, trainable, still)


def test_frozen_piece_that_is_gone_is_noticed(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "embeddings", OLD, IDS)
    still = frozen_digests(model, trainable)
    with pytest.raises(FrozenMovedError):
        prove_frozen(model, trainable, {name: digest for name, digest in still.items() if "norm" not in name})


def test_o28_a_tied_matrix_trains_as_one_tensor(tied_folder):
    model = load_model(tied_folder)
    for choice in ("embeddings", "new_embeddings", "model.embed_tokens.weight"):
        assert choose_trainable(model, choice, OLD, IDS).names == ("model.embed_tokens.weight",)
    assert model.lm_head.weight.requires_grad
    with pytest.raises(TrainingError, match=r"'lm_head\.weight' matches no parameter"):
        choose_trainable(model, "lm_head.weight", OLD, IDS)


@pytest.mark.parametrize(
    ("choice", "count"), [("all", 20), (["*.layers.1.*"], 9), (["*.layers.0.self_attn.*", "*norm*"], 9), ("*mlp*", 6)]
)
def test_patterns_choose_parameters(tied_folder, choice, count):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, choice, OLD, IDS)
    assert len(trainable.names) == count
    assert {n for n, p in model.named_parameters() if p.requires_grad} == set(trainable.names)
    assert trainable.first_new_row == 0


def test_a_later_choice_replaces_an_earlier_one(tied_folder):
    model = load_model(tied_folder)
    choose_trainable(model, "embeddings", OLD, IDS)
    choose_trainable(model, "all", OLD, IDS)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_nothing_to_train_is_refused(tied_folder):
    model = load_model(tied_folder)
    with pytest.raises(TrainingError, match="no new rows"):
        choose_trainable(model, "new_embeddings", OLD, OLD)
    with pytest.raises(TrainingError, match=r"'\*\.layer\.0\.\*' matches no parameter"):
        choose_trainable(model, ["*norm*", "*.layer.0.*"], OLD, IDS)


def test_mask_by_hand(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", OLD, IDS)
    weight = model.get_input_embeddings().weight
    trainable.mask_gradients(dict(model.named_parameters()))
    weight.grad = torch.ones_like(weight)
    trainable.mask_gradients(dict(model.named_parameters()))
    assert weight.grad.sum(dim=1).nonzero().flatten().tolist() == list(range(OLD, IDS))


def test_no_rows_are_masked_when_all_may_move(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "embeddings", OLD, IDS)
    weight = model.get_input_embeddings().weight
    weight.grad = torch.ones_like(weight)
    trainable.mask_gradients(dict(model.named_parameters()))
    assert weight.grad.min() == 1


def test_digest_is_of_the_bytes():
    tensor = torch.tensor([[1.0, -0.0]])
    assert row_digests(tensor) == hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
    assert row_digests(tensor) != row_digests(torch.tensor([[1.0, 0.0]]))
    assert row_digests(tensor[:0]) == hashlib.sha256(b"").hexdigest()
    assert row_digests(torch.tensor([1.0], dtype=torch.bfloat16)) == hashlib.sha256(b"\x80\x3f").hexdigest()


def test_one_digest_of_all_weights(tied_folder):
    model = load_model(tied_folder)
    before = weights_digest(model)
    assert before == weights_digest(load_model(tied_folder))
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    assert weights_digest(model) != before


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.embed_tokens.weight", "embeddings"), ("lm_head.weight", "head"),
        ("model.layers.0.self_attn.q_proj.weight", "attention"), ("model.layers.1.mlp.down_proj.weight", "mlp"),
        ("model.layers.0.post_attention_layernorm.weight", "norm"), ("model.norm.weight", "norm"),
    ],
)  # fmt: skip
def test_kind_of_a_parameter(untied_folder, name, kind):
    assert kind_of(name, load_model(untied_folder)) == kind
