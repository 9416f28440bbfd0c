"""The embeddings room: what the rows of new tokens start from."""

from lingraft.embeddings.calibrate import (
    NormReport,
    NormSummary,
    calibrate,
    ids_in_scripts,
    norm_report,
    refuse_calibration,
    target_norm,
)
from lingraft.embeddings.context import Embeddings, InitContext, Origin, Rows, fill_rows, init_methods
from lingraft.embeddings.donor import Donor, open_donor
from lingraft.embeddings.methods import (
    align,
    focus,
    gaussian,
    linear_map,
    mean,
    normal_per_dimension,
    omp,
    random_normal,
    similarity,
    subword_mean,
    token_distillation,
    wechsel,
    zero,
)
from lingraft.embeddings.own_vectors import VectorOptions, train_vectors
from lingraft.embeddings.vectors import Vectors, cosine_neighbours, read_vectors

__all__ = [
    "Donor",
    "Embeddings",
    "InitContext",
    "NormReport",
    "NormSummary",
    "Origin",
    "Rows",
    "VectorOptions",
    "Vectors",
    "align",
    "calibrate",
    "cosine_neighbours",
    "fill_rows",
    "focus",
    "gaussian",
    "ids_in_scripts",
    "init_methods",
    "linear_map",
    "mean",
    "norm_report",
    "normal_per_dimension",
    "omp",
    "open_donor",
    "random_normal",
    "read_vectors",
    "refuse_calibration",
    "similarity",
    "subword_mean",
    "target_norm",
    "token_distillation",
    "train_vectors",
    "wechsel",
    "zero",
]
