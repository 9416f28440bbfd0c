"""From the words of a stage to what runs beside its optimiser."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lingraft.corpus.loader import TokenSource
from lingraft.errors import CorpusError
from lingraft.pipeline.settings import average_options
from lingraft.polling import poll
from lingraft.recipe import Recipe, Stage
from lingraft.run import hash_file, publish_folder
from lingraft.training.averaging import averages
from lingraft.training.companion import Companion, MakeCompanion
from lingraft.training.guards import SourceText, bind_guard

__all__ = ["SourceReader", "average_makers", "guard_makers"]


def average_makers(stage: Stage) -> tuple[MakeCompanion, ...]:
    """Return what makes the average of a stage; nothing where there is none, or only its control."""
    if stage.ema is None or stage.ema.kind == "lr_matched":
        return ()
    average, options = averages.get(stage.ema.kind, "ema.kind").function, average_options(stage)
    return (lambda start: average(start.parameters, **options),)


def guard_makers(recipe: Recipe, index: int, source: SourceText) -> tuple[MakeCompanion, ...]:
    """Return what makes the guards of a stage, in the recipe's order.

    Raises:
        RecipeError: a name, an option or a value cannot be used.
    """

    def maker(make: Callable[..., Companion]) -> MakeCompanion:
        return lambda start: make(start, source)

    return tuple(
        maker(bind_guard(choice.name, choice.options, f"stages.{index}.guards.{number}"))
        for number, choice in enumerate(recipe.stages[index].guards)
    )


@dataclass(frozen=True)
class SourceReader:
    """Source text of a run for guards.

    Attributes:
        stores: source corpora by name.
        length: inputs per sequence.
        folder: where to keep what was computed from the text.
        key: changes with everything that this depends on.
        device: where sequences are wanted.
    """

    stores: Mapping[str, TokenSource]
    length: int
    folder: Path
    key: str
    device: torch.device

    def text(self) -> SourceText:
        """Return the text as guards take it."""
        return SourceText(self.sequences, self.kept)

    def sequences(self, tokens: int) -> list[Tensor]:
        """Return about so many tokens, spread evenly over each source corpus, as much of one as of the other.

        Raises:
            CorpusError: no source corpus holds a whole sequence.
        """
        wanted = -(-tokens // (self.length * len(self.stores)))
        found = []
        for store in self.stores.values():
            there = max(0, (len(store.tokens) - 1) // self.length)
            number = min(wanted, there)
            for n in range(number):
                begin = n * there // number * self.length
                piece = store.tokens[begin : begin + self.length + 1].astype("int64")
                found.append(torch.from_numpy(piece).to(self.device))
        if not found:
            raise CorpusError(f"guards: {', '.join(self.stores)} hold less than one sequence of {self.length} tokens")
        return found

    def kept(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return what ``make`` gives, or gave before the stage was interrupted; a damaged file is made anew."""
        folder = self.folder / f"{name}-{self.key}"
        tensors, digest = folder / "made.safetensors", folder / "made.sha256"

        def fill(to: Path) -> None:
            made = {part: tensor.detach().cpu().contiguous() for part, tensor in make().items()}
            save_file(made, to / tensors.name)
            (to / digest.name).write_text(hash_file(to / tensors.name, poll), encoding="utf-8")

        sound = tensors.is_file() and digest.is_file() and digest.read_bytes() == hash_file(tensors, poll).encode()
        if not sound:
            publish_folder(folder, fill)
        return load_file(tensors)
