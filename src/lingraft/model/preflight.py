"""Finds tokens that occur in the training text and whose rows nobody has ever trained, before anything is trained.

Base models reserve rows: for control tokens to come, for padding. Such a row is zero, nearly zero, no number, or a copy
of the filler that all reserved rows hold. Where it is read with frozen embeddings the loss becomes NaN, or learns from
noise (https://github.com/unslothai/unsloth/issues/1072).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from lingraft.corpus import TokenStore
from lingraft.errors import ModelError
from lingraft.vocabulary import TokenizerFile

__all__ = ["UntrainedRow", "count_tokens", "refuse_untrained_rows", "untrained_rows"]

_VANISHING = 1e-3
_CHUNK_TOKENS = 2**22
_CHUNK_ROWS = 2**13
_SHOWN = 10
_TABLES = {
    "input": ("embed_tokens.weight", "wte.weight", "embed_in.weight"),
    "output": ("lm_head.weight", "embed_out.weight"),
}
_Kind = Literal["vanishing", "filler", "not finite"]
_WORDS: dict[_Kind, str] = {
    "vanishing": "has a row of zeros or nearly so",
    "filler": "has the same row as the unused id",
    "not finite": "has a row that is not finite",
}


@dataclass(frozen=True)
class UntrainedRow:
    """A row that nobody has trained, of a token that there is.

    Attributes:
        id: the row, and the token's id.
        token: the token's spelling in ``tokenizer.json``.
        kind: ``vanishing`` (its norm is below 1e-3 of the median), ``filler`` (bit for bit the row of another reserved
            id), or ``not finite`` (it holds NaN or an infinity).
        norm: ‖row‖₂.
        count: how often the token occurs.
        twin: for ``filler``, a reserved id with the same row.
    """

    id: int
    token: str
    kind: _Kind
    norm: float
    count: int
    twin: int | None = None

    def __str__(self) -> str:
        what = _WORDS[self.kind] + (f" {self.twin}" if self.twin is not None else "")
        return f"{self.token!r} (id {self.id}, norm {self.norm:.3g}, occurs {self.count:,} times) {what}"


def count_tokens(stores: Iterable[TokenStore], num_ids: int) -> NDArray[np.int64]:
    """Return how often each id occurs in token stores, ``(num_ids,)``; start and end tokens of documents count too.

    Stores are read from disk in pieces of 4 M tokens, so memory does not grow with them.

    Args:
        stores: the stores.
        num_ids: length of the result.

    Raises:
        ModelError: a store holds an id of ``num_ids`` or more.
    """
    counts = np.zeros(num_ids, dtype=np.int64)
    for store in stores:
        for start in range(0, len(store.tokens), _CHUNK_TOKENS):
            found = np.bincount(store.tokens[start : start + _CHUNK_TOKENS], minlength=num_ids)
            if len(found) > num_ids:
                raise ModelError(f"{store.folder}: id {len(found) - 1} occurs, the tokenizer has {num_ids} ids")
            counts += found
    return counts


def untrained_rows(
    matrix: Float[Tensor, "rows dim"],
    counts: NDArray[np.int64],
    tokenizer: TokenizerFile,
    initialised: Iterable[int] = (),
) -> list[UntrainedRow]:
    """Return the untrained rows of a matrix that a token owns, by id; ``count`` tells whether it occurs.

    Of rows that vanish or are not finite all are returned. A filler row is returned only if its token occurs: that many
    reserved rows are alike is as it should be. Reserved are control tokens (``added_tokens``), rows of no token, and
    rows that will be made anew.

    Args:
        matrix: of a base model, input or output.
        counts: occurrences by id, ``(ids,)``, as :func:`count_tokens` returns them; ids past its end do not occur.
        tokenizer: whose ids the counts are of.
        initialised: ids whose rows will be made anew before training; they are passed over.
    """
    norms = _norms(matrix)
    spelling = {i: token for token, i in tokenizer.vocabulary.items()}
    passed_over = frozenset(initialised)
    owned = np.array([i in spelling and i not in passed_over for i in range(len(matrix))])
    occurs = np.zeros(len(matrix), dtype=np.int64)
    occurs[: len(counts)] = counts[: len(matrix)]
    broken, vanishing = ~np.isfinite(norms), norms < _VANISHING * _typical(norms)
    reserved = _reserved(tokenizer, passed_over, len(matrix))
    twins = _twins(matrix, norms, owned & (occurs > 0) & ~broken & ~vanishing, reserved)
    kinds: dict[int, _Kind] = {
        **dict.fromkeys(np.flatnonzero(owned & vanishing).tolist(), "vanishing"),
        **dict.fromkeys(np.flatnonzero(owned & broken).tolist(), "not finite"),
        **dict.fromkeys(twins, "filler"),
    }
    return [
        UntrainedRow(i, spelling[i], kinds[i], float(norms[i]), int(occurs[i]), twins.get(i)) for i in sorted(kinds)
    ]


def _norms(matrix: Tensor) -> NDArray[np.float64]:
    """Return the norm of each row, ``(rows,)``, widening a piece of the matrix at a time; squares fit in fp64."""
    starts = range(0, len(matrix), _CHUNK_ROWS)
    pieces = [matrix[start : start + _CHUNK_ROWS].detach().double().norm(dim=1) for start in starts]
    return np.asarray(torch.cat(pieces).cpu().numpy())


def _typical(norms: NDArray[np.float64]) -> float:
    """Return the median norm of rows that are something; half a matrix of zeros must not make zero typical."""
    something = norms[np.isfinite(norms) & (norms > 0)]
    return float(np.median(something)) if len(something) else 1.0


def _reserved(tokenizer: TokenizerFile, initialised: frozenset[int], num_rows: int) -> list[int]:
    """Return the rows that no text has reached: of control tokens, of no token at all, and of tokens still to come."""
    owned = set(tokenizer.vocabulary.values()) - initialised
    control = {entry["id"] for entry in tokenizer.raw.get("added_tokens") or ()}
    return sorted({i for i in control if i < num_rows} | {i for i in range(num_rows) if i not in owned})


def _twins(
    matrix: Tensor, norms: NDArray[np.float64], asked: NDArray[np.bool_], reserved: Sequence[int]
) -> dict[int, int]:
    """Return, for each row asked about that is bit for bit the row of several reserved ids, the first such id.

    One alone is no filler: a padding token may have been given the row of the end token on purpose. Equal rows have
    equal norms, so only the few rows with the norm of a reserved one are compared whole.
    """
    alike = np.flatnonzero(asked & np.isin(norms, norms[list(reserved)]))
    rows: dict[bytes, list[int]] = {}
    for i in reserved if len(alike) else ():
        rows.setdefault(_bytes(matrix[i]), []).append(i)
    found = {int(i): [twin for twin in rows.get(_bytes(matrix[int(i)]), []) if twin != i] for i in alike}
    return {i: twins[0] for i, twins in found.items() if len(twins) > 1}


def _bytes(row: Tensor) -> bytes:
    return row.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()


def refuse_untrained_rows(
    model_folder: Path,
    stores: Mapping[str, TokenStore],
    tokenizer: TokenizerFile,
    initialised: Iterable[int] = (),
) -> list[str]:
    """Return notes on rows that vanish and whose tokens do not occur, after refusing those that do.

    Args:
        model_folder: the base model, with safetensors weights; only its embedding matrices are read.
        stores: corpus → the tokens that stages train on, border tokens included.
        tokenizer: the tokenizer of the stores.
        initialised: ids that an init method fills (``VocabularyExpansion.new_ids``); their old rows do not matter.

    Raises:
        ModelError: a token of the text has a row that nobody has trained; the message names each such token, its id,
            norm and count, and what can be done. Or the folder has no input matrix.
    """
    counts, filled = count_tokens(stores.values(), tokenizer.num_ids), frozenset(initialised)
    borders = {i for store in stores.values() for i in (store.manifest.start_id, store.manifest.end_id)}
    notes = []
    for side, name, matrix in _matrices(model_folder):
        found = untrained_rows(matrix, counts, tokenizer, filled)
        if occurring := [row for row in found if row.count]:
            raise ModelError(_refusal(side, name, occurring, borders))
        if found:
            notes.append(
                f"tokens whose {side} rows nobody has trained, and which do not occur in the training text, "
                f"{len(found)} in all: " + _listed([f"{row.token!r} (id {row.id})" for row in found])
            )
    return notes


def _refusal(side: str, name: str, rows: Sequence[UntrainedRow], borders: set[int | None]) -> str:
    at_border = [repr(row.token) for row in rows if row.id in borders]
    ways = f"choose another token than {_listed(at_border)} for documents.start or documents.end; " if at_border else ""
    return (
        f"base_model: tokens of the training text have rows in the {side} matrix ({name}) that nobody has trained, "
        f"{len(rows)} in all: {_listed([str(row) for row in rows])}. What can be done: {ways}give these "
        "rows a value in the base model (the mean of the others), or take these tokens out of the text"
    )


def _listed(words: Sequence[str]) -> str:
    more = f", and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more


def _matrices(folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield ``(side, name, matrix)`` of the embedding matrices in a folder; a tied model has the input alone."""
    sides = set()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                for side, endings in _TABLES.items():
                    if name.endswith(endings):
                        sides.add(side)
                        yield side, name, file.get_tensor(name)
    if "input" not in sides:
        raise ModelError(f"{folder}: no input embedding matrix in its safetensors weights")
