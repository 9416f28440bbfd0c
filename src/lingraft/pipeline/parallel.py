"""Parallel text in a run: its documents, and which language its tokens are of."""

from pathlib import Path

from lingraft.corpus import find_files
from lingraft.corpus.pairing import count_sides, read_sides, write_pairs
from lingraft.recipe import Recipe
from lingraft.run import Run
from lingraft.vocabulary import TokenizerFile

__all__ = ["language_shares", "pair_corpus"]


def pair_corpus(recipe: Recipe, name: str, folder: Path, limit: int | None = None) -> Path:
    """Write the documents of a corpus of parallel text into ``folder``, and return their file.

    Args:
        recipe: the recipe.
        name: of the corpus, which has ``pairs``.
        folder: where to; it appears whole.
        limit: how many pairs to read; all by default.

    Raises:
        CorpusError: see :func:`lingraft.corpus.pairing.write_pairs`.
    """
    corpus = recipe.corpora[name]
    assert corpus.pairs is not None
    pairs, where = corpus.pairs, f"corpora.{name}"
    return write_pairs(
        find_files(corpus.paths, f"{where}.path"),
        folder,
        languages=pairs.languages,
        fields=pairs.fields,
        direction=pairs.direction,
        separator=pairs.separator,
        seed=recipe.seed,
        where=where,
        limit=limit,
    )


def language_shares(run: Run, recipe: Recipe, tokenizer: TokenizerFile) -> dict[str, dict[str, float]]:
    """Return corpus → language → share of its tokens: one language has all of them, but in parallel text both count."""
    shares = {name: {recipe.language_of(name): 1.0} for name in recipe.single_language_corpora()}
    for name in recipe.corpora.keys() - shares.keys():
        shares[name] = count_sides(read_sides(run.path("pairs", name, "pairs.jsonl")), tokenizer.encode_batch)
    return shares
