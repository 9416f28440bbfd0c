"""One file per init method."""

from lingraft.embeddings.methods.gaussian import gaussian
from lingraft.embeddings.methods.mean import mean
from lingraft.embeddings.methods.subword_mean import subword_mean

__all__ = ["gaussian", "mean", "subword_mean"]
