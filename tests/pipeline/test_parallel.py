"""Parallel text on its way through a run, and texts that two corpora share."""

import json
import shutil
from pathlib import Path

import pytest

from lingraft import adapt
from lingraft.errors import CorpusError, RecipeError, RunFolderError
from lingraft.pipeline.data import data_report
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


@pytest.fixture
def aligned(recipe_path: Path, corpora_folder: Path, tmp_path: Path):
    """A function from the two files' lines, and options, to the tiny recipe with a corpus of those pairs.

    The file of the first language is the later one by name.
    """

    def make(first: bytes, second: bytes, *options: str, path: str = "[{0}/x.eu.txt, {0}/x.en.txt]") -> Recipe:
        (tmp_path / "x.eu.txt").write_bytes(first)
        (tmp_path / "x.en.txt").write_bytes(second)
        pairs = "{path: x, validation: 20%, max_epochs: 50, pairs: {languages: [eu, en]}}"
        paths = f"corpora.both.path={path.format(tmp_path)}"
        return load_recipe(recipe_path, [f"corpora.both={pairs}", paths, *options])

    return make


EU = b"".join(b"esaldia %d da\n" % n for n in range(40))
EN = b"".join(b"this is sentence %d\n" % n for n in range(40))


def test_bad_pairs_are_counted_in_the_data_report_with_file_line_and_byte(aligned, tmp_path) -> None:
    bad = EN.replace(b"sentence 7\n", b"sentence \xff\n")
    skipping = aligned(EU, bad, "corpora.both.bad_lines=skip", "corpora.both.max_bad_fraction=0.1")
    told = data_report(skipping, tmp_path / "run")["corpora"]["both"]
    assert told["rejected"] == 1
    assert told["documents"] == 39
    place = f"x.en.txt:8: byte {bad.index(255)}: not UTF-8"
    assert told["rejects"] == [
        {"reason": "not UTF-8", "count": 1, "samples": [{"at": place, "text": "this is sentence \\\\xff"}]}
    ]
    assert {source["file"] for source in told["sources"]} == {"x.eu.txt", "x.en.txt"}
    assert make_plan(skipping)


@pytest.mark.parametrize("of", ["plan", "run"])
def test_a_plan_and_a_run_refuse_the_same_bad_pairs(aligned, tmp_path, of: str) -> None:
    for number, (first, second, options, message) in enumerate(
        [
            (EU, EN[:-2] + b"\xff\n", {}, r"x\.en\.txt:40: byte \d+: not UTF-8 \(corpora\.both\.bad_lines: skip"),
            (EU, EN + b"one more\n", {}, r"x\.eu\.txt:41: it has 40 lines and x\.en\.txt has more"),
            (EU, EN, {"path": "{0}/x.*.txt"}, r"one of each language in the order.*here are 2 files by 1 paths"),
            (EU, EU, {}, r"x\.eu\.txt and x\.en\.txt hold the same text"),
        ]
    ):
        recipe = aligned(first, second, **options)
        with pytest.raises(CorpusError, match=message):
            make_plan(recipe) if of == "plan" else data_report(recipe, tmp_path / f"run{number}")


def test_the_first_file_is_of_the_first_language_whatever_the_names_are(aligned, tmp_path) -> None:
    data_report(aligned(EU, EN), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "pairs" / "both" / "pairs.jsonl").read_text().splitlines()]
    assert rows[0]["sides"] == {"eu": "esaldia 0 da", "en": "this is sentence 0"}


def test_pairs_of_a_finished_step_stay_when_the_text_changes_and_damage_to_them_is_refused(aligned, tmp_path) -> None:
    run, written = tmp_path / "run", tmp_path / "run" / "pairs" / "both" / "pairs.jsonl"
    data_report(aligned(EU, EN), run)
    before = written.read_bytes()
    with pytest.raises(RunFolderError, match=r"corpora\.both"):
        data_report(aligned(EU, EN + b"one more\n"), run)
    assert written.read_bytes() == before
    written.write_bytes(before[:-10])
    with pytest.raises(RunFolderError, match=r"pairs\.jsonl: it is not the text that was written there"):
        data_report(aligned(EU, EN), run)
    written.unlink()
    data_report(aligned(EU, EN), run)
    assert written.read_bytes() == before
