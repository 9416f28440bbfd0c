"""Static word vectors: read from the usual files, and compared by cosine."""

import gzip
import zipfile
import zlib
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from lingraft.errors import ModelError, RecipeError
from lingraft.polling import poll

__all__ = ["Vectors", "combine_rows", "cosine_neighbours", "read_vectors"]

_NEIGHBOUR_ROWS = 512


@dataclass(frozen=True)
class Vectors:
    """Words and one vector for each.

    Attributes:
        words: word → row of the matrix.
        matrix: the vectors, fp32.
    """

    words: Mapping[str, int]
    matrix: Float[Tensor, "words dim"]

    def find(self, word: str) -> Float[Tensor, " dim"] | None:
        """Return the vector of a word, or None where it has none."""
        row = self.words.get(word)
        return None if row is None else self.matrix[row]


def read_vectors(path: Path | str, where: str = "vectors", wanted: Container[str] | None = None) -> Vectors:
    """Return the word vectors in a file.

    ``.npz`` holds the arrays ``words`` and ``vectors``. Everything else is the text form of word2vec and fastText: a
    word and its numbers a line, after a first line of two numbers that may be missing; ``.gz`` is unpacked. Where a
    word stands twice, its first vector counts.

    Args:
        path: the file.
        where: the recipe path that names it, for messages.
        wanted: keep only these words; a file may hold millions.

    Raises:
        RecipeError: there is no such file.
        ModelError: it holds something else, names the line, or holds nothing that is wanted.
    """
    file = Path(path)
    if not file.is_file():
        raise RecipeError(f"{where}: there is no file {str(path)!r} (.vec or .txt, also with .gz, or .npz)")
    found = _read_npz(file, wanted) if file.suffix == ".npz" else _read_text(file, wanted)
    if not found.words:
        raise ModelError(f"{file}: holds no vectors{'' if wanted is None else ' for any of the words that are needed'}")
    if not torch.isfinite(found.matrix).all():
        raise ModelError(f"{file}: some of its numbers are not finite")
    return found


def _read_npz(path: Path, wanted: Container[str] | None) -> Vectors:
    try:
        with np.load(path, allow_pickle=False) as stored:
            words, matrix = [str(word) for word in stored["words"]], np.asarray(stored["vectors"], dtype=np.float32)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: no .npz file with the arrays 'words' and 'vectors': {error}") from error
    if matrix.ndim != 2 or len(words) != len(matrix):
        raise ModelError(f"{path}: {len(words)} words, but vectors of shape {matrix.shape}; one row a word is needed")
    first: dict[str, int] = {}
    for row, word in enumerate(words):
        if wanted is None or word in wanted:
            first.setdefault(word, row)
    kept = dict(zip(first, range(len(first)), strict=True))
    return Vectors(kept, torch.from_numpy(matrix[list(first.values())]))


def _read_text(path: Path, wanted: Container[str] | None) -> Vectors:
    words: dict[str, int] = {}
    numbers = array("f")
    width = None
    # A word may be any bytes; a vector that nobody can ask for by name does no harm.
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
            for number, word, values in _split_lines(lines):
                width = width or len(values)
                if not values or len(values) != width:
                    raise ModelError(f"{path}:{number}: {len(values)} numbers after the word, {width} are expected")
                if word in words or not (wanted is None or word in wanted):
                    continue
                words[word] = len(words)
                numbers.extend(map(float, values))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ModelError(f"{path}: not word vectors in text form: {error}") from error
    return Vectors(words, torch.from_numpy(np.array(numbers, dtype=np.float32)).reshape(len(words), width or 0))


def _split_lines(lines: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line number, word and numbers as text; the first line may state how many words and numbers follow."""
    width = None
    for number, line in enumerate(lines, start=1):
        poll()
        fields = line.rstrip().split(" ")
        if number == 1 and len(fields) == 2:
            width = int(fields[1])
            continue
        if width is None:
            width = len(fields) - 1
        # A word may hold spaces; the last fields are the numbers.
        word = " ".join(fields[: max(1, len(fields) - width)])
        yield number, word, fields[max(1, len(fields) - width) :]


def cosine_neighbours(
    queries: Float[Tensor, "queries dim"], keys: Float[Tensor, "keys dim"], k: int
) -> tuple[Float[Tensor, "queries k"], Int[Tensor, "queries k"]]:
    """Return, for each query, the cosines of its ``k`` nearest keys, largest first, and which keys they are.

    cos(q, v) = q·v / (‖q‖ ‖v‖), and 0 where one of them is zero. Queries are taken in blocks, so that the whole table
    of cosines never exists; where there are fewer than ``k`` keys, all of them are returned.
    """
    if k < 1 or not len(keys):
        raise ModelError(f"the {k} nearest of {len(keys)} vectors cannot be found; at least one of each is needed")
    if not len(queries):
        return queries.new_zeros(0, min(k, len(keys))), torch.zeros(0, min(k, len(keys)), dtype=torch.long)
    unit = torch.nn.functional.normalize(keys, dim=1).T.contiguous()
    normal = torch.nn.functional.normalize(queries, dim=1)
    blocks = (normal[start : start + _NEIGHBOUR_ROWS] for start in range(0, len(normal), _NEIGHBOUR_ROWS))
    best = [torch.topk(block @ unit, min(k, len(keys)), dim=1) for block in blocks]
    return torch.cat([b.values for b in best]), torch.cat([b.indices for b in best])


def combine_rows(
    rows: Float[Tensor, "old_vocab dim"], chosen: Int[Tensor, "new k"], weights: Float[Tensor, "new k"]
) -> Float[Tensor, "new dim"]:
    """Return Σⱼ weightsⱼ · rows[chosenⱼ] for each new token, without gathering all of the rows at once."""
    return embedding_bag(chosen, rows, mode="sum", per_sample_weights=weights.to(rows.dtype))
