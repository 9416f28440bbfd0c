"""How many rows an expanded model has: the written folder says so everywhere, loads again, and padding changes nothing."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from lingraft.embeddings import Embeddings, Origin
from lingraft.errors import ModelError
from lingraft.model.base import head_of, hidden_states, load_model
from lingraft.model.export import check_folder, save_model
from lingraft.model.resize import padded_rows, replace_embeddings
from lingraft.recipe import Vocabulary
from lingraft.training.loss import chunked_cross_entropy
from lingraft.vocabulary import TokenizerFile

from ..conftest import make_llama

IDS = 394
TABLES = ("model.embed_tokens.weight", "lm_head.weight")


@pytest.fixture(scope="module")
def one_more(tokenizer) -> TokenizerFile:
    """The tiny tokenizer with one token more, made of two bytes that English does not put together."""
    return tokenizer.extended(["qz"], [("q", "z")])


def grown(folder: Path, rows: int):
    """Return a model with rows appended that are the mean of its own."""
    model = load_model(folder)
    sides = [model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()]
    made = [
        Embeddings(torch.cat([w, w.mean(dim=0).expand(rows - len(w), -1)]), (Origin("copied"),) * rows) for w in sides
    ]
    replace_embeddings(model, made[0], None if model.config.tie_word_embeddings else made[1])
    return model


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def full_base(request, tokenizer_text, tmp_path) -> Path:
    """A model without a spare row, so that one token more makes its matrices grow."""
    return make_llama(tmp_path / "base", tokenizer_text, tied=request.param, rows=IDS)


def rows_in_weights(folder: Path) -> set[int]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {file.get_slice(name).get_shape()[0] for name in file.keys() if name in TABLES}  # noqa: SIM118


@pytest.mark.parametrize("multiple", [1, 64])
def test_o23_one_token_more_is_saved_and_loaded_with_the_sizes_on_record(full_base, one_more, tmp_path, multiple):
    """The case: an adapter's base whose matrix is one row larger than the one that was saved does not load.

    An adapter trainer (peft) takes the sizes from the folder, as plain transformers does here, twice over.
    """
    rows = padded_rows(one_more.num_ids, IDS, multiple)
    assert rows == (395 if multiple == 1 else 448)
    model = grown(full_base, rows)
    folder, again = tmp_path / "expanded", tmp_path / "again"
    folder.mkdir()
    save_model(model, folder, tokenizer=one_more, base_folder=full_base, changed=True)
    assert check_folder(folder) == {"rows": rows, "ids": IDS + 1}
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(again)
    loaded, info = AutoModelForCausalLM.from_pretrained(again, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert loaded.config.vocab_size == rows
    assert len(loaded.get_input_embeddings().weight) == len(loaded.get_output_embeddings().weight) == rows
    assert len(AutoTokenizer.from_pretrained(folder)) == IDS + 1
    theirs = dict(loaded.named_parameters())
    assert all(torch.equal(parameter, theirs[name]) for name, parameter in model.named_parameters())
    new_id = torch.tensor([[one_more.id_of("qz")]])
    assert loaded(new_id, labels=new_id.expand(1, 1)).logits.shape == (1, 1, rows)


def test_o24_the_folder_is_whole_before_anything_is_sharded(full_base, one_more, tmp_path):
    """Training reads the size from the folder: what stands there is the number of rows, and no process group made it."""
    rows = padded_rows(one_more.num_ids, IDS, 64)
    save_model(grown(full_base, rows), tmp_path, tokenizer=one_more, base_folder=full_base, changed=True)
    config = json.loads((tmp_path / "config.json").read_text())
    assert {config["vocab_size"]} == rows_in_weights(tmp_path) == {rows}
    assert not torch.distributed.is_initialized()


def test_o24_a_matrix_that_is_sharded_already_is_refused(full_base):
    """ZeRO-3 leaves a parameter of no rows; a resize there would write the size 0 into the configuration."""
    model = load_model(full_base)
    weight = model.get_input_embeddings().weight
    matrix = torch.cat([weight.detach(), weight.detach()[:1]])
    tied = model.config.tie_word_embeddings
    weight.data = weight.data[:0]
    more = Embeddings(matrix, (Origin("copied"),) * len(matrix))
    with pytest.raises(ModelError, match=r"states the vocabulary sizes \[394\], the input matrix has 0 rows"):
        replace_embeddings(model, more, None if tied else more)
    assert model.config.vocab_size == IDS


def test_o25_rows_are_rounded_up_to_64_unless_asked_otherwise():
    assert Vocabulary().row_multiple == 64
    assert padded_rows(32_001, 32_000, Vocabulary().row_multiple) == 32_064


def losses_and_rows(folder: Path, rows: int, dtype: torch.dtype, num_ids: int):
    """Train a grown model for a few steps as a stage does; return its losses, and the rows that tokens own."""
    model = grown(folder, rows).train()
    head = head_of(model, num_ids)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator, losses = torch.Generator().manual_seed(0), []
    for _ in range(6):
        ids = torch.randint(num_ids, (2, 17), generator=generator)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            hidden = hidden_states(model, ids[:, :-1])
        total, _ = chunked_cross_entropy(hidden.flatten(0, 1), ids[:, 1:].flatten(), head, dtype=dtype)
        (total / ids[:, 1:].numel()).backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(total.item())
    return losses, model.get_input_embeddings().weight.detach()[:num_ids]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_o25_padded_rows_leave_the_training_as_it_is(full_base, dtype):
    """The case: 32,001 rows train badly where 32,064 do well. Here rows of no token take no part, so neither differs."""
    bare, bare_rows = losses_and_rows(full_base, IDS + 1, dtype, IDS + 1)
    padded, padded_table = losses_and_rows(full_base, 448, dtype, IDS + 1)
    assert padded == pytest.approx(bare, rel=1e-6)
    torch.testing.assert_close(padded_table, bare_rows, atol=1e-6, rtol=0)
    assert bare[-1] != bare[0]
