"""Checkpoints: whole, verified, or passed over."""

import json
import shutil
from collections import namedtuple
from importlib import metadata
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from lingraft.errors import CheckpointError
from lingraft.training import checkpoint as checkpoint_module
from lingraft.training.checkpoint import (
    latest_checkpoint,
    optimizer_tensors,
    prune_checkpoints,
    restore_optimizer,
    save_checkpoint,
)
from lingraft.training.distributed import Ranks

PRINTS = {"recipe": "r1", "tokenizer": "t1", "data": "d1"}


def save(folder: Path, step: int, value: float = 0.0, **state) -> Path:
    groups = {"model": {"w": torch.full((300,), value)}, "optimizer": {"w::step": torch.tensor(2.0)}, "average": {}}
    return save_checkpoint(folder, step, groups, PRINTS, state)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path, 40, 1.5, consumed="abc", places=(1, 2))
    found, passed_over = latest_checkpoint(tmp_path, PRINTS)
    assert (found.step, passed_over, found.state) == (40, [], {"consumed": "abc", "places": [1, 2]})
    assert torch.equal(found.tensors("model")["w"], torch.full((300,), 1.5))
    assert found.tensors("optimizer")["w::step"].item() == 2
    assert found.tensors("average") == {}
    assert names(found.folder) == ["manifest.json", "model.safetensors", "optimizer.safetensors"]


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none", PRINTS) == (None, [])


def test_the_newest_by_number_counts(tmp_path: Path) -> None:
    for step in (99_999_999, 9, 100_000_000, 10):
        save(tmp_path, step)
    assert latest_checkpoint(tmp_path, PRINTS)[0].step == 100_000_000


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", [truncate, flip, zero, Path.unlink])
def test_o63_a_damaged_newest_is_passed_over_and_named(tmp_path: Path, name: str, damage) -> None:
    save(tmp_path, 10, 1.0)
    damage(save(tmp_path, 20, 2.0) / name)
    found, passed_over = latest_checkpoint(tmp_path, PRINTS)
    assert (found.step, found.tensors("model")["w"][0]) == (10, 1)
    assert len(passed_over) == 1
    assert "step-00000020" in passed_over[0]
    assert name in passed_over[0]


def test_o63_every_bit_of_the_manifest_counts(tmp_path: Path) -> None:
    manifest = save(tmp_path, 20, consumed="abc") / "manifest.json"
    sound = manifest.read_bytes()
    for position in range(0, len(sound), 11):
        content = bytearray(sound)
        content[position] ^= 1
        manifest.write_bytes(content)
        if json.loads(sound) != _parsed(content):
            with pytest.raises(CheckpointError, match="no checkpoint can be trusted"):
                latest_checkpoint(tmp_path, PRINTS)


def _parsed(content: bytes | bytearray):
    try:
        return json.loads(content)
    except ValueError:
        return None


def test_o63_a_save_that_was_killed_half_way_leaves_the_one_before(tmp_path: Path, monkeypatch) -> None:
    def killed(*_, **__) -> None:
        raise KeyboardInterrupt

    save(tmp_path, 10)
    monkeypatch.setattr("lingraft.training.checkpoint.hash_file", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 20)
    monkeypatch.undo()
    (tmp_path / ".step-00000030.1.tmp").mkdir()
    assert latest_checkpoint(tmp_path, PRINTS)[0].step == 10


def test_none_that_verifies_is_an_error(tmp_path: Path) -> None:
    for step in (10, 20):
        flip(save(tmp_path, step) / "model.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint can be trusted") as error:
        latest_checkpoint(tmp_path, PRINTS)
    assert str(error.value).count("other bytes than were written") == 2


@pytest.mark.parametrize("key", list(PRINTS))
def test_a_checkpoint_of_another_recipe_tokenizer_or_data_is_refused(tmp_path: Path, key: str) -> None:
    save(tmp_path, 10)
    with pytest.raises(CheckpointError, match=f"made with another {key}; it cannot be resumed from"):
        latest_checkpoint(tmp_path, PRINTS | {key: "other"})


def test_another_format_is_not_read(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("lingraft.training.checkpoint._FORMAT", 7)
        save(tmp_path, 10)
    with pytest.raises(CheckpointError, match="format 7, this version reads 2"):
        latest_checkpoint(tmp_path, PRINTS)


def test_o66_a_full_disk_is_seen_before_a_byte_is_written(tmp_path: Path, monkeypatch) -> None:
    save(tmp_path, 10)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**30, 2**30 - 2**20, 2**20))
    with pytest.raises(CheckpointError, match="needs 64 MiB and 1 MiB are free"):
        save(tmp_path, 20)
    assert names(tmp_path) == ["step-00000010"]


def test_o66_a_disk_that_fills_while_saving_leaves_the_last_one(tmp_path: Path, monkeypatch) -> None:
    def full(*_, **__) -> None:
        raise OSError(28, "No space left on device")

    save(tmp_path, 10)
    monkeypatch.setattr("lingraft.training.checkpoint.save_file", full)
    with pytest.raises(CheckpointError, match=r"of step 20 could not be written: No space left .* the one before it"):
        save(tmp_path, 20)
    assert names(tmp_path) == ["step-00000010"]
    assert latest_checkpoint(tmp_path, PRINTS)[0].step == 10


class FirstOfTwo(Ranks):
    """Rank 0 of two, whose messages reach nobody."""

    def first(self, action):
        return action()

    together = first


def test_o66_a_disk_that_fills_leaves_no_other_rank_waiting_for_its_part_of_the_next_file(
    tmp_path: Path, monkeypatch
) -> None:
    asked = []

    def write(path: Path | None, tensors) -> None:
        asked.append((path and path.name, sorted(tensors)))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lingraft.training.checkpoint.write_tensors", write)
    groups = {"model": {"w": torch.zeros(2)}, "average": {}, "optimizer": {"w::step": torch.zeros(1)}}
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(tmp_path, 20, groups, PRINTS, {}, FirstOfTwo(count=2))
    assert asked == [("model.safetensors", ["w"]), (None, ["w::step"])]
    assert names(tmp_path) == []


def test_o66_an_error_of_safetensors_is_told_as_what_the_system_said(tmp_path: Path, monkeypatch) -> None:
    def full(*_, **__) -> None:
        raise SafetensorError("Error while serializing: I/O error: File too large (os error 27)")

    monkeypatch.setattr("lingraft.training.checkpoint.save_file", full)
    with pytest.raises(CheckpointError, match="of step 20 could not be written: File too large; the one before it"):
        save(tmp_path, 20)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path, bad: float) -> None:
    with pytest.raises(CheckpointError, match="model: w holds values that are not finite"):
        save(tmp_path, 10, bad)
    assert names(tmp_path) == []


def test_what_changes_after_a_save_does_not_change_the_save(tmp_path: Path) -> None:
    weight = torch.zeros(5)
    save_checkpoint(tmp_path, 1, {"model": {"w": weight}}, PRINTS, {})
    weight += 1
    assert not latest_checkpoint(tmp_path, PRINTS)[0].tensors("model")["w"].any()


@pytest.mark.parametrize(("keep", "left"), [(2, [3, 4]), (1, [4]), (0, [4]), (-3, [4]), (9, [1, 2, 3, 4])])
def test_pruning_keeps_the_newest_and_at_least_one(tmp_path: Path, keep: int, left: list[int]) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    prune_checkpoints(tmp_path, keep)
    assert names(tmp_path) == [f"step-{n:08d}" for n in left]


@pytest.mark.parametrize(
    ("healthy", "keep", "left"),
    [
        ("yyyyy", 2, [4, 5]),
        ("yyynn", 2, [3, 5]),
        ("ynnnn", 2, [1, 5]),
        ("ynnnn", 1, [1, 5]),
        ("ynnnn", 3, [1, 4, 5]),
        ("yyyny", 2, [4, 5]),
        ("nnnnn", 2, [4, 5]),
    ],
)
def test_the_newest_from_before_the_trouble_stays(tmp_path: Path, healthy: str, keep: int, left: list[int]) -> None:
    """A bad step whose checkpoints push out the sound ones is the case of reliability's list (pocket-tts 262)."""
    for step, flag in enumerate(healthy, start=1):
        save(tmp_path, step, healthy=flag == "y")
        prune_checkpoints(tmp_path, keep, newest=step)
    assert names(tmp_path) == [f"step-{n:08d}" for n in left]


def test_a_checkpoint_that_cannot_be_read_is_not_the_healthy_one(tmp_path: Path) -> None:
    for step, is_healthy in ((1, True), (2, True), (3, False), (4, False)):
        save(tmp_path, step, healthy=is_healthy)
    (tmp_path / "step-00000002" / "manifest.json").write_text("{")
    prune_checkpoints(tmp_path, newest=4)
    assert names(tmp_path) == ["step-00000001", "step-00000004"]


def test_the_manifest_says_by_which_libraries_it_was_made_and_others_are_told(tmp_path: Path, monkeypatch) -> None:
    folder = save(tmp_path, 3)
    stated = json.loads((folder / "manifest.json").read_text())["versions"]
    assert stated.keys() == {"lingraft", "python", "safetensors", "tokenizers", "torch", "transformers"}
    assert stated["torch"] == metadata.version("torch")
    assert latest_checkpoint(tmp_path, PRINTS)[0].versions == ()
    monkeypatch.setattr(checkpoint_module, "_versions", lambda: stated | {"torch": "9.9"})
    assert latest_checkpoint(tmp_path, PRINTS)[0].versions == (f"torch {stated['torch']} → 9.9",)


def test_pruning_leaves_what_is_not_ours(tmp_path: Path) -> None:
    shutil.copytree(save(tmp_path, 1), tmp_path / "step-00000001-copy")
    shutil.copytree(save(tmp_path, 2), tmp_path / "step-best")
    prune_checkpoints(tmp_path, 1)
    assert names(tmp_path) == ["step-00000001-copy", "step-00000002", "step-best"]
    assert latest_checkpoint(tmp_path, PRINTS)[0].step == 2


def test_damaged_later_ones_do_not_push_out_the_one_just_saved(tmp_path: Path) -> None:
    for step in (4, 6):
        flip(save(tmp_path, step) / "model.safetensors")
    save(tmp_path, 2)
    save(tmp_path, 3)
    prune_checkpoints(tmp_path, newest=3)
    assert names(tmp_path) == ["step-00000002", "step-00000003"]


def test_an_optimizer_comes_back_by_name() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 2), nn.Linear(3, 2)]
    layers[1].load_state_dict(layers[0].state_dict())
    optimizers = [torch.optim.AdamW(layer.parameters(), lr=0.1) for layer in layers]
    named = [{p: n for n, p in layer.named_parameters()} for layer in layers]

    def go(index: int) -> None:
        layers[index](torch.ones(1, 3)).sum().backward()
        optimizers[index].step()

    go(0)
    layers[1].load_state_dict(layers[0].state_dict())
    saved = optimizer_tensors([optimizers[0]], named[0])
    assert sorted(saved) == [f"{n}::{part}" for n in ("bias", "weight") for part in ("exp_avg", "exp_avg_sq", "step")]
    restore_optimizer([optimizers[1]], named[1], {key: tensor.clone() for key, tensor in saved.items()})
    layers[1].weight.grad, layers[1].bias.grad = layers[0].weight.grad.clone(), layers[0].bias.grad.clone()
    go(0)
    go(1)
    assert torch.equal(layers[0].weight, layers[1].weight)


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    layer = nn.Linear(3, 2)
    names_of = {p: n for n, p in layer.named_parameters()}
    with pytest.raises(CheckpointError, match="of other parameters"):
        restore_optimizer([torch.optim.AdamW(layer.parameters())], names_of, {"x::step": torch.tensor(1.0)})


def test_pruning_takes_a_link_alone_and_what_is_no_folder(tmp_path: Path) -> None:
    """Someone has linked a later step to an earlier one: through the link, the one that stays would lose its seal."""
    kept = [save(tmp_path, step) for step in (1, 2)]
    (tmp_path / "step-00000008").symlink_to(kept[1])
    (tmp_path / "step-00000009").write_text("x")
    prune_checkpoints(tmp_path, newest=2)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert latest_checkpoint(tmp_path, PRINTS)[0].step == 2


def test_a_manifest_of_brackets_is_damaged(tmp_path: Path) -> None:
    """JSON that is nested too deeply is no ValueError to Python's reader."""
    save(tmp_path, 1)
    (save(tmp_path, 2) / "manifest.json").write_text("[" * 100_000)
    found, passed_over = latest_checkpoint(tmp_path, PRINTS)
    assert (found.step, len(passed_over)) == (1, 1)
    prune_checkpoints(tmp_path, keep=1)
