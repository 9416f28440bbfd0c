"""A tiny model to ask, with ten rows that no token owns; and answerers whose answers are known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from lingraft.measure.answering import Question, Reply
from lingraft.measure.items import ItemStream
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


@dataclass
class Oracle:
    """Answers by a rule from the prompt's text alone, certain of it; a word that is no choice is not said at all."""

    rule: Callable[[str, tuple[str, ...]], str]

    def replies(self, groups: Sequence[Sequence[Question]]) -> list[list[Reply]]:
        return [[self._reply(question) for question in group] for group in groups]

    def _reply(self, question: Question) -> Reply:
        word = f" {self.rule(question.prompt, question.choices)}"
        scores = tuple(-0.1 if choice == word else -3.0 for choice in question.choices)
        said = word if word in question.choices else None
        return Reply(scores, said, float(said == question.answer))


@pytest.fixture
def oracle() -> type[Oracle]:
    """The class of models whose answers are known."""
    return Oracle


@pytest.fixture
def guesser() -> Oracle:
    """A model that says any of the choices, each as often as another, and the same whenever it is asked again."""

    def rule(prompt: str, choices: tuple[str, ...]) -> str:
        return choices[ItemStream("guess", prompt).below(len(choices))].strip()

    return Oracle(rule)
