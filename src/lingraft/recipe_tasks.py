"""What a recipe says about downstream tasks."""

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from lingraft.quantities import LanguageCode
from lingraft.recipe_part import Name, NonEmpty, Part, as_tuple

__all__ = ["DownstreamTask"]


class DownstreamTask(Part):
    """A task of lm-eval, or a set of them; a bare name is enough.

    ``name`` is a task, group or tag that lm-eval brings, with data from a hub, or one that a YAML file in ``folder``
    states, with its data beside it; or ``set:eu``, ``set:ar``, ``set:hi``, ``set:id``, ``set:en``: the tasks that a
    language is judged by by default. ``shots`` are demonstrations, chosen for each item by a hash; the task's own
    number if not said. ``prompt_language`` picks one of the prompts that a task's file holds, and otherwise states what
    its prompt is written in; ``labels`` gives the options other names, ``prompt`` (a Jinja template) and
    ``description`` other words around an item. The same task in two prompts gets two entries with a ``label`` each.
    """

    name: NonEmpty
    label: Name | None = None
    folder: NonEmpty | None = None
    shots: Annotated[int, Field(ge=0)] | None = None
    language: LanguageCode | None = None
    prompt_language: LanguageCode | None = None
    labels: tuple[NonEmpty, ...] = ()
    prompt: NonEmpty | None = None
    description: str | None = None
    items: Annotated[int, Field(ge=1)] | None = None
    cluster: NonEmpty | None = None

    _tuples = field_validator("labels", mode="before")(as_tuple)

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _sets_are_sets(self) -> "DownstreamTask":
        if self.name.startswith("set:"):
            for field in self.model_fields_set - {"name", "folder", "items"}:
                if getattr(self, field) not in (None, ()):
                    raise ValueError(f"{field} is each task's own; name the tasks of {self.name} one by one to set it")
        return self
