"""Parallel text in a recipe: what is translated into what, and how the two stand in a document."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lingraft.quantities import LanguageCode
from lingraft.recipe_part import Part, as_tuple

__all__ = ["Pairs"]

_NonEmpty = Annotated[str, Field(min_length=1)]


class Pairs(Part):
    """Parallel text: every document is a text and its translation, one behind the other.

    With ``fields`` the two are fields of one row; without, ``path`` lists two text files, line for line translations of
    each other, the first of them in the first of ``languages``. ``direction`` says which stands first: that of the
    first of ``languages`` (``forward``), that of the second (``backward``), or either in half of the documents, decided
    by a hash of the pair (``both``).
    """

    languages: tuple[LanguageCode, LanguageCode]
    fields: tuple[_NonEmpty, _NonEmpty] | None = None
    direction: Literal["both", "forward", "backward"] = "both"
    separator: _NonEmpty = "\n"

    _tuples = field_validator("languages", "fields", mode="before")(as_tuple)

    @model_validator(mode="after")
    def _differ(self) -> "Pairs":
        if self.languages[0] == self.languages[1]:
            raise ValueError(f"both languages are {self.languages[0]!r}")
        if self.fields is not None and self.fields[0] == self.fields[1]:
            raise ValueError(f"both fields are {self.fields[0]!r}")
        return self

    @property
    def label(self) -> str:
        """The two languages as one word, as in ``eu+en``."""
        return "+".join(self.languages)

    def options(self) -> dict[str, Any]:
        """Return the options as plain values."""
        return self.model_dump(mode="json")
