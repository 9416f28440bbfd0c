"""From the words of a stage to what runs beside its optimiser."""

from lingraft.pipeline.settings import average_options
from lingraft.recipe import Stage
from lingraft.training.averaging import averages
from lingraft.training.companion import MakeCompanion

__all__ = ["average_makers"]


def average_makers(stage: Stage) -> tuple[MakeCompanion, ...]:
    """Return what makes the average of a stage; nothing where there is none, or only its control."""
    if stage.ema is None or stage.ema.kind == "lr_matched":
        return ()
    average, options = averages.get(stage.ema.kind, "ema.kind").function, average_options(stage)
    return (lambda start: average(start.parameters, **options),)
