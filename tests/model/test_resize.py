"""New matrices in a model: rows, tie, sizes in every nested configuration, and nothing that is drawn again."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3Config, GPT2Config

from lingraft.embeddings import Embeddings, InitContext, Origin, fill_rows, subword_mean
from lingraft.errors import ModelError
from lingraft.model.base import head_of, hidden_states, is_tied, load_model
from lingraft.model.resize import padded_rows, replace_embeddings, sizes_in_config
from lingraft.vocabulary import LearnOptions, expand_vocabulary


@pytest.mark.parametrize(
    ("ids", "base", "multiple", "rows"),
    [
        (100, 128, 64, 128), (128, 128, 64, 128), (129, 128, 64, 192), (192, 128, 64, 192), (130, 100, 1, 130),
        (151_671, 151_936, 64, 151_936), (99, 101, 64, 101), (102, 101, 64, 128),
    ],
)  # fmt: skip
def test_o26_rows_never_shrink_and_spare_ones_are_used_first(ids, base, multiple, rows):
    assert padded_rows(ids, base, multiple) == rows


def grown(weight, rows, value):
    """Return a matrix whose fresh rows are recognisable."""
    fresh = torch.full((rows - len(weight), weight.shape[1]), value, dtype=weight.dtype)
    return Embeddings(torch.cat([weight.detach(), fresh]), (Origin("copied"),) * rows)


def expand(model, rows=448):
    """Give a model more rows: 1.5 on the input side, 2.5 on the output side."""
    tied = is_tied(model)
    input_rows = grown(model.get_input_embeddings().weight, rows, 1.5)
    output_rows = None if tied else grown(model.get_output_embeddings().weight, rows, 2.5)
    replace_embeddings(model, input_rows, output_rows)
    return input_rows.matrix, input_rows.matrix if output_rows is None else output_rows.matrix


def matrices(model):
    return model.get_input_embeddings().weight, model.get_output_embeddings().weight


@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_rows_are_in_place_and_the_tie_is_kept(request, fixture):
    model = load_model(request.getfixturevalue(fixture))
    wanted = expand(model)
    assert all(map(torch.equal, matrices(model), wanted))
    assert is_tied(model) == (fixture == "tied_folder")
    assert (model.config.vocab_size, model.vocab_size, sizes_in_config(model.config)) == (448, 448, {448})
    assert model(torch.tensor([[447, 0]])).logits.shape == (1, 2, 448)


@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_old_logits_are_the_same_bits(request, fixture):
    model, ids = load_model(request.getfixturevalue(fixture)), torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        before = model(ids).logits
        expand(model)
        torch.testing.assert_close(model(ids).logits[..., :420], before, rtol=0, atol=0)


@pytest.mark.parametrize("again", ["post_init", "init_weights"])
@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_o29_head_survives_another_initialisation_and_a_reload(request, fixture, again, tmp_path):
    model = load_model(request.getfixturevalue(fixture))
    wanted = expand(model)
    getattr(model, again)()
    assert all(map(torch.equal, matrices(model), wanted))
    model.save_pretrained(tmp_path)
    reloaded = load_model(tmp_path)
    assert all(map(torch.equal, matrices(reloaded), wanted))
    getattr(reloaded, again)()
    assert all(map(torch.equal, matrices(reloaded), wanted))


def test_o29_a_head_without_the_mark_would_be_drawn_again(untied_folder):
    """The case itself: that the test above can fail at all."""
    model = load_model(untied_folder)
    head = torch.nn.Linear(32, 448, bias=False)
    model.set_output_embeddings(head)
    before = head.weight.detach().clone()
    model.init_weights()
    assert not torch.equal(model.get_output_embeddings().weight, before)


def test_o29_new_rows_are_the_chosen_init_after_a_reload(untied_folder, tokenizer, tmp_path):
    expansion = expand_vocabulary(tokenizer, ["karpeta zaharra leihoa"] * 12, [], LearnOptions(40))
    model = load_model(untied_folder)
    filled = {}
    for side, weight in zip(("input", "output"), matrices(model), strict=True):
        context = InitContext(expansion, weight.detach()[: expansion.num_old], side, torch.Generator())
        filled[side] = fill_rows(context, weight.detach(), subword_mean, "subword_mean", 448)
    base = load_model(untied_folder).get_output_embeddings().weight
    replace_embeddings(model, filled["input"], filled["output"])
    model.post_init()
    model.save_pretrained(tmp_path)
    head = load_model(tmp_path).get_output_embeddings().weight
    assert torch.equal(head[: expansion.num_old], base[: expansion.num_old])
    for token in expansion.new_tokens:
        torch.testing.assert_close(head[token.id], base[list(token.pieces)].mean(dim=0))


@pytest.mark.parametrize(
    ("fixture", "output", "message"),
    [("tied_folder", True, "one matrix for both sides"), ("untied_folder", False, "needs output rows")],
)
def test_o28_a_tied_matrix_is_one_tensor_and_an_untied_two(request, fixture, output, message):
    model = load_model(request.getfixturevalue(fixture))
    rows = grown(model.get_input_embeddings().weight, 448, 1.0)
    with pytest.raises(ModelError, match=message):
        replace_embeddings(model, rows, rows if output else None)
    assert model.get_input_embeddings().weight.shape[0] == 420


def test_o26_same_size_still_takes_the_new_rows(tied_folder):
    """A padded base whose spare rows suffice does not grow; the rows are written all the same."""
    model = load_model(tied_folder)
    matrix = model.get_input_embeddings().weight.detach().clone()
    matrix[400] = 7.0
    replace_embeddings(model, Embeddings(matrix, (Origin("copied"),) * 420), None)
    assert all(weight[400].eq(7.0).all() for weight in matrices(model))


def gemma():
    """A multi-modal model: the language model's settings are nested, and its input rows are scaled."""
    text = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "sliding_window": 16}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    vision |= {"image_size": 28, "patch_size": 14}
    ids = {"image_token_index": 49, "boi_token_index": 48, "eoi_token_index": 47}
    torch.manual_seed(0)
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1, **ids)
    return AutoModelForCausalLM.from_config(config).eval()


def test_o27_o76_nested_configuration_states_the_new_size_everywhere(tmp_path):
    model = gemma()
    expand(model, rows=56)
    assert sizes_in_config(model.config) == {56}
    ids = torch.tensor([[1, 2, 55, 54]])
    model(input_ids=ids, labels=ids).loss.backward()
    assert model.get_input_embeddings().weight.grad[55].abs().sum() > 0
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["text_config"]["vocab_size"] == 56
    assert load_model(tmp_path).get_input_embeddings().weight.shape[0] == 56


def test_scaled_embedding_keeps_its_scale():
    model, ids = gemma(), torch.tensor([[1, 2, 3]])
    before = model.get_input_embeddings()(ids)
    expand(model, rows=56)
    assert torch.equal(model.get_input_embeddings()(ids), before)
    torch.testing.assert_close(model.get_input_embeddings()(torch.tensor([55])), torch.full((1, 16), 1.5 * 4.0))


def test_o76_every_copy_of_the_size_is_seen():
    config = Gemma3Config(text_config={"vocab_size": 60})
    assert sizes_in_config(config) == {60}
    config.vocab_size = 61
    assert sizes_in_config(config) == {60, 61}


def test_bias_of_a_head_grows_by_its_mean(untied_folder):
    model = load_model(untied_folder)
    head = torch.nn.Linear(32, 420, bias=True)
    model.set_output_embeddings(head)
    expand(model)
    bias = model.get_output_embeddings().bias
    assert torch.equal(bias[:420], head.bias)
    torch.testing.assert_close(bias[420:], head.bias.mean().expand(28))
    before = bias.detach().clone()
    model.init_weights()
    assert torch.equal(model.get_output_embeddings().bias, before)


def test_types_and_gradient_flags_are_kept(tied_folder):
    model = load_model(tied_folder, torch.bfloat16)
    model.get_input_embeddings().weight.requires_grad_(False)
    expand(model)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16
    assert not model.get_input_embeddings().weight.requires_grad


def test_models_that_name_their_matrix_otherwise_work_too():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    wanted, _ = expand(model, rows=64)
    assert torch.equal(model.transformer.wte.weight, wanted)
    with torch.no_grad():
        ours = head_of(model.eval(), 64).logits(hidden_states(model, torch.tensor([[63, 1]]))[0])
    assert ours.shape == (2, 64)


def test_model_that_does_not_take_the_rows_is_refused(untied_folder):
    model = load_model(untied_folder)
    model.set_output_embeddings = lambda head: None
    with pytest.raises(ModelError, match="the output matrix of LlamaForCausalLM is not what was put into it"):
        expand(model)


def test_model_that_loses_its_tie_is_refused(tied_folder, monkeypatch):
    model = load_model(tied_folder)

    def untie(head):
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        model.lm_head = head

    model.set_output_embeddings = untie
    with pytest.raises(ModelError, match="lost its tie"):
        expand(model)
