"""Documents that say nearly the same as an earlier one: MinHash signatures by rensa, compared where a band agrees."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.characters import hash_ngrams
from lingraft.errors import MissingExtraError, RecipeError

__all__ = ["NearDuplicates", "NearIndex", "signatures"]

_SEED = 0


@dataclass(frozen=True)
class NearDuplicates:
    """When two documents are nearly the same.

    Attributes:
        similarity: the share of rows of words that they have in common (Jaccard), estimated.
        row_words: words in a row; a document of fewer words is one row.
        num_hashes: hashes in a signature; the estimate's standard error is at most ½/√num_hashes.
        num_bands: parts of a signature; documents are compared when one of them is equal in both. Pairs of a similarity
            s are compared with probability 1 − (1 − s^(num_hashes/num_bands))^num_bands.
    """

    similarity: float = 0.8
    row_words: int = 5
    num_hashes: int = 128
    num_bands: int = 16

    def refuse_uneven(self, where: str) -> None:
        """Raise RecipeError where the bands do not divide the hashes; ``where`` is the recipe path."""
        if self.num_hashes % self.num_bands:
            raise RecipeError(
                f"{where}.num_bands: {self.num_hashes} hashes cannot be cut into {self.num_bands} equal bands"
            )


def signatures(texts: list[str], options: NearDuplicates) -> NDArray[np.uint32]:
    """Return the MinHash signature of each text, ``(texts, num_hashes)``; of a text without words, zeros.

    The rows are those of :func:`~lingraft.corpus.characters.hash_ngrams`: words of any script, single characters where
    a script writes no spaces, and a short text whole. So unrelated short texts have different rows, and 今天下雨了 and
    猫在睡觉 have none in common. MinHash: https://doi.org/10.1109/SEQUEN.1997.666900;
    how rensa makes it fast: arXiv 1704.04370.

    Raises:
        MissingExtraError: rensa is not installed.
    """
    rensa = _rensa()
    rows = [hash_ngrams(text, options.row_words, is_short_kept=True) for text in texts]
    if not rows:
        return np.zeros((0, options.num_hashes), dtype=np.uint32)
    ends = np.cumsum([0, *map(len, rows)]).astype(np.uint64)
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(rows), ends, options.num_hashes, _SEED)
    made = np.array(matrix.to_rows(), dtype=np.uint32)
    made[np.diff(ends.astype(np.int64)) == 0] = 0
    return made


def _rensa() -> Any:
    try:
        import rensa
    except ImportError as error:
        raise MissingExtraError("finding near-duplicates", "dedup") from error
    return rensa


class NearIndex:
    """The signatures of the documents kept so far.

    A document is a repetition when the estimated similarity to one of them reaches the threshold; else it is kept, and
    later ones are compared with it too. The outcome depends on the order of the documents and on nothing else.
    Memory: 4 bytes a hash and about 100 a band for each kept document, 2 kB by default.
    """

    def __init__(self, options: NearDuplicates) -> None:
        self.options = options
        self._kept = np.zeros((1024, options.num_hashes), dtype=np.uint32)
        self._count = 0
        self._bands: list[dict[int, list[int] | int]] = [{} for _ in range(options.num_bands)]

    def is_repeated(self, signature: NDArray[np.uint32]) -> bool:
        """Return whether an earlier document is nearly this one; if not, this one is taken in."""
        if not signature.any():
            return False
        keys = [hash(band.tobytes()) for band in np.split(signature, self.options.num_bands)]
        candidates = sorted({place for keyed in zip(self._bands, keys, strict=True) for place in _places(*keyed)})
        if candidates:
            similarity = (self._kept[candidates] == signature).mean(axis=1)
            if similarity.max() >= self.options.similarity:
                return True
        self._take_in(signature, keys)
        return False

    def _take_in(self, signature: NDArray[np.uint32], keys: list[int]) -> None:
        if self._count == len(self._kept):
            self._kept = np.concatenate([self._kept, np.zeros_like(self._kept)])
        self._kept[self._count] = signature
        for band, key in zip(self._bands, keys, strict=True):
            held = band.setdefault(key, self._count)
            if isinstance(held, list):
                held.append(self._count)
            elif held != self._count:
                band[key] = [held, self._count]
        self._count += 1


def _places(band: dict[int, list[int] | int], key: int) -> Iterator[int]:
    held = band.get(key)
    if isinstance(held, list):
        yield from held
    elif held is not None:
        yield held
