"""Documents of one sequence that do not see each other, in the families that people adapt."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Qwen2Config,
    Qwen3Config,
)

from lingraft.errors import ModelError
from lingraft.model.base import head_of, hidden_states, load_model, quiet_transformers
from lingraft.model.isolation import isolating_inputs, positions_in_documents, refuse_leaks

NUM_IDS, WINDOW = 64, 4
_SHAPE = {
    "vocab_size": NUM_IDS, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
_OTHER = {key: value for key, value in _SHAPE.items() if key not in ("num_key_value_heads", "head_dim")}
_ALTERNATING = ["sliding_attention", "full_attention"]
_GPT2 = GPT2Config(
    vocab_size=NUM_IDS, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
)  # fmt: skip
_OPT = OPTConfig(
    vocab_size=NUM_IDS, hidden_size=16, word_embed_proj_dim=16, ffn_dim=16, num_hidden_layers=2,
    num_attention_heads=2, max_position_embeddings=64,
)  # fmt: skip
FAMILIES = {
    "llama": LlamaConfig(**_SHAPE),
    "qwen2": Qwen2Config(**_SHAPE),
    "qwen3": Qwen3Config(**_SHAPE),
    "gpt_neox": GPTNeoXConfig(**_OTHER),
    "gpt2": _GPT2,
    "opt": _OPT,
    "mistral": MistralConfig(**_SHAPE, sliding_window=WINDOW),
    "gemma2": Gemma2Config(**_SHAPE, sliding_window=WINDOW, layer_types=_ALTERNATING),
    "gemma3": Gemma3TextConfig(**_SHAPE, sliding_window=WINDOW, layer_types=_ALTERNATING),
}


def make(config, attention: str):
    torch.manual_seed(0)
    with quiet_transformers():
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def test_positions_begin_again_with_each_document() -> None:
    documents = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 2, 2, 2], [0, 0, 0, 0, 0]])
    assert positions_in_documents(documents).tolist() == [[0, 1, 2, 0, 1], [0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_the_mask_by_hand() -> None:
    model = make(FAMILIES["llama"], "sdpa")
    mask = isolating_inputs(model, torch.tensor([[0, 0, 1, 1]]))["attention_mask"]
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_changed_word_moves_no_logit_of_the_other_document_by_a_bit(family: str, attention: str) -> None:
    """And the second document is computed as it is alone: same positions, and its layers keep their windows."""
    if (family, attention) == ("gemma2", "sdpa"):
        pytest.skip("transformers has no SDPA for Gemma 2")
    model = make(FAMILIES[family], attention)
    refuse_leaks(model, NUM_IDS, "batch.isolate")
    ids = torch.randint(1, NUM_IDS, (2, 30), generator=torch.Generator().manual_seed(1))
    documents = (torch.arange(30)[None] >= torch.tensor([[11], [17]])).long()
    other = ids.clone()
    other[:, 3] = (other[:, 3] + 1) % NUM_IDS
    head = head_of(model, NUM_IDS)
    with torch.no_grad():
        one, two = (
            torch.stack([head.logits(row) for row in hidden_states(model, tokens, documents=documents)])
            for tokens in (ids, other)
        )
        for row, begin in ((0, 11), (1, 17)):
            assert torch.equal(one[row, begin:], two[row, begin:])
            assert not torch.equal(one[row, :begin], two[row, :begin])
            alone = head.logits(hidden_states(model, ids[row : row + 1, begin:])[0])
            torch.testing.assert_close(one[row, begin:], alone, atol=1e-5, rtol=1e-5)


def test_without_it_documents_do_see_each_other(tied_folder) -> None:
    model = load_model(tied_folder)
    ids = torch.arange(1, 25)[None]
    other = ids.clone()
    other[0, 3] = 77
    with torch.no_grad():
        assert not torch.equal(hidden_states(model, ids)[0, 12:], hidden_states(model, other)[0, 12:])


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(vocab_size=NUM_IDS, hidden_size=16, n_layer=2, n_head=2),
        FalconConfig(vocab_size=NUM_IDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, alibi=True),
    ],
)
def test_what_cannot_keep_documents_apart_is_refused_by_name(config) -> None:
    model = make(config, "eager")
    with pytest.raises(
        ModelError, match=r"stages\.1\.batch\.isolate: \w+ForCausalLM with eager attention .*isolate: false"
    ):
        refuse_leaks(model, NUM_IDS, "stages.1.batch.isolate")


def test_a_model_that_only_pretends_is_found_out(tied_folder, monkeypatch) -> None:
    model = load_model(tied_folder)
    monkeypatch.setattr("lingraft.model.isolation.isolating_inputs", lambda model, documents: {})
    with pytest.raises(ModelError, match="a changed word moves the states of the next document"):
        refuse_leaks(model, 380, "batch.isolate")


def test_positions_that_run_on_are_found_out(tied_folder, monkeypatch) -> None:
    """The Llama's rotary positions are relative, so absolute ones are needed to see it: GPT-2's."""
    model = make(_GPT2, "sdpa")

    def only_a_mask(model, documents):
        return {"attention_mask": isolating_inputs(model, documents)["attention_mask"]}

    monkeypatch.setattr("lingraft.model.isolation.isolating_inputs", only_a_mask)
    with pytest.raises(ModelError, match="differs from the same one alone"):
        refuse_leaks(model, NUM_IDS, "batch.isolate")


def test_other_attention_than_eager_and_sdpa_is_told_by_positions_alone(tied_folder, monkeypatch) -> None:
    """FlexAttention and flash attention take no dense mask; transformers sees where positions begin again."""
    model = load_model(tied_folder)
    documents = torch.tensor([[0, 0, 1, 1]])
    ids, other = torch.tensor([[3, 1, 4, 1]]), torch.tensor([[3, 2, 4, 1]])
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    inputs = isolating_inputs(model, documents)
    assert inputs.keys() == {"position_ids"}
    monkeypatch.undo()
    with torch.no_grad():
        one, two = (model.base_model(input_ids=i, use_cache=False, **inputs).last_hidden_state for i in (ids, other))
    assert torch.equal(one[0, 2:], two[0, 2:])


def test_it_holds_in_bf16_too(tied_folder) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refuse_leaks(load_model(tied_folder), 380, "batch.isolate")
