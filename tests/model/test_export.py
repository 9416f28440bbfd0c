"""An exported folder agrees with itself, and another process finds in it what was put in."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.embeddings import Embeddings, Origin
from lingraft.errors import InterruptedRunError, ModelError
from lingraft.model.base import load_model
from lingraft.model.export import check_folder, export_model, save_model
from lingraft.model.resize import replace_embeddings
from lingraft.polling import polled
from lingraft.vocabulary import LearnOptions, expand_vocabulary


@pytest.fixture(scope="module")
def expansion(tokenizer):
    return expand_vocabulary(tokenizer, ["karpeta zaharra eta leihoa ireki"] * 12, [], LearnOptions(40, min_count=5))


def expanded(folder, rows=448):
    model = load_model(folder)
    sides = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    made = [Embeddings(torch.cat([w.detach(), w.detach()[: rows - len(w)]]), (Origin("copied"),) * rows) for w in sides]
    replace_embeddings(model, made[0], None if model.config.tie_word_embeddings else made[1])
    return model


@pytest.fixture
def folder(untied_folder, expansion, tmp_path):
    """A saved expanded model, for a test to damage."""
    to = tmp_path / "saved"
    to.mkdir()
    save_model(expanded(untied_folder), to, tokenizer=expansion.new, base_folder=untied_folder, changed=True)
    return to


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_rows(folder, name, rows):
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = tensors[name][:rows].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_o75_counts_that_agree_are_returned(folder, expansion):
    assert check_folder(folder) == {"rows": 448, "ids": expansion.new.num_ids}


def test_o75_tokenizer_with_more_ids_than_rows_is_refused(folder, expansion):
    ids, needed = expansion.new.num_ids, 449 - expansion.new.num_ids
    larger = expansion.new.extended([f"x{n}" for n in range(needed)], [])
    (folder / "tokenizer.json").write_text(larger.text, encoding="utf-8")
    with pytest.raises(ModelError, match="the tokenizer has 449 ids, the weights 448 rows"):
        check_folder(folder)
    assert ids < 448


def test_o75_o76_configuration_with_the_old_size_is_refused(folder):
    change_config(folder, vocab_size=420)
    with pytest.raises(ModelError, match=r"the weights have \[448\] rows, config\.json states \[420\]"):
        check_folder(folder)


def test_o76_nested_copy_with_the_old_size_is_refused(folder):
    change_config(folder, text_config={"vocab_size": 420})
    with pytest.raises(ModelError, match=r"config\.json states \[420, 448\]"):
        check_folder(folder)


def test_o75_configuration_without_a_size_is_refused(folder):
    change_config(folder, vocab_size=None)
    with pytest.raises(ModelError, match=r"config\.json states \[\]"):
        check_folder(folder)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.embed_tokens.weight"])
def test_o75_one_matrix_with_the_old_size_is_refused(folder, name):
    change_rows(folder, name, 420)
    with pytest.raises(ModelError, match=r"the weights have \[420, 448\] rows"):
        check_folder(folder)


def test_files_that_spell_out_the_old_vocabulary_stay_behind(untied_folder, expansion, tmp_path):
    base, to = Path(shutil.copytree(untied_folder, tmp_path / "base")), tmp_path / "to"
    for name in ("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja"):
        (base / name).write_text("{}")
    found = {}
    for changed in (True, False):
        to.mkdir()
        save_model(load_model(base), to, tokenizer=expansion.new, base_folder=base, changed=changed)
        found[changed] = {path.name for path in to.iterdir()}
        shutil.rmtree(to)
    assert "chat_template.jinja" in found[True]
    assert found[True].isdisjoint({"vocab.json", "merges.txt", "tokenizer.model"})
    assert found[False] - found[True] == {"vocab.json", "merges.txt", "tokenizer.model"}


@pytest.mark.parametrize("fixture", ["tied_folder", "untied_folder"])
def test_o77_plain_transformers_in_another_process_finds_the_same(request, fixture, expansion, tmp_path):
    base, to = request.getfixturevalue(fixture), tmp_path / "exported"
    samples = ["karpeta zaharra", "the metadata of the file", "", "€ 🙂"]
    model = expanded(base)
    found = export_model(
        model, to, tokenizer=expansion.new, base_folder=base, changed=True, card="# Tiny\n", samples=samples
    )
    assert found == {
        "identical_logits": True, "rows": 448, "ids": expansion.new.num_ids, "tokenizer_class": "PreTrainedTokenizerFast"
    }  # fmt: skip
    assert (to / "README.md").read_text() == "# Tiny\n"
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]
    again = dict(load_model(to).named_parameters())
    assert all(torch.equal(parameter, again[name]) for name, parameter in model.named_parameters())


def test_a_stop_while_the_folder_is_loaded_elsewhere_is_heard(untied_folder, expansion, tmp_path):
    with polled(lambda: True), pytest.raises(InterruptedRunError):
        export_model(
            expanded(untied_folder),
            tmp_path / "exported",
            tokenizer=expansion.new,
            base_folder=untied_folder,
            changed=True,
            card="",
            samples=[],
        )
    assert list(tmp_path.iterdir()) == []


def test_export_that_fails_leaves_what_was_there(untied_folder, expansion, tmp_path):
    """A model of 420 rows cannot go out with a tokenizer of more ids (O-75), and the older export stays."""
    to = tmp_path / "exported"
    to.mkdir()
    (to / "older").touch()
    larger = expansion.new.extended([f"x{n}" for n in range(20)], [])
    with pytest.raises(ModelError, match=f"the tokenizer has {larger.num_ids} ids, the weights 420 rows"):
        export_model(
            load_model(untied_folder),
            to,
            tokenizer=larger,
            base_folder=untied_folder,
            changed=True,
            card="",
            samples=[],
        )
    assert [path.name for path in tmp_path.rglob("*")] == ["exported", "older"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [(False, r"(?s)a plain transformers process cannot load it:.*Error"), (True, "AutoTokenizer cannot read it: ")],
)
def test_folder_that_does_not_load_is_told_with_the_reason(untied_folder, expansion, tmp_path, changed, message):
    model = expanded(untied_folder)
    broken = Path(shutil.copytree(untied_folder, tmp_path / "base"))
    (broken / "tokenizer_config.json").write_text('{"tokenizer_class": ["none"]}')
    with pytest.raises(ModelError, match=message):
        export_model(
            model, tmp_path / "to", tokenizer=expansion.new, base_folder=broken, changed=changed, card="", samples=[],
            tokenizer_class="keep",
        )  # fmt: skip
    assert not (tmp_path / "to").exists()


def test_companion_file_that_changes_the_tokens_is_caught(untied_folder, expansion, tmp_path):
    """The base's settings add a token that tokenizer.json does not have: the counts differ."""
    broken = Path(shutil.copytree(untied_folder, tmp_path / "base"))
    settings = json.loads((broken / "tokenizer_config.json").read_text())
    (broken / "tokenizer_config.json").write_text(json.dumps(settings | {"pad_token": "<|not there|>"}))
    with pytest.raises(ModelError, match=r"sizes or tie were lost"):
        export_model(
            expanded(untied_folder),
            tmp_path / "to",
            tokenizer=expansion.new,
            base_folder=broken,
            changed=True,
            card="",
            samples=["a cell"],
        )


def test_o64_a_tied_model_is_written_without_a_head_and_loads_again(tied_folder, expansion, tmp_path):
    to = tmp_path / "tied"
    to.mkdir()
    model = expanded(tied_folder)
    save_model(model, to, tokenizer=expansion.new, base_folder=tied_folder, changed=True)
    tensors = load_file(to / "model.safetensors")
    assert "lm_head.weight" not in tensors
    assert all(tensor.numel() for tensor in tensors.values())
    again = load_model(to)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_folder_with_a_number_that_is_none_is_refused(folder, broken):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if "mlp" in name)
    tensors[name][0, 1] = broken
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"1 numbers of {name} are NaN or infinite"):
        check_folder(folder)
