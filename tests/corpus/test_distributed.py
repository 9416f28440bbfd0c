"""A corpus by tasks is the corpus by one reader, byte for byte."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from lingraft.corpus import Cleaning, NearDuplicates, Preparation, Reading, find_place, prepare_corpus
from lingraft.corpus.distributed import Compare, JudgeFiles, SplitSides, claim, gather, prepare_by_tasks
from lingraft.errors import CorpusError, MissingExtraError

WORDS = [
    "gelaxka",
    "batek",
    "zenbaki",
    "bat",
    "testu",
    "edo",
    "formula",
    "eduki",
    "dezake",
    "eta",
    "orriak",
    "haren",
    "balioa",
    "erakusten",
    "du",
]


@pytest.fixture
def files(tmp_path):
    """Five files with exact and near repetitions across them, bad lines, blank ones, and texts that are not fit."""
    (tmp_path / "in").mkdir()
    for number in range(5):
        rows = [{"text": f"Esaldia {number} {n}: {' '.join(WORDS[n % 7 :] * 3)} {n}."} for n in range(40)]
        rows += [{"text": "Beti bera da."}, {"text": " "}, {"text": " ".join(WORDS * 4) + f" {number}"}]
        rows += [{"text": "n\u0303\r\n" * 3 + str(number)}, {"text": "a\x1bb"}, {"txt": "x"}]
        content = "".join(json.dumps(row) + "\n" for row in rows).encode() + b"\n"
        (tmp_path / "in" / f"{number}.jsonl").write_bytes(content)
    (tmp_path / "in" / "other.csv").touch()
    return find_place([str(tmp_path / "in")], "corpora.eu")


def preparation(**options):
    cleaning = Cleaning(normalise="nfc", min_characters=3, **options)
    return Preparation(Reading(bad_lines="skip", max_bad_fraction=0.05), cleaning, validation=0.2)


def by_steps(place, wanted, work, tasks):
    """The steps as plain functions, the last rank first: no task may depend on another's having been done."""
    given = ("eu", place, wanted, work, tasks)
    for step, count in ((JudgeFiles(*given), tasks), (Compare(*given), 1), (SplitSides(*given), tasks)):
        for rank in reversed(range(count)):
            step(None, rank, count)
    return gather(step, work / "out")


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("near", [False, True])
def test_tasks_make_what_one_reader_makes(files, tmp_path, tasks, near):
    if near:
        pytest.importorskip("rensa", reason="needs the extra dedup")
    wanted = preparation(near_duplicates=NearDuplicates() if near else None)
    record = prepare_corpus("eu", tmp_path / "one", files, wanted)
    assert by_steps(files, wanted, tmp_path / "work", tasks) == record
    for name in ("train.jsonl", "validation.jsonl", "report.json"):
        assert (tmp_path / "work" / "out" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    reasons = {entry["reason"] for entry in json.loads((tmp_path / "one" / "report.json").read_text())["rejects"]}
    assert reasons >= {"exact duplicate of an earlier document", "no field 'text'", "control character U+001B"}
    assert ("near-duplicate of an earlier document" in reasons) == near


def test_the_limit_on_bad_lines_is_one_on_the_whole_corpus(files, tmp_path):
    wanted = Preparation(Reading(bad_lines="skip", max_bad_fraction=0.02), Cleaning())
    with pytest.raises(CorpusError, match=r"corpora\.eu: 5 of 230 lines"):
        by_steps(files, wanted, tmp_path / "work", 5)


def test_by_the_local_executor_of_datatrove_and_again(files, tmp_path):
    pytest.importorskip("datatrove", reason="needs the extra data")
    wanted = preparation()
    record = prepare_corpus("eu", tmp_path / "one", files, wanted)
    for _ in range(2):
        made = prepare_by_tasks("eu", tmp_path / "many", files, wanted, tmp_path / "work", tasks=3)
        assert made == record
    assert (tmp_path / "many" / "report.json").read_bytes() == (tmp_path / "one" / "report.json").read_bytes()


def test_what_cannot_be_divided_is_refused(files, tmp_path, monkeypatch):
    pytest.importorskip("datatrove", reason="needs the extra data")
    for wanted, tasks, message in (
        (preparation(max_documents=3), 2, r"corpora\.eu\.max_documents: tasks cannot count together"),
        (preparation(), 6, r"corpora\.eu: 6 tasks for 5 files"),
    ):
        with pytest.raises(CorpusError, match=message):
            prepare_by_tasks("eu", tmp_path / "many", files, wanted, tmp_path / "work", tasks=tasks)
    monkeypatch.setitem(sys.modules, "datatrove.executor", None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[data\]"):
        prepare_by_tasks("eu", tmp_path / "many", files, preparation(), tmp_path / "work", tasks=2)


def test_a_work_folder_of_something_else_is_refused(files, tmp_path):
    """By datatrove too: what its executor takes for done is not asked about."""
    pytest.importorskip("datatrove", reason="needs the extra data")
    wanted, work = preparation(), tmp_path / "work"

    def again(place=files, wanted=wanted, tasks=2):
        return prepare_by_tasks("eu", tmp_path / "many", place, wanted, work, tasks=tasks)

    first = again()
    assert again() == first
    with pytest.raises(
        CorpusError, match=r"was made otherwise\. Give another work folder.*\n  validation: 0\.2 → 0\.5"
    ):
        again(wanted=replace(wanted, validation=0.5))
    with pytest.raises(CorpusError, match=r"\n  tasks: 2 → 3$"):
        again(tasks=3)
    replaced = files.sources.files[1]
    replaced.write_bytes(replaced.read_bytes().replace(b"Esaldia", b"ESALDIA"))
    with pytest.raises(CorpusError, match=r"\n  changed: the file 1\.jsonl$"):
        again()
    shutil.rmtree(work)
    assert again()["train_sha256"] != first["train_sha256"]


def test_text_that_changes_while_tasks_read_it_is_refused(files, tmp_path):
    given = ("eu", files, preparation(), tmp_path / "work", 1)
    claim(JudgeFiles(*given))
    JudgeFiles(*given)()
    Compare(*given)()
    SplitSides(*given)()
    gather(SplitSides(*given), tmp_path / "out")
    with files.sources.files[3].open("ab") as file:
        file.write(b'{"text": "Beste bat da."}\n')
    with pytest.raises(CorpusError, match=r"changed while they were read.*changed: the file 3\.jsonl"):
        gather(SplitSides(*given), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    (tmp_path / "work" / "split" / "00000").unlink()
    with pytest.raises(CorpusError, match=r"split/00000: the account of a task cannot be read"):
        gather(SplitSides(*given), tmp_path / "out")
