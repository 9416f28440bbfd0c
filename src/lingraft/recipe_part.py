"""What every part of a recipe is: frozen, strict, and closed to keys that it does not know."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from lingraft.errors import nearest

__all__ = ["Choice", "Name", "NonEmpty", "Part", "as_tuple"]

NonEmpty = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Part(BaseModel):
    """A frozen part of the recipe that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    known = ", ".join(cls.model_fields)
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key {key}{hint} (known: {known})",
                        {"key": repr(key), "hint": nearest(str(key), cls.model_fields), "known": known, "tail": key},
                    )
        return data


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, as YAML has no tuples, and anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


class Choice(Part):
    """A registered name with its options, as in ``{name: random_copy, num_items: 16}``; a bare name is enough."""

    name: str
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if isinstance(data, dict) and "name" in data and "options" not in data:
            return {"name": data["name"], "options": {k: v for k, v in data.items() if k != "name"}}
        return data

    @property
    def label(self) -> str:
        """The name, with its options in brackets: ``omp(k=32)``."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}({options})" if options else self.name
