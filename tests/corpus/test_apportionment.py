"""Exact apportionment: the shares of a schedule, made into whole sequences."""

import time
from fractions import Fraction as Exact

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.corpus.apportionment import apportion, spread
from lingraft.corpus.mixing import Schedule, linear, make_schedule, step
from lingraft.errors import RecipeError


def fixed(**mix) -> Schedule:
    return make_schedule("constant", {"mix": mix}, "mix")


def errors(schedule: Schedule, corpora, num_sequences: int, **options) -> np.ndarray:
    """Return (place, corpus): what was supplied up to each place less the integral, both the slow way."""
    made = apportion(schedule, corpora, num_sequences, **options)
    slots = made.slots(0, num_sequences)
    supplied = np.zeros((num_sequences + 1, len(corpora)))
    supplied[np.arange(1, num_sequences + 1), slots] = 1
    supplied = supplied.cumsum(axis=0)
    for place in np.random.default_rng(0).integers(0, num_sequences + 1, size=20).tolist():
        assert made.before(place).tolist() == supplied[place].tolist()
    assert list(made.totals.values()) == supplied[-1].tolist()
    wanted = [[schedule((n + 0.5) / num_sequences).get(c, 0.0) for c in corpora] for n in range(num_sequences)]
    return supplied - np.vstack([np.zeros(len(corpora)), np.cumsum(wanted, axis=0)])


def worst_window(error: np.ndarray, size: int = 1000) -> float:
    """Return the largest deviation of a share over all windows of so many sequences."""
    return float(np.abs(error[size:] - error[:-size]).max()) / size


def test_a_half_and_half_mix_by_hand() -> None:
    made = apportion(fixed(a=0.5, b=0.5), ["a", "b"], 12, grain=3)
    assert made.slots(0, 12).tolist() == [0, 1] * 6
    assert made.slots(5, 8).tolist() == [1, 0, 1]
    assert made.totals == {"a": 6, "b": 6}


@st.composite
def schedules(draw):
    """Return up to eight corpora, in up to three languages, and a constant, stepping or ramping mix of them."""
    size = draw(st.integers(1, 8))
    weights = st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any)
    names = [str(n) for n in range(size)]
    before, after = (
        {name: float(Exact(w, sum(ws))) for name, w in zip(names, ws, strict=True)}
        for ws in (draw(weights), draw(weights))
    )
    at = draw(st.floats(0, 1))
    groups = [draw(st.sampled_from("xyz")) for _ in names]
    return names, groups, before, after, at


@settings(deadline=None, max_examples=40)
@given(schedules(), st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_the_error_of_a_language_stays_below_two_sequences(drawn, num_steps: int, grain: int, is_ramp: bool) -> None:
    """At a knot inside a sequence, the sequence goes by what holds at its end: up to one more."""
    corpora, groups, before, after, at = drawn
    if is_ramp:
        schedule = Schedule(lambda f: linear(f, before=before, after=after), (0.0, 1.0))
    else:
        schedule = Schedule(lambda f: step(f, at=at, before=before, after=after), (at,))
    error = errors(schedule, corpora, num_steps * grain, grain=grain, groups=groups)
    for group in set(groups):
        of_group = error[:, [own == group for own in groups]].sum(axis=1)
        assert np.abs(of_group).max() < 2
    assert np.abs(error).max() < 3


@pytest.mark.parametrize("grain", [1, 2, 7])
def test_six_corpora_and_more_keep_the_bound(grain: int) -> None:
    generator = np.random.default_rng(1)
    for _ in range(8):
        size = int(generator.integers(6, 9))
        shares = generator.dirichlet(np.ones(size) * 0.5).tolist()
        corpora = [str(n) for n in range(size)]
        assert (
            np.abs(errors(fixed(**dict(zip(corpora, shares, strict=True))), corpora, 100 * grain, grain=grain)).max()
            < 1
        )


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_o40_extreme_ratios_are_exact_to_one_sequence(share: float) -> None:
    error = errors(fixed(a=share, b=1 - share), ["a", "b"], 8000, grain=4)
    assert np.abs(error).max() < 1.5
    assert np.abs(error[-1]).max() < 1e-6


def test_o35_every_sequence_of_a_stage_is_supplied_once() -> None:
    made = apportion(fixed(a=0.3, b=0.4, c=0.3), ["a", "b", "c"], 10)
    assert np.bincount(made.slots(0, 10)).tolist() == [3, 4, 3]


HOSTILE = {
    "three languages": ({"a": 0.7, "b": 0.2, "c": 0.1}, None),
    "a tenth of a percent": ({"a": 0.001, "b": 0.999}, None),
    "many small ones": ({"a": 0.976, **{f"s{n}": 0.002 for n in range(12)}}, None),
    "one of many to another": ({f"a{n}": 0.1 for n in range(5)}, {f"b{n}": 0.1 for n in range(5)}),
}


@pytest.mark.parametrize("grain", [8, 2000])
@pytest.mark.parametrize("ramp", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_o52_every_window_of_1000_sequences_is_within_half_a_point(name: str, ramp: bool, grain: int) -> None:
    """Of each corpus and of each language, whatever the length of a step: rows are even within it too."""
    first, second = HOSTILE[name]
    mix = first | (second or {})
    total = sum(mix.values())
    before = {c: share / total for c, share in mix.items()}
    flipped = dict(zip(before, list(before.values())[::-1], strict=True))
    schedule = Schedule(lambda f: linear(f, before=before, after=flipped), (0.0, 1.0)) if ramp else fixed(**before)
    corpora = list(before)
    groups = [corpus[0] for corpus in corpora]
    error = errors(schedule, corpora, 2000, grain=grain, groups=groups)
    assert worst_window(error) < 0.005
    for group in set(groups):
        assert worst_window(error[:, [own == group for own in groups]].sum(axis=1, keepdims=True)) < 0.005
        assert abs(error[-1, [own == group for own in groups]].sum()) < 1


def test_o45_the_source_of_every_step_follows_the_schedule() -> None:
    schedule = make_schedule("step", {"at": 0.5, "before": {"en": 1.0}, "after": {"eu": 1.0}}, "mix")
    slots = apportion(schedule, ["eu", "en"], 80, grain=4).slots(0, 80)
    assert slots.tolist() == [1] * 40 + [0] * 40


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.49])
def test_o45_a_corpus_whose_share_has_ended_is_not_read_any_more(share: float) -> None:
    options = {"at": 0.1, "before": {"eu": 1 - share, "en": share}, "after": {"eu": 1.0}}
    slots = apportion(make_schedule("step", options, "mix"), ["eu", "en"], 90, grain=3).slots(0, 90)
    assert slots[9:].tolist() == [0] * 81
    assert abs(int((slots[:9] == 1).sum()) - 9 * share) < 1


def test_shares_that_sum_to_one_within_tolerance_do_not_drift() -> None:
    third = 0.33333334
    made = apportion(fixed(a=third, b=third, c=third), ["a", "b", "c"], 192_000, grain=64)
    assert list(made.totals.values()) == [64_000] * 3


def test_a_sequence_far_out_is_found_as_fast_as_the_first() -> None:
    """A billion sequences: nothing is counted through."""
    made = apportion(fixed(a=0.7, b=0.3), ["a", "b"], 10**9, grain=1000)
    assert made.totals == {"a": 7 * 10**8, "b": 3 * 10**8}
    assert np.abs(made.before(10**9 // 2) - [35 * 10**7, 15 * 10**7]).max() < 2


def test_a_long_stage_is_cut_into_few_blocks() -> None:
    begin = time.perf_counter()
    apportion(Schedule(lambda f: {"a": 0.5 + f / 2, "b": 0.5 - f / 2}), ["a", "b"], 10**7 * 8, grain=8)
    assert time.perf_counter() - begin < 5


def test_an_even_order_by_hand() -> None:
    assert spread((2, 1)).tolist() == [0, 1, 0]
    assert spread((0, 3)).tolist() == [1, 1, 1]
    assert spread((1, 1, 2)).tolist().count(2) == 2
    assert spread(()).tolist() == []


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any))
def test_an_even_order_is_less_than_one_from_every_share(counts: list[int]) -> None:
    order = spread(tuple(counts))
    places = np.arange(1, sum(counts) + 1)
    for kind, count in enumerate(counts):
        taken = (order == kind).cumsum()
        assert taken[-1] == count
        assert np.abs(taken - places * count / sum(counts)).max() < 1


def test_a_corpus_without_a_column_is_refused() -> None:
    with pytest.raises(RecipeError, match="corpus 'b' is not among a"):
        apportion(fixed(a=0.5, b=0.5), ["a"], 4)
