"""Names that a recipe may use for init methods, schedules and probes, and the functions behind them.

A registered function is one page: keyword-only arguments are the recipe's options, so an option is stated
once, in the signature. A name with a colon, ``my_package.module:function``, reaches a user's own function.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lingraft.errors import RecipeError, nearest

__all__ = ["Entry", "Registry"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """A registered function with its name, where its idea comes from, and free-form marks."""

    name: str
    function: Callable[..., Any]
    reference: str
    marks: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    def options(self) -> dict[str, inspect.Parameter]:
        """Return the keyword-only parameters, which are the options that a recipe may set."""
        parameters = inspect.signature(self.function).parameters
        return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}

    def bind(self, options: Mapping[str, Any], where: str) -> Callable[..., Any]:
        """Return the function with its options filled in.

        Raises:
            RecipeError: an option is unknown or a required one is missing; the message names the recipe
                path ``where``, the options that exist and the nearest of them.
        """
        known = self.options()
        for name in options:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise RecipeError(
                    f"{where}.{name}: {self.name!r} has no such option{nearest(name, known)} (options: {allowed})"
                )
        for name, value in options.items():
            self._refuse_other_types(name, value, known[name].default, where)
        missing = [n for n, p in known.items() if p.default is p.empty and n not in options]
        if missing:
            raise RecipeError(f"{where}: {self.name!r} needs {', '.join(missing)}")
        return functools.partial(self.function, **options)

    def _refuse_other_types(self, name: str, value: Any, default: Any, where: str) -> None:
        """Hold an option against the type of its default: an int where it is an int, a number where it is a float."""
        wanted = {bool: bool, int: int, float: int | float, str: str}.get(type(default))
        is_wrong = wanted is not None and (not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool))
        if is_wrong:
            raise RecipeError(
                f"{where}.{name}: {self.name!r} takes a value of type {type(default).__name__} here, not {value!r}"
            )


class Registry(Generic[F]):
    """Names of one kind ("init method", "mix schedule", …) and what stands behind them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in the order of their names."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.name))

    def register(self, name: str, *, reference: str, **marks: Any) -> Callable[[F], F]:
        """Return a decorator that files a function under ``name``; its ``reference`` is the paper or page."""

        def file_under(function: F) -> F:
            if name in self._entries and self._entries[name].function.__module__ != function.__module__:
                raise RecipeError(f"two {self.kind}s are named {name!r}")
            self._entries[name] = Entry(name, function, reference, marks)
            return function

        return file_under

    def get(self, name: str, where: str) -> Entry:
        """Return the entry for ``name``, which is a registered name or ``module:function``.

        Raises:
            RecipeError: nothing has that name; the message names the recipe path ``where`` and what exists.
        """
        if ":" in name:
            return self._from_module(name, where)
        if name not in self._entries:
            known = ", ".join(sorted(self._entries))
            hint = nearest(name, self._entries)
            raise RecipeError(f"{where}: unknown {self.kind} {name!r}{hint} (known: {known}; or module:function)")
        return self._entries[name]

    def _from_module(self, name: str, where: str) -> Entry:
        module_name, _, function_name = name.partition(":")
        try:
            function = getattr(importlib.import_module(module_name), function_name)
        except (ImportError, AttributeError, ValueError) as error:
            raise RecipeError(f"{where}: cannot import {self.kind} {name!r}: {error}") from error
        if not callable(function):
            raise RecipeError(f"{where}: {self.kind} {name!r} is no function but {function!r}")
        return Entry(name, function, "user code", getattr(function, "marks", {}))
