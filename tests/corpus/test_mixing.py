"""Schedules: what mixture holds when."""

import pytest

from lingraft.corpus.mixing import Schedule, constant, linear, make_schedule, piecewise, step, temperature
from lingraft.errors import RecipeError

A, B = {"a": 1.0}, {"b": 1.0}


def test_constant_is_always_the_same() -> None:
    assert constant(0.5, mix=A) == A
    assert make_schedule("constant", {"mix": A}, "mix").knots == ()


@pytest.mark.parametrize("word", ["at", "until"])
def test_step_switches_at_its_fraction(word: str) -> None:
    found = [step(f, **{word: 0.1}, before=A, after=B) for f in (0.0, 0.0999, 0.1, 0.9)]
    assert found == [A, A, B, B]
    assert make_schedule("step", {word: 0.1, "before": A, "after": B}, "mix").knots == (0.1,)


def test_until_warmup_end_is_where_the_warm_up_ends() -> None:
    """The paper's curriculum: the mix is bilingual while the rate rises."""
    options = {"until": "warmup_end", "before": A, "after": B}
    schedule = make_schedule("step", options, "mix", moments={"warmup_end": 0.25})
    assert [schedule(f) for f in (0.0, 0.24, 0.25, 0.5)] == [A, A, B, B]


def test_linear_by_hand() -> None:
    found = [linear(f, before=A, after={"a": 0.5, "b": 0.5}, start=0.2, end=0.6) for f in (0.0, 0.2, 0.4, 0.6, 0.9)]
    assert [mix["a"] for mix in found] == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.5])
    assert [mix["b"] for mix in found] == pytest.approx([0.0, 0.0, 0.25, 0.5, 0.5])


def test_piecewise_by_hand_with_a_jump() -> None:
    points = [{"at": 0.2, "mix": A}, {"at": 0.4, "mix": B}, {"at": 0.4, "mix": A}, {"at": 1.0, "mix": B}]
    found = [piecewise(f, points=points).get("a", 0.0) for f in (0.0, 0.2, 0.3, 0.399999, 0.4, 0.7)]
    assert found == pytest.approx([1.0, 1.0, 0.5, 0.0, 1.0, 0.5], abs=1e-4)


def test_piecewise_takes_warmup_end_as_a_point() -> None:
    points = [{"at": "warmup_end", "mix": A}, {"at": 1.0, "mix": B}]
    schedule = make_schedule("piecewise", {"points": points}, "mix", moments={"warmup_end": 0.5})
    assert schedule(0.75) == {"a": 0.5, "b": 0.5}
    assert schedule.knots == (0.5, 1.0)


def test_temperature_by_hand() -> None:
    """Sizes 1 and 16: with exponent 1/2 the shares are as 1 to 4, with 1 as the sizes, with 0 equal."""
    found = [temperature(0.0, corpora=["a", "b"], alpha=alpha, tokens={"a": 1, "b": 16}) for alpha in (0.5, 1, 0)]
    assert [mix["b"] for mix in found] == pytest.approx([0.8, 16 / 17, 0.5])


def test_temperature_is_given_the_sizes() -> None:
    schedule = make_schedule(
        "temperature", {"corpora": ["a", "b"], "alpha": 0.5}, "mix", tokens={"a": 1, "b": 16, "c": 9}
    )
    assert schedule(0.3) == pytest.approx({"a": 0.2, "b": 0.8})


def test_a_schedule_is_a_function_of_the_fraction() -> None:
    assert Schedule(lambda fraction: {"a": fraction, "b": 1 - fraction})(0.25) == {"a": 0.25, "b": 0.75}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("constnt", {}, "unknown mix schedule 'constnt', did you mean 'constant'"),
        ("constant", {}, "'constant' needs mix"),
        ("constant", {"mix": {"a": 0.5}}, "must be positive and sum to 1"),
        ("constant", {"mix": {"a": 1.5, "b": -0.5}}, "must be positive and sum to 1"),
        ("constant", {"mix": 3}, "mix"),
        ("constant", {"mix": {}}, "sum to 1"),
        ("step", {"at": 10, "before": {"a": 1.0}, "after": {"a": 1.0}}, "at must be a fraction"),
        ("step", {"at": True, "before": {"a": 1.0}, "after": {"a": 1.0}}, "at must be a fraction"),
        ("step", {"at": 0.5, "before": {"a": 1.0}, "after": {"a": 0.9}}, "sum to 1, at 0.5"),
        ("step", {"before": {"a": 1.0}, "after": {"a": 1.0}}, "one of at and until"),
        ("step", {"at": 0.5, "until": 0.5, "before": {"a": 1.0}, "after": {"a": 1.0}}, "one of at and until"),
        ("step", {"until": "warmup", "before": {"a": 1.0}, "after": {"a": 1.0}}, "or warmup_end, not 'warmup'"),
        ("linear", {"before": {"a": 1.0}, "after": {"a": 1.0}, "start": 0.5, "end": 0.5}, "start must come before end"),
        ("linear", {"before": {"a": 1.0}, "after": {"a": 1.0}, "end": 2}, "end must be a fraction"),
        ("piecewise", {"points": []}, "points must be a list of {at: FRACTION, mix: {...}}"),
        ("piecewise", {"points": [{"at": 0.5}]}, "points must be a list of {at: FRACTION, mix: {...}}"),
        ("piecewise", {"points": [{"at": 0.5, "mix": {"a": 1.0}}, {"at": 0.1, "mix": {"a": 1.0}}]}, "in order"),
        ("piecewise", {"points": [{"at": 0.5, "mix": {"a": 0.9}}]}, "must be positive and sum to 1"),
        ("temperature", {"corpora": ["a"], "alpha": 2}, "alpha must lie between 0 and 1"),
        ("temperature", {"corpora": [], "alpha": 0.3}, "corpora must be a list of different corpora"),
        ("temperature", {"corpora": ["a", "a"], "alpha": 0.3}, "corpora must be a list of different corpora"),
        ("temperature", {"corpora": "a", "alpha": 0.3}, "corpora must be a list of different corpora"),
        ("temperature", {"corpora": ["a", "bbb"], "alpha": 0.3}, "unknown corpus 'bbb', did you mean 'bb'"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_path(name: str, options: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=r"^stages\.1\.mix.*") as error:
        make_schedule(name, options, "stages.1.mix", tokens={"a": 5, "bb": 5})
    assert message in str(error.value)
