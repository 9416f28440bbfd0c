"""Source text for guards: random tokens, and a memory in place of a folder."""

import pytest
import torch
from torch import nn

from lingraft.model.base import Head
from lingraft.training.companion import StageStart
from lingraft.training.guards import SourceText


@pytest.fixture
def source() -> SourceText:
    """Four sequences of nine tokens; what is computed from them is computed once."""
    generator, memory = torch.Generator().manual_seed(3), {}
    sequences = list(torch.randint(0, 410, (4, 9), generator=generator))

    def kept(name, make):
        return memory.setdefault(name, None) or memory.update({name: make()}) or memory[name]

    return SourceText(lambda tokens: sequences[: max(1, tokens // 8)], kept)


@pytest.fixture
def bare_start():
    """Return a maker of starts that hold parameters and nothing else worth looking at."""
    head = Head(torch.zeros(1, 1), None, None, 1)
    return lambda parameters: StageStart(nn.Module(), head, parameters, 1)
