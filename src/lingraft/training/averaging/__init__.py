"""Averages of weights over the steps of a stage."""

from lingraft.training.averaging.live import LiveEma

__all__ = ["LiveEma"]
