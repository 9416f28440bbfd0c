"""The token store: the documents of a corpus in one tokenizer's tokens, memory-mapped.

    tokens.ds         the tokens, one after another, little-endian, 2 bytes each up to 65,536 entries, else 4
    tokens.ds.index   where each document ends: the number of tokens up to there, 8 bytes each
    manifest.json     what they are: width, counts, hashes of the files, of the tokenizer and of the text

The first two are the files of datatrove (https://github.com/huggingface/datatrove, ``DocumentTokenizer``),
which has no place for the width and whose reader assumes 2; hence the third.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.cleaning import count_words
from lingraft.errors import CorpusError
from lingraft.run import fingerprint, hash_file, publish_folder

__all__ = ["Manifest", "TokenStore", "build_store", "open_store", "store_name"]

_FORMAT = 1
_TOKENS, _INDEX, _MANIFEST = "tokens.ds", "tokens.ds.index", "manifest.json"
_NARROW_ENTRIES = 2**16
_BATCH_DOCUMENTS = 256
_BATCH_CHARACTERS = 2**20


@dataclass(frozen=True)
class Manifest:
    """What a token store holds, and of what it was made.

    ``num_bytes`` (UTF-8) and ``num_words`` are those of the text, so that a loss in tokens can be given per
    byte; ``start_id`` is None where documents begin with their text.
    """

    format: int
    width: int
    vocabulary_size: int
    num_tokens: int
    num_documents: int
    num_bytes: int
    num_words: int
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

    @property
    def num_words(self) -> int:
        """Words of the text."""
        return self.manifest.num_words

    def document(self, index: int) -> NDArray[Any]:
        """Return the tokens of one document, counted from 0."""
        start = int(self.document_ends[index - 1]) if index else 0
        return self.tokens[start : int(self.document_ends[index])]


def store_name(corpus: str, tokenizer_sha256: str, corpus_sha256: str, start_id: int | None, end_id: int) -> str:
    """Return a folder name that another tokenizer, text or document border cannot have: ``eu-1f3c…``."""
    return f"{corpus}-{fingerprint([_FORMAT, tokenizer_sha256, corpus_sha256, start_id, end_id])}"


def build_store(
    documents: Iterable[str],
    encode_batch: Callable[[list[str]], list[list[int]]],
    folder: Path,
    *,
    vocabulary_size: int,
    start_id: int | None,
    end_id: int,
    tokenizer_sha256: str,
    corpus_sha256: str,
) -> TokenStore:
    """Encode documents into a store and return it, opened; the folder appears whole.

    ``encode_batch`` turns texts into the ids of the text alone, without start and end tokens; these are put
    here, to every document alike. Memory: one batch, of up to 256 documents and about 1 M characters, and 8
    bytes a document.

    Raises:
        CorpusError: there is no document; one encodes to nothing, to an id that the vocabulary does not have,
            or to a start or end token inside its text (a text in which ``</s>`` stands would end there). The
            message gives the document's number, from 1, and the id. Nothing is written.
    """
    for role, special in (("start", start_id), ("end", end_id)):
        if special is not None and not 0 <= special < vocabulary_size:
            raise CorpusError(f"documents.{role}: id {special} is not in a vocabulary of {vocabulary_size}")

    def fill(temporary: Path) -> None:
        with (temporary / _TOKENS).open("wb") as file:
            writer = _Writer(file, vocabulary_size, start_id, end_id)
            for batch in _batches(documents):
                writer.add(batch, encode_batch(batch))
        if not writer.ends:
            raise CorpusError(f"{folder}: an empty corpus has no tokens to store")
        np.array(writer.ends, dtype="<u8").tofile(temporary / _INDEX)
        manifest = Manifest(
            format=_FORMAT,
            width=writer.dtype.itemsize,
            vocabulary_size=vocabulary_size,
            num_tokens=writer.ends[-1],
            num_documents=len(writer.ends),
            num_bytes=writer.num_bytes,
            num_words=writer.num_words,
            tokenizer_sha256=tokenizer_sha256,
            corpus_sha256=corpus_sha256,
            start_id=start_id,
            end_id=end_id,
            tokens_sha256=hash_file(temporary / _TOKENS),
            index_sha256=hash_file(temporary / _INDEX),
        )
        (temporary / _MANIFEST).write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")

    publish_folder(folder, fill)
    return open_store(folder, tokenizer_sha256=tokenizer_sha256, corpus_sha256=corpus_sha256)


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in documents:
        batch.append(text)
        characters += len(text)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class _Writer:
    """Appends encoded documents to the tokens file, checking each of them."""

    def __init__(self, file: IO[bytes], vocabulary_size: int, start_id: int | None, end_id: int) -> None:
        self.dtype = np.dtype("<u2" if vocabulary_size <= _NARROW_ENTRIES else "<u4")
        self.ends = array("Q")
        self.num_bytes = self.num_words = 0
        self._file = file
        self._vocabulary_size = vocabulary_size
        self._start = [] if start_id is None else [start_id]
        self._end = [end_id]

    def add(self, texts: list[str], encoded: list[list[int]]) -> None:
        if len(encoded) != len(texts):
            raise CorpusError(
                f"{len(texts)} documents were encoded to {len(encoded)}; encode_batch must keep their number"
            )
        for text, ids in zip(texts, encoded, strict=True):
            self._check(ids)
            tokens = np.array([*self._start, *ids, *self._end], dtype=self.dtype)
            self._file.write(tokens.tobytes())
            self.ends.append((self.ends[-1] if self.ends else 0) + len(tokens))
            self.num_bytes += len(text.encode())
            self.num_words += count_words(text)

    def _check(self, ids: list[int]) -> None:
        number = len(self.ends) + 1
        if not ids:
            raise CorpusError(f"document {number} encodes to no token")
        for extreme in (min(ids), max(ids)):
            if not 0 <= extreme < self._vocabulary_size:
                raise CorpusError(
                    f"document {number} encodes to id {extreme}; the vocabulary has {self._vocabulary_size} entries"
                )
        for special in {*self._start, *self._end}:
            if special in ids:
                raise CorpusError(
                    f"document {number} has the start or end token {special} inside its text; "
                    "encode without adding special tokens and without reading them from the text"
                )


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
        if not path.is_file() or hash_file(path) != wanted:
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
        manifest = Manifest(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CorpusError(f"{path}: not the manifest of a token store: {error}") from error
    if manifest.format != _FORMAT or manifest.width not in (2, 4):
        raise CorpusError(
            f"{path}: format {manifest.format}, width {manifest.width}; known are format {_FORMAT}, width 2 or 4"
        )
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
