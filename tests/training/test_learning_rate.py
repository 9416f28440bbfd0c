"""The learning rate, step by step, in round numbers."""

import pytest

from lingraft.errors import RecipeError, TrainingError
from lingraft.training.learning_rate import cosine, end_rate, learning_rate, linear, lr_schedules


def rates(num_steps: int, **changes) -> list[float]:
    settings = {"num_steps": num_steps, "warmup_steps": 0, "peak": 1.0, "floor": 0.0, "schedule": "cosine"} | changes
    return [learning_rate(step, **settings) for step in range(num_steps)]


@pytest.mark.parametrize(
    ("schedule", "changes", "table"),
    [
        ("linear", {}, [1, 0.75, 0.5, 0.25]),
        ("linear", {"floor": 0.2}, [1, 0.8, 0.6, 0.4]),
        ("constant", {"floor": 0.2, "peak": 0.5}, [0.5, 0.5, 0.5, 0.5]),
        ("cosine", {}, [1, 0.853553, 0.5, 0.146447]),
        ("cosine", {"floor": 0.5, "peak": 0.1}, [0.1, 0.0926777, 0.075, 0.0573223]),
        ("cosine", {"warmup_steps": 2}, [0.5, 1, 1, 0.5]),
        ("linear", {"warmup_steps": 3}, [1 / 3, 2 / 3, 1, 1]),
        ("linear", {"warmup_steps": 4}, [0.25, 0.5, 0.75, 1]),
        ("wsd", {"options": {"decay": 0.5}}, [1, 1, 1, 0.5]),
        ("wsd", {"options": {"decay": 0.75}, "floor": 0.2}, [1, 1, 1 - 0.8 / 3, 1 - 1.6 / 3]),
        ("wsd", {"options": {"decay": 0.0}}, [1, 1, 1, 1]),
        ("wsd", {"options": {"decay": 1.0}, "warmup_steps": 2}, [0.5, 1, 1, 0.5]),
        # Half a cosine from 1 to 0.5 over half the way, 0.5 for a quarter, then on to 0.125 by equal factors.
        (
            "infinite",
            {"floor": 0.125, "options": {"cooldown": 0.5, "plateau": 0.5, "decay": 0.25}},
            [1, 0.75, 0.5, 0.5],
        ),
        (
            "infinite",
            {"floor": 0.125, "options": {"cooldown": 0.0, "plateau": 0.5, "decay": 1.0}},
            [0.5, 0.353553, 0.25, 0.176777],
        ),
        ("infinite", {"options": {"cooldown": 0.5, "plateau": 0.5, "decay": 0.0}}, [1, 0.75, 0.5, 0.5]),
    ],
)
def test_four_steps_by_hand(schedule: str, changes: dict, table: list[float]) -> None:
    assert rates(4, schedule=schedule, **changes) == pytest.approx(table, abs=1e-6)


def test_shapes_lead_from_one_to_nothing() -> None:
    assert [cosine(0.0), linear(0.0)] == [1, 1]
    assert [cosine(0.5), linear(0.5)] == pytest.approx([0.5, 0.5])
    assert [cosine(1.0), linear(1.0)] == [0, 0]


def test_the_published_configuration() -> None:
    """arXiv 2506.00288: peak 1e-4, 1,000 of 10,000 steps of warm-up, cosine to 3.3 %."""
    table = rates(10_000, warmup_steps=1000, peak=1e-4, floor=0.033)
    assert [table[0], table[999], table[1000], table[5500]] == pytest.approx([1e-7, 1e-4, 1e-4, 5.165e-5])
    assert table[-1] == pytest.approx(3.3e-6, rel=1e-4)


@pytest.mark.parametrize("schedule", [entry.name for entry in lr_schedules])
@pytest.mark.parametrize("num_steps", [1, 2, 7])
def test_o62_no_step_is_ever_made_at_rate_zero(schedule: str, num_steps: int) -> None:
    for warmup in range(num_steps + 1):
        assert min(rates(num_steps, schedule=schedule, warmup_steps=warmup, floor=0.1)) > 0


@pytest.mark.parametrize("step", [-1, 4, 8])
def test_o62_a_schedule_that_is_over_is_not_trained_on(step: int) -> None:
    with pytest.raises(TrainingError, match=f"step {step} is not one of the 4 steps"):
        learning_rate(step, num_steps=4, warmup_steps=1, peak=1.0, floor=0.0, schedule="cosine")


def test_a_warmup_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"lr\.warmup: 5 steps"):
        rates(4, warmup_steps=5)


@pytest.mark.parametrize(
    ("schedule", "options", "end"),
    [
        ("cosine", {}, 0.2), ("linear", {}, 0.2), ("constant", {}, 1.0), ("wsd", {}, 0.2), ("wsd", {"decay": 0.0}, 1.0),
        ("infinite", {}, 0.2), ("infinite", {"decay": 0.0, "plateau": 0.5}, 0.5),
    ],
)  # fmt: skip
def test_where_a_schedule_ends_is_where_the_next_stage_may_go_on(schedule: str, options: dict, end: float) -> None:
    assert end_rate(peak=1.0, floor=0.2, schedule=schedule, options=options) == pytest.approx(end)
    last = rates(500, schedule=schedule, options=options, floor=0.2)[-1]
    assert last == pytest.approx(end, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cooldown": 0.9, "decay": 0.2}, r"cooldown and decay are 90% and 20%"),
        ({"plateau": 0.01}, r"floor must be in \(0, plateau\]"),
        ({"decy": 0.1}, r"lr\.decy: 'infinite' has no such option, did you mean 'decay'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(options: dict, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        rates(4, schedule="infinite", floor=0.033, options=options)


def test_o62_an_anneal_to_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"anneal leads from plateau 0\.55 to floor 0"):
        rates(4, schedule="infinite")


def test_o62_a_shape_that_gives_no_rate_is_not_trained_on() -> None:
    for name in ("nothing", "less", "nan"):
        with pytest.raises(TrainingError, match=r"gives step 1 the rate .* nothing is learned so"):
            rates(2, schedule=f"{__name__}:{name}")


def nothing(progress: float) -> float:
    return 0.0


def less(progress: float) -> float:
    return -1.0


def nan(progress: float) -> float:
    return float("nan")


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"lr\.schedule: unknown .* did you mean 'cosine'"):
        rates(4, schedule="cosin")
