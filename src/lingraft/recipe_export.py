"""What a recipe says about the model folder that is published."""

from typing import Literal

from lingraft.recipe_part import NonEmpty, Part

__all__ = ["Export"]


class Export(Part):
    """What the published folder says of itself; none of it changes a weight, so it may change in a finished run.

    ``license`` is the licence that whoever publishes the model has chosen; without one the card says ``unknown``, and
    lists what base and corpora state. ``base_license`` is for a base that does not state its own.
    ``tokenizer_class`` is what tokenizer_config.json names: ``auto`` puts ``PreTrainedTokenizerFast``, which every
    version of transformers knows, where the base names a class that only version 5 knows.
    """

    license: NonEmpty | None = None
    base_license: NonEmpty | None = None
    tokenizer_class: Literal["auto", "keep", "PreTrainedTokenizerFast"] = "auto"
