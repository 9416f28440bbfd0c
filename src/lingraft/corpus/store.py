"""The token store: the documents of a corpus in one tokenizer's tokens, memory-mapped.

    tokens.ds         the tokens, one after another, little-endian, 2 bytes each up to 65,536 entries, else 4
    tokens.ds.index   where each document ends: the number of tokens up to there, 8 bytes each
    manifest.json     what they are: width, counts, hashes of the files, of the tokenizer, of the text and of itself

The first two are the files of datatrove (https://github.com/huggingface/datatrove, ``DocumentTokenizer``),
which has no place for the width and whose reader assumes 2; hence the third.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.parts import LENGTHS, TOKENS, Encoding, Part, write_part
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import fingerprint, hash_file, publish_folder

__all__ = [
    "Manifest",
    "TokenStore",
    "build_store",
    "clear_parts",
    "join_parts",
    "open_store",
    "parts_folder",
    "store_name",
]

_FORMAT = 3
_TOKENS, _INDEX, _MANIFEST = "tokens.ds", "tokens.ds.index", "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """What a token store holds, and of what it was made.

    ``num_bytes`` (UTF-8) are those of the text, so that a loss in tokens can be given per byte; ``start_id`` is None
    where documents begin with their text.
    """

    format: int
    width: int
    vocabulary_size: int
    num_tokens: int
    num_documents: int
    num_bytes: int
    tokenizer_sha256: str
    corpus_sha256: str
    start_id: int | None
    end_id: int
    tokens_sha256: str
    index_sha256: str


@dataclass(frozen=True)
class TokenStore:
    """An opened store.

    Attributes:
        folder: where it lies.
        manifest: what it holds.
        tokens: all tokens, ``(num_tokens,)``, uint16 or uint32, read from disk as they are used.
        document_ends: ``(num_documents,)``, uint64; document d is
            ``tokens[document_ends[d - 1]:document_ends[d]]``.
    """

    folder: Path
    manifest: Manifest
    tokens: NDArray[Any]
    document_ends: NDArray[np.uint64]

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents, the start and end tokens included."""
        return self.manifest.num_tokens

    @property
    def num_documents(self) -> int:
        """How many documents there are."""
        return self.manifest.num_documents

    @property
    def num_bytes(self) -> int:
        """Length of the text in UTF-8 bytes."""
        return self.manifest.num_bytes

    def document(self, index: int) -> NDArray[Any]:
        """Return the tokens of one document, counted from 0."""
        start = int(self.document_ends[index - 1]) if index else 0
        return self.tokens[start : int(self.document_ends[index])]


def store_name(corpus: str, tokenizer_sha256: str, corpus_sha256: str, start_id: int | None, end_id: int) -> str:
    """Return a folder name that another tokenizer, text or document border cannot have: ``eu-1f3c…``."""
    return f"{corpus}-{fingerprint([_FORMAT, tokenizer_sha256, corpus_sha256, start_id, end_id])}"


def build_store(
    documents: Iterable[str], encoding: Encoding, folder: Path, *, tokenizer_sha256: str, corpus_sha256: str
) -> TokenStore:
    """Encode documents into a store and return it, opened; the folder appears whole.

    Raises:
        CorpusError: there is no document, or one of them as :func:`lingraft.corpus.parts.write_part` says. Nothing is
            written.
    """
    try:
        part = write_part(documents, encoding, parts_folder(folder) / "00000")
        return join_parts([part], encoding, folder, tokenizer_sha256=tokenizer_sha256, corpus_sha256=corpus_sha256)
    finally:
        clear_parts(folder)


def parts_folder(folder: Path) -> Path:
    """Return where the parts of a store stand while it is being made: beside it, as ``NAME.parts``."""
    return folder.with_name(f"{folder.name}.parts")


def clear_parts(folder: Path) -> None:
    """Remove the parts that a store was made of; one that was killed right behind making a store has left them."""
    shutil.rmtree(parts_folder(folder), ignore_errors=True)


def join_parts(
    parts: Sequence[Part], encoding: Encoding, folder: Path, *, tokenizer_sha256: str, corpus_sha256: str
) -> TokenStore:
    """Make a store of the parts of a corpus, in their order, and return it, opened; the folder appears whole.

    Raises:
        CorpusError: there is no document in them.
    """
    if not sum(part.num_documents for part in parts):
        raise CorpusError(f"{folder}: an empty corpus has no tokens to store")

    def fill(temporary: Path) -> None:
        with (temporary / _TOKENS).open("wb") as tokens:
            for part in parts:
                poll()
                with (part.folder / TOKENS).open("rb") as file:
                    shutil.copyfileobj(file, tokens, 2**24)
        lengths = np.concatenate([np.fromfile(part.folder / LENGTHS, dtype="<u8") for part in parts])
        (temporary / _INDEX).write_bytes(lengths.cumsum(dtype="<u8").data)
        manifest = Manifest(
            format=_FORMAT,
            width=encoding.dtype.itemsize,
            vocabulary_size=encoding.vocabulary_size,
            num_tokens=sum(part.num_tokens for part in parts),
            num_documents=sum(part.num_documents for part in parts),
            num_bytes=sum(part.num_bytes for part in parts),
            tokenizer_sha256=tokenizer_sha256,
            corpus_sha256=corpus_sha256,
            start_id=encoding.start_id,
            end_id=encoding.end_id,
            tokens_sha256=hash_file(temporary / _TOKENS, poll),
            index_sha256=hash_file(temporary / _INDEX, poll),
        )
        sealed = asdict(manifest) | {"seal": fingerprint(asdict(manifest))}
        (temporary / _MANIFEST).write_text(json.dumps(sealed, indent=1) + "\n", encoding="utf-8")

    publish_folder(folder, fill)
    return open_store(folder, tokenizer_sha256=tokenizer_sha256, corpus_sha256=corpus_sha256)


def open_store(folder: Path, *, tokenizer_sha256: str, corpus_sha256: str) -> TokenStore:
    """Return a store, after checking every byte of it against its manifest.

    Raises:
        CorpusError: it is missing, was made with another tokenizer or of another text, or is truncated or
            altered.
    """
    manifest = _read_manifest(folder)
    for what, wanted, found in (
        ("tokenizer", tokenizer_sha256, manifest.tokenizer_sha256),
        ("text", corpus_sha256, manifest.corpus_sha256),
    ):
        if wanted != found:
            raise CorpusError(f"{folder}: these tokens are of another {what} ({found[:12]}…, not {wanted[:12]}…)")
    for name, wanted in ((_TOKENS, manifest.tokens_sha256), (_INDEX, manifest.index_sha256)):
        path = folder / name
        if not path.is_file() or hash_file(path, poll) != wanted:
            raise CorpusError(
                f"{path}: missing, truncated or altered since it was written; remove {folder} to have it made anew"
            )
    tokens = np.memmap(folder / _TOKENS, dtype=f"<u{manifest.width}", mode="r")
    ends = np.memmap(folder / _INDEX, dtype="<u8", mode="r")
    _check_borders(tokens, ends, manifest, folder)
    return TokenStore(folder, manifest, tokens, ends)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / _MANIFEST
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        seal = stored.pop("seal")
        manifest = Manifest(**stored)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CorpusError(f"{path}: not the manifest of a token store: {error!r}; remove {folder}") from error
    if manifest.format != _FORMAT or manifest.width not in (2, 4):
        raise CorpusError(
            f"{path}: format {manifest.format}, width {manifest.width}; known are format {_FORMAT}, width 2 or 4"
        )
    if seal != fingerprint(stored):
        raise CorpusError(f"{path}: altered since it was written; remove {folder} to have it made anew")
    return manifest


def _check_borders(tokens: NDArray[Any], ends: NDArray[np.uint64], manifest: Manifest, folder: Path) -> None:
    """Check that the documents fill the tokens, and that each begins and ends as the manifest says."""
    starts = np.concatenate([np.zeros(1, dtype=np.uint64), ends[:-1]])
    fits = len(ends) == manifest.num_documents and len(tokens) == manifest.num_tokens == int(ends[-1])
    if not fits or bool((ends <= starts).any()):
        raise CorpusError(f"{folder}: {_INDEX} does not divide {_TOKENS} into {manifest.num_documents} documents")
    if bool((tokens[ends - np.uint64(1)] != manifest.end_id).any()):
        raise CorpusError(f"{folder}: a document does not end with the end token {manifest.end_id}")
    if manifest.start_id is not None and bool((tokens[starts] != manifest.start_id).any()):
        raise CorpusError(f"{folder}: a document does not begin with the start token {manifest.start_id}")
