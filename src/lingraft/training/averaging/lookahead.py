"""Lookahead: the live average by another name and with the constants of its paper."""

from collections.abc import Mapping

from torch import nn

from lingraft.training.averaging.average import average
from lingraft.training.averaging.live import LiveEma

__all__ = ["Lookahead"]


@average("lookahead", reference="arXiv 1907.08610")
class Lookahead(LiveEma):
    """Fast weights run ahead for k steps, slow weights follow: φ ← φ + s · (θ_k − φ), and θ begins again at φ.

    This is the live average with α = 1 − s and η = k; the paper's s is 0.5 and its k is 5.

    Args:
        parameters: name → what trains, in fp32; φ is taken from them now.
        decay: α = 1 − s.
        every: k.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, decay: float = 0.5, every: int = 5) -> None:
        super().__init__(parameters, decay=decay, every=every)
