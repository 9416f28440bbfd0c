"""The rates of stages by hand: parts in tokens, stages that go on from each other, and what is refused."""

import pytest

from lingraft.errors import RecipeError
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.rates import optimizer_options, stage_rates
from lingraft.pipeline.training import stage_plan

ON = "stages.1.lr={rewarm: false, schedule: linear, floor: 50%}"


def rates(recipe, index: int) -> list[float]:
    found = stage_rates(recipe, index)
    return [found.at(step) for step in range(found.num_steps)]


@pytest.mark.parametrize("decay", ["20%", "2560"])
def test_a_part_of_a_schedule_is_a_share_of_the_stage_or_tokens(make_recipe, decay: str) -> None:
    """20 of 100 steps; the plateau is 80, of which 10 warm up."""
    recipe = make_recipe(f"stages.1.lr={{peak: 1e-3, warmup: 10%, schedule: wsd, decay: {decay}, floor: 0%}}")
    table = rates(recipe, 1)
    assert table[9:81] == pytest.approx([1e-3] * 72)
    assert table[90] == pytest.approx(0.5e-3)
    assert table[99] == pytest.approx(0.05e-3)
    assert make_plan(recipe).stages[1].rates[-1] == pytest.approx(0.5e-3)


def test_an_infinite_schedule_in_tokens(make_recipe) -> None:
    """Cool down over 50 steps, 0.5e-3 for 30, anneal by equal factors to a tenth over 20."""
    parts = "schedule: infinite, cooldown: 50%, plateau: 50%, decay: 20%"
    table = rates(make_recipe(f"stages.1.lr={{peak: 1e-3, warmup: 0%, {parts}, floor: 5%}}"), 1)
    assert [table[n] for n in (0, 25, 50, 80, 90)] == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.5e-3, 0.5e-3 * 0.1**0.5])


def test_without_rewarm_a_stage_begins_where_the_one_before_ended(make_recipe) -> None:
    recipe = make_recipe("stages.0.lr={peak: 1e-2, warmup: 0%, schedule: linear, floor: 20%}", ON)
    assert rates(recipe, 0) == pytest.approx([1e-2, 0.8e-2, 0.6e-2, 0.4e-2])
    assert rates(recipe, 1)[0] == pytest.approx(0.2e-2)
    assert stage_rates(recipe, 1).end == pytest.approx(0.1e-2)
    plan = make_plan(recipe)
    assert plan.stages[1].rates[0] == pytest.approx(0.2e-2)
    assert stage_plan(recipe, 1).peak_rate == pytest.approx(0.2e-2)


def test_the_control_is_scaled_once_in_a_stage_that_goes_on_from_another(make_recipe) -> None:
    """The average's run goes on at 0.2e-2 and keeps 8 % of every step; the control's rate must be 8 % of 0.2e-2."""
    first = "stages.0.lr={peak: 1e-2, warmup: 0%, schedule: linear, floor: 20%}"
    control = "stages.{}.ema={{kind: lr_matched, decay: 0.92}}"
    both = make_recipe(first, ON, control.format(0), control.format(1))
    assert rates(both, 0) == pytest.approx([0.08 * rate for rate in (1e-2, 0.8e-2, 0.6e-2, 0.4e-2)])
    assert rates(both, 1)[0] == pytest.approx(0.08 * 0.2e-2)
    assert rates(make_recipe(first, ON, control.format(0)), 1)[0] == pytest.approx(0.2e-2)
    assert rates(make_recipe(first, ON, control.format(1)), 1)[0] == pytest.approx(0.08 * 0.2e-2)


def test_o62_going_on_at_rate_zero_is_refused(make_recipe) -> None:
    recipe = make_recipe("stages.0.lr={peak: 1e-2, warmup: 0%, floor: 0%}", ON)
    with pytest.raises(RecipeError, match=r"stages\.1\.lr\.rewarm: the stage before, 'first', ends at rate 0"):
        make_plan(recipe)


def test_tables_have_a_rate_of_their_own(make_recipe) -> None:
    recipe = make_recipe("stages.1.lr={peak: 1e-3, embeddings: 5e-5, warmup: 0%}")
    assert stage_rates(recipe, 1).table_factor == pytest.approx(0.05)
    assert stage_plan(recipe, 1).table_factor == pytest.approx(0.05)
    outline = make_plan(recipe).stages[1]
    assert outline.table_rates == pytest.approx([0.05 * rate for rate in outline.rates])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "stages.1.lr={peak: 1e-3, warmup: 50%, schedule: wsd, decay: 60%}",
            r"1\.lr\.decay: 0\.6 is longer than the 6400 tok",
        ),
        (
            "stages.1.lr={peak: 1e-3, schedule: cosine, decay: 60%}",
            r"stages\.1\.lr\.decay: 'cosine' has no such option",
        ),
        (
            "stages.1.lr={peak: 1e-3, schedule: infinite, floor: 0%}",
            r"stages\.1\.lr\.schedule: 'infinite': the anneal leads",
        ),
        (
            "stages.1.lr={peak: 1e-3, schedule: infinite, cooldown: 90%, decay: 15%}",
            r"1\.lr\.schedule: .* cooldown and decay",
        ),
        ("stages.0.lr={rewarm: false}", r"stages\.0\.lr\.rewarm: no stage comes before the first"),
        ("stages.0.optimizer={start: carry}", r"stages\.0\.optimizer\.start: no stage comes before the first"),
        ("stages.1.optimizer={start: carry, betas: [0.9, 0.99]}", r"stages\.1\.optimizer\.start: .* name and betas"),
        (
            "stages.1.optimizer={name: adamv}",
            r"stages\.1\.optimizer\.name: unknown optimiser 'adamv', did you mean 'adamw'",
        ),
        (
            "stages.1.optimizer={name: adamw, momentum: 0.5}",
            r"stages\.1\.optimizer\.momentum: 'adamw' has no such option",
        ),
        ("stages.1.optimizer={name: sgd, eps: 1e-4}", r"stages\.1\.optimizer\.eps: 'sgd' has no such option"),
    ],
)
def test_what_cannot_be_used_is_refused_by_the_plan(make_recipe, override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make_plan(make_recipe(override))


def test_moments_that_cannot_be_carried_are_refused(make_recipe) -> None:
    both = ("stages.0.optimizer={name: sgd}", "stages.1.optimizer={name: sgd, start: carry}")
    with pytest.raises(
        RecipeError, match=r"stages\.1\.optimizer\.start: the moments of 'sgd' cannot .* \(those of adamw can\)"
    ):
        make_plan(make_recipe(*both))


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("{}", {"betas": (0.9, 0.95), "eps": 1e-8}),
        ("{name: sgd, momentum: 0.5}", {"momentum": 0.5}),
        ("{name: adafactor}", {}),
        ("{name: muon}", {"betas": (0.9, 0.95), "eps": 1e-8}),
    ],
)
def test_an_optimiser_is_given_the_options_that_it_knows(make_recipe, optimizer: str, options: dict) -> None:
    assert optimizer_options(make_recipe(f"stages.1.optimizer={optimizer}").stages[1]) == options
