"""Grids and named arms: what recipes they come to, by hand."""

from pathlib import Path
from typing import Any

import pytest

from lingraft.errors import RecipeError
from lingraft.pipeline.arms import read_sweep, set_values, split_at_commas
from lingraft.recipe_file import load_recipe

PLAIN = "stages.1.mix={eu: 0.75, en: 0.25}"


def _mix(arm: Any, stage: int = 1) -> dict[str, float]:
    return dict(arm.recipe.stages[stage].mix.options["mix"])


def test_a_grid_crosses_its_values_the_last_path_fastest(recipe_path: Path) -> None:
    sweep = read_sweep(recipe_path, overrides=[PLAIN], vary=["stages.1.mix.en=0,0.1,20%", "seed=0,1"])
    assert sweep.name == "tiny"
    assert [arm.name for arm in sweep.arms] == [f"en-{en}_seed-{seed}" for en in ("0", "0.1", "20") for seed in (0, 1)]
    assert [arm.recipe.seed for arm in sweep.arms] == [0, 1] * 3
    assert [_mix(arm) for arm in sweep.arms[::2]] == [{"eu": 1.0}, {"eu": 0.9, "en": 0.1}, {"eu": 0.8, "en": 0.2}]
    assert sweep.arms[3].recipe.name == "tiny-en-0.1_seed-1"
    assert sweep.arms[3].label == "stages.1.mix.en=0.1, seed=1"
    assert sweep.arm(3) is sweep.arms[3]


def test_an_arm_is_the_recipe_that_set_would_give(recipe_path: Path) -> None:
    arm = read_sweep(recipe_path, arms=["a:stages.1.tokens=1280,stages.1.lr.peak=2e-3", "b:"]).arms[0]
    assert arm.recipe == load_recipe(recipe_path, ["name=tiny-a", "stages.1.tokens=1280", "stages.1.lr.peak=2e-3"])


def test_named_arms_are_run_with_every_point_of_the_grid(recipe_path: Path) -> None:
    arms = ["plain:", "average:stages.1.ema={kind: live, decay: 0.9},stages.1.lr.peak=2e-3"]
    sweep = read_sweep(recipe_path, vary=["seed=3,4"], arms=arms)
    assert [arm.name for arm in sweep.arms] == ["plain_seed-3", "plain_seed-4", "average_seed-3", "average_seed-4"]
    assert sweep.arms[2].recipe.stages[1].ema.decay == 0.9
    assert sweep.arms[0].recipe.stages[1].ema is None
    assert sweep.arms[2].label == "stages.1.ema={kind: live, decay: 0.9}, stages.1.lr.peak=0.002, seed=3"


def test_a_file_states_what_the_command_line_does(recipe_path: Path) -> None:
    file = recipe_path.with_name("sweep.yaml")
    file.write_text(
        f"name: shares\nrecipe: {recipe_path.name}\nset: {{stages.1.mix: {{eu: 0.75, en: 0.25}}, seed: 7}}\n"
        "vary: {stages.1.tokens: [1280, 2560]}\narms:\n  none: {stages.1.mix.en: 0}\n  some: {}\n",
        encoding="utf-8",
    )
    stated = read_sweep(file, overrides=["seed=8"])
    typed = read_sweep(
        recipe_path,
        overrides=[PLAIN, "seed=8"],
        vary=["stages.1.tokens=1280,2560"],
        arms=["none:stages.1.mix.en=0", "some:"],
    )
    assert stated.name == "shares"
    assert stated.arms == typed.arms


@pytest.mark.parametrize(
    ("mix", "settings", "expected"),
    [
        ({"eu": 0.9, "en": 0.1}, {"en": 0.25}, {"eu": 0.75, "en": 0.25}),
        # The others keep their proportions: 3 to 1.
        ({"eu": 0.6, "fr": 0.2, "en": 0.2}, {"en": 0.1}, {"eu": 0.675, "fr": 0.225, "en": 0.1}),
        ({"eu": 1.0}, {"en": 0.3}, {"eu": 0.7, "en": 0.3}),
        ({"eu": 0.9, "en": 0.1}, {"en": 0}, {"eu": 1.0}),
        ({"eu": 0.9, "en": 0.1}, {"en": 1}, {"en": 1.0}),
        # Two shares at once are both as they are set.
        ({"eu": 0.6, "fr": 0.2, "en": 0.2}, {"en": 0.3, "fr": 0.1}, {"eu": 0.6, "fr": 0.1, "en": 0.3}),
        ({"eu": 0.6, "en": 0.4}, {"en": "12.5 %"}, {"eu": 0.875, "en": 0.125}),
    ],
)
def test_the_other_shares_are_scaled(
    mix: dict[str, float], settings: dict[str, Any], expected: dict[str, float]
) -> None:
    root = {"stages": [{"mix": dict(mix)}], "corpora": {"eu": {}, "fr": {}, "en": {}}}
    set_values(root, {f"stages.0.mix.{name}": share for name, share in settings.items()})
    assert root["stages"][0]["mix"] == pytest.approx(expected)
    assert list(root["stages"][0]["mix"]) == list(expected)
    assert sum(root["stages"][0]["mix"].values()) == pytest.approx(1, abs=1e-9)


def test_a_share_of_a_schedule_is_one_of_a_mixture_in_it(recipe_path: Path) -> None:
    arm = read_sweep(recipe_path, vary=["stages.1.mix.before.en=0.1,0.2"]).arms[0]
    assert arm.recipe.stages[1].mix.options["before"] == pytest.approx({"eu": 0.9, "en": 0.1})
    with pytest.raises(RecipeError, match=r"write stages\.1\.mix\.before\.en, stages\.1\.mix\.after\.en"):
        read_sweep(recipe_path, vary=["stages.1.mix.en=0.1,0.2"])
    found = read_sweep(recipe_path, vary=["stages.1.mix.at=0.3,0.4"])
    assert [arm.recipe.stages[1].mix.options["at"] for arm in found.arms] == [0.3, 0.4]


@pytest.mark.parametrize(
    ("mix", "settings", "message"),
    [
        ({"eu": 1.0}, {"eu": 0.5}, "no other corpus has a share that could be scaled to the 0.5 that are left"),
        ({"eu": 0.5, "en": 0.5}, {"eu": 0.7, "en": 0.7}, "the shares that are set sum to 1.4, more than 1"),
        ({"eu": 0.5, "en": 0.5}, {"eu": 1.5}, r"stages\.0\.mix\.eu: a share lies between 0 and 1, not 1\.5"),
        ({"eu": 0.5, "en": 0.5}, {"eu": "much"}, "not 'much'"),
        ({"eu": 0.5, "en": 0.5}, {"eu": True}, "not True"),
    ],
)
def test_shares_that_cannot_be(mix: dict[str, float], settings: dict[str, Any], message: str) -> None:
    root = {"stages": [{"mix": mix}], "corpora": {"eu": {}, "en": {}}}
    with pytest.raises(RecipeError, match=message):
        set_values(root, {f"stages.0.mix.{name}": share for name, share in settings.items()})


def test_commas_inside_brackets_and_quotes_do_not_part() -> None:
    assert split_at_commas("0,[1,2],{a: 1, b: [2,3]},'x,y',\"p,q\"") == [
        "0", "[1,2]", "{a: 1, b: [2,3]}", "'x,y'", '"p,q"',
    ]  # fmt: skip


def test_names_are_as_short_as_tells_them_apart(recipe_path: Path) -> None:
    sweep = read_sweep(recipe_path, vary=["stages.0.lr.peak=1e-2,1e-3", "stages.1.lr.peak=1e-3,2e-3"])
    assert sweep.arms[0].name == "0.lr.peak-0.01_1.lr.peak-0.001"
    averages = read_sweep(recipe_path, vary=["stages.1.ema=null,{kind: live, decay: 0.9},{kind: live, decay: 0.8}"])
    assert [arm.name for arm in averages.arms] == ["ema-null", "ema-kind-live-decay-0.9", "ema-kind-live-decay-0.8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a sweep needs two arms or more"),
        ({"vary": ["seed=1"]}, "a sweep needs two arms or more"),
        ({"vary": ["seed"]}, r"--vary seed: write path=value,value"),
        ({"arms": ["a b:seed=1", "c:"]}, "--arm a b:seed=1: write NAME:path=value"),
        ({"arms": ["a:seed", "c:"]}, "--arm seed: write path=value"),
        ({"arms": ["a:seed=1", "b:seed=1"]}, "arms 'a' and 'b' are the same recipe"),
        ({"arms": ["a:seed=1", "b:"], "vary": ["seed=1,2"]}, "arm 'a': seed is set by the arm and varied as well"),
        ({"vary": ["seed=0,-1"]}, r"(?s)arm 'seed-2?-?1?': .*seed"),
        ({"vary": ["sed=0,1"]}, r"arm 'sed-0': .*unknown key 'sed', did you mean 'seed'\?"),
        ({"vary": ["stages.7.tokens=1k,2k"]}, r"arm 'tokens-1k': .*'7' is not a position in a list of 2"),
        ({"vary": ["seed=" + ",".join(map(str, range(40))), "stages.0.tokens=" + ",".join(f"{n}k" for n in range(1, 40))]},
         "this sweep has 1,560 arms; at most 1,000 are run"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_refused(recipe_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        read_sweep(recipe_path, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nrecipe: none.yaml\nvary: {seed: [0, 1]}\n", "none.yaml: no such recipe file"),
        ("name: x\nrecipe: tiny.yaml\nvery: {seed: [0, 1]}\n", r"sweep.yaml:3: very: unknown key 'very', did you mean 'vary'"),
        ("name: x\nrecipe: tiny.yaml\nvary: {seed: 0}\n", r"sweep.yaml:3: vary.seed: "),
        ("name: x\nrecipe: tiny.yaml\nvary: {seed: []}\n", r"sweep.yaml:3: vary.seed: no values"),
        ("recipe: tiny.yaml\nvary: {seed: [0, 1]}\n", "name"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_sweep_is_refused_by_its_line(recipe_path: Path, text: str, message: str) -> None:
    file = recipe_path.with_name("sweep.yaml")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        read_sweep(file)
    with pytest.raises(RecipeError, match="no such recipe or sweep file"):
        read_sweep(recipe_path.with_name("absent.yaml"))
