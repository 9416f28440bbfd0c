"""The table of arms and the options in words: by hand."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lingraft.measurement import Measurement
from lingraft.recipe import Recipe
from lingraft.report.arms import arms_table, option_in_words, settings_table
from lingraft.report.comparison import compare_runs
from lingraft.run import Run


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("stages.0.mix.en", "share of en in stage first"),
        ("stages.1.ema.kind", "ema.kind in stage second"),
        ("stages.1.mix.before.en", "mix.before.en in stage second"),
        ("stages.7.tokens", "stages.7.tokens"),
        ("embeddings.method", "embeddings.method"),
        ("stages.extra", "stages.extra"),
    ],
)
def test_an_option_in_words(make_recipe: Callable[..., Recipe], path: str, words: str) -> None:
    assert option_in_words(path, make_recipe(["first", "second"])) == words


def test_the_only_stage_needs_no_name(make_recipe: Callable[..., Recipe]) -> None:
    assert option_in_words("stages.0.mix.en", make_recipe(["only"])) == "share of en"
    assert option_in_words("stages.0.mix.en", make_recipe(["first", "second"]), short=True) == "share of en"


@pytest.fixture
def make_recipe() -> Callable[[list[str]], Recipe]:
    def make(names: list[str]) -> Recipe:
        return Recipe.model_construct(stages=[type("Stage", (), {"name": name})() for name in names])

    return make


def test_every_arm_has_its_numbers_its_change_and_what_makes_it_what_it_is(
    write_arm: Callable[..., Path], tmp_path: Path
) -> None:
    folders = [
        write_arm(tmp_path / "mixed", 1.5, 1.0),
        write_arm(tmp_path / "pure", 1.3, 1.3, noise=3, averaged=1.31, stage={"mix": {"eu": 1.0}}),
    ]
    found = compare_runs(folders)
    table = arms_table(found.verdict, found.experiment, ["broken"])
    rows = table.split("<tr")[2:]
    assert [row.count("<td") for row in rows] == [4] * 5
    base, mixed, pure, averaged, broken = rows
    assert "base model" in base
    assert "1.999" in base
    assert 'class="chosen"' in mixed
    assert "recommended" in mixed
    assert "share of en 0.2" in mixed
    assert "seed 0" in mixed
    assert "<small>−0.498 [−0.503,\u00a0−0.493]</small>" in mixed
    assert "costs too much" in pure
    assert "share of eu 1" in pure
    assert "share of en" not in pure
    assert "share of eu 1" in averaged
    assert "failed" in broken
    assert table.count('class="chosen"') == 1
    shown = settings_table(found.experiment)
    assert "What the training of an arm took" not in shown
    assert "share of en" in shown
    assert "stages.0.mix.en</code>" in shown


def test_what_training_took_is_the_mean_of_the_runs_of_an_arm(write_arm: Callable[..., Path], tmp_path: Path) -> None:
    for seed, seconds, peak in ((0, 60.0, 2), (1, 120.0, 4)):
        folder = write_arm(tmp_path / f"mixed-seed{seed}", 1.5, 1.0, seed=seed)
        Run(folder).measure(
            [
                Measurement("first", 10, "seconds/stage", seconds),
                Measurement("second", 20, "seconds/stage", seconds),
                Measurement("first", 10, "peak_memory_bytes", peak * 2.0**30),
                Measurement("second", 20, "peak_memory_bytes", 2.0**30),
            ]
        )
    folders = [tmp_path / "mixed-seed0", tmp_path / "mixed-seed1"]
    folders.append(write_arm(tmp_path / "pure", 1.3, 1.3, averaged=1.31, stage={"mix": {"eu": 1.0}}))
    shown = settings_table(compare_runs(folders).experiment).partition("What the training of an arm took")[2]
    rows = [re.findall(r"<t[dh][^>]*>(?:<[^>]*>)*([^<]*)", row) for row in shown.split("<tr")[2:]]
    assert rows == [["mixed", "3.0 min", "3.0 GiB"], ["pure", "–", "–"]]
