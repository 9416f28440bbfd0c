"""Donors: folders with a tokenizer and two matrices of known numbers."""

import json

import pytest
from safetensors.torch import save_file


@pytest.fixture
def write_donor(tmp_path):
    """Write a donor folder from the text of a tokenizer and tensors by name; config.json is as given."""

    def write(tokenizer_text, tensors, config=None, name="donor"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_text(tokenizer_text, encoding="utf-8")
        (folder / "config.json").write_text(json.dumps(config or {}))
        save_file(tensors, folder / "model.safetensors")
        return folder

    return write
