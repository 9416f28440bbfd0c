"""What a recipe says about watching for forgetting: drift from the base, an alarm, and what the model writes."""

from typing import Annotated

from pydantic import Field

from lingraft.recipe_part import Part

__all__ = ["Drift"]


class Drift(Part):
    """How far the model's function and the kind of its weights' change are looked at: on the base and at stage ends.

    ``tokens`` of held-out source text, and as many of random copies, give the divergence of predictions from the base's
    (on source text) and the CKA of hidden states (on both); 0 leaves both out, and a thousand are the least for a
    number to be relied on. ``spectral_layers`` are layers whose matrices' changes are taken apart: first, last, and
    evenly between; 0 leaves it out.
    """

    tokens: Annotated[int, Field(ge=0)] = 1024
    spectral_layers: Annotated[int, Field(ge=0)] = 3
