"""One recipe of two stages on the tiny Llama, changed by overrides as on the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lingraft.recipe import Recipe
from lingraft.recipe_file import load_recipe

TEXT = """
name: tiny
base_model: {base}
languages: {{source: en, target: eu}}
corpora:
  eu: {{path: {corpora}/eu.jsonl, validation: 20%, max_epochs: 50}}
  en: {{path: {corpora}/en.jsonl, validation: 20%, max_epochs: 50}}
vocabulary: {{new_tokens: 40, min_count: 3, row_multiple: 16}}
precision: fp32
stages:
  - name: first
    train: new_embeddings
    tokens: 500
    mix: {{eu: 1.0}}
    lr: {{peak: 1e-2, warmup: 0%}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 2}}
  - name: second
    train: all
    tokens: 12800
    mix: {{schedule: step, at: 50%, before: {{eu: 0.5, en: 0.5}}, after: {{eu: 1.0}}}}
    lr: {{schedule: linear, peak: 1e-3, warmup: 10%, floor: 0%}}
    batch: {{tokens: 128, sequence_length: 32, micro_batch: 4}}
"""

MakeRecipe = Callable[..., Recipe]


@pytest.fixture
def recipe_path(tmp_path: Path, tied_folder: Path, corpora_folder: Path) -> Path:
    """The recipe's file."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    return path


@pytest.fixture
def make_recipe(recipe_path: Path) -> MakeRecipe:
    """Return the recipe with ``path=value`` overrides put over it."""
    return lambda *overrides: load_recipe(recipe_path, overrides)


@pytest.fixture(scope="module")
def make_module_recipe(tmp_path_factory: pytest.TempPathFactory, tied_folder: Path, corpora_folder: Path) -> MakeRecipe:
    """The same for runs that several tests of a module look at."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(TEXT.format(base=tied_folder, corpora=corpora_folder), encoding="utf-8")
    return lambda *overrides: load_recipe(path, overrides)
