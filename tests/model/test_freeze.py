"""What trains, and the proof that nothing else moved by a single bit."""

import hashlib

import pytest
import torch

from lingraft.errors import FrozenMovedError, ModelError, TrainingError
from lingraft.model.base import load_model
from lingraft.model.freeze import (
    BLOCKS_RECORD,
    ModelParts,
    Trainable,
    choose_trainable,
    chosen_names,
    frozen_digests,
    inserted_blocks,
    kind_of,
    other_rows,
    parts_of,
    prove_frozen,
    row_digests,
    row_index,
    weights_digest,
)

OLD, IDS, ROWS = 394, 410, 420
NEW = tuple(range(OLD, IDS))
SCATTERED = (0, 7, 8, 200, 393, 394, 407)  # as a replacement leaves them: the first id, neighbours, and single ones


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
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
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
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    train(model, trainable, steps=1, decay=0.01)
    with pytest.raises(
        FrozenMovedError, match=r"2 frozen pieces moved, the first is .*embed_tokens\.weight\[old rows\]"
    ):
        prove_frozen(model, trainable, still)


def test_rows_without_a_mask_move_and_are_caught(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    train(model, trainable, steps=1, mask=False)
    with pytest.raises(FrozenMovedError):
        prove_frozen(model, trainable, still)


@pytest.mark.parametrize("row", [0, OLD - 1, IDS, ROWS - 1])
def test_one_bit_of_a_frozen_row_is_enough(tied_folder, row):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.get_input_embeddings().weight.view(torch.int32)[row, 5] ^= 1
    with pytest.raises(FrozenMovedError, match="1 frozen pieces moved"):
        prove_frozen(model, trainable, still)


@pytest.mark.parametrize("row", [OLD, IDS - 1])
def test_new_rows_may_move(tied_folder, row):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.get_input_embeddings().weight[row] += 1
    assert prove_frozen(model, trainable, still) == len(still)


def test_body_of_an_embedding_stage_does_not_move(untied_folder):
    model = load_model(untied_folder)
    trainable = choose_trainable(model, "embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    assert trainable.names == trainable.tables == ("model.embed_tokens.weight", "lm_head.weight")
    assert still.keys() == {name for name, _ in model.named_parameters()} - set(trainable.names)
    train(model, trainable, decay=0.1)
    assert prove_frozen(model, trainable, still) == len(still) > 10


def test_body_that_moved_is_named(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.model.norm.weight[3] += 1e-6
    with pytest.raises(FrozenMovedError, match=r"1 frozen pieces moved, the first is \['model\.norm\.weight'\]"):
        prove_frozen(model, trainable, still)


def test_frozen_piece_that_is_gone_is_noticed(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "embeddings", NEW, IDS)
    still = frozen_digests(model, trainable)
    with pytest.raises(FrozenMovedError):
        prove_frozen(model, trainable, {name: digest for name, digest in still.items() if "norm" not in name})


def test_o28_a_tied_matrix_trains_as_one_tensor(tied_folder):
    model = load_model(tied_folder)
    for choice in ("embeddings", "new_embeddings", "model.embed_tokens.weight"):
        assert choose_trainable(model, choice, NEW, IDS).names == ("model.embed_tokens.weight",)
    assert model.lm_head.weight.requires_grad
    with pytest.raises(TrainingError, match=r"'lm_head\.weight' matches no parameter"):
        choose_trainable(model, "lm_head.weight", NEW, IDS)


@pytest.mark.parametrize(
    ("choice", "count"), [("all", 20), (["*.layers.1.*"], 9), (["*.layers.0.self_attn.*", "*norm*"], 9), ("*mlp*", 6)]
)
def test_patterns_choose_parameters(tied_folder, choice, count):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, choice, NEW, IDS)
    assert len(trainable.names) == count
    assert {n for n, p in model.named_parameters() if p.requires_grad} == set(trainable.names)
    assert trainable.new_rows == ()


def test_a_later_choice_replaces_an_earlier_one(tied_folder):
    model = load_model(tied_folder)
    choose_trainable(model, "embeddings", NEW, IDS)
    choose_trainable(model, "all", NEW, IDS)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_nothing_to_train_is_refused(tied_folder):
    model = load_model(tied_folder)
    with pytest.raises(TrainingError, match="no new rows"):
        choose_trainable(model, "new_embeddings", (), OLD)
    with pytest.raises(TrainingError, match=r"'\*\.layer\.0\.\*' matches no parameter"):
        choose_trainable(model, ["*norm*", "*.layer.0.*"], NEW, IDS)


def test_mask_by_hand(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
    weight = model.get_input_embeddings().weight
    trainable.mask_gradients(dict(model.named_parameters()))
    weight.grad = torch.ones_like(weight)
    trainable.mask_gradients(dict(model.named_parameters()))
    assert weight.grad.sum(dim=1).nonzero().flatten().tolist() == list(range(OLD, IDS))


def test_no_rows_are_masked_when_all_may_move(tied_folder):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "embeddings", NEW, IDS)
    weight = model.get_input_embeddings().weight
    weight.grad = torch.ones_like(weight)
    trainable.mask_gradients(dict(model.named_parameters()))
    assert weight.grad.min() == 1


@pytest.mark.parametrize(
    ("partial", "new_rows", "rows"),
    [
        (("in", "out"), (7, 8, 9), slice(7, 10)),
        (("in",), (7, 8, 9), slice(None)),  # all of the output matrix learns, or none of it
        (("out",), (3, 8, 9), slice(None)),  # rows apart from each other
        ((), (), slice(None)),
    ],
)
def test_output_rows_that_learn_by_hand(partial, new_rows, rows):
    assert Trainable(("in", "out"), ("in", "out"), new_rows, 10, partial).output_rows == rows


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


@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_o33_new_rows_among_the_old_ones_learn_alone(request, fixture):
    """A replacement gives old ids to new tokens."""
    model = load_model(request.getfixturevalue(fixture))
    trainable = choose_trainable(model, "new_embeddings", SCATTERED, IDS)
    before, still = tables(model), frozen_digests(model, trainable)
    train(model, trainable)
    for old, new in zip(before, tables(model), strict=True):
        moved = set((old != new).any(dim=1).nonzero().flatten().tolist())
        assert moved <= set(SCATTERED)
        assert len(moved) > 4  # an input row moves only where its token was drawn
    assert prove_frozen(model, trainable, still) == len(still)


def test_mask_by_hand_in_the_middle(tied_folder):
    """What may move keeps its gradient to the bit, and a gradient that is no number does not get through the mask."""
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", SCATTERED, IDS)
    weight = model.get_input_embeddings().weight
    gradient = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    gradient[3], gradient[IDS] = torch.nan, torch.inf
    weight.grad = gradient.clone()
    trainable.mask_gradients(dict(model.named_parameters()))
    wanted = torch.zeros_like(gradient)
    wanted[list(SCATTERED)] = gradient[list(SCATTERED)]
    assert torch.equal(weight.grad, wanted)


@pytest.mark.parametrize("row", [1, 6, 9, 199, 201, 392, 395, 406, 408, IDS - 1, IDS, ROWS - 1])
def test_one_bit_of_a_frozen_row_between_new_ones_is_enough(tied_folder, row):
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", SCATTERED, IDS)
    still = frozen_digests(model, trainable)
    with torch.no_grad():
        model.get_input_embeddings().weight.view(torch.int32)[row, 5] ^= 1
    with pytest.raises(FrozenMovedError, match="1 frozen pieces moved"):
        prove_frozen(model, trainable, still)


def test_digests_of_rows_at_the_end_are_those_of_the_two_slices(tied_folder):
    """Runs that were made before new rows could lie elsewhere compare the same bytes."""
    model = load_model(tied_folder)
    trainable = choose_trainable(model, "new_embeddings", NEW, IDS)
    name, weight = "model.embed_tokens.weight", model.get_input_embeddings().weight
    digests = frozen_digests(model, trainable)
    assert digests[f"{name}[old rows]"] == row_digests(weight[:OLD])
    assert digests[f"{name}[padding rows]"] == row_digests(weight[IDS:])


@pytest.mark.parametrize(
    ("new_ids", "message"),
    [((8, 7), "break at 7"), ((7, 7), "break at 7"), ((-1, 7), "break at -1"), ((7, IDS), f"break at {IDS}")],
)
def test_ids_that_are_no_rows_of_new_tokens_are_refused(tied_folder, new_ids, message):
    with pytest.raises(TrainingError, match=message):
        choose_trainable(load_model(tied_folder), "new_embeddings", new_ids, IDS)


@pytest.mark.parametrize(("ids", "index"), [((), slice(0, 0)), ((5,), slice(5, 6)), ((5, 6, 7), slice(5, 8))])
def test_rows_without_a_gap_are_a_slice(ids, index):
    assert row_index(ids) == index


def test_rows_with_a_gap_are_gathered():
    assert row_index([2, 4]).tolist() == [2, 4]
    assert other_rows([2, 4], 6) == (0, 1, 3, 5)


def test_o31_row_freeze_of_a_sharded_matrix_is_refused_by_name(tied_folder, tmp_path):
    """A real DTensor: one process, one shard."""
    from torch import distributed
    from torch.distributed.tensor import Shard, distribute_tensor

    model = load_model(tied_folder)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        module = model.get_input_embeddings()
        module.weight = torch.nn.Parameter(distribute_tensor(module.weight.detach(), mesh, [Shard(0)]))
        model.lm_head.weight = module.weight
        with pytest.raises(
            TrainingError, match=r"cannot be done to model\.embed_tokens\.weight: it is split .*DTensor"
        ):
            choose_trainable(model, "new_embeddings", NEW, IDS)
        assert choose_trainable(model, "embeddings", NEW, IDS).new_rows == ()
    finally:
        distributed.destroy_process_group()


def test_o31_row_freeze_of_a_flattened_or_partitioned_matrix_is_refused(tied_folder):
    """FSDP1 leaves a flat parameter, ZeRO-3 an empty one with the true shape beside it."""
    for spoil in (lambda w: setattr(w, "ds_shape", w.shape), lambda w: setattr(w, "data", w.data.flatten())):
        model = load_model(tied_folder)
        spoil(model.get_input_embeddings().weight)
        with pytest.raises(TrainingError, match="split over processes"):
            choose_trainable(model, "new_embeddings", NEW, IDS)


def parts(*, tied: bool, blocks: tuple[str, ...] = ()) -> ModelParts:
    """Three layers of two matrices, one of experts that are numbered too."""
    body = [f"model.layers.{n}.{part}.weight" for n in range(3) for part in ("attn", "mlp.experts.0")]
    names = ["model.embed.weight", *body, "model.norm.weight", *([] if tied else ["head.weight"])]
    return ModelParts(tuple(names), "model.embed.weight", "model.embed.weight" if tied else "head.weight", blocks)


@pytest.mark.parametrize(
    ("train", "names", "partial"),
    [
        (["input_embeddings"], {"model.embed.weight"}, ()),
        (["output_embeddings"], {"head.weight"}, ()),
        (["new_output_embeddings"], {"head.weight"}, ("head.weight",)),
        (["new_input_embeddings", "output_embeddings"], {"model.embed.weight", "head.weight"}, ("model.embed.weight",)),
        (["new_embeddings", "embeddings"], {"model.embed.weight", "head.weight"}, ()),
        (["top_layers:1"], {"model.layers.2.attn.weight", "model.layers.2.mlp.experts.0.weight"}, ()),
        (["bottom_layers:1", "*.norm.*"], {"model.layers.0.attn.weight", "model.layers.0.mlp.experts.0.weight", "model.norm.weight"}, ()),
        (["blocks"], {"model.layers.1.attn.weight", "model.layers.1.mlp.experts.0.weight"}, ()),
    ],
)  # fmt: skip
def test_o34_words_choose_each_side_layers_and_blocks(train, names, partial):
    assert chosen_names(parts(tied=False, blocks=("model.layers.1",)), train) == (
        tuple(name for name in parts(tied=False).names if name in names),
        partial,
    )


def test_body_is_everything_but_the_matrices():
    for tied in (True, False):
        names, partial = chosen_names(parts(tied=tied), ["body"])
        assert (len(names), partial) == (7, ())
        assert "model.norm.weight" in names


def test_sides_of_a_tied_model_are_one():
    for word in ("new_input_embeddings", "new_output_embeddings", "new_embeddings"):
        assert chosen_names(parts(tied=True), [word]) == (("model.embed.weight",), ("model.embed.weight",))
    both = ["new_input_embeddings", "output_embeddings"]
    assert chosen_names(parts(tied=True), both) == (("model.embed.weight",), ())


def test_blocks_ten_and_one_are_not_taken_for_each_other():
    names = tuple(f"model.layers.{n}.weight" for n in range(12))
    numbered = ModelParts(names, "model.embed.weight", "model.embed.weight", ("model.layers.1",))
    assert chosen_names(numbered, ["blocks"])[0] == ("model.layers.1.weight",)
    assert chosen_names(numbered, ["top_layers:2"])[0] == ("model.layers.10.weight", "model.layers.11.weight")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("blocks", "no blocks were inserted into this model"),
        ("top_layers:4", "top_layers: 4 layers are asked for, the model has 3"),
        ("embedings", "the pattern 'embedings' matches no parameter"),
    ],
)
def test_what_is_not_there_cannot_train(train, message):
    with pytest.raises(TrainingError, match=message):
        chosen_names(parts(tied=True), [train])


def test_inserted_blocks_are_known_by_the_record_beside_the_weights(tmp_path):
    assert inserted_blocks(tmp_path) == ()
    (tmp_path / BLOCKS_RECORD).write_text('{"inserted": ["model.layers.2"]}')
    assert inserted_blocks(tmp_path) == ("model.layers.2",)
    (tmp_path / BLOCKS_RECORD).write_text('{"inserted": 2}')
    with pytest.raises(ModelError, match="must be a list of module names, not 2"):
        inserted_blocks(tmp_path)


@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_parts_of_a_model(request, fixture):
    found = parts_of(load_model(request.getfixturevalue(fixture)))
    assert found.layers == ("model.layers.0", "model.layers.1")
    assert len(found.tables) == (1 if fixture == "tied_folder" else 2)
    assert (found.input_table, found.output_table) == (found.tables[0], found.tables[-1])
