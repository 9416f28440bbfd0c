"""Loading is strict, and our head computes what the model computes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig

from lingraft.errors import ModelError
from lingraft.model.base import Head, head_of, hidden_states, is_tied, load_model, quiet_transformers

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def copy_of(folder, to):
    return Path(shutil.copytree(folder, to / "copy"))


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(("fixture", "tied"), [("tied_folder", True), ("untied_folder", False)])
def test_tie_is_read_from_memory(request, fixture, tied):
    model = load_model(request.getfixturevalue(fixture))
    assert is_tied(model) == tied
    assert not model.training


def test_tie_does_not_ask_the_configuration(tied_folder):
    model = load_model(tied_folder)
    model.config.tie_word_embeddings = False
    assert is_tied(model)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    assert not is_tied(model)


def test_dtype_is_as_asked(tied_folder):
    assert load_model(tied_folder, torch.bfloat16).dtype == torch.bfloat16
    assert load_model(tied_folder).dtype == torch.float32


def test_o54_false_tie_is_refused(untied_folder, tmp_path):
    """The configuration says tied, and there is a head of its own."""
    folder = copy_of(untied_folder, tmp_path)
    change_config(folder, tie_word_embeddings=True)
    with pytest.raises(ModelError, match="says tie_word_embeddings is True, but the matrices are separate"):
        load_model(folder)


def test_o54_head_that_is_missing_is_not_drawn_at_random(tied_folder, tmp_path):
    """The reverse: the configuration says untied, and there is no head; transformers would make one up, silently."""
    folder = copy_of(tied_folder, tmp_path)
    change_config(folder, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"lack 1 tensors, the first is lm_head\.weight"):
        load_model(folder)


def test_missing_layer_is_not_drawn_at_random(tied_folder, tmp_path):
    folder = copy_of(tied_folder, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(folder)


def test_o76_weights_of_another_size_than_the_configuration_are_refused(tied_folder, tmp_path):
    folder = copy_of(tied_folder, tmp_path)
    change_config(folder, vocab_size=418)
    with pytest.raises(ModelError, match="the weights do not load"):
        load_model(folder)


def test_weights_that_are_not_there_are_an_error_of_ours(tied_folder, tmp_path):
    folder = copy_of(tied_folder, tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="the weights do not load"):
        load_model(folder)


def test_head_by_hand():
    weight = torch.tensor([[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]])
    hidden = torch.tensor([[3.0, 1.0]])
    assert Head(weight, None, None, 2).logits(hidden).tolist() == [[3.0, 2.0]]
    assert Head(weight, torch.tensor([0.5, -1.0, 7.0]), None, 2).logits(hidden).tolist() == [[3.5, 1.0]]
    capped = Head(weight, None, 2.0, 2).logits(hidden)
    torch.testing.assert_close(capped, 2 * torch.tanh(torch.tensor([[1.5, 1.0]])))


def test_head_returns_fp32_for_hidden_states_in_bf16():
    head = Head(torch.ones(3, 2), None, None, 3)
    assert head.logits(torch.ones(1, 2, dtype=torch.bfloat16)).dtype == torch.float32


def tiny(config_class, **values):
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2} | values
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config_class(**sizes)).eval()


GEMMA = {"num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 32, "final_logit_softcapping": 0.1}


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (LlamaConfig, {"intermediate_size": 32}),
        (Gemma2Config, GEMMA | {"max_position_embeddings": 64}),
        (GPT2Config, {"n_positions": 64}),
    ],
)
def test_head_computes_what_the_model_computes(config, values):
    model = tiny(config, **values)
    with torch.no_grad():
        ours = head_of(model, 40).logits(hidden_states(model, IDS)[0])
        torch.testing.assert_close(ours, model(IDS).logits[0])


def test_model_whose_logits_are_made_otherwise_is_refused():
    model = tiny(LlamaConfig, intermediate_size=32)
    model.register_forward_hook(lambda module, inputs, output: output.__setitem__("logits", output.logits * 2))
    with pytest.raises(ModelError, match="LlamaForCausalLM makes its logits in a way that is not supported"):
        head_of(model, 40)


def test_asking_for_the_head_leaves_the_training_mode(tied_folder):
    model = load_model(tied_folder).train()
    head_of(model, 400)
    assert model.training


def test_ids_past_the_matrix_are_refused(tied_folder):
    with pytest.raises(ModelError, match="tokenizer has 421 ids, the output matrix only 420 rows"):
        head_of(load_model(tied_folder), 421)


def test_padding_behind_does_not_change_hidden_states(tied_folder):
    model = load_model(tied_folder)
    mask = torch.ones_like(IDS)
    mask[0, 5:] = 0
    with torch.no_grad():
        torch.testing.assert_close(hidden_states(model, IDS, mask)[:, :5], hidden_states(model, IDS[:, :5]))


def test_transformers_is_quiet_only_inside():
    from transformers.utils import logging

    level = logging.get_verbosity()
    with quiet_transformers():
        assert logging.get_verbosity() == logging.ERROR
    assert logging.get_verbosity() == level
