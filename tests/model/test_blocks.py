"""Inserted blocks that do nothing at first: the same logits, a working cache, and architectures that are refused."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from lingraft.errors import ModelError, TrainingError
from lingraft.model.base import is_tied, load_model
from lingraft.model.blocks import (
    block_names,
    deeper_without_weights,
    expand_blocks,
    inserted_positions,
    layer_list,
    originals,
)
from lingraft.model.freeze import choose_trainable

SIZES = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
LLAMA = SIZES | {"intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 4, "n_head": 4}


def make(name: str, config: str, **settings) -> nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        model = getattr(transformers, name)(getattr(transformers, config)(**settings)).eval()
        for parameter in model.parameters():  # biases and norms begin as constants, which would hide a mistake
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


MODELS = {
    "llama": lambda: make("LlamaForCausalLM", "LlamaConfig", **LLAMA),
    "llama tied, with biases": lambda: make(
        "LlamaForCausalLM", "LlamaConfig", **LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True
    ),
    "qwen3": lambda: make("Qwen3ForCausalLM", "Qwen3Config", **LLAMA, head_dim=8),
    "qwen2 with sliding layers": lambda: make(
        "Qwen2ForCausalLM", "Qwen2Config", **LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=2
    ),
    "gemma3": lambda: make(
        "Gemma3ForCausalLM", "Gemma3TextConfig", **LLAMA, head_dim=8, sliding_window=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
    "gpt2": lambda: make("GPT2LMHeadModel", "GPT2Config", **GPT2),
    "gpt-neox": lambda: make(
        "GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES, intermediate_size=64, max_position_embeddings=64
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("where", "order"),
    [
        (1, [0, 1, 2, 3, 3]),
        (2, [0, 1, 1, 2, 3, 3]),
        (3, [0, 0, 1, 2, 2, 3, 3]),
        (4, [0, 0, 1, 1, 2, 2, 3, 3]),
        ((0,), [0, 0, 1, 2, 3]),
        ((1, 2), [0, 1, 1, 2, 2, 3]),
    ],
)
def test_where_copies_stand(where, order: list[int]) -> None:
    assert originals(4, where) == order
    copies = [n for n in range(1, len(order)) if order[n] == order[n - 1]]
    assert list(inserted_positions(4, where)) == copies


@pytest.mark.parametrize("where", [0, 5, (), (4,), (1, 1), (2, 1), (-1,)])
def test_blocks_that_are_not_there_are_refused(where) -> None:
    with pytest.raises(ModelError, match="blocks: "):
        inserted_positions(4, where)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("where", [2, (0, 3)])
def test_the_deeper_model_computes_what_the_base_does(name: str, where) -> None:
    """Logits bit for bit, through the cache too, and the class and tie of the base."""
    model = MODELS[name]()
    deeper = expand_blocks(model, where)
    assert type(deeper) is type(model)
    assert is_tied(deeper) == is_tied(model)
    assert deeper.config.num_hidden_layers == 6
    ids = torch.randint(0, 99, (2, 11), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        assert torch.equal(model(ids).logits, deeper(ids).logits)
        settings = {
            "max_new_tokens": 6,
            "min_new_tokens": 6,
            "do_sample": False,
            "attention_mask": torch.ones_like(ids),
        }
        settings |= {"pad_token_id": 0, "output_logits": True, "return_dict_in_generate": True}
        cached, plain = deeper.generate(ids, **settings), model.generate(ids, use_cache=False, **settings)
    assert torch.equal(cached.sequences, plain.sequences)
    torch.testing.assert_close(torch.stack(cached.logits), torch.stack(plain.logits), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_block_is_its_original_and_a_copy_adds_nothing(name: str) -> None:
    model = MODELS[name]()
    deeper = expand_blocks(model, (1, 2))
    (_, before), (_, after) = layer_list(model), layer_list(deeper)
    for position, original in enumerate([0, 1, 1, 2, 2, 3]):
        pairs = list(zip(after[position].named_parameters(), before[original].parameters(), strict=True))
        silent = {n for (n, new), _ in pairs if not new.any()}
        assert all(torch.equal(new, old) for (n, new), old in pairs if n not in silent)
        assert bool(silent) == (position in (2, 4))
        if silent:
            assert len({n.split(".")[0] for n in silent if n.endswith("weight")}) == 2  # attention and MLP


def test_lists_with_an_entry_per_block_grow_with_it_and_others_do_not() -> None:
    model = MODELS["gemma3"]()
    model.config.eos_token_id = [1, 2, 3, 4]
    deeper = expand_blocks(model, (0, 1))
    sliding, full = "sliding_attention", "full_attention"
    assert deeper.config.layer_types == [sliding, sliding, full, full, sliding, full]
    assert deeper.config.eos_token_id == [1, 2, 3, 4]
    assert [layer.self_attn.layer_idx for layer in deeper.model.layers] == [0, 1, 2, 3, 4, 5]
    assert model.config.layer_types == [sliding, full] * 2


def test_what_is_drawn_afterwards_does_not_depend_on_the_depth() -> None:
    model = MODELS["llama"]()
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    expand_blocks(model, 2)
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: make("GPT2LMHeadModel", "GPT2Config", **GPT2, scale_attn_by_inverse_layer_idx=True),
            "do more than add",
        ),
        (lambda: make("MixtralForCausalLM", "MixtralConfig", **LLAMA, num_local_experts=2), "do more than add"),
    ],
    ids=["gpt2 that scales by depth", "fused experts"],
)
def test_an_architecture_for_which_it_does_not_hold_is_refused(model, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        expand_blocks(model(), 2)


def test_a_model_without_one_list_of_blocks_is_refused() -> None:
    model = MODELS["llama"]()
    model.config.num_hidden_layers = 3
    with pytest.raises(ModelError, match=r"not exactly one list of 3 blocks \(found: none\)"):
        layer_list(model)


def test_the_folder_loads_with_plain_transformers_and_its_names_are_known_before(tmp_path: Path) -> None:
    base = tmp_path / "base"
    model = MODELS["gemma3"]()
    model.save_pretrained(base)
    deeper = expand_blocks(load_model(base), 2)
    deeper.save_pretrained(tmp_path / "deeper")
    again = load_model(tmp_path / "deeper")
    ids = torch.arange(9)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)
    names = [name for name, _ in deeper_without_weights(base, 2).named_parameters()]
    assert names == [name for name, _ in again.named_parameters()]


@pytest.mark.parametrize("train", [("blocks",), ("blocks", "new_embeddings")])
@pytest.mark.parametrize("tied", [True, False])
def test_only_new_blocks_learn_and_with_them_new_rows(train: tuple[str, ...], tied: bool) -> None:
    deeper = expand_blocks(make("LlamaForCausalLM", "LlamaConfig", **LLAMA, tie_word_embeddings=tied), (1,))
    names = block_names(deeper, (1,))
    assert names == ("model.layers.2",)
    trainable = choose_trainable(deeper, train, (90, 91), 95, blocks=names)
    tables = {"model.embed_tokens.weight"} | (set() if tied else {"lm_head.weight"})
    learning = {name for name, parameter in deeper.named_parameters() if parameter.requires_grad}
    assert learning == set(trainable.names)
    inside = {name for name, _ in deeper.named_parameters() if name.startswith("model.layers.2.")}
    assert learning == inside | (tables if len(train) > 1 else set())
    assert trainable.new_rows == ((90, 91) if len(train) > 1 else ())


def test_a_model_without_new_blocks_has_none_to_train() -> None:
    with pytest.raises(TrainingError, match="blocks has nothing to train"):
        choose_trainable(MODELS["llama"](), "blocks", (), 99)


def test_the_silent_projections_are_the_first_to_learn() -> None:
    deeper = expand_blocks(MODELS["llama"](), (3,))
    ids = torch.arange(9)[None]
    deeper(ids, labels=ids).loss.backward()
    moved = {n for n, p in deeper.model.layers[4].named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"self_attn.o_proj.weight", "mlp.down_proj.weight"}
