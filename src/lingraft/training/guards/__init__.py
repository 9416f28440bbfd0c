"""Guards against forgetting: what a stage adds to gradients, or holds fast, for the sake of the source language."""

from lingraft.training.guards.ewc import Ewc, diagonal_fisher
from lingraft.training.guards.guard import SourceText, bind_guard, guards
from lingraft.training.guards.l2_start import L2Start
from lingraft.training.guards.source_shielded import SourceShielded, input_norms, shielded_columns

__all__ = [
    "Ewc",
    "L2Start",
    "SourceShielded",
    "SourceText",
    "bind_guard",
    "diagonal_fisher",
    "guards",
    "input_norms",
    "shielded_columns",
]
