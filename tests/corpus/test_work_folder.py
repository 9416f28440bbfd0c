"""A folder of tasks serves one preparation: what counts, what does not, and how a difference is told."""

import functools
from dataclasses import replace

import pytest

from lingraft.corpus import Cleaning, LanguageCheck, NearDuplicates, Preparation, Reading, find_place
from lingraft.corpus.work_folder import claim_folder, refuse_changed_sources
from lingraft.errors import CorpusError

BASE = Preparation()


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.txt").write_text(name)
    return tmp_path


def take(folder, preparation=BASE, name="eu", tasks=2, source="in"):
    place = find_place([str(folder / source)], "corpora.eu")
    claim_folder(folder / "work", name, place, preparation, tasks=tasks, made=("documents",))


def short(text: str, *, at_least: int = 1) -> str | None:
    return "short" if len(text) < at_least else None


CHANGES = {
    "reading.bad_lines: 'error' → 'skip'": {"reading": Reading(bad_lines="skip")},
    "reading.text_field: 'text' → 'body'": {"reading": Reading("body")},
    "cleaning.normalise: 'none' → 'nfc'": {"cleaning": Cleaning(normalise="nfc")},
    "cleaning.scripts.0: None → 'Latin'": {"cleaning": Cleaning(scripts=frozenset({"Latin"}))},
    "cleaning.near_duplicates.similarity": {"cleaning": Cleaning(near_duplicates=NearDuplicates())},
    "cleaning.language.model: None → 'small'": {"cleaning": Cleaning(language=LanguageCheck(("eu",)))},
    "test_work_folder:short": {"cleaning": Cleaning(quality=(functools.partial(short, at_least=3),))},
    "'None:str.strip'": {"cleaning": Cleaning(quality=(str.strip,))},
    "split_by: 'content' → 'id'": {"split_by": "id"},
}


@pytest.mark.parametrize(("message", "change"), CHANGES.items(), ids=CHANGES.keys())
def test_every_option_that_decides_on_the_text_counts(folder, message: str, change: dict) -> None:
    changed = replace(BASE, **change)
    take(folder)
    with pytest.raises(CorpusError) as caught:
        take(folder, changed)
    assert message in str(caught.value)
    (folder / "work" / "work.json").unlink()
    take(folder, changed)
    take(folder, changed)


def test_a_threshold_of_a_filter_counts(folder) -> None:
    for threshold, refused in ((3, False), (3, False), (4, True)):
        filters = Cleaning(quality=(functools.partial(short, at_least=threshold),))
        if refused:
            with pytest.raises(CorpusError, match=r"cleaning\.quality\.0\.options\.1\.at_least: 3 → 4$"):
                take(folder, replace(BASE, cleaning=filters))
        else:
            take(folder, replace(BASE, cleaning=filters))


def test_what_is_asked_for_at_the_end_and_where_files_lie_do_not_count(folder) -> None:
    take(folder)
    (folder / "in").rename(folder / "moved")
    take(folder, replace(BASE, reading=Reading(max_bad_fraction=0.5), max_other_script=0.9), source="moved")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: (path / "a.txt").write_text("A"), r"\n  changed: the file a\.txt$"),
        (lambda path: (path / "a.txt").unlink(), r"\n  gone: the file a\.txt$"),
        (lambda path: (path / "c.txt").write_text("c"), r"\n  new: the file c\.txt$"),
        (lambda path: (path / "a.txt").rename(path / "c.txt"), r"gone: the file a\.txt\n  new: the file c\.txt$"),
    ],
)
def test_a_file_is_known_by_its_content(folder, change, message: str) -> None:
    take(folder)
    change(folder / "in")
    with pytest.raises(CorpusError, match=message):
        take(folder)


def test_many_differences_are_told_in_few_lines(folder) -> None:
    take(folder)
    for number in range(20):
        (folder / "in" / f"new{number}.txt").write_text(str(number))
    with pytest.raises(CorpusError, match=r"\n  and 16 more$") as caught:
        take(folder, tasks=3)
    assert str(caught.value).count("\n") == 6


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": [1], "options": {}}', '{"files": null}'])
def test_a_damaged_record_is_no_leave_to_go_on(folder, content: str) -> None:
    take(folder)
    (folder / "work" / "work.json").write_text(content)
    with pytest.raises(CorpusError, match=r"work\.json: the record of what this folder is for cannot be read"):
        take(folder)
    with pytest.raises(CorpusError, match=r"work\.json"):
        refuse_changed_sources(folder / "work", [])


def test_work_without_a_record_is_refused(folder) -> None:
    (folder / "work" / "documents").mkdir(parents=True)
    with pytest.raises(CorpusError, match="it holds documents, and no record of what text"):
        take(folder)
    assert not (folder / "work" / "work.json").exists()
