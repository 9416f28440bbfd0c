"""Mixtures of old rows, by how near tokens lie in aligned word vectors of two languages."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.batching import batches_of
from lingraft.embeddings.context import InitContext, Rows, init_method
from lingraft.embeddings.methods.focus import FALLBACKS, fill_others
from lingraft.embeddings.vectors import Vectors, cosine_neighbours, read_vectors
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import TokenizerFile

__all__ = ["align_vectors", "dictionary_pairs", "read_dictionary", "token_vectors", "wechsel", "wechsel_rows"]

_WORDS_AT_ONCE = 4096


@init_method(
    "wechsel",
    reference="arXiv 2112.06598",
    needs=("source_vectors", "target_vectors", "dictionary"),
    choices={"fallback": FALLBACKS},
)
def wechsel(
    context: InitContext,
    *,
    source_vectors: str,
    target_vectors: str,
    dictionary: str,
    neighbours: int = 10,
    temperature: float = 0.1,
    max_words: int = 200_000,
    fallback: str = "normal",
) -> Rows:
    """Return, for each new token, a mixture of the old rows of the tokens that are nearest to it across languages.

    Source vectors are turned onto target vectors by the orthogonal map that fits the dictionary best
    (:func:`align_vectors`); tokens get vectors from words (:func:`token_vectors`); with N the ``neighbours`` old tokens
    nearest to t by cosine, row(t) = Σ_{o∈N} softmax(cos(t, o) / temperature) E[o] (WECHSEL, arXiv 2112.06598, sec. 3).
    A new token that is part of no word is on record as a fallback: as in the paper it is drawn from N(μ, σ) per
    dimension of the old rows, or with ``fallback`` ``subword_mean`` it is the mean of its pieces. Old rows are left
    alone; the published package makes all rows anew.

    Vectors come in text form, which has no n-grams, so this is the paper's case for word vectors without them. Such
    files are sorted by frequency and hold no counts: a word weighs 1 / its rank (Zipf's law). ``max_words`` of each
    file, the most frequent, are used.

    Raises:
        RecipeError: a file is missing, or an option below what makes sense.
        ModelError: files cannot be read, differ in width, or share too few words with the dictionary.
    """
    if neighbours < 1 or temperature <= 0 or max_words < 1:
        raise RecipeError(
            f"neighbours is {neighbours}, temperature {temperature} and max_words {max_words}; "
            "all must be above 0, the whole numbers at least 1"
        )
    source = _most_frequent(read_vectors(source_vectors, "source_vectors"), max_words)
    target = _most_frequent(read_vectors(target_vectors, "target_vectors"), max_words)
    if source.matrix.shape[1] != target.matrix.shape[1]:
        raise ModelError(
            f"source_vectors have {source.matrix.shape[1]} numbers a word, target_vectors {target.matrix.shape[1]}; "
            "they must have as many"
        )
    turn = align_vectors(*dictionary_pairs(read_dictionary(dictionary), source, target))
    old = token_vectors(context.expansion.old, source, _zipf(source)) @ turn
    new = token_vectors(context.expansion.new, target, _zipf(target))
    return _rows(context, new, old, neighbours, temperature, fallback)


def _rows(
    context: InitContext,
    new: Float[Tensor, "new_vocab width"],
    old: Float[Tensor, "old_vocab width"],
    neighbours: int,
    temperature: float,
    fallback: str,
) -> Rows:
    ids = [token.id for token in context.expansion.new_tokens]
    said_new, said_old = new.any(dim=1), old.any(dim=1).nonzero()[:, 0]
    if not len(said_old):
        raise ModelError("no word of source_vectors gives a vector to any old token")
    found = [place for place, token_id in enumerate(ids) if said_new[token_id]]
    rows = context.old[:0]
    if found:
        queries = new[[ids[place] for place in found]]
        rows = wechsel_rows(queries, old[said_old], context.old[said_old], neighbours, temperature)
    return fill_others(context, rows, found, "it is part of no word in target_vectors", fallback)


def wechsel_rows(
    queries: Float[Tensor, "new width"],
    keys: Float[Tensor, "shared width"],
    old: Float[Tensor, "shared dim"],
    neighbours: int = 10,
    temperature: float = 0.1,
) -> Float[Tensor, "new dim"]:
    """Return Σ softmax(cos / temperature) · old over the nearest keys: what WECHSEL makes of given vectors."""
    cosines, nearest = cosine_neighbours(queries, keys, neighbours)
    weights = torch.softmax(cosines / temperature, dim=1)
    return torch.stack([w @ old[ids] for w, ids in zip(weights, nearest, strict=True)])


def token_vectors(
    tokenizer: TokenizerFile, vectors: Vectors, weights: Float[Tensor, " words"]
) -> Float[Tensor, "vocab width"]:
    """Return a vector for each id: the weighted mean of the vectors of the words whose tokens it is among.

    v(t) = Σ f_w v_w / Σ f_w over the words w that hold t. Each word is cut twice, alone and behind a space, and counts
    for a token once for each of the two that hold it (WECHSEL, arXiv 2112.06598, sec. 3.1, for word vectors without
    n-grams; with n-grams the paper sums the vectors of a token's own n-grams). Zeros where no word holds the token.

    Args:
        tokenizer: cuts the words.
        vectors: of words.
        weights: f, one a row of the matrix.
    """
    sums = torch.zeros(tokenizer.num_ids, vectors.matrix.shape[1], dtype=torch.float64)
    total = torch.zeros(tokenizer.num_ids, dtype=torch.float64)
    for words in batches_of(vectors.words.items(), _WORDS_AT_ONCE):
        holding: dict[int, list[int]] = defaultdict(list)
        alone = tokenizer.encode_batch([word for word, _ in words])
        spaced = tokenizer.encode_batch([f" {word}" for word, _ in words])
        for (_, row), *cuts in zip(words, alone, spaced, strict=True):
            for token_id in (token_id for cut in cuts for token_id in set(cut)):
                holding[token_id].append(row)
        for token_id, rows in holding.items():
            weight = weights[rows].double()
            sums[token_id] += weight @ vectors.matrix[rows].double()
            total[token_id] += weight.sum()
    means = sums / total.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    return means.to(vectors.matrix.dtype)


def align_vectors(
    source: Float[Tensor, "pairs width"], target: Float[Tensor, "pairs width"]
) -> Float[Tensor, "width width"]:
    """Return the orthogonal W for which ‖source W − target‖ is smallest.

    W = U Vᵀ with U Σ Vᵀ = sourceᵀ target (Schönemann, Psychometrika 1966).

    Raises:
        ModelError: there are fewer different pairs than dimensions, so that many W fit as well.
    """
    num_pairs, width = len(torch.unique(torch.cat([source, target], dim=1), dim=0)), source.shape[1]
    if num_pairs < width:
        raise ModelError(
            f"the dictionary and both files of vectors share {num_pairs} word pairs; vectors of {width} numbers need "
            f"at least {width} to be aligned"
        )
    left, _, right = torch.linalg.svd(source.double().T @ target.double())
    turn: Tensor = left @ right
    return turn.to(source.dtype)


def dictionary_pairs(
    pairs: Sequence[tuple[str, str]], source: Vectors, target: Vectors
) -> tuple[Float[Tensor, "pairs width"], Float[Tensor, "pairs width"]]:
    """Return the vectors of both words of each pair that both files know.

    Each word is tried as it is, in lower case and in title case, as the paper's code does; so a pair in lower case
    weighs more than one that is written in another case only.
    """
    rows = [
        (source.words[one], target.words[other])
        for source_word, target_word in pairs
        for one in (source_word, source_word.lower(), source_word.title())
        for other in (target_word, target_word.lower(), target_word.title())
        if one in source.words and other in target.words
    ]
    ones, others = torch.tensor(rows, dtype=torch.long).reshape(-1, 2).unbind(1)
    return source.matrix[ones], target.matrix[others]


def read_dictionary(path: str) -> list[tuple[str, str]]:
    """Return the word pairs in a file: one a line, the source word first, a tab or else white space between.

    Raises:
        RecipeError: there is no such file.
        ModelError: a line is no pair; the message names it.
    """
    if not Path(path).is_file():
        raise RecipeError(f"dictionary: there is no file {path!r} (one pair of words a line, the source word first)")
    pairs = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        words = [word.strip() for word in (line.split("\t") if "\t" in line else line.split())]
        if not any(words):
            continue
        if len(words) != 2 or not all(words):
            raise ModelError(f"{path}:{number}: {line!r} is no pair of words (source word, tab, target word)")
        pairs.append((words[0], words[1]))
    return pairs


def _most_frequent(vectors: Vectors, num_words: int) -> Vectors:
    if len(vectors.words) <= num_words:
        return vectors
    words = {word: row for word, row in vectors.words.items() if row < num_words}
    return Vectors(words, vectors.matrix[:num_words])


def _zipf(vectors: Vectors) -> Float[Tensor, " words"]:
    return 1 / torch.arange(1, len(vectors.matrix) + 1, dtype=torch.float32)
