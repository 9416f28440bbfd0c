"""Exact apportionment: rows sum to the batch, shares to the schedule."""

from fractions import Fraction as Exact

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.corpus.mixing import constant, make_schedule, quota_table, step
from lingraft.errors import RecipeError


def integral(schedule, corpora, num_steps, sequences) -> np.ndarray:
    """Return the schedule's integral at every step border, the slow way."""
    rows = [[schedule(n / num_steps).get(name, 0.0) * sequences for name in corpora] for n in range(num_steps)]
    return np.cumsum(rows, axis=0)


def worst_error(schedule, corpora, num_steps, sequences) -> float:
    table = quota_table(schedule, corpora, num_steps, sequences)
    assert (table.sum(axis=1) == sequences).all()
    assert (table >= 0).all()
    return float(np.abs(np.cumsum(table, axis=0) - integral(schedule, corpora, num_steps, sequences)).max())


def fixed(**mix):
    return make_schedule("constant", {"mix": mix}, "mix")


def test_a_half_and_half_mix_by_hand() -> None:
    table = quota_table(fixed(a=0.5, b=0.5), ["a", "b"], 4, 3)
    assert table.sum(axis=0).tolist() == [6, 6]
    assert sorted(map(tuple, table.tolist())) == [(1, 2), (1, 2), (2, 1), (2, 1)]


def test_engine_md_constant_mix_is_exact() -> None:
    table = quota_table(fixed(eu=0.7, en=0.3), ["eu", "en"], 1000, 8)
    assert table.sum(axis=0).tolist() == [5600, 2400]
    assert worst_error(fixed(eu=0.7, en=0.3), ["eu", "en"], 1000, 8) < 0.51


@st.composite
def schedules(draw):
    size = draw(st.integers(1, 8))
    weights = st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any)
    mixes = [{str(n): float(Exact(w, sum(ws))) for n, w in enumerate(ws)} for ws in (draw(weights), draw(weights))]
    return [str(n) for n in range(size)], mixes, draw(st.floats(0, 1))


@settings(deadline=None, max_examples=150)
@given(schedules(), st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_the_error_stays_below_one_sequence_at_every_step_border(drawn, num_steps, sequences, is_ramp) -> None:
    corpora, (before, after), at = drawn

    def schedule(fraction: float):
        if is_ramp:
            return {name: (1 - fraction) * before[name] + fraction * after[name] for name in corpora}
        return step(fraction, at=at, before=before, after=after)

    assert worst_error(schedule, corpora, num_steps, sequences) < 1


@pytest.mark.parametrize("sequences", [1, 2, 7])
def test_six_corpora_and_more_keep_the_bound(sequences: int) -> None:
    generator = np.random.default_rng(1)
    for _ in range(60):
        size = int(generator.integers(6, 9))
        shares = generator.dirichlet(np.ones(size) * 0.5).tolist()
        corpora = [str(n) for n in range(size)]
        mix = dict(zip(corpora, shares, strict=True))
        assert worst_error(lambda _, mix=mix: mix, corpora, 100, sequences) < 1


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_o40_extreme_ratios_are_exact_to_one_sequence(share: float) -> None:
    schedule = fixed(a=share, b=1 - share)
    table = quota_table(schedule, ["a", "b"], 2000, 4)
    assert table.sum(axis=0).tolist() == [round(8000 * share), 8000 - round(8000 * share)]
    assert worst_error(schedule, ["a", "b"], 2000, 4) < 1


def test_o52_every_window_of_1000_sequences_is_within_half_a_point() -> None:
    table = quota_table(fixed(a=0.7, b=0.2, c=0.1), ["a", "b", "c"], 500, 10)
    for begin in range(0, 400, 7):
        shares = table[begin : begin + 100].sum(axis=0) / 1000
        assert np.abs(shares - [0.7, 0.2, 0.1]).max() < 0.005


def test_o45_the_source_of_every_step_follows_the_schedule() -> None:
    schedule = make_schedule("step", {"at": 0.5, "before": {"en": 1.0}, "after": {"eu": 1.0}}, "mix")
    table = quota_table(schedule, ["eu", "en"], 20, 4)
    assert table.tolist() == [[0, 4]] * 10 + [[4, 0]] * 10


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.49])
def test_o45_a_corpus_whose_share_has_ended_is_not_read_any_more(share: float) -> None:
    options = {"at": 0.1, "before": {"eu": 1 - share, "en": share}, "after": {"eu": 1.0}}
    table = quota_table(make_schedule("step", options, "mix"), ["eu", "en"], 30, 3)
    assert table[3:].tolist() == [[3, 0]] * 27
    assert abs(table[:, 1].sum() - 9 * share) < 1


def test_step_switches_at_its_fraction() -> None:
    before, after = {"a": 1.0}, {"b": 1.0}
    found = [step(f, at=0.1, before=before, after=after) for f in (0.0, 0.0999, 0.1, 0.9)]
    assert found == [before, before, after, after]
    assert constant(0.5, mix=before) == before


def test_shares_that_sum_to_one_within_tolerance_do_not_drift() -> None:
    third = 0.33333334
    table = quota_table(fixed(a=third, b=third, c=third), ["a", "b", "c"], 3000, 64)
    assert table.sum(axis=0).tolist() == [64_000] * 3


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
        ("step", {"at": 0.5, "before": {"a": 1.0}, "after": {"a": 0.9}}, "sum to 1, at 0.999999"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_path(name: str, options: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=r"^stages\.1\.mix.*") as error:
        make_schedule(name, options, "stages.1.mix")
    assert message in str(error.value)


def test_a_corpus_without_a_column_is_refused() -> None:
    with pytest.raises(RecipeError, match="corpus 'b' is not among a"):
        quota_table(fixed(a=0.5, b=0.5), ["a"], 2, 2)
