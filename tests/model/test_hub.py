"""A base model by its hub id, without the hub: the cache is real, and so is all that reads it."""

import json
import shutil

import huggingface_hub.constants
import pytest
from safetensors.torch import load_file, save_file

from lingraft.errors import ModelError
from lingraft.model.base import fetch_folder, load_model
from lingraft.model.locate import describe_base, locate_base

COMMIT = "a" * 40
OTHER = "b" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache that the hub client looks into, with no network behind it."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def publish(cache, folder, *, name="org/name", commit=COMMIT, refs=("main",)):
    """Lay a model folder into the cache as the hub client does, and return its snapshot."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    for ref in refs:
        (repository / "refs" / ref).write_text(commit)
    shutil.copytree(folder, snapshot)
    return snapshot


@pytest.mark.parametrize(("fixture", "tied"), [("tied_folder", True), ("untied_folder", False)])
def test_base_by_its_hub_id_is_described_and_fetched(cache, request, fixture, tied, tokenizer):
    folder = request.getfixturevalue(fixture)
    snapshot = publish(cache, folder)
    location = locate_base("org/name")
    found = describe_base(location)
    assert (location.kind, found.num_rows, found.is_tied) == ("hub", 420, tied)
    assert found.tokenizer.sha256 == tokenizer.sha256
    assert found.num_parameters == describe_base(locate_base(str(folder))).num_parameters
    assert fetch_folder(location) == snapshot
    assert load_model(fetch_folder(location)).num_parameters() == found.num_parameters


def test_revision_is_followed(cache, tied_folder, untied_folder):
    publish(cache, tied_folder)
    publish(cache, untied_folder, commit=OTHER, refs=("v2",))
    assert [describe_base(locate_base("org/name", revision)).is_tied for revision in (None, "v2", OTHER)] == [1, 0, 0]
    assert fetch_folder(locate_base("org/name", "v2")).name == OTHER


def test_sharded_base_in_the_cache_needs_no_network(cache, tied_folder):
    snapshot = publish(cache, tied_folder)
    tensors = load_file(snapshot / "model.safetensors")
    (snapshot / "model.safetensors").unlink()
    parts = {f"model-0000{n + 1}-of-00002.safetensors": list(tensors)[n::2] for n in range(2)}
    for name, keys in parts.items():
        save_file({key: tensors[key] for key in keys}, snapshot / name, metadata={"format": "pt"})
    weight_map = {key: name for name, keys in parts.items() for key in keys}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert describe_base(locate_base("org/name")).num_parameters == sum(tensor.numel() for tensor in tensors.values())


@pytest.mark.parametrize("action", [describe_base, fetch_folder])
@pytest.mark.parametrize(("name", "revision"), [("org/unknown", None), ("org/name", "no-such-branch")])
def test_unknown_name_or_revision_is_an_error_of_ours(cache, tied_folder, action, name, revision):
    publish(cache, tied_folder)
    with pytest.raises(ModelError, match=f"^base_model: cannot fetch '{name}' from the hub"):
        action(locate_base(name, revision))


def test_base_whose_weights_are_not_in_the_cache_is_refused(cache, tied_folder):
    (publish(cache, tied_folder) / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="'org/name' has no safetensors weights to read"):
        describe_base(locate_base("org/name"))
