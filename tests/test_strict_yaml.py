"""YAML without guesses."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import RecipeError
from lingraft.strict_yaml import dump_yaml, parse_value, parse_yaml, set_path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("NO", "NO"),
        ("yes", "yes"),
        ("off", "off"),
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("12:30", "12:30"),
        ("12:30:00", "12:30:00"),
        ("1_000", "1_000"),
        ("012", 12),
        ("0o14", 12),
        ("0x1F", 31),
        ("-3", -3),
        ("'3'", "3"),
        ('"true"', "true"),
        ("true", True),
        ("~", None),
        ("", None),
        ("2024-01-01", "2024-01-01"),
        (".nan", ".nan"),
        ("50M", "50M"),
        ("10%", "10%"),
        ("[no, 1]", ["no", 1]),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "key 'a' is given twice (first on line 1)"),
        ("a:\n  b: 1\n  b: 2\n", 3, "key 'b' is given twice"),
        ("a: &x 1\n", 1, "anchors and aliases"),
        ("a: &x [1]\nb: *x\n", 1, "anchors and aliases"),
        ("a: 1\nb: !!python/name:os.system x\n", 2, "tags such as"),
        ("a: !!str 1\n", 1, "tags such as"),
        ("a: 1\n? [b]\n: 2\n", 2, "a key must be plain text"),
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: \x07\n", 1, "not valid YAML"),
        ("a: 1\nb: " + "9" * 5000, 2, "b: a number of 5000 digits"),
        ('a: 1\nb: "x \\ud83d"\n', 2, "b: 'x \\ud83d' holds half of a character"),
        ('a: 1\n"\\ude00": 2\n', 2, "holds half of a character"),
        ("a: 1\nb: " + "[" * 3000, 2, "nested deeper than 32"),
        ("a: 1\nb: " + "[" * 32 + "]" * 32, 2, "nested deeper than 32"),
    ],
)
def test_what_is_refused_names_file_and_line(text: str, line: int, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        parse_yaml(text, "r.yaml")
    assert str(error.value).startswith(f"r.yaml:{line}: ")
    assert message in str(error.value)


def test_what_json_writes_as_two_escapes_is_one_character() -> None:
    """`lingraft init` writes paths as JSON does, and so do people's scripts."""
    assert parse_yaml(json.dumps({"data/📚": "𐌰 café"}), "r.yaml").value == {"data/📚": "𐌰 café"}


def test_every_path_knows_its_line() -> None:
    document = parse_yaml("a:\n  b:\n    - 1\n    - c: 2\n", "r.yaml")
    assert document.where(("a", "b", 1, "c")) == "r.yaml:4: a.b.1.c"
    assert document.where(("a", "b", 1, "new")) == "r.yaml:4: a.b.1.new"
    assert document.where(()) == "r.yaml:1"


def test_an_empty_document_is_nothing() -> None:
    assert parse_yaml("# only a remark\n", "r.yaml").value is None


def test_set_path_reaches_into_lists_and_makes_mappings() -> None:
    root: dict[str, Any] = {"stages": [{"mix": {"eu": 1.0}}, {}]}
    set_path(root, "stages.0.mix.eu", 0.8)
    set_path(root, "stages.1.lr.peak", 1e-4)
    assert root == {"stages": [{"mix": {"eu": 0.8}}, {"lr": {"peak": 1e-4}}]}


@pytest.mark.parametrize("path", ["stages.2.x", "stages.x", "stages.-1", "stages.²", "name.x", "name.x.y"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(RecipeError, match="--set "):
        set_path({"stages": [{}, {}], "name": "n"}, path, 1)


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(_plain)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    assert parse_yaml(dump_yaml(value), "dump").value == value


@pytest.mark.parametrize(
    "text", ["1e-4", "no", "0o17", "true", "~", "", "12:30", "a: b", "- a", "1_0", "!x", "&a", "x\ny ", "é"]
)
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    shared = [text]
    assert parse_yaml(dump_yaml({"a": text, "b": shared, "c": shared}), "dump").value == {
        "a": text,
        "b": [text],
        "c": [text],
    }
