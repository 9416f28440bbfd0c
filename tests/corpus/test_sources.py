"""From paths to files: what is found, what is passed over and why, and what is found twice."""

import json
import os
from pathlib import Path

import pytest

from lingraft.corpus import Preparation, find_files, find_place, prepare_corpus
from lingraft.corpus.sources import find_sources
from lingraft.errors import CorpusError


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "sub" / ".hidden").mkdir(parents=True)
    for name in ("b.jsonl", "a.txt.gz", "README.md", "sub/c.parquet", "sub/.hidden/d.txt", "sub/.e.txt"):
        (tmp_path / name).touch()
    (tmp_path / "z.jsonl").symlink_to(tmp_path / "b.jsonl")
    return tmp_path


def test_a_pipe_is_no_text(tree):
    """Reading from it would wait for whoever writes into it."""
    os.mkfifo(tree / "p.jsonl")
    (tree / "loop.jsonl").symlink_to(tree / "loop.jsonl")
    for given, message in (("p.jsonl", r"p\.jsonl' is a pipe"), ("loop.jsonl", r"loop\.jsonl' is a link that leads")):
        with pytest.raises(CorpusError, match=message):
            find_sources([str(tree / given)], "corpora.eu.path")
    (tree / "loop.jsonl").unlink()
    for given in (str(tree), str(tree / "*.jsonl")):
        found = find_sources([given], "corpora.eu.path")
        assert tree / "b.jsonl" in found.files
        assert (tree / "p.jsonl", "a pipe, a socket or a device") in found.ignored


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["."], ["a.txt.gz", "b.jsonl", "sub/c.parquet"]),
        (["*.jsonl", "b.jsonl", "z.jsonl"], ["b.jsonl"]),
        (["**/*.parquet", "a.*"], ["a.txt.gz", "sub/c.parquet"]),
    ],
)
def test_files_are_found_once_and_in_order(tree, paths, names):
    found = find_files([str(tree / path) for path in paths], "corpora.eu.path")
    assert [str(path.relative_to(tree)) for path in found] == names


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("c.jsonl", r"c\.jsonl' does not exist, did you mean '[bz]\.jsonl'"),
        (
            "HuggingFaceFW/fineweb-edu",
            r"for the Hugging Face dataset HuggingFaceFW/fineweb-edu, add split: train",
        ),
        ("README.md", r"is not a file of a kind that can be read: \.txt, \.jsonl"),
        ("*.md", r"leads to no \.txt"),
        ("sub/.hidden/*.jsonl", r"leads to no \.txt"),
    ],
)
def test_path_that_leads_nowhere(tree, path, message):
    with pytest.raises(CorpusError, match=rf"corpora\.eu\.path: .*{message}"):
        find_files([str(tree / path)], "corpora.eu.path")


def test_what_is_passed_over_is_told_with_its_reason(tree):
    ignored = find_sources([str(tree)], "corpora.eu.path").ignored
    assert {str(path.relative_to(tree)): why.split(":")[0] for path, why in ignored} == {
        "README.md": "not of a kind that can be read, by its name",
        "sub/.hidden": "hidden",
        "sub/.e.txt": "hidden",
    }
    assert [path.name for path, _ in find_sources([f"{tree}/*"], "x").ignored] == ["README.md"]


def test_a_folder_without_text_names_what_it_holds(tmp_path):
    (tmp_path / "data.csv").touch()
    with pytest.raises(CorpusError, match=r"leads to no .* file; of 1 other files the first is .*data\.csv"):
        find_files([str(tmp_path)], "corpora.eu.path")


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.txt").write_text("a")
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "there").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "back").symlink_to(tmp_path / "near")
    for path in (tmp_path / "near", tmp_path, tmp_path / "**" / "*.txt"):
        found = find_sources([str(path)], "corpora.eu.path")
        assert [file.resolve() for file in found.files] == [tmp_path / "far" / "a.txt"]
    loops = [why for _, why in find_sources([str(tmp_path)], "x").ignored]
    assert set(loops) == {"a link to a folder that it lies in"}


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(CorpusError, match=r"a\.jsonl' is a link that leads nowhere \(.*gone\.jsonl\)"):
        find_files([str(tmp_path)], "corpora.eu.path")


def test_o41_a_copy_of_a_file_is_read_once(tmp_path):
    for name, text in (("a.txt", "one"), ("b.txt", "two"), ("c.txt", "one"), ("d.txt", ""), ("e.txt", "")):
        (tmp_path / name).write_text(text)
    found = find_sources([str(tmp_path)], "corpora.eu.path")
    assert [path.name for path in found.files] == ["a.txt", "b.txt", "d.txt", "e.txt"]
    assert [(copy.name, first.name) for copy, first in found.copies] == [("c.txt", "a.txt")]


def test_recursive_globs_pass_over_hidden_folders(tree):
    assert find_files([f"{tree}/**/*.parquet"], "x") == [Path(tree, "sub", "c.parquet")]
    with pytest.raises(CorpusError, match="leads to no"):
        find_files([f"{tree}/**/d.txt"], "x")


def test_a_name_that_is_no_text_is_refused_where_it_is_read_and_listed_where_it_is_not(tmp_path):
    """On Linux a name is bytes; ids and reports are UTF-8."""
    (tmp_path / "a.txt").write_text("Kaixo.")
    try:
        (tmp_path / os.fsdecode(b"odd\xff.csv")).touch()
    except OSError:
        pytest.skip("this file system takes no such names")
    place = find_place([str(tmp_path)], "corpora.eu")
    prepare_corpus("eu", tmp_path / "out", place, Preparation(validation=0))
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["ignored"] == [{"file": "odd\\udcff.csv", "why": "not of a kind that can be read, by its name"}]
    (tmp_path / os.fsdecode(b"odd\xff.txt")).touch()
    with pytest.raises(CorpusError, match=r"corpora\.eu\.path: the name of the file b'.*odd\\xff\.txt' is not UTF-8"):
        find_place([str(tmp_path)], "corpora.eu")
