"""Averages of models: rows meet by token, one that a single model has is copied, and what does not fit is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.errors import ModelError
from lingraft.model.base import load_model
from lingraft.model.export import check_folder
from lingraft.model.merge import align_rows, merge_models, merge_rows
from lingraft.vocabulary import TokenizerFile

from ..conftest import make_llama

OLD, ROWS = 394, 448
MORE = {f"zq{n}": OLD + n for n in range(30)}
TABLES = {"model.embed_tokens.weight", "lm_head.weight"}


def with_vocabulary(text: str, vocabulary: dict[str, int], specials: dict[str, int]) -> str:
    """Return a tokenizer's text with another vocabulary; merges whose tokens are gone go too."""
    raw = json.loads(text)
    raw["model"]["vocab"] = vocabulary
    raw["model"]["merges"] = [m for m in raw["model"]["merges"] if {*m, "".join(m)} <= vocabulary.keys()]
    raw["added_tokens"] = [entry | {"id": specials[entry["content"]]} for entry in raw["added_tokens"]]
    return json.dumps(raw)


@pytest.fixture(scope="module")
def larger_text(tokenizer_text):
    """The tiny tokenizer with 30 more tokens."""
    vocabulary = json.loads(tokenizer_text)["model"]["vocab"]
    return with_vocabulary(tokenizer_text, vocabulary | MORE, vocabulary)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def pair(request, tmp_path_factory, tokenizer_text, larger_text):
    """A model of 420 rows, and one of 448 with 30 tokens more."""
    folder = tmp_path_factory.mktemp("pair")
    return (
        make_llama(folder / "small", tokenizer_text, tied=request.param, seed=1),
        make_llama(folder / "large", larger_text, tied=request.param, rows=ROWS, seed=2),
    )


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def changed(folder: Path, to: Path, **tensors) -> Path:
    """Return a copy of a model folder in which functions have changed tensors (``__`` stands for a dot)."""
    shutil.copytree(folder, to)
    weights = weights_of(to)
    for name, change in tensors.items():
        key = name.replace("__", ".")
        weights[key] = change(weights[key]).contiguous()
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    return to


def with_settings(folder: Path, to: Path, **settings) -> Path:
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text()) | settings
    (to / "config.json").write_text(json.dumps(config))
    return to


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["small first", "large first"])
def test_o22_an_expanded_model_and_its_unexpanded_relative(pair, tmp_path, order):
    shares = (0.25, 0.75)
    done = merge_models([pair[k] for k in order], shares, tmp_path / "to")
    small, large = (weights_of(folder) for folder in pair)
    merged, share = weights_of(tmp_path / "to"), dict(zip(order, shares, strict=True))
    assert merged.keys() == large.keys()
    for name, tensor in merged.items():
        rows = OLD if name in TABLES else None
        wanted = share[0] * small[name][:rows] + share[1] * large[name][:rows]
        torch.testing.assert_close(tensor[:rows], wanted, atol=1e-7, rtol=0)
    for name in TABLES & merged.keys():
        assert torch.equal(merged[name][OLD : OLD + 30], large[name][OLD : OLD + 30])  # only one model has these tokens
        assert torch.equal(merged[name][OLD + 30 :], large[name][OLD + 30 :])
    assert (done.averaged, done.copied) == (OLD, (0, 30) if order == (0, 1) else (30, 0))
    assert check_folder(tmp_path / "to") == {"rows": ROWS, "ids": OLD + 30}
    assert TokenizerFile.open(tmp_path / "to").vocabulary == TokenizerFile.open(pair[1]).vocabulary


def test_o22_tokens_with_other_ids_meet_by_their_spelling(pair, tokenizer_text, tmp_path):
    """The same model with all its ids turned round: averaging by number would mix every row with another."""
    vocabulary = json.loads(tokenizer_text)["model"]["vocab"]
    turned = {token: OLD - 1 - i for token, i in vocabulary.items()}

    def turn(table):
        return torch.cat([table[:OLD].flip(0), table[OLD:]])

    tables = {name.replace(".", "__"): turn for name in TABLES & weights_of(pair[0]).keys()}
    other = changed(pair[0], tmp_path / "turned", **tables)
    (other / "tokenizer.json").write_text(with_vocabulary(tokenizer_text, turned, turned))
    merge_models([pair[0], other], [0.5, 0.5], tmp_path / "to")
    first, merged = weights_of(pair[0]), weights_of(tmp_path / "to")
    assert all(torch.equal(merged[name], first[name]) for name in first)


def test_rows_by_hand():
    """Three models over tokens a, b, c and one row of padding: all have a, two have b, one has c, none has the rest."""
    tables = [torch.tensor([[1.0], [10.0]]), torch.tensor([[7.0], [3.0]]), torch.tensor([[5.0], [9.0], [0.1]])]
    sources = [gives([0, 1], [0, 1]), gives([1], [0]), gives([0, 1, 2], [0, 1, 2])]
    merged = merge_rows(tables, [0.5, 0.3, 0.2], sources, 4)
    assert merged.flatten().tolist() == pytest.approx(
        [0.5 * 1 + 0.3 * 3 + 0.2 * 5, (0.5 * 10 + 0.2 * 9) / 0.7, 0.1, 0.0]
    )
    assert merged[2].item() == tables[2][2].item()


def gives(here, there):
    """Return a source of rows from two lists."""
    from lingraft.model.merge import RowSource

    return RowSource(torch.tensor(here), torch.tensor(there))


def test_sums_are_fp32_whatever_the_weights_are():
    """In bf16, 1 + 2^-9 is 1: a sum of many small parts would stand still."""
    tables = [torch.tensor([[1.0]], dtype=torch.bfloat16), torch.tensor([[1 + 2**-7]], dtype=torch.bfloat16)]
    merged = merge_rows(tables, [0.5, 0.5], [gives([0], [0])] * 2, 1)
    assert (merged.dtype, merged.item()) == (torch.float32, 1 + 2**-8)


def test_alignment_by_hand(tokenizer, larger_text):
    larger = TokenizerFile(larger_text, "larger")
    source = align_rows(tokenizer, larger, 420, ROWS)
    assert source.here.tolist() == source.there.tolist() == list(range(OLD))  # 394 to 419 are new tokens in the result
    assert align_rows(larger, larger, 440, ROWS).there.tolist() == list(range(440))
    with pytest.raises(ModelError, match="has 424 ids, the matrix of its model 420 rows"):
        align_rows(larger, larger, 420, ROWS)
    with pytest.raises(ModelError, match=r"tiny lacks 'zq0', 'zq1', .* and 22 more of larger"):
        align_rows(larger, tokenizer, ROWS, 420)


@pytest.mark.parametrize(("first", "second"), [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
def test_the_result_has_the_type_of_the_first(tied_folder, tmp_path, first, second):
    folders = []
    for name, dtype in (("first", first), ("second", second)):
        model = load_model(tied_folder, dtype)
        model.save_pretrained(tmp_path / name)
        shutil.copyfile(tied_folder / "tokenizer.json", tmp_path / name / "tokenizer.json")
        shutil.copyfile(tied_folder / "tokenizer_config.json", tmp_path / name / "tokenizer_config.json")
        folders.append(tmp_path / name)
    done = merge_models(folders, [0.5, 0.5], tmp_path / "to")
    assert done.dtype == first
    assert {tensor.dtype for tensor in weights_of(tmp_path / "to").values()} == {first}
    config = json.loads((tmp_path / "to" / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == str(first).removeprefix("torch.")


def test_a_tensor_of_another_shape_is_refused_with_both(tied_folder, tmp_path):
    other = _wider(tied_folder, tmp_path)
    message = r"model\.layers\.0\.mlp\.down_proj\.weight is \(32, 64\) in .*tied and \(32, 80\) in .*other"
    with pytest.raises(ModelError, match=message):
        merge_models([tied_folder, other], [0.5, 0.5], tmp_path / "to")
    assert not (tmp_path / "to").exists()


def _wider(folder: Path, tmp_path: Path) -> Path:
    def pad(dim):
        return lambda t: torch.nn.functional.pad(t, (0, 16) if dim == 1 else (0, 0, 0, 16))

    names = {"gate_proj": 0, "up_proj": 0, "down_proj": 1}
    changes = {f"model__layers__{n}__mlp__{name}__weight": pad(dim) for n in (0, 1) for name, dim in names.items()}
    changed(folder, tmp_path / "wide", **changes)
    return with_settings(tmp_path / "wide", tmp_path / "other", intermediate_size=80)


def test_a_tensor_that_one_model_lacks_is_refused(tied_folder, untied_folder, tmp_path):
    with pytest.raises(ModelError, match=r"lm_head\.weight is missing in .*tied and \(rows, 32\) in .*untied"):
        merge_models([tied_folder, untied_folder], [0.5, 0.5], tmp_path / "to")


def test_models_that_compute_in_other_ways_are_refused(tied_folder, tmp_path):
    other = with_settings(tied_folder, tmp_path / "other", rms_norm_eps=0.5)
    with pytest.raises(ModelError, match=r"rms_norm_eps is 1e-06 in .* and 0\.5 in .*other"):
        merge_models([tied_folder, other], [0.5, 0.5], tmp_path / "to")


def test_o22_tokens_that_the_largest_tokenizer_lacks_are_named(pair, tokenizer_text, tmp_path):
    vocabulary = json.loads(tokenizer_text)["model"]["vocab"]
    other = Path(shutil.copytree(pair[0], tmp_path / "other"))
    (other / "tokenizer.json").write_text(
        with_vocabulary(tokenizer_text, vocabulary | {"foreign": 394, "alien": 395}, vocabulary)
    )
    with pytest.raises(ModelError, match=r"other has 2 tokens that .*large.* lacks: 'alien', 'foreign'; only models"):
        merge_models([pair[1], other], [0.5, 0.5], tmp_path / "to")


@pytest.mark.parametrize(
    ("count", "weights", "message"),
    [
        (1, [1.0], "two models or more, not 1"),
        (2, [1.0], "2 models need as many weights, not 1"),
        (2, [0.5, 0.6], r"0\.5, 0\.6 must all be above 0 and have the sum 1, not 1\.1"),
        (2, [1.5, -0.5], "above 0"),
        (2, [1.0, 0.0], "above 0"),
        (2, [float("nan"), 0.5], "above 0"),
    ],
)
def test_weights_that_are_no_shares_are_refused(tied_folder, tmp_path, count, weights, message):
    with pytest.raises(ModelError, match=message):
        merge_models([tied_folder] * count, weights, tmp_path / "to")


def test_a_type_that_cannot_be_averaged_is_refused(tied_folder, tmp_path):
    other = changed(tied_folder, tmp_path / "other", model__norm__weight=lambda t: t.to(torch.float8_e4m3fn))
    with pytest.raises(ModelError, match=r"the weights are \['F32', 'F8_E4M3'\]"):
        merge_models([tied_folder, other], [0.5, 0.5], tmp_path / "to")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:-40]),
            r"model\.safetensors: \d+ bytes, its header calls for",
        ),
        (lambda path: path.write_bytes(path.read_bytes()[:5]), r"model\.safetensors: not a safetensors file, or cut"),
        (lambda path: path.write_bytes(b"x" * 1000), r"model\.safetensors: not a safetensors file, or cut short"),
        (lambda path: path.write_bytes((9).to_bytes(8, "little") + b"{damaged}"), r"header of this .* is damaged"),
        (lambda path: path.write_bytes(b"version https://git-lfs"), "a Git LFS pointer, not the weights"),
        (lambda path: path.unlink(), r"other: no \.safetensors weights"),
        (lambda path: shutil.rmtree(path.parent), "merge: there is no model folder '.*other'"),
    ],
)
def test_a_model_that_is_damaged_or_missing_is_refused(tied_folder, tmp_path, damage, message):
    other = Path(shutil.copytree(tied_folder, tmp_path / "other"))
    damage(other / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        merge_models([tied_folder, other], [0.5, 0.5], tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_weights_beside_the_model_do_not_decide_its_type(tied_folder, tmp_path):
    """An adapter or an index of a vendor's own may lie in the folder; transformers does not load it either."""
    other = Path(shutil.copytree(tied_folder, tmp_path / "other"))
    (other / "adapter.safetensors").write_bytes(b"no such file")
    assert merge_models([other, tied_folder], [0.5, 0.5], tmp_path / "to").dtype == torch.float32


def test_a_folder_that_is_there_is_left_alone(tied_folder, tmp_path):
    (tmp_path / "note").write_text("mine")
    with pytest.raises(ModelError, match="is there already; nothing was written"):
        merge_models([tied_folder] * 2, [0.5, 0.5], tmp_path)
    assert (tmp_path / "note").read_text() == "mine"


def run(monkeypatch, capsys, *words):
    import sys

    from lingraft.cli import main

    monkeypatch.setattr(sys, "argv", ["lingraft", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_verb(pair, tmp_path, monkeypatch, capsys):
    to = tmp_path / "to"
    code, out, err = run(monkeypatch, capsys, "merge", *pair, "--weights", "0.5,0.5", "--to", to)
    assert (code, err) == (0, "")
    assert out == f"{to}: rows of 394 tokens averaged; 30 that only large has\n"
    assert "- small: 0.5\n- large: 0.5\n" in (to / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "--weights", "0.5,0.5"], "merge: there is no 'a'"),
        (["a", "b", "--weights", "0.5;0.5"], "--weights 0.5;0.5: write numbers with commas between"),
    ],
)
def test_the_verb_refuses(tmp_path, monkeypatch, capsys, words, message):
    code, out, err = run(monkeypatch, capsys, "merge", *words, "--to", tmp_path / "to")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err
