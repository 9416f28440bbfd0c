"""Parallel text on its way through a run, and texts that two corpora share."""

import json
import shutil
from pathlib import Path

import pytest

from lingraft import adapt
from lingraft.errors import CorpusError, RecipeError
from lingraft.pipeline.parallel import language_shares
from lingraft.pipeline.plan import make_plan
from lingraft.pipeline.training import _by_language
from lingraft.recipe import Recipe
from lingraft.recipe_file import load_recipe
from lingraft.training.step_report import StepReport


@pytest.fixture
def recipe(recipe_path: Path, corpora_folder: Path, tmp_path: Path) -> Recipe:
    """The tiny recipe with a corpus of 48 pairs, of which the second stage takes a quarter."""
    texts = [
        [
            json.loads(line)["text"]
            for line in (corpora_folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for name in ("eu", "en")
    ]
    lines = [json.dumps({"eu": f"{a} bikotea", "en": f"{b} pair"}) for a, b in zip(*texts, strict=True)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = "{path: pairs.jsonl, validation: 20%, max_epochs: 50, pairs: {languages: [eu, en], fields: [eu, en]}}"
    return load_recipe(recipe_path, [f"corpora.both={pairs}", "stages.1.mix={eu: 0.5, en: 0.25, both: 0.25}",
                                     f"corpora.both.path={tmp_path / 'pairs.jsonl'}"])  # fmt: skip


def test_a_plan_counts_the_tokens_of_both_languages(recipe) -> None:
    both = next(corpus for corpus in make_plan(recipe).corpora if corpus.name == "both")
    assert both.language.startswith("eu ")
    assert " + en " in both.language
    assert both.files == 1
    assert both.needed == 100 * 32


def test_documents_are_pairs_and_their_tokens_are_of_both_languages(recipe, tmp_path) -> None:
    run = adapt(recipe, tmp_path / "run", until="tokens")
    texts = [json.loads(line)["text"] for line in run.path("corpora", "both", "train.jsonl").read_text().splitlines()]
    assert all(len(text.split("\n")) == 2 for text in texts)
    assert {"bikotea" in text.split("\n")[0] for text in texts} == {True, False}
    from lingraft.vocabulary import TokenizerFile

    shares = language_shares(run, recipe, TokenizerFile.open(run.path("vocabulary")))
    assert shares["eu"] == {"eu": 1.0}
    assert sum(shares["both"].values()) == pytest.approx(1)
    assert 0.3 < shares["both"]["eu"] < 0.7


def test_parallel_text_is_neither_grown_for_nor_protected_nor_measured(recipe) -> None:
    assert recipe.measured_languages() == ("eu", "en")
    assert recipe.single_language_corpora() == ("eu", "en")
    assert recipe.language_of("both") == "eu+en"


def test_the_share_of_a_language_counts_its_side_of_the_pairs() -> None:
    report = StepReport(1, 100, 0.0, 0.0, {}, {}, {"eu": 50, "both": 50})
    shares = {"eu": {"eu": 1.0}, "both": {"eu": 0.4, "en": 0.6}}
    assert _by_language(report, shares) == {"eu": 0.7, "en": 0.3}
    assert _by_language(report, {"eu": {"eu": 1.0}, "both": {"en": 1.0}}) == {}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("{languages: [eu, eu]}", "both languages are 'eu'"),
        ("{languages: [eu, en], fields: [x, x]}", "both fields are 'x'"),
        ("{languages: [eu]}", "languages"),
        ("{languages: [eu, en], direction: either}", "direction"),
    ],
)
def test_what_are_no_pairs_is_refused(recipe_path, pairs: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe_path, [f"corpora.eu.pairs={pairs}"])


def test_o41_a_text_that_two_corpora_hold_is_found_by_its_path(recipe_path, corpora_folder) -> None:
    override = f"corpora.more={{path: {corpora_folder}/e*.jsonl, language: eu}}"
    with pytest.raises(CorpusError, match=r"corpora\.more: .*eu\.jsonl is in corpora\.eu as well|corpora\.more: .*en"):
        make_plan(load_recipe(recipe_path, [override, "stages.1.mix={eu: 0.5, en: 0.4, more: 0.1}"]))


def test_o41_a_text_that_two_corpora_hold_is_found_by_its_content(recipe_path, corpora_folder, tmp_path) -> None:
    shutil.copy(corpora_folder / "eu.jsonl", tmp_path / "copy.jsonl")
    override = f"corpora.more={{path: {tmp_path}/copy.jsonl, language: eu}}"
    with pytest.raises(
        CorpusError, match=r"corpora\.more: .*copy\.jsonl has the same content as .*eu\.jsonl of corpora\.eu"
    ):
        make_plan(load_recipe(recipe_path, [override, "stages.1.mix={eu: 0.5, en: 0.4, more: 0.1}"]))
