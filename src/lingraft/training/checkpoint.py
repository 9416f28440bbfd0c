"""Checkpoints that can be trusted, or are not used.

    checkpoints/step-00000040/
      model.safetensors       the weights that the stage trains, fp32, raw
      optimizer.safetensors   the optimiser's moments and counters by parameter name
      average.safetensors     the average's own weights, if there is one; other companions have files likewise
      manifest.json           sizes and SHA-256 of the files, step, fingerprints, versions, the caller's state, its hash

A folder appears whole, by rename; resuming takes the newest whose every byte is as the manifest says, and falls back to
the one before it otherwise. Weight files hold tensors and JSON only, so loading one cannot run code.
"""

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from lingraft.errors import CheckpointError
from lingraft.model.shards import held, is_split
from lingraft.polling import poll
from lingraft.run import describe_environment, fingerprint, hash_file, publish_folder, refused_write
from lingraft.training.distributed import ALONE, Ranks, read_tensors, write_tensors

__all__ = [
    "Checkpoint",
    "latest_checkpoint",
    "optimizer_tensors",
    "prune_checkpoints",
    "restore_optimizer",
    "save_checkpoint",
]

_FORMAT = 2
_PREFIX = "step-"
_NAME = re.compile(r"step-(\d{8,})")
_SPARE_BYTES = 64 * 2**20
_LIBRARIES = frozenset({"lingraft", "python", "safetensors", "tokenizers", "torch", "transformers"})
_TOLD = {"memory": "micro_batch or checkpoint_activations"}


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: where it is, the step it was made after, and the state that was saved with it.

    ``changed`` names what is not as it was when the checkpoint was made, and may be otherwise. ``versions`` says which
    libraries are other ones now, as in ``torch 2.12.0 → 2.13.0``.
    """

    folder: Path
    step: int
    state: Mapping[str, Any]
    changed: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    def names(self, group: str) -> set[str]:
        """Return the names of a group's tensors."""
        path = self.folder / f"{group}.safetensors"
        if not path.exists():
            return set()
        with safe_open(path, "pt") as file:
            return set(file.keys())

    def tensors(self, group: str, parameters: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return a group of tensors (``model``, ``optimizer``, or a companion's); empty if it was not saved.

        Where ``parameters`` are divided among ranks, the tensors that belong to them come back divided alike.
        """
        path = self.folder / f"{group}.safetensors"
        if not path.exists():
            return {}
        if parameters and any(is_split(parameter) for parameter in parameters.values()):
            return read_tensors(path, parameters)
        return load_file(path)


def save_checkpoint(
    folder: Path,
    step: int,
    groups: Mapping[str, Mapping[str, Tensor]],
    fingerprints: Mapping[str, str],
    state: Mapping[str, Any],
    ranks: Ranks = ALONE,
) -> Path:
    """Publish a checkpoint, read it back whole, and return its folder.

    Args:
        folder: the stage's ``checkpoints`` folder.
        step: optimiser steps done.
        groups: name of the file → tensors; an empty group makes no file.
        fingerprints: what must be equal when resuming (recipe, tokenizer, data).
        state: anything else, as plain values.
        ranks: who holds parts of the tensors: every rank calls this, rank 0 writes whole tensors.

    Raises:
        CheckpointError: the disk has not the room, a tensor is not finite, writing fails, or what was written does not
            read back as it was meant. Older checkpoints are untouched.
    """
    published = folder / f"{_PREFIX}{step:08d}"
    ranks.first(lambda: _refuse_full_disk(folder, groups))
    ranks.together(lambda: _refuse_non_finite(groups))
    if not ranks.is_first:
        for tensors in groups.values():
            write_tensors(None, tensors)
        ranks.first(lambda: None)
        return published

    def fill(temporary: Path) -> None:
        made = _write(temporary, {group: tensors for group, tensors in groups.items() if tensors}, ranks)
        files = {path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)} for path in made}
        manifest = {
            "format": _FORMAT,
            "step": step,
            "files": files,
            "fingerprints": dict(fingerprints),
            "versions": dict(_versions()),
            "state": dict(state),
        }
        # Through JSON once, so that the hash is of what a reader will see (keys as text, tuples as lists).
        manifest = json.loads(json.dumps(manifest))
        sealed = manifest | {"seal": fingerprint(manifest)}
        (temporary / "manifest.json").write_text(json.dumps(sealed, indent=1), encoding="utf-8")

    ranks.first(lambda: _publish(published, fill))
    return published


@cache
def _versions() -> Mapping[str, str]:
    """Return library → version, of those that have a say in the bits of a step."""
    return {name: said for name, said in describe_environment()["versions"].items() if name in _LIBRARIES}


def _publish(folder: Path, fill: Callable[[Path], None]) -> None:
    try:
        publish_folder(folder, fill)
    except (OSError, SafetensorError) as error:
        step = int(folder.name.removeprefix(_PREFIX))
        raise CheckpointError(
            f"{folder.parent}: the checkpoint of step {step} could not be written: {refused_write(error) or error}; "
            "the one before it stands, and the same command goes on from there"
        ) from error
    _verified_manifest(folder)


def _write(folder: Path, groups: Mapping[str, Mapping[str, Tensor]], ranks: Ranks) -> list[Path]:
    """Write a file for each group and return them; where one fails, no other rank is left waiting for its part."""
    files = [folder / f"{group}.safetensors" for group in groups]
    failure: OSError | None = None
    for path, tensors in zip(files, groups.values(), strict=True):
        if ranks.count == 1:
            save_file({name: t.detach().contiguous() for name, t in tensors.items()}, path)
            continue
        try:
            write_tensors(path if failure is None else None, tensors)
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure
    return files


def latest_checkpoint(
    folder: Path, fingerprints: Mapping[str, str], accept: Collection[str] = (), ranks: Ranks = ALONE
) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that verifies (None if there is no checkpoint at all) and what was passed over.

    Args:
        folder: the stage's ``checkpoints`` folder.
        fingerprints: what must be equal to what was saved.
        accept: the names of those fingerprints that may differ.
        ranks: who asks: rank 0 looks, and the others hear.

    Raises:
        CheckpointError: there are checkpoints and none verifies, or the newest sound one belongs to another recipe,
            mix, tokenizer or data.
    """
    if ranks.count == 1:
        return _latest(folder, fingerprints, accept)

    def look() -> list[Any]:
        found, passed_over = _latest(folder, fingerprints, accept)
        told = found and [str(found.folder), found.step, found.state, found.changed, found.versions]
        return [told, passed_over]

    told, passed_over = ranks.first(look)
    if told is None:
        return None, passed_over
    return Checkpoint(Path(told[0]), told[1], told[2], tuple(told[3]), tuple(told[4])), passed_over


def _latest(
    folder: Path, fingerprints: Mapping[str, str], accept: Collection[str]
) -> tuple[Checkpoint | None, list[str]]:
    passed_over: list[str] = []
    candidates = _newest_first(folder)
    for candidate in candidates:
        try:
            manifest = _verified_manifest(candidate, poll)
        except CheckpointError as error:
            passed_over.append(str(error))
            continue
        differing = [key for key, value in fingerprints.items() if manifest["fingerprints"].get(key) != value]
        if refused := [key for key in differing if key not in accept]:
            can = set(refused) <= {"mix", "data", "memory"}
            hint = f"; --accept-changed {','.join(refused)} goes on with it" if can else ""
            told = ", ".join(_TOLD.get(key, key) for key in refused)
            raise CheckpointError(f"{candidate}: it was made with another {told}; it cannot be resumed from{hint}")
        stated = manifest.get("versions", {})
        others = tuple(
            f"{name} {stated[name]} → {now}" for name, now in _versions().items() if stated.get(name, now) != now
        )
        return Checkpoint(candidate, manifest["step"], manifest["state"], tuple(differing), others), passed_over
    if candidates:
        listed = "\n  ".join(passed_over)
        raise CheckpointError(
            f"{folder}: no checkpoint can be trusted; delete the folder to start the stage again:\n  {listed}"
        )
    return None, []


def _newest_first(folder: Path) -> list[Path]:
    """Return the folders that are checkpoints of ours by name; a copy under another name is left alone."""
    named = [(match, path) for path in folder.glob(f"{_PREFIX}*") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(named, key=lambda pair: int(pair[0][1]), reverse=True)]


def _verified_manifest(folder: Path, between: Callable[[], None] | None = None) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        seal, files = manifest.pop("seal"), manifest["files"]
        if seal != fingerprint(manifest):
            raise ValueError("it is not what was written")
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"{folder.name}: format {manifest['format']}, this version reads {_FORMAT}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{folder.name}: manifest.json is missing or damaged ({type(error).__name__})") from error
    for name, entry in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            raise CheckpointError(f"{folder.name}: {name} is missing or has another length than was written")
        if hash_file(path, between) != entry["sha256"]:
            raise CheckpointError(f"{folder.name}: {name} has other bytes than were written")
    return dict(manifest)


def prune_checkpoints(folder: Path, keep: int = 2, *, newest: int | None = None) -> None:
    """Delete all but the newest ``keep`` checkpoints (at least one stays); the manifest goes first.

    The newest healthy one stays, in the place of the last of them: where the ones after it were made amid alarms (the
    caller's state says ``healthy: false``), it is the last that can be trusted.

    Args:
        folder: the stage's ``checkpoints`` folder.
        keep: how many stay.
        newest: the step just saved. What claims to be later was passed over as damaged when the stage was resumed, and
            goes first; otherwise it could push out the sound ones.
    """
    found = _newest_first(folder)
    later = [path for path in found if newest is not None and int(path.name.removeprefix(_PREFIX)) > newest]
    ours = [path for path in found if path not in later]
    kept = ours[: max(1, keep)]
    if (healthy := next(filter(_is_healthy, ours), None)) is not None and healthy not in kept:
        kept = [*ours[: max(1, keep - 1)], healthy]
    for old in [*later, *[path for path in ours if path not in kept]]:
        if old.is_symlink() or not old.is_dir():
            # A link goes alone: what it leads to may be the checkpoint that stays.
            old.unlink()
            continue
        (old / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(old)


def _is_healthy(folder: Path) -> bool:
    """Whether a checkpoint was made while no alarm was open; one that cannot be read was not."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return bool(manifest["state"].get("healthy", True))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _refuse_full_disk(folder: Path, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    needed = sum(t.numel() * t.element_size() for tensors in groups.values() for t in tensors.values()) + _SPARE_BYTES
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"{folder}: a checkpoint needs {needed / 2**20:.0f} MiB and {free / 2**20:.0f} MiB are free"
        )


def _refuse_non_finite(groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            if not torch.isfinite(held(tensor)).all():
                raise CheckpointError(f"{group}: {name} holds values that are not finite; such weights are never saved")


def optimizer_tensors(made: Sequence[Optimizer], names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """Return the state of a stage's optimisers as flat tensors, keyed ``name::part``."""
    return {
        f"{names[parameter]}::{part}": torch.as_tensor(value)
        for optimizer in made
        for parameter, parts in optimizer.state.items()
        for part, value in parts.items()
        if value is not None
    }


def restore_optimizer(made: Sequence[Optimizer], names: Mapping[Tensor, str], saved: Mapping[str, Tensor]) -> None:
    """Put saved state back, by name, in place of what is there.

    Raises:
        CheckpointError: the state is of other parameters than the optimiser's.
    """
    held = {
        names[p]: (optimizer, group, p)
        for optimizer in made
        for group in optimizer.param_groups
        for p in group["params"]
    }
    restored: dict[str, dict[str, Tensor]] = {}
    for key, tensor in saved.items():
        name, _, part = key.rpartition("::")
        restored.setdefault(name, {})[part] = tensor
    if not restored.keys() <= held.keys():
        raise CheckpointError(
            f"the optimiser's state is of other parameters: {sorted(restored.keys() - held.keys())[:3]}"
        )
    for optimizer in made:
        optimizer.state.clear()
    for name, parts in restored.items():
        optimizer, group, parameter = held[name]
        # A step counter is a scalar, which lies on the CPU unless the fused kernel reads it.
        on_device = bool(group.get("fused") or group.get("capturable"))
        optimizer.state[parameter] = {
            part: tensor.to(parameter.device) if tensor.ndim or on_device else tensor for part, tensor in parts.items()
        }
