"""Writes a model folder that anyone can load, and proves it by loading it in another process."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from lingraft.errors import ModelError
from lingraft.model.auto_tokenizer import choose_tokenizer_class, settle_tokenizer_class
from lingraft.model.base import is_tied, load_model, quiet_transformers
from lingraft.model.freeze import BLOCKS_RECORD
from lingraft.model.resize import sizes_in_config
from lingraft.polling import poll
from lingraft.run import publish_folder
from lingraft.vocabulary import TokenizerFile

__all__ = ["check_folder", "export_model", "save_model"]

# Files of a base model that describe its tokenizer or its use.
_COMPANIONS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
_STALE_AFTER_EXPANSION = ("vocab.json", "merges.txt", "tokenizer.model")
_PROBE_LENGTH = 16

_LOAD_SCRIPT = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, ids, texts = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
with torch.no_grad():
    logits = model(torch.tensor([ids]), use_cache=False).logits
print(json.dumps({
    "tokens": [tokenizer.encode(text, add_special_tokens=False) for text in texts],
    "num_ids": max(tokenizer.get_vocab().values()) + 1, "rows": model.get_input_embeddings().weight.shape[0],
    "top": logits[0].argmax(-1).tolist(),
    "bytes": __import__("hashlib").sha256(logits.numpy().tobytes()).hexdigest(),
}))
"""


def save_model(
    model: nn.Module,
    folder: Path,
    *,
    tokenizer: TokenizerFile,
    base_folder: Path,
    changed: bool,
    blocks: Sequence[str] = (),
) -> None:
    """Write model and tokenizer into a folder: safetensors weights, the base's tokenizer settings beside the new file.

    Args:
        model: the model.
        folder: where to; it must exist.
        tokenizer: what becomes ``tokenizer.json``.
        base_folder: where the base's other tokenizer files are.
        changed: whether the vocabulary differs from the base's; files that spell out the old one are left behind then,
            and a tokenizer class that does not take tokenizer.json as it is gives way to one that does.
        blocks: module names of inserted blocks; a record of them lies beside the weights, for later stages.
    """
    given: Any = model
    with quiet_transformers():
        given.save_pretrained(folder)
    for name in _COMPANIONS:
        if (base_folder / name).exists() and not (changed and name in _STALE_AFTER_EXPANSION):
            shutil.copyfile(base_folder / name, folder / name)
    (folder / "tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
    if blocks:
        (folder / BLOCKS_RECORD).write_text(json.dumps({"inserted": list(blocks)}, indent=1), encoding="utf-8")
    if changed:
        settle_tokenizer_class(folder, tokenizer)


def export_model(
    model: nn.Module,
    to: Path,
    *,
    tokenizer: TokenizerFile,
    base_folder: Path,
    changed: bool,
    card: str,
    samples: list[str],
    blocks: Sequence[str] = (),
    tokenizer_class: str = "auto",
) -> dict[str, Any]:
    """Publish a model folder with its card and return what the load test found, and the tokenizer class it names.

    The folder is loaded by plain ``AutoModelForCausalLM`` and ``AutoTokenizer`` in another process before it gets its
    name. Weights must be the same, bit for bit, and so must tokens and most likely ids; ``identical_logits`` says
    whether the logits are too. For ``tokenizer_class`` see
    :func:`lingraft.model.auto_tokenizer.choose_tokenizer_class`.

    Raises:
        ModelError: sizes disagree, the folder does not load, or it computes something else.
    """
    found: dict[str, Any] = {}

    def fill(folder: Path) -> None:
        save_model(model, folder, tokenizer=tokenizer, base_folder=base_folder, changed=changed, blocks=blocks)
        found["tokenizer_class"] = choose_tokenizer_class(folder, tokenizer, tokenizer_class)
        (folder / "README.md").write_text(card, encoding="utf-8")
        check_folder(folder)
        found.update(_load_elsewhere(model, folder, tokenizer, samples))

    publish_folder(to, fill)
    return found


def check_folder(folder: Path) -> dict[str, int]:
    """Return the counts of a model folder after checking that they agree, rows, stated sizes and ids, and its numbers.

    Raises:
        ModelError: they do not: the weights' rows must be the configuration's sizes, nested ones included, and hold
            every id of the tokenizer; or a weight is not a finite number.
    """
    tokenizer = TokenizerFile.open(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rows = _table_rows(folder)
    stated = {part["vocab_size"] for part in (config, *_nested(config)) if isinstance(part.get("vocab_size"), int)}
    if len(rows) != 1 or stated != rows:
        raise ModelError(f"{folder}: the weights have {sorted(rows)} rows, config.json states {sorted(stated)}")
    (count,) = rows
    if tokenizer.num_ids > count:
        raise ModelError(f"{folder}: the tokenizer has {tokenizer.num_ids} ids, the weights {count} rows")
    _refuse_broken_numbers(folder)
    return {"rows": count, "ids": tokenizer.num_ids}


def _refuse_broken_numbers(folder: Path) -> None:
    """Read every tensor once: a NaN in a weight that few texts reach is found by no load test."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                poll()
                broken = int((~torch.isfinite(file.get_tensor(name))).sum())
                if broken:
                    raise ModelError(f"{path}: {broken} numbers of {name} are NaN or infinite")


def _nested(config: dict[str, Any]) -> list[dict[str, Any]]:
    return [value for value in config.values() if isinstance(value, dict)]


def _table_rows(folder: Path) -> set[int]:
    """Return the row counts of input and output matrices, read from the weights' headers."""
    rows = set()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                if name.endswith(
                    ("embed_tokens.weight", "wte.weight", "embed_in.weight", "lm_head.weight", "embed_out.weight")
                ):
                    rows.add(int(file.get_slice(name).get_shape()[0]))
    return rows


def _load_elsewhere(model: nn.Module, folder: Path, tokenizer: TokenizerFile, samples: list[str]) -> dict[str, Any]:
    given: Any = model
    ids = [(n * 9973) % tokenizer.num_ids for n in range(_PROBE_LENGTH)]
    command = [sys.executable, "-W", "ignore", "-c", _LOAD_SCRIPT, str(folder), json.dumps(ids), json.dumps(samples)]
    # A session of its own: Ctrl-C is for this process, which ends the check and then stops.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        said, complained = _wait(process)
    if process.returncode:
        raise ModelError(f"{folder}: a plain transformers process cannot load it:\n{complained.strip()[-2000:]}")
    theirs = json.loads(said.strip().splitlines()[-1])
    # The other process loads on the CPU: a copy of ours is asked there too, from the same file.
    reloaded: Any = load_model(folder)
    with torch.no_grad():
        logits = reloaded(torch.tensor([ids]), use_cache=False).logits
    differing = [
        n
        for n, p in given.named_parameters()
        if not torch.equal(p.detach().cpu().float(), dict(reloaded.named_parameters())[n])
    ]
    if differing:
        raise ModelError(f"{folder}: {len(differing)} tensors are not what was saved, the first is {differing[0]}")
    if theirs["top"] != logits[0].argmax(-1).tolist() or theirs["tokens"] != tokenizer.encode_batch(samples):
        raise ModelError(f"{folder}: another process computes other logits, or other tokens, from it")
    if (
        theirs["num_ids"] != tokenizer.num_ids
        or {theirs["rows"]} != sizes_in_config(given.config)
        or is_tied(model) != is_tied(reloaded)
    ):
        raise ModelError(
            f"{folder}: {theirs['num_ids']} ids and {theirs['rows']} rows were loaded; sizes or tie were lost"
        )
    return {"identical_logits": theirs["bytes"] == _digest(logits), "rows": theirs["rows"], "ids": theirs["num_ids"]}


def _wait(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return what a process has said when it has ended; a stop is heard while waiting, and ends it."""
    try:
        while True:
            try:
                return process.communicate(timeout=0.5)
            except subprocess.TimeoutExpired:
                poll()
    except BaseException:
        process.kill()
        raise


def _digest(logits: torch.Tensor) -> str:
    return hashlib.sha256(logits.numpy().tobytes()).hexdigest()
