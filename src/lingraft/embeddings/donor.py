"""A donor: another model whose tokenizer has the new tokens already, and whose rows they can be made from."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lingraft.embeddings.context import InitContext
from lingraft.embeddings.token_text import token_texts
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import TokenizerFile

__all__ = ["Donor", "SharedTokens", "open_donor", "share_tokens"]

_INPUT = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
_OUTPUT = ("lm_head.weight", "embed_out.weight")


@dataclass(frozen=True)
class Donor:
    """A model folder, of which only the tokenizer and the two matrices are read.

    Attributes:
        folder: where it is.
        tokenizer: its tokenizer.
        files: name of a tensor → the file that holds it.
        ties: what config.json says about a head of its own; None where it says nothing.
    """

    folder: Path
    tokenizer: TokenizerFile
    files: Mapping[str, Path]
    ties: bool | None

    @cached_property
    def texts(self) -> dict[int, str]:
        """Id → text of the donor's tokens that are clean text."""
        return token_texts(self.tokenizer)

    def matrix(self, side: Literal["input", "output"]) -> Float[Tensor, "rows dim"]:
        """Return the input or output matrix as it is stored; the output of a tied model is its input.

        Raises:
            ModelError: it is not there, is not the only one that it could be, or has fewer rows than there are tokens.
        """
        name = self._input_name() if side == "input" else self._output_name()
        matrix = _read(self.files[name], name)
        if matrix.ndim != 2 or not matrix.dtype.is_floating_point or len(matrix) <= max(self.texts, default=0):
            raise ModelError(
                f"{self.folder}: {name} has shape {tuple(matrix.shape)} and type {matrix.dtype}; numbers are needed, "
                f"with a row for each of {max(self.texts, default=0) + 1} ids"
            )
        return matrix

    def _input_name(self) -> str:
        return self._only(_INPUT, "input embedding matrix") or self._by_shape()

    def _output_name(self) -> str:
        name = self._only(_OUTPUT, "output matrix")
        if self.ties is False and name is None:
            raise ModelError(
                f"{self.folder}: config.json says that the head is not tied, but no tensor is named as one "
                f"({', '.join(_OUTPUT)})"
            )
        return name if name and not self.ties else self._input_name()

    def _only(self, endings: tuple[str, ...], what: str) -> str | None:
        found = [name for name in self.files if f".{name}".endswith(tuple(f".{ending}" for ending in endings))]
        if len(found) > 1:
            raise ModelError(f"{self.folder}: more than one tensor could be the {what}: {', '.join(sorted(found))}")
        return found[0] if found else None

    def _by_shape(self) -> str:
        """Return the one tensor that has as many rows as the tokenizer needs, for models with names of their own."""
        needed = max(self.texts, default=0)
        shapes = {name: _shape(path, name) for name, path in self.files.items()}
        found = [name for name, shape in shapes.items() if len(shape) == 2 and shape[0] > needed]
        if len(found) != 1:
            raise ModelError(
                f"{self.folder}: the input embedding matrix has none of the names that are known "
                f"({', '.join(_INPUT)}), and {len(found)} tensors have more than {needed} rows"
            )
        return found[0]


def open_donor(path: str | Path, where: str = "donor") -> Donor:
    """Return the donor in a local folder with tokenizer.json and safetensors weights.

    Args:
        path: the folder.
        where: the recipe path that names it, for messages.

    Raises:
        RecipeError: there is no such folder.
        VocabularyError: it has no tokenizer.json that can be read.
        ModelError: it has no safetensors weights.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RecipeError(
            f"{where}: there is no folder {str(path)!r}; a donor is a local folder with tokenizer.json and safetensors "
            "weights (a model on the hub is fetched with: hf download NAME --local-dir FOLDER)"
        )
    config = _json(folder / "config.json") if (folder / "config.json").is_file() else {}
    ties = config.get("tie_word_embeddings", (config.get("text_config") or {}).get("tie_word_embeddings"))
    return Donor(folder, TokenizerFile.open(folder), _tensor_files(folder), ties)


def _tensor_files(folder: Path) -> dict[str, Path]:
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if single.is_file():
        return dict.fromkeys(_names(single), single)
    if not index.is_file():
        raise ModelError(
            f"{folder}: no model.safetensors and no index of several files "
            "(pickled .bin files are not read: they can run code)"
        )
    files = {name: folder / str(file) for name, file in _json(index).get("weight_map", {}).items()}
    if lost := sorted({path.name for path in files.values() if not path.is_file()}):
        raise ModelError(f"{folder}: model.safetensors.index.json names files that are not there: {', '.join(lost)}")
    return files


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: must hold a JSON object, holds {type(value).__name__}")
    return value


def _names(path: Path) -> list[str]:
    with _opened(path) as file:
        return list(file.keys())


def _shape(path: Path, name: str) -> tuple[int, ...]:
    with _opened(path) as file:
        return tuple(file.get_slice(name).get_shape())


def _read(path: Path, name: str) -> Tensor:
    with _opened(path) as file:
        matrix: Tensor = file.get_tensor(name)
        return matrix


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a safetensors file with the tensors that it should hold: {error}") from error


@dataclass(frozen=True)
class SharedTokens:
    """What a donor and the base model have in common, and what the donor has of the new tokens.

    Attributes:
        donor_anchors: the donor's rows of the tokens that both have, fp32.
        old_anchors: the base model's rows of the same tokens, in the same order.
        donor_new: the donor's rows of the new tokens that it has, fp32.
        places: where among the new tokens each of those belongs.
        reasons: id of every other new token → why it has none.
    """

    donor_anchors: Float[Tensor, "anchors donor_dim"]
    old_anchors: Float[Tensor, "anchors dim"]
    donor_new: Float[Tensor, "found donor_dim"]
    places: tuple[int, ...]
    reasons: Mapping[int, str]


def share_tokens(context: InitContext, donor: Donor) -> SharedTokens:
    """Return the rows of the tokens that a donor shares with the base model, and of the new tokens that it has.

    Tokens are the same if they stand for the same text, white space included: `Ġkaixo` and `▁kaixo` are. Control
    tokens, added ones and parts of characters are never taken.

    Raises:
        ModelError: the two share no token, or the donor's matrix cannot be read.
    """
    ids = {text: token_id for token_id, text in donor.texts.items()}
    old, new = token_texts(context.expansion.old), token_texts(context.expansion.new)
    pairs = [(ids[text], token_id) for token_id, text in sorted(old.items()) if text in ids]
    if not pairs:
        raise ModelError(f"{donor.folder}: its tokenizer shares no token with the base model's")
    tokens = context.expansion.new_tokens
    places = tuple(place for place, token in enumerate(tokens) if new.get(token.id) in ids)
    wanted = torch.tensor([ids[new[tokens[place].id]] for place in places], dtype=torch.long)
    lacking = [tokens[place] for place in sorted(set(range(len(tokens))).difference(places))]
    no_text, no_token = "it is no whole text, which a donor is asked for", "the donor has no such token"
    reasons = {token.id: no_token if token.id in new else no_text for token in lacking}
    matrix = donor.matrix(context.side)
    donor_ids, old_ids = torch.tensor(pairs).T
    return SharedTokens(matrix[donor_ids].float(), context.old[old_ids], matrix[wanted].float(), places, reasons)
