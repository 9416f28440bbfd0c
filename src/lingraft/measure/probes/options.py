"""What probes' options have in common: whole numbers, one or several."""

from typing import Any

from lingraft.errors import MeasurementError

__all__ = ["whole_number", "whole_numbers"]


def whole_number(value: Any, where: str, least: int) -> int:
    """Return a whole number.

    Raises:
        MeasurementError: it is none, or below ``least``.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise MeasurementError(f"{where}: a whole number of at least {least} is needed, not {value!r}")
    return value


def whole_numbers(value: Any, where: str, least: int) -> tuple[int, ...]:
    """Return one whole number or a list of them, ascending.

    Raises:
        MeasurementError: there is none, one stands there twice, or one is no whole number of at least ``least``.
    """
    listed = list(value) if isinstance(value, list | tuple) else [value]
    numbers = tuple(whole_number(one, where, least) for one in listed)
    if not numbers or len(set(numbers)) < len(numbers):
        raise MeasurementError(f"{where}: at least one number is needed, and none twice, not {value!r}")
    return tuple(sorted(numbers))
