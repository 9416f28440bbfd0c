"""Finished models, looked at without a recipe, against plain transformers."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from lingraft.errors import CorpusError, MeasurementError, ModelError, RecipeError
from lingraft.pipeline import inspecting
from lingraft.pipeline.inspecting import compare_continuations, diagnose, evaluate, open_model, probe


@pytest.fixture(scope="module")
def opened(tied_folder):
    return open_model(str(tied_folder))


def _copy(source: Path, to: Path, **settings: str | None) -> Path:
    """Return a copy of a model folder with other border tokens."""
    shutil.copytree(source, to)
    tokens = json.loads((to / "tokenizer_config.json").read_text()) | settings
    (to / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in tokens.items() if v is not None}))
    return to


@pytest.mark.parametrize(
    ("settings", "condition_on", "condition_id", "end_id"),
    [
        ({}, None, 0, 0),
        ({"bos_token": "<|im_start|>"}, None, 1, 0),
        ({"bos_token": None}, None, 0, 0),
        ({}, "<|im_start|>", 1, 0),
        ({"eos_token": None, "bos_token": "<|im_start|>"}, None, 1, 1),
    ],
)
def test_border_tokens(tied_folder, tmp_path, settings, condition_on, condition_id, end_id):
    opened = open_model(str(_copy(tied_folder, tmp_path / "model", **settings)), condition_on=condition_on)
    assert (opened.condition_id, opened.end_id) == (condition_id, end_id)


@pytest.mark.parametrize(("settings", "condition_on"), [({}, "<s>"), ({"bos_token": None, "eos_token": None}, None)])
def test_without_a_token_to_condition_on_there_is_nothing_to_score(tied_folder, tmp_path, settings, condition_on):
    folder = _copy(tied_folder, tmp_path / "model", **settings)
    with pytest.raises(RecipeError, match=r"no token .* to condition on; name one"):
        open_model(str(folder), condition_on=condition_on)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="model: there is no"):
        open_model(str(tmp_path / "nowhere"))


def test_a_gguf_file_needs_a_folder_to_be_converted_to(tmp_path, monkeypatch, tied_folder):
    monkeypatch.setattr(inspecting, "describe_base", lambda _: _description(tied_folder))
    (tmp_path / "model.gguf").write_bytes(b"one")
    with pytest.raises(ModelError, match=r"must be converted .* name a folder"):
        open_model(str(tmp_path / "model.gguf"))


def _description(folder: Path):
    from lingraft.model.locate import describe_base, locate_base

    return describe_base(locate_base(str(folder)))


def test_gguf_files_are_converted_once_each_whatever_their_names(tmp_path, monkeypatch, tied_folder):
    converted = []

    def convert(path: Path, folder: Path) -> None:
        converted.append(path.read_bytes())
        shutil.copytree(tied_folder, folder, dirs_exist_ok=True)

    monkeypatch.setattr(inspecting, "describe_base", lambda _: _description(tied_folder))
    monkeypatch.setattr(inspecting, "convert_gguf", convert)
    for content in (b"one", b"one", b"two"):
        (tmp_path / "model.gguf").write_bytes(content)
        open_model(str(tmp_path / "model.gguf"), cache=tmp_path / "cache")
    assert converted == [b"one", b"two"]


def test_bits_per_byte_are_those_of_plain_transformers(opened, tmp_path):
    text = "The light in the night is bright. Ñandú 42."
    (tmp_path / "text.txt").write_text(text)
    ids = torch.tensor([[0, *opened.tokenizer.encode(text)]])
    with torch.no_grad():
        # Rows behind the tokenizer's 394 ids are padding and get no probability.
        scores = opened.model(ids).logits[0, :-1, :394].log_softmax(-1).gather(1, ids[0, 1:, None]).sum().item()
    bits = evaluate(opened, [str(tmp_path)])
    assert bits.value == pytest.approx(-scores / math.log(2) / len(text.encode()), rel=1e-4)
    assert (bits.documents, bits.bytes, bits.tokens) == (1, len(text.encode()), ids.shape[1] - 1)


def test_text_that_is_not_there_is_refused(opened, tmp_path):
    with pytest.raises(CorpusError, match=r"text: .*nothing\.txt.* does not exist"):
        evaluate(opened, [str(tmp_path / "nothing.txt")])


def test_only_as_much_text_as_asked_for_is_scored(opened, corpora_folder):
    sizes = [evaluate(opened, [str(corpora_folder / "en.jsonl")], max_bytes=size).bytes for size in (300, 900)]
    assert sizes[0] <= 300 < sizes[1] <= 900


def test_a_probe_is_called_with_its_options(opened):
    scores = {score.name: score for score in probe(opened, "random_copy", {"num_items": 2, "length": 5})}
    assert scores["accuracy"].count == 2
    assert scores["chance"].value == pytest.approx(1 / 392)  # 394 ids, two of them control tokens


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("random_cpoy", {}, "unknown probe 'random_cpoy', did you mean 'random_copy'"),
        ("random_copy", {"lenght": 3}, r"probe\.lenght: .* no such option, did you mean 'length'"),
    ],
)
def test_unknown_probes_and_options_are_refused(opened, name, options, message):
    with pytest.raises(RecipeError, match=message):
        probe(opened, name, options)


def test_a_model_is_not_far_from_itself(opened):
    shift, grown = diagnose(opened, opened)
    assert (shift.mean_l2, grown) == (0.0, 0)


def test_the_distance_is_that_of_the_one_tensor_that_moved(opened, tied_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = _copy(tied_folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] += 0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shift, _ = diagnose(open_model(str(folder)), opened)
    moved = {kind for kind, sums in shift.kinds.items() if sums.relative_l2 > 0}
    assert len(moved) == 1
    assert shift.mean_l2 * len(weights) == pytest.approx(0.5 * math.sqrt(32))


def test_models_of_other_shapes_are_refused(opened, untied_folder):
    with pytest.raises(ModelError, match="other tensors"):
        diagnose(opened, open_model(str(untied_folder)))


def test_the_smaller_vocabulary_is_the_base(opened, tied_folder, tmp_path):
    folder = _copy(tied_folder, tmp_path / "model")
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["added_tokens"].append(raw["added_tokens"][0] | {"id": 394, "content": "<|more|>"})
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    larger = open_model(str(folder))
    assert diagnose(larger, opened)[1] == 1
    with pytest.raises(ModelError, match=r"fewer tokens .*swap them"):
        diagnose(opened, larger)


def _rewritten(folder: Path, spellings: dict[str, str], rows: dict[int, int]) -> None:
    """Give tokens of a model folder other spellings (in place), and rows the content of others."""
    from safetensors.torch import load_file, save_file

    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["model"]["vocab"] = {spellings.get(token, token): i for token, i in raw["model"]["vocab"].items()}
    raw["model"]["merges"] = [m for m in raw["model"]["merges"] if not {*m, "".join(m)} & spellings.keys()]
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            table = weights[name].clone()
            table[list(rows)] = weights[name][list(rows.values())]
            weights[name] = table
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("tied", [True, False])
def test_a_token_that_has_another_id_is_found_by_its_spelling(tied_folder, untied_folder, tmp_path, tied):
    base = tied_folder if tied else untied_folder
    first, second = (t for t, i in sorted(open_model(str(base)).tokenizer.vocabulary.items()) if i in (390, 391))
    folder = _copy(base, tmp_path / "model")
    _rewritten(folder, {first: second, second: first}, {390: 391, 391: 390})
    shift, more = diagnose(open_model(str(folder)), open_model(str(base)))
    assert (shift.mean_l2, more) == (0.0, 0)


@pytest.mark.parametrize("tied", [True, False])
def test_the_row_of_a_token_that_was_replaced_does_not_count(tied_folder, untied_folder, tmp_path, tied):
    base = tied_folder if tied else untied_folder
    gone = next(t for t, i in open_model(str(base)).tokenizer.vocabulary.items() if i == 391)
    folder = _copy(base, tmp_path / "model")
    _rewritten(folder, {gone: "zzz"}, {391: 7})
    shift, more = diagnose(open_model(str(folder)), open_model(str(base)))
    assert (shift.mean_l2, more) == (0.0, 1)
    assert {kind for kind in shift.kinds if kind.endswith("_new")} == set()
    _rewritten(folder, {}, {392: 7})  # a token that both have, and that moved
    moved, _ = diagnose(open_model(str(folder)), open_model(str(base)))
    assert moved.kinds["embeddings_old"].difference > 0


def test_models_without_a_common_token_are_refused(opened, tied_folder, tmp_path):
    folder = _copy(tied_folder, tmp_path / "model")
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["model"] |= {"vocab": {f"x{i}": i for i in range(394)}, "merges": []}
    raw["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    other = dataclasses.replace(opened, tokenizer=inspecting.TokenizerFile.open(folder))
    with pytest.raises(ModelError, match="no token in common"):
        diagnose(other, opened)


def _greedy(opened, prompt: str, count: int) -> str:
    ids = torch.tensor([[opened.condition_id, *opened.tokenizer.encode(prompt)]])
    start = ids.shape[1]
    while ids.shape[1] < start + count and opened.end_id not in ids[0, start:]:
        with torch.no_grad():
            ids = torch.cat([ids, opened.model(ids).logits[:, -1:, : opened.tokenizer.num_ids].argmax(-1)], dim=1)
    return opened.tokenizer.decode([i for i in ids[0, start:].tolist() if i != opened.end_id])


@pytest.mark.parametrize("rows", [400, 448])
def test_rows_past_those_of_the_base_do_not_count(opened, tied_folder, tmp_path, rows):
    from safetensors.torch import load_file, save_file

    folder = _copy(tied_folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    table = torch.nn.functional.pad(weights["model.embed_tokens.weight"][:400], (0, 0, 0, rows - 400), value=9.0)
    weights["model.embed_tokens.weight"] = table
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": rows}
    (folder / "config.json").write_text(json.dumps(config))
    grown = open_model(str(folder))
    assert diagnose(grown, opened)[0].mean_l2 == 0.0
    assert grown.model.get_input_embeddings().weight.shape[0] == rows  # the model itself is left as it was


def test_continuations_are_greedy_and_in_the_order_of_prompts_and_models(opened, untied_folder):
    models, prompts = [opened, open_model(str(untied_folder))], ["The light", "A cell can"]
    told = compare_continuations(models, prompts, max_tokens=5)
    assert told == [[_greedy(model, prompt, 5) for model in models] for prompt in prompts]
    assert len({text for row in told for text in row}) > 1


def test_documents_that_the_tokenizer_changes_are_counted_and_one_document_has_no_interval(tied_folder, tmp_path):
    folder = _copy(tied_folder, tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text()) | {"normalizer": {"type": "Lowercase"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    folded = open_model(str(folder))
    (tmp_path / "mixed.jsonl").write_text('{"text": "Tables"}\n{"text": "a cell"}\n{"text": "Rows"}\n')
    found = evaluate(folded, [str(tmp_path / "mixed.jsonl")])
    assert (found.documents, found.lossy, found.low, found.high) == (1, 2, None, None)
    (tmp_path / "upper.txt").write_text("Tables")
    with pytest.raises(MeasurementError, match=r"upper\.txt: the tokenizer changes all 1 documents"):
        evaluate(folded, [str(tmp_path / "upper.txt")])
