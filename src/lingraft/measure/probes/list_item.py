"""An item about a list: which of its members is it? And what rules that infer nothing would say."""

from collections import Counter
from dataclasses import dataclass

from lingraft.measure.answering import Question
from lingraft.measure.probes.templates import TEMPLATES

__all__ = ["ListItem", "baselines"]


@dataclass(frozen=True)
class ListItem:
    """An item.

    Attributes:
        shown: the demonstrations, each a list and its answer.
        members: the list that is asked about.
        answer: the right one of its members.
        prompt: the whole prompt, up to where the answer begins, if it is not to be made of the others by a template.
    """

    shown: tuple[tuple[tuple[str, ...], str], ...]
    members: tuple[str, ...]
    answer: str
    prompt: str | None = None

    def question(self, task: str, item: str, template: str) -> Question:
        """Return the item in the words of a template; the choices are the list's members, each once."""
        prompt = self.prompt
        if prompt is None:
            shown = [(", ".join(members), answer) for members, answer in self.shown]
            prompt = TEMPLATES[template](shown, ", ".join(self.members))
        choices = tuple(dict.fromkeys(f" {member}" for member in self.members))
        return Question(task, item, prompt, choices, f" {self.answer}")


def baselines(item: ListItem) -> dict[str, float]:
    """Return how right a rule would be that infers nothing: 1 or 0; ``element_picker``: by chance.

    ``first``, ``last`` and ``middle`` take the member there, ``repeat_last`` says the last demonstration's answer
    again, ``majority_place`` takes the member where most demonstrations have their answer, the first of such places.
    """
    places = Counter(members.index(answer) for members, answer in item.shown)
    most = max(sorted(places), key=places.__getitem__, default=0)
    said = {
        "first": item.members[0],
        "last": item.members[-1],
        "middle": item.members[(len(item.members) - 1) // 2],
        "repeat_last": item.shown[-1][1] if item.shown else "",
        "majority_place": item.members[min(most, len(item.members) - 1)],
    }
    return {name: float(word == item.answer) for name, word in said.items()} | {
        "element_picker": item.members.count(item.answer) / len(item.members)
    }
