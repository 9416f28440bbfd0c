"""The embeddings room: what the rows of new tokens start from."""

from lingraft.embeddings.context import Embeddings, InitContext, Origin, fill_rows, init_methods
from lingraft.embeddings.methods import gaussian, mean, subword_mean
from lingraft.embeddings.vectors import Vectors, cosine_neighbours, read_vectors

__all__ = [
    "Embeddings",
    "InitContext",
    "Origin",
    "Vectors",
    "cosine_neighbours",
    "fill_rows",
    "gaussian",
    "init_methods",
    "mean",
    "read_vectors",
    "subword_mean",
]
