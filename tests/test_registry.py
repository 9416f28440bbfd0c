"""Names and what stands behind them."""

from collections.abc import Callable

import pytest

from lingraft.errors import RecipeError
from lingraft.registry import Registry


@pytest.fixture
def shapes() -> Registry[Callable[..., float]]:
    registry: Registry[Callable[..., float]] = Registry("shape")

    @registry.register("square", reference="Euclid", flat=True)
    def square(size: float, *, times: int, offset: float = 0.0) -> float:
        """Return the area.

        And more.
        """
        return times * size * size + offset

    return registry


def test_a_registered_function_is_found_with_its_marks_and_options(shapes) -> None:
    entry = shapes.get("square", "here")
    assert (entry.name, entry.summary, entry.reference, entry.marks) == (
        "square",
        "Return the area.",
        "Euclid",
        {"flat": True},
    )
    assert list(entry.options()) == ["times", "offset"]
    assert entry.bind({"times": 2}, "here")(3.0) == 18.0


def test_entries_come_in_the_order_of_names(shapes) -> None:
    shapes.register("circle", reference="r")(lambda size: size)
    assert [entry.name for entry in shapes] == ["circle", "square"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tims": 2}, "here.tims: 'square' has no such option, did you mean 'times'? (options: times, offset)"),
        ({}, "here: 'square' needs times"),
    ],
)
def test_unknown_and_missing_options_name_the_path(shapes, options, message) -> None:
    with pytest.raises(RecipeError) as error:
        shapes.get("square", "here").bind(options, "here")
    assert message in str(error.value)


def test_an_unknown_name_offers_the_nearest(shapes) -> None:
    with pytest.raises(RecipeError, match=r"here: unknown shape 'sqare', did you mean 'square'\? \(known: square"):
        shapes.get("sqare", "here")


def test_two_modules_cannot_share_a_name(shapes) -> None:
    with pytest.raises(RecipeError, match="two shapes are named 'square'"):
        shapes.register("square", reference="r")(max)


def test_a_users_function_is_reached_by_module_and_name(shapes) -> None:
    assert shapes.get("math:sqrt", "here").function(9) == 3


@pytest.mark.parametrize("name", ["no_such_module:f", "math:no_such", ":f", "math:pi", "math:"])
def test_what_cannot_be_imported_or_called_is_refused(shapes, name: str) -> None:
    with pytest.raises(RecipeError, match="here: "):
        shapes.get(name, "here")
