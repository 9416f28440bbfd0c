"""What is asked for: a task, from where, with how many demonstrations, in which prompt."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["TaskOrder"]


@dataclass(frozen=True)
class TaskOrder:
    """One task, group or tag, and how it is asked.

    Attributes:
        name: as in lm-eval, or as in a YAML file of the folder.
        label: under which results are filed; ``name`` if empty.
        folder: of fetched files; None for lm-eval's own tasks, whose data come from a hub.
        shots: demonstrations; None for what the task says.
        language: the language that the task is about.
        prompt_language: the language of the words around an item; a task may hold prompts in several.
        labels: names of the options, in place of the task's.
        prompt: a Jinja template in place of the task's ``doc_to_text``.
        description: text in front of everything.
        items: at most so many, chosen by a hash; None for all.
        cluster: the field that items of the same passage share; None to look for one.
        code: whether Python functions that files of the folder name may be run.
    """

    name: str
    label: str = ""
    folder: Path | None = None
    shots: int | None = None
    language: str | None = None
    prompt_language: str | None = None
    labels: tuple[str, ...] = ()
    prompt: str | None = None
    description: str | None = None
    items: int | None = None
    cluster: str | None = None
    code: bool = False

    @property
    def filed_as(self) -> str:
        """The name in measurements: ``label``, else ``name``."""
        return self.label or self.name
