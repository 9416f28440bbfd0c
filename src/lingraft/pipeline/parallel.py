"""Parallel text in a run: its documents, and which language its tokens are of."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lingraft.corpus import Document, Preparation, Rejects, find_files, prepare_corpus
from lingraft.corpus.pairing import PAIRS, Pairing, count_sides, read_pairs, read_sides, write_pairs
from lingraft.corpus.prepare import Place
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.recipe import Recipe
from lingraft.run import Run, hash_file
from lingraft.vocabulary import TokenizerFile

__all__ = ["language_shares", "pair_corpus", "pair_files", "prepare_pairs"]


def pair_files(recipe: Recipe, name: str, place: Place) -> Sequence[Path]:
    """Return the files of a corpus of parallel text: with ``pairs.fields`` all, else two, in the recipe's order.

    The order says which file is of which language, so that a folder or a glob cannot name the two.

    Raises:
        CorpusError: there is a dataset among them; or not two files where two are needed, or both hold the same.
    """
    corpus, where = recipe.corpora[name], f"corpora.{name}.path"
    assert corpus.pairs is not None
    if place.datasets:
        raise CorpusError(f"{where}: pairs are read from files, not from a dataset ({place.datasets[0].label})")
    if corpus.pairs.fields:
        return place.sources.files
    found = [find_files([path], where) for path in corpus.paths]
    if [len(files) for files in found] != [1, 1]:
        listed = ", ".join(path.name for files in found for path in files)
        raise CorpusError(
            f"{where}: without pairs.fields it lists two files, one of each language in the order of pairs.languages; "
            f"here are {sum(map(len, found))} files by {len(found)} paths ({listed})"
        )
    if len(place.sources.files) != 2:
        raise CorpusError(f"{where}: {found[0][0].name} and {found[1][0].name} hold the same text, not its translation")
    return [found[0][0], found[1][0]]


def pair_corpus(
    recipe: Recipe, name: str, place: Place, preparation: Preparation, folder: Path, rejects: Rejects, limit: int | None
) -> Path:
    """Write the documents of a corpus of parallel text into ``folder``, and return their file.

    Args:
        recipe: the recipe.
        name: of the corpus, which has ``pairs``.
        place: where its files lie.
        preparation: what is done with it; here only how it is read.
        folder: where to; it appears whole.
        rejects: where bad pairs are counted.
        limit: how many pairs to keep; None for all.

    Raises:
        CorpusError: see :func:`pair_files` and :func:`lingraft.corpus.pairing.write_pairs`.
    """
    pairs = recipe.corpora[name].pairs
    assert pairs is not None
    pairing = Pairing(pairs.languages, pairs.fields, pairs.direction, pairs.separator, recipe.seed)
    files, where = pair_files(recipe, name, place), f"corpora.{name}"
    return write_pairs(files, folder, pairing, preparation.reading, rejects=rejects, where=where, limit=limit)


def prepare_pairs(
    recipe: Recipe, name: str, place: Place, preparation: Preparation, pairs: Path, folder: Path
) -> dict[str, Any]:
    """Prepare a corpus of parallel text; return what a run records of it, see ``prepare_corpus``, and ``pairs_sha256``.

    Bad pairs are counted in the data report as any bad lines are.

    Args:
        recipe: the recipe.
        name: of the corpus, which has ``pairs``.
        place: where its files lie.
        preparation: what is done with it.
        pairs: a folder for the pairs with their sides, from which tokens are counted by language.
        folder: what is made.

    Raises:
        CorpusError: see :func:`pair_corpus` and :func:`lingraft.corpus.prepare_corpus`.
    """

    def read(rejects: Rejects) -> Iterator[Document]:
        return read_pairs(pair_corpus(recipe, name, place, preparation, pairs, rejects, None), name)

    return prepare_corpus(name, folder, place, preparation, read) | {"pairs_sha256": hash_file(pairs / PAIRS, poll)}


def language_shares(run: Run, recipe: Recipe, tokenizer: TokenizerFile) -> dict[str, dict[str, float]]:
    """Return corpus → language → share of its tokens: one language has all of them, but in parallel text both count."""
    shares = {name: {recipe.language_of(name): 1.0} for name in recipe.single_language_corpora()}
    for name in recipe.corpora.keys() - shares.keys():
        shares[name] = count_sides(read_sides(run.path("pairs", name, PAIRS)), tokenizer.encode_batch)
    return shares
