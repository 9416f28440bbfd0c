"""One file per init method."""

from lingraft.embeddings.methods.align import align
from lingraft.embeddings.methods.focus import focus
from lingraft.embeddings.methods.gaussian import gaussian
from lingraft.embeddings.methods.linear_map import linear_map
from lingraft.embeddings.methods.mean import mean
from lingraft.embeddings.methods.normal_per_dimension import normal_per_dimension
from lingraft.embeddings.methods.omp import omp
from lingraft.embeddings.methods.random_normal import random_normal
from lingraft.embeddings.methods.similarity import similarity
from lingraft.embeddings.methods.subword_mean import subword_mean
from lingraft.embeddings.methods.token_distillation import token_distillation
from lingraft.embeddings.methods.wechsel import wechsel
from lingraft.embeddings.methods.zero import zero

__all__ = [
    "align",
    "focus",
    "gaussian",
    "linear_map",
    "mean",
    "normal_per_dimension",
    "omp",
    "random_normal",
    "similarity",
    "subword_mean",
    "token_distillation",
    "wechsel",
    "zero",
]
