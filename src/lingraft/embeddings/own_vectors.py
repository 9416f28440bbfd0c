"""Vectors of tokens, trained on the user's own text: what a token occurs beside says what it is like."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.batching import batches_of
from lingraft.embeddings.vectors import Vectors
from lingraft.errors import MissingExtraError, ModelError, RecipeError, nearest
from lingraft.polling import poll
from lingraft.vocabulary import TokenizerFile

__all__ = ["ENGINES", "VectorOptions", "positive_pmi", "train_vectors", "truncated_svd", "windowed_counts"]

ENGINES = ("svd", "fasttext")

_NO_TOKEN = -1
_TEXTS_AT_ONCE = 256
_CHUNK_TOKENS = 200_000
_SVD_ITERATIONS = 4
_SVD_SPARE = 10


@dataclass(frozen=True)
class VectorOptions:
    """How vectors are trained, and how much memory that may take.

    Attributes:
        engine: ``svd`` (co-occurrence, positive PMI, truncated SVD; needs no extra) or ``fasttext`` (CBOW).
        window: tokens to each side that count as beside.
        min_count: occurrences without which a token gets no vector.
        max_contexts: with ``svd``, only this many of the most frequent tokens count as neighbours.
        max_tokens: the text is read until this many tokens; what bounds memory.
        smoothing: with ``svd``, the power to which the frequencies of neighbours are taken.
        epochs: with ``fasttext``, passes over the text.
    """

    engine: str = "svd"
    window: int = 5
    min_count: int = 2
    max_contexts: int = 4096
    max_tokens: int = 5_000_000
    smoothing: float = 0.75
    epochs: int = 3


def train_vectors(
    tokenizer: TokenizerFile,
    texts: Iterable[str],
    dim: int,
    generator: torch.Generator,
    options: VectorOptions = VectorOptions(),
) -> Vectors:
    """Return a vector for each token that the text holds often enough, by its spelling in the tokenizer's file.

    With ``svd``: n(i, j) counts j within a window around i, a neighbour at distance d weighing (w − d + 1) / w, as in
    word2vec's shrinking window on average; the matrix max(0, log n(i,j)·Z / (n(i) · n(j)^α)) is cut to its largest
    singular values, and a vector is a row of U·√Σ (Levy, Goldberg and Dagan, TACL 2015,
    https://aclanthology.org/Q15-1016, sec. 3; α and √Σ are theirs). With ``fasttext``: CBOW with ten negative samples,
    as FOCUS trains it, but without character n-grams, in one thread and from starting values of our own: the package
    itself leaves nine tenths of them uninitialised when it runs in one thread, and is not repeatable in many.

    Args:
        tokenizer: what cuts the text into tokens.
        texts: the text.
        dim: numbers per vector; fewer come back where the text has fewer tokens or contexts.
        generator: the only source of chance.
        options: the engine and its numbers.

    Raises:
        RecipeError: there is no such engine, or a number is below 1.
        ModelError: no token occurs often enough.
        MissingExtraError: ``fasttext`` is not installed.
    """
    _refuse_options(dim, options)
    stream = _token_stream(tokenizer, texts, options)
    counts = np.bincount(stream[stream >= 0], minlength=tokenizer.num_ids)
    kept = np.flatnonzero(counts >= options.min_count)
    if not len(kept):
        raise ModelError(f"no token occurs {options.min_count} times in the text, so none can get a vector")
    train = _train_svd if options.engine == "svd" else _train_fasttext
    matrix = train(stream, kept, counts, dim, generator, options)
    spellings = {token_id: token for token, token_id in tokenizer.vocabulary.items()}
    return Vectors({spellings[int(token_id)]: row for row, token_id in enumerate(kept)}, matrix)


def _refuse_options(dim: int, options: VectorOptions) -> None:
    if options.engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise RecipeError(f"engine {options.engine!r} is not known{nearest(options.engine, ENGINES)} (known: {known})")
    names = ("window", "min_count", "max_contexts", "max_tokens", "epochs")
    for name, value in ({"dim": dim} | {name: getattr(options, name) for name in names}).items():
        if value < 1:
            raise RecipeError(f"{name} is {value}; it must be at least 1")


def _token_stream(tokenizer: TokenizerFile, texts: Iterable[str], options: VectorOptions) -> np.ndarray:
    """Return the ids of the texts in a row, with gaps between texts that no window reaches over."""
    gap = [_NO_TOKEN] * options.window
    parts: list[np.ndarray] = []
    left = options.max_tokens
    for batch in batches_of(texts, _TEXTS_AT_ONCE):
        for ids in tokenizer.encode_batch(batch):
            parts.append(np.array(ids[:left] + gap, dtype=np.int32))
            left -= min(left, len(ids))
        if not left:
            break
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


# Counting and factorising ---------------------------------------------------------------------------------------------


def _train_svd(
    stream: np.ndarray,
    kept: np.ndarray,
    counts: np.ndarray,
    dim: int,
    generator: torch.Generator,
    options: VectorOptions,
) -> Float[Tensor, "kept dim"]:
    order = np.lexsort((kept, -counts[kept]))
    contexts = np.sort(kept[order[: options.max_contexts]])
    rows, columns = (_numbering(ids, len(counts)) for ids in (kept, contexts))
    paired = windowed_counts(rows[stream], columns[stream], (len(kept), len(contexts)), options.window)
    information = positive_pmi(paired, options.smoothing)
    left, values = truncated_svd(information, min(dim, *information.shape), generator)
    vectors: Tensor = (left * values.sqrt()).float()
    return vectors


def _numbering(ids: np.ndarray, num_ids: int) -> np.ndarray:
    """Return the table id → place in ``ids``, one longer than the ids so that the mark of a gap finds no place."""
    table = np.full(num_ids + 1, _NO_TOKEN, dtype=np.int64)
    table[ids] = np.arange(len(ids))
    return table


def windowed_counts(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int], window: int) -> Tensor:
    """Return the sparse matrix of weighted counts of column j within ``window`` tokens of row i.

    A neighbour at distance d counts (w − d + 1) / w. Counts are summed over stretches of the text, so that beside the
    text only the different pairs are held.

    Args:
        rows: for each token of the text its row, −1 for none.
        columns: for each token of the text its column, −1 for none.
        shape: of the matrix.
        window: w.
    """
    keys, sums = np.zeros(0, dtype=np.int64), np.zeros(0)  # w times the counts: whole numbers, so sums are exact
    for start in range(0, len(rows), _CHUNK_TOKENS):
        poll()
        new_keys, new_sums = _pairs_from(rows, columns, start, shape[1], window)
        keys, sums = _summed(np.concatenate([keys, new_keys]), np.concatenate([sums, new_sums]))
    indices = torch.from_numpy(np.stack([keys // shape[1], keys % shape[1]]))
    # The constructor of a given layout; keys are sorted and different, so nothing is left to coalesce.
    return torch.sparse_coo_tensor(
        indices, torch.from_numpy(sums / window), shape, is_coalesced=True, check_invariants=False
    )


def _pairs_from(
    rows: np.ndarray, columns: np.ndarray, start: int, num_columns: int, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs whose earlier token lies in the stretch that begins at ``start``, in both directions."""
    keys, sums = [], []
    for distance in range(1, window + 1):
        stop = min(start + _CHUNK_TOKENS, len(rows) - distance)
        if stop <= start:
            break
        early, late = slice(start, stop), slice(start + distance, stop + distance)
        for one, other in ((early, late), (late, early)):
            paired = (rows[one] >= 0) & (columns[other] >= 0)
            found, times = np.unique(rows[one][paired] * num_columns + columns[other][paired], return_counts=True)
            keys.append(found)
            sums.append(times * (window - distance + 1))
    return _summed(np.concatenate(keys), np.concatenate(sums)) if keys else (np.zeros(0, np.int64), np.zeros(0))


def _summed(keys: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    different, place = np.unique(keys, return_inverse=True)
    return different, np.bincount(place, weights=sums, minlength=len(different))


def positive_pmi(counts: Tensor, smoothing: float = 1.0) -> Tensor:
    """Return the sparse matrix max(0, log [n(i,j) / n(i)] / [n(j)^α / Σ n(j)^α]) of a sparse matrix of counts n.

    α < 1 keeps rare neighbours from having the last word (Levy, Goldberg and Dagan, TACL 2015, eq. 3).

    Args:
        counts: sparse, coalesced.
        smoothing: α.
    """
    indices, values = counts.indices(), counts.values()
    by_row = torch.zeros(counts.shape[0], dtype=values.dtype).scatter_add_(0, indices[0], values)
    by_column = torch.zeros(counts.shape[1], dtype=values.dtype).scatter_add_(0, indices[1], values).pow(smoothing)
    chance = by_row[indices[0]] * by_column[indices[1]] / by_column.sum()
    information = (values / chance).log()
    held = information > 0
    return torch.sparse_coo_tensor(
        indices[:, held], information[held], counts.shape, is_coalesced=True, check_invariants=False
    )


def truncated_svd(
    matrix: Tensor, rank: int, generator: torch.Generator
) -> tuple[Float[Tensor, "rows rank"], Float[Tensor, " rank"]]:
    """Return U and the ``rank`` largest singular values of a sparse matrix M ≈ U Σ Vᵀ.

    Random directions are multiplied by (M Mᵀ)^q M, made orthonormal at every step, and M is decomposed within their
    span (Halko, Martinsson and Tropp, arXiv 0909.4061, alg. 4.4 and 5.1). torch.svd_lowrank does the same, but draws
    from the global generator. The sign of each column is fixed: its largest entry is positive.

    Args:
        matrix: sparse, fp64.
        rank: how many values.
        generator: draws the directions.
    """
    width = min(rank + _SVD_SPARE, *matrix.shape)
    turned = matrix.t()
    directions = torch.randn(matrix.shape[1], width, generator=generator, dtype=matrix.dtype)
    basis = torch.linalg.qr(torch.sparse.mm(matrix, directions)).Q
    for _ in range(_SVD_ITERATIONS):
        poll()
        back = torch.linalg.qr(torch.sparse.mm(turned, basis)).Q
        basis = torch.linalg.qr(torch.sparse.mm(matrix, back)).Q
    inner, values, _ = torch.linalg.svd(torch.sparse.mm(turned, basis).T, full_matrices=False)
    left = (basis @ inner)[:, :rank]
    largest = left.gather(0, left.abs().argmax(dim=0, keepdim=True))
    return left * torch.where(largest < 0, -1.0, 1.0).to(left.dtype), values[:rank]


# fastText -------------------------------------------------------------------------------------------------------------


def _train_fasttext(
    stream: np.ndarray,
    kept: np.ndarray,
    counts: np.ndarray,  # noqa: ARG001  (engines take the same)
    dim: int,
    generator: torch.Generator,
    options: VectorOptions,
) -> Float[Tensor, "kept dim"]:
    try:
        import fasttext
    except ImportError as error:
        raise MissingExtraError("engine: fasttext", "fasttext") from error
    if not hasattr(fasttext, "train_unsupervised"):  # the module of the package fasttext-predict cannot train
        raise MissingExtraError("engine: fasttext", "fasttext")
    # Tokens are named by their ids: no spelling can hold white space then, and n-grams of spellings are not used.
    names = [f"t{token_id}" for token_id in kept.tolist()]
    start = (2 * torch.rand(len(names) + 1, dim, generator=generator) - 1) / dim
    with tempfile.TemporaryDirectory() as folder:
        text, vectors = Path(folder) / "tokens.txt", Path(folder) / "start.vec"
        _write_stream(text, stream)
        _write_vectors(vectors, [*names, "</s>"], start)
        model = fasttext.train_unsupervised(
            str(text),
            model="cbow",
            dim=dim,
            ws=options.window,
            neg=10,
            epoch=options.epochs,
            minCount=options.min_count,
            minn=0,
            maxn=0,
            thread=1,
            pretrainedVectors=str(vectors),
            verbose=0,
        )
    return torch.from_numpy(np.stack([model.get_word_vector(name) for name in names]))


def _write_stream(path: Path, stream: np.ndarray) -> None:
    """Write one line per text; fastText reads at most a thousand tokens of a line and takes the rest as another."""
    with path.open("w", encoding="utf-8") as file:
        for token_ids in np.split(stream, np.flatnonzero(stream == _NO_TOKEN)):
            # Every part but the first begins with the gap that it was split at.
            line = token_ids[token_ids >= 0].tolist()
            if line:
                file.write(" ".join(f"t{token_id}" for token_id in line) + "\n")


def _write_vectors(path: Path, names: Sequence[str], matrix: Float[Tensor, "words dim"]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{len(names)} {matrix.shape[1]}\n")
        for name, row in zip(names, matrix.tolist(), strict=True):
            file.write(name + " " + " ".join(f"{value:.9g}" for value in row) + "\n")
