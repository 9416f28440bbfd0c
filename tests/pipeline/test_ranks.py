"""A run by several processes."""

from pathlib import Path

import pytest

from lingraft.errors import TrainingError
from lingraft.pipeline.adapt import adapt
from lingraft.recipe import Recipe


def test_o31_more_than_one_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="one process, and WORLD_SIZE is 2"):
        adapt(Recipe.model_construct(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
