"""The error tree, and what its messages offer."""

import pytest

from lingraft import errors
from lingraft.errors import LingraftError, MissingExtraError, nearest


def test_every_error_is_exported_drawn_and_under_one_root() -> None:
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)}
    assert set(errors.__all__) == {*classes, "nearest"}
    assert all(issubclass(c, LingraftError) and c.__doc__ for c in classes.values())
    assert all(name in (errors.__doc__ or "") for name in classes)


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [("stagse", ["stages", "seed"], ", did you mean 'stages'?"), ("xyz", ["stages"], ""), ("a", [], "")],
)
def test_nearest_offers_a_close_name_only(name: str, known: list[str], hint: str) -> None:
    assert nearest(name, known) == hint


def test_a_missing_extra_is_a_pip_line() -> None:
    assert "pip install 'lingraft[parquet]'" in str(MissingExtraError("reading parquet files", "parquet"))
