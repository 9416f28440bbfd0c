"""Tokens, fractions, lengths, language codes."""

from fractions import Fraction as Exact

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from lingraft.quantities import (
    Fraction,
    LanguageCode,
    Length,
    format_duration,
    format_tokens,
    length_in_tokens,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("value", "tokens"),
    [("50M", 50_000_000), ("1.5B", 1_500_000_000), ("200k", 200_000), ("200K", 200_000), ("2T", 2 * 10**12),
     ("1_000", 1000), (" 7 ", 7), (100.0, 100), (1e9, 10**9), (0, 0), ("4.1M", 4_100_000), ("16.1k", 16_100)],
)  # fmt: skip
def test_tokens_are_written_in_several_ways(value, tokens: int) -> None:
    assert parse_tokens(value) == tokens


@settings(deadline=None)
@given(st.integers(0, 99_999), st.integers(0, 3), st.sampled_from("kMB"))
def test_decimal_tokens_are_exact(digits: int, places: int, suffix: str) -> None:
    size = {"k": 3, "M": 6, "B": 9}[suffix]
    text = f"{digits / 10**places:.{places}f}{suffix}"
    assert parse_tokens(text) == Exact(digits, 10**places) * 10**size


@pytest.mark.parametrize(
    "value",
    [True, -1, "-5", "1.5", 1.5, "5 million", "10%", None, [], float("inf"), float("nan"), "1e3", 1e18, "2000000T"],
)
def test_what_is_no_number_of_tokens_is_refused(value) -> None:
    with pytest.raises(ValueError, match="tokens"):
        parse_tokens(value)


@pytest.mark.parametrize(
    ("value", "share"), [("10%", 0.1), ("0%", 0), ("100 %", 1), ("3.3%", 0.033), (0.25, 0.25), (1, 1)]
)
def test_fractions(value, share: float) -> None:
    assert TypeAdapter(Fraction).validate_python(value) == pytest.approx(share, abs=1e-15)


@pytest.mark.parametrize("value", ["101%", 1.1, -0.1, True, "0.1", None])
def test_what_is_no_fraction_is_refused(value) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Fraction).validate_python(value)


@pytest.mark.parametrize(
    ("value", "tokens"), [("10%", 100), (0.1, 100), (1.0, 1000), (1, 1), ("5k", 5000), ("100%", 1000), (0, 0)]
)
def test_a_length_is_a_fraction_of_the_whole_or_tokens(value, tokens: int) -> None:
    assert length_in_tokens(TypeAdapter(Length).validate_python(value), 1000) == tokens


@pytest.mark.parametrize("value", [1.5, -0.5, True, "x"])
def test_what_is_no_length_is_refused(value) -> None:
    with pytest.raises(ValidationError, match="fraction such as 10% or a number of tokens"):
        TypeAdapter(Length).validate_python(value)


@pytest.mark.parametrize("code", ["eu", "no", "zh-Hant", "eng_Latn", "sr-Latn-RS"])
def test_language_codes(code: str) -> None:
    assert TypeAdapter(LanguageCode).validate_python(code) == code


def test_a_truth_value_is_no_language_and_the_message_says_why() -> None:
    with pytest.raises(ValidationError, match="truth value false \\(Norwegian is 'no'\\)"):
        TypeAdapter(LanguageCode).validate_python(False)


@pytest.mark.parametrize("code", ["EU", "e", "basque language", "", 3, None])
def test_other_things_are_no_language(code) -> None:
    with pytest.raises(ValidationError, match="language code such as"):
        TypeAdapter(LanguageCode).validate_python(code)


def test_tokens_are_shown_short() -> None:
    assert [format_tokens(n) for n in (999, 102_000, 1.5e9, 20_480)] == ["999", "102k", "1.5B", "20.5k"]


def test_durations_are_written_as_people_write_them() -> None:
    told = [format_duration(seconds) for seconds in (0.4, 119, 120, 750, 10_800, 200_000)]
    assert told == ["0 s", "119 s", "2.0 min", "12.5 min", "3.0 h", "2.3 days"]
