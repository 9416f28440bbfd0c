"""Source-shielded updates ("source_shielded"): scores by hand, and columns that keep their bits under weight decay."""

import pytest
import torch

from lingraft.errors import TrainingError
from lingraft.model.base import head_of, load_model
from lingraft.training.companion import StageStart
from lingraft.training.guards import SourceShielded, input_norms, shielded_columns

NUM_IDS = 410
UP = "model.layers.0.mlp.up_proj.weight"


def start_of(folder, names=None, num_ids: int = NUM_IDS) -> StageStart:
    model = load_model(folder)
    every = dict(model.named_parameters())
    return StageStart(model, head_of(model, num_ids), {n: every[n] for n in names or every}, 1)


@pytest.mark.parametrize(
    ("share", "shielded"), [(0.0, []), (0.25, [1]), (0.5, [1, 3]), (0.75, [0, 1, 3]), (1.0, [0, 1, 2, 3])]
)
def test_the_top_share_is_shielded_and_of_equals_the_earlier(share: float, shielded: list[int]) -> None:
    mask = shielded_columns(torch.tensor([1.0, 9.0, 1.0, 4.0]), share)
    assert mask.nonzero().flatten().tolist() == shielded


def test_input_norms_are_those_of_all_tokens(tied_folder, source) -> None:
    """The inputs of up_proj, caught by hand, one sequence after another."""
    start = start_of(tied_folder)
    found = input_norms(start, source.sequences(32))
    assert all("embed" not in name and "norm" not in name and "lm_head" not in name for name in found)
    assert len(found) == 7 * len(start.model.model.layers)
    caught = []
    layer = start.model.model.layers[0]
    handle = layer.mlp.register_forward_pre_hook(lambda _, given: caught.append(given[0].detach()[0]))
    with torch.no_grad():
        for sequence in source.sequences(32):
            start.model(sequence[None, :-1])
    handle.remove()
    torch.testing.assert_close(found[UP], torch.cat(caught).norm(dim=0), rtol=1e-5, atol=1e-6)


def test_a_column_counts_by_its_weights_times_the_norm_of_its_input(tied_folder, source) -> None:
    start = start_of(tied_folder, [UP])
    guard = SourceShielded(start, source, share=0.5, tokens=32)
    weight = start.parameters[UP].detach()
    scores = weight.abs().sum(dim=0) * input_norms(start, source.sequences(32))[UP]
    order = scores.argsort(descending=True)
    shielded = guard._columns[UP][0]
    assert shielded[order[: len(order) // 2]].all()
    assert not shielded[order[len(order) // 2 :]].any()
    assert guard.num_shielded == weight.numel() // 2


def test_shielded_columns_keep_their_bits_and_the_others_move(make_trial, source) -> None:
    guards = []

    def make(start):
        guards.append(SourceShielded(start, source, share=0.5, tokens=32))
        return guards[-1]

    trial = make_trial(weight_decay=0.5, companions=(make,)).run()
    start, now = dict(load_model(trial.base).named_parameters()), dict(trial.model.named_parameters())
    for name, mask in guards[0]._columns.items():
        moved = start[name] != now[name]
        assert not moved[mask.expand_as(moved)].any()
        assert moved[~mask.expand_as(moved)].float().mean() > 0.99
    assert (start["model.embed_tokens.weight"] != now["model.embed_tokens.weight"]).any()
    assert (start["model.norm.weight"] != now["model.norm.weight"]).any()


def test_gpt2s_matrices_lie_on_their_side(tmp_path, source) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=420, n_positions=64, n_embd=16, n_layer=1, n_head=2)).save_pretrained(
        tmp_path
    )
    start = start_of(tmp_path)
    guard = SourceShielded(start, source, share=0.5, tokens=32)
    assert guard._columns["transformer.h.0.mlp.c_fc.weight"].shape == (16, 1)
    assert guard._columns["transformer.h.0.mlp.c_proj.weight"].shape == (64, 1)
    assert "transformer.wte.weight" not in guard._columns


def test_a_stage_that_trains_no_matrix_of_the_body_is_refused(tied_folder, source) -> None:
    with pytest.raises(TrainingError, match="source_shielded: the stage trains no matrix"):
        SourceShielded(start_of(tied_folder, ["model.embed_tokens.weight"]), source)
