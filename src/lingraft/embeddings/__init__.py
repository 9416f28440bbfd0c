"""The embeddings room: what the rows of new tokens start from."""

from lingraft.embeddings.context import Embeddings, InitContext, Origin, fill_rows, init_methods
from lingraft.embeddings.methods import gaussian, mean, subword_mean

__all__ = ["Embeddings", "InitContext", "Origin", "fill_rows", "gaussian", "init_methods", "mean", "subword_mean"]
