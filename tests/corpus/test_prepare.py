"""From sources to the two files of a corpus, and what is said about them."""

import json
import os
from pathlib import Path

import pytest

from lingraft.corpus import (
    Cleaning,
    Preparation,
    Reading,
    find_place,
    prepare_corpus,
    read_prepared,
    source_fingerprint,
)
from lingraft.errors import CorpusError
from lingraft.run import hash_file


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in" / "eu.jsonl"
    path.parent.mkdir()
    rows = [{"id": f"p{n}", "text": f"Esaldia {n}.\u2028Bai."} for n in range(100)] + [
        {"text": "Esaldia 7. Bai."},
        {"text": " "},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def prepare(source: Path, name: str = "eu", reading=None, cleaning=None, **options):
    place = find_place([str(source)], f"corpora.{name}")
    preparation = Preparation(
        reading=Reading(**reading or {}), cleaning=Cleaning(**cleaning or {}), **{"validation": 0.2} | options
    )
    return prepare_corpus(name, source.parents[1] / "out" / name, place, preparation)


def test_every_document_lands_on_one_side(source):
    record = prepare(source)
    sides = [list(read_prepared(source.parents[1] / "out/eu" / f"{side}.jsonl")) for side in ("train", "validation")]
    assert [len(side) for side in sides] == [record["train_documents"], record["validation_documents"]]
    assert {d.id for side in sides for d in side} == {f"p{n}" for n in range(100)}
    assert sides[0][0].text.endswith("\u2028Bai.")
    assert sides[0][0].corpus == "eu"


def test_record_and_report_agree(source):
    record = prepare(source)
    folder = source.parents[1] / "out/eu"
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert record.items() <= report.items()
    assert record["rejected"] == 2
    assert record["train_sha256"] == hash_file(folder / "train.jsonl")
    assert report["words"] == 300
    assert report["bytes"] == record["train_bytes"] + record["validation_bytes"]
    assert report["scripts"] == {"Latin": 1000}
    assert report["warnings"] == []
    assert report["sources"] == [{"file": "eu.jsonl", "bytes": source.stat().st_size, "sha256": hash_file(source)}]
    assert [entry["reason"] for entry in report["rejects"]] == [
        "exact duplicate of an earlier document",
        "white space only",
    ]


def test_the_report_names_no_folder(source):
    source.write_bytes(source.read_bytes() + b"{\n")
    prepare(source, reading={"bad_lines": "skip", "max_bad_fraction": 0.5})
    text = (source.parents[1] / "out/eu/report.json").read_text(encoding="utf-8")
    assert str(source.parent) not in text
    assert "eu.jsonl:103: byte" in text


def test_same_sources_give_the_same_bytes(source):
    assert prepare(source) == prepare(source, name="other")


def test_o41_a_file_reached_by_two_paths_is_read_once(source):
    place = find_place([str(source), str(source.parent), f"{source.parent}/*"], "corpora.eu")
    cleaning = Cleaning(deduplicate=False)
    record = prepare_corpus("eu", source.parents[1] / "out", place, Preparation(cleaning=cleaning))
    assert record["train_documents"] + record["validation_documents"] == 101


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cleaning": {"min_characters": 1000}}, r"corpora\.eu: an empty corpus.*shorter than 1000 characters: 10"),
        ({"validation": 1e-9}, r"none of the 100 documents is held out, at corpora\.eu\.validation"),
        ({"validation": 1 - 1e-9}, r"all 100 documents are held out"),
        ({"reading": {"text_field": "txt"}}, r"eu\.jsonl:1: byte 0: no field 'txt', did you mean 'text'"),
    ],
)
def test_what_leaves_nothing_to_work_with_is_an_error(source, options, message):
    with pytest.raises(CorpusError, match=message):
        prepare(source, **options)
    assert not (source.parents[1] / "out" / "eu").exists()


@pytest.mark.parametrize(("share", "empty"), [(0.0, "validation_documents"), (1.0, "train_documents")])
def test_a_side_may_be_empty_where_that_was_asked(source, share, empty):
    assert prepare(source, validation=share)[empty] == 0


def test_empty_sources_are_an_empty_corpus(source):
    source.write_bytes(b"")
    with pytest.raises(CorpusError, match="an empty corpus"):
        prepare(source)


def test_changed_file_of_the_same_size_and_time_is_noticed(source):
    before = source_fingerprint([source])
    times = source.stat()
    source.write_bytes(source.read_bytes().replace(b"Esaldia 1.", b"Esaldia x."))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert source.stat().st_size == times.st_size
    assert source_fingerprint([source]) != before


def test_fingerprint_survives_a_move_and_not_a_new_name(source):
    before = source_fingerprint([source])
    moved = source.rename(source.parents[1] / "eu.jsonl")
    assert source_fingerprint([moved]) == before
    assert source_fingerprint([moved.rename(moved.with_name("en.jsonl"))]) != before


@pytest.mark.parametrize("content", [b"{}\n", b"x\n", b'["a"]\n'])
def test_prepared_text_that_is_not_ours(tmp_path, content):
    path = tmp_path / "train.jsonl"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"train\.jsonl:1: not a line of prepared text"):
        list(read_prepared(path))
    with pytest.raises(CorpusError, match="cannot be read"):
        list(read_prepared(tmp_path / "missing.jsonl"))


def warnings_of(tmp_path, *files, **options):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in files:
        (folder / name).write_bytes(content)
    prepare_corpus("eu", tmp_path / "out", find_place([str(folder)], "corpora.eu"), Preparation(**options))
    return json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["warnings"]


def test_what_is_odd_about_a_corpus_is_said_in_words(tmp_path):
    lines = ["Kaixo mundua", "n\u0303andu", "北京大观园北京大观园", "Agur"]
    content = "".join(json.dumps({"text": line}) + "\n" for line in lines).encode() + b'{"text": "cut'
    found = warnings_of(
        tmp_path,
        ("a.jsonl", content), ("b.csv", b"x"), ("c.jsonl", content),
        reading=Reading(tolerate_truncated_tail=True), validation=0.0,
    )  # fmt: skip
    assert found == [
        "33.3% of the letters are not Latin but Han",
        "mixed normal forms: 1 of 4 documents are not in NFC; normalise: nfc changes that",
        "1 files were passed over; the first is b.csv",
        "1 files are copies of others and were read once",
        "1 files end in the middle of a line",
    ]


@pytest.mark.parametrize(("scripts", "is_warned"), [({"Latin"}, True), ({"Latin", "Han"}, False), ((), True)])
def test_letters_of_scripts_that_are_expected_are_not_warned_of(tmp_path, scripts, is_warned):
    text = ("a.txt", "Kaixo mundua 北京大观园".encode())
    found = warnings_of(tmp_path, text, cleaning=Cleaning(scripts=frozenset(scripts)), validation=0.0)
    assert found == (["31.2% of the letters are not Latin but Han"] if is_warned else [])
