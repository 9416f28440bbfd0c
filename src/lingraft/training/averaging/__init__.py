"""Averages of weights over the steps of a stage: one that replaces them, and ones that are kept beside them."""

from lingraft.training.averaging.average import averages
from lingraft.training.averaging.live import LiveEma
from lingraft.training.averaging.lookahead import Lookahead
from lingraft.training.averaging.shadow import ShadowEma
from lingraft.training.averaging.to_start import ToStart
from lingraft.training.averaging.uniform import UniformAverage

__all__ = ["LiveEma", "Lookahead", "ShadowEma", "ToStart", "UniformAverage", "averages"]
