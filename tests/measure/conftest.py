"""A tiny model to ask, with ten rows that no token owns."""

import pytest
import torch

from lingraft.model.base import load_model

# Two threads on a model this small only wait for each other, and for everything else on the machine.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model(tied_folder):
    """The tied model, its weights ten times as large, so that its logits say something."""
    loaded = load_model(tied_folder)
    with torch.no_grad():
        loaded.get_input_embeddings().weight.mul_(10)
    return loaded
