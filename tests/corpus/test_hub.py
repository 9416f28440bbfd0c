"""A Hugging Face dataset, without the hub: the one call to it is replaced, all behind it is real."""

import json
import sys

import datasets
import pytest

from lingraft.corpus import (
    Cleaning,
    DatasetName,
    Document,
    Preparation,
    Reading,
    Rejects,
    find_place,
    prepare_corpus,
    read_dataset,
    read_prepared,
    source_fingerprint,
)
from lingraft.errors import CorpusError, MissingExtraError

REAL_LOAD = datasets.load_dataset


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Stand in for a hub with one dataset, ``org/text``, of one split, ``train``; a test gives its rows."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    calls = []

    def publish(rows):
        rows_path = tmp_path / "rows.jsonl"
        rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

        def load(path, **options):
            calls.append(options)
            if path != "org/text":
                raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{path}' doesn't exist on the Hub")
            if options["split"] != "train":
                raise ValueError(f"Bad split: {options['split']}. Available splits: ['train']")
            return REAL_LOAD("json", data_files=str(rows_path), split="train", streaming=True)

        monkeypatch.setattr(datasets, "load_dataset", load)
        return calls

    return publish


def read(name="org/text", *, split="train", policy="error", rejects=None):
    place = DatasetName(name, split, "v2", "v1")
    reading = Reading(bad_lines=policy, max_bad_fraction=0.5)
    return list(read_dataset(place, reading, corpus="en", rejects=rejects or Rejects(), where="corpora.en"))


def test_rows_become_documents_and_no_code_is_trusted(hub):
    calls = hub([{"text": "a", "id": "p1"}, {"text": "b", "id": None}])
    assert read() == [Document("a", "en", "p1"), Document("b", "en", "org/text:2")]
    assert calls == [{"name": "v2", "split": "train", "revision": "v1", "streaming": True}]


def test_bad_row(hub):
    hub([{"text": "a"}, {"text": None}])
    with pytest.raises(CorpusError, match=r"org/text@v1:2: field 'text' is null"):
        read()
    assert len(read(policy="skip")) == 1


def test_wrong_column_is_not_silently_null(hub):
    hub([{"txt": "a"}])
    with pytest.raises(CorpusError, match=r"no field 'text', did you mean 'txt'"):
        read()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "org/other"}, "'org/other' cannot be read: Dataset 'org/other'"),
        ({"split": "test"}, "Bad split: test"),
    ],
)
def test_what_the_hub_refuses_names_the_recipe(hub, options, message):
    hub([{"text": "a"}])
    with pytest.raises(CorpusError, match=rf"corpora\.en: the split .*{message}"):
        read(**options)


def test_a_file_that_breaks_halfway_names_the_recipe(hub, tmp_path):
    hub([{"text": "a"}])
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "a"}\n{"text": "\xff')
    with pytest.raises(CorpusError, match=r"corpora\.en: the split 'train'"):
        read()


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[hub\]"):
        read()


def test_prepared_from_the_hub(hub, tmp_path):
    hub([{"text": f"Page {n}"} for n in range(50)])
    place = find_place(["org/text"], "corpora.en", split="train")
    record = prepare_corpus("en", tmp_path / "out", place, Preparation(validation=0.2))
    assert record["train_documents"] + record["validation_documents"] == 50
    assert json.loads((tmp_path / "out/report.json").read_text())["sources"] == [{"dataset": "org/text"}]


def test_no_more_rows_are_fetched_than_documents_are_wanted(monkeypatch, tmp_path):
    def rows():
        for number in range(1_000_000):
            assert number <= 20, "read too far"
            yield {"text": f"Page {number}"}

    monkeypatch.setattr(datasets, "load_dataset", lambda **_: datasets.IterableDataset.from_generator(rows))
    place = find_place(["org/text"], "corpora.en", split="train")
    preparation = Preparation(cleaning=Cleaning(max_documents=20), validation=0.5)
    record = prepare_corpus("en", tmp_path / "out", place, preparation)
    assert record["train_documents"] + record["validation_documents"] == 20


@pytest.fixture
def saved(tmp_path):
    """A folder as ``DatasetDict.save_to_disk`` leaves it, with the splits train and test; and one of a single set."""
    train = datasets.Dataset.from_dict({"text": [f"Page {n}" for n in range(30)], "n": list(range(30))})
    test = datasets.Dataset.from_dict({"text": ["Last page"], "n": [0]})
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "both")
    train.save_to_disk(tmp_path / "one")
    return tmp_path


def test_a_saved_dataset_is_read_from_its_folder(saved):
    one, both = find_place([str(saved / "one")], "x"), find_place([str(saved / "both")], "x", split="test")
    for place, texts in ((one, [f"Page {n}" for n in range(30)]), (both, ["Last page"])):
        found = list(read_dataset(place.datasets[0], Reading(), corpus="en", rejects=Rejects(), where="corpora.en"))
        assert [document.text for document in found] == texts
    assert found[0].id == "both:1"


def test_a_saved_dataset_is_known_by_its_content(saved):
    before = source_fingerprint(find_place([str(saved / "one")], "x").files)
    datasets.Dataset.from_dict({"text": ["Other"]}).save_to_disk(saved / "one")
    assert source_fingerprint(find_place([str(saved / "one")], "x").files) != before


@pytest.mark.parametrize(
    ("folder", "split", "message"),
    [
        ("both", None, r"corpora\.en\.split: .*both holds the splits train, test; name one"),
        ("both", "tset", r"did you mean 'test'"),
        ("one", "test", r"corpora\.en\.split: .*one holds the one split None, not 'test'"),
    ],
)
def test_a_saved_dataset_without_the_split_is_refused(saved, folder, split, message):
    place = find_place([str(saved / folder)], "corpora.en", split=split)
    with pytest.raises(CorpusError, match=message):
        list(read_dataset(place.datasets[0], Reading(), corpus="en", rejects=Rejects(), where="corpora.en"))


def test_a_column_that_is_no_text_is_refused_plainly(saved):
    name = DatasetName(str(saved / "one"), None)
    with pytest.raises(CorpusError, match=r"corpora\.en\.text: column 'n' of .* is of type int64, not text"):
        list(read_dataset(name, Reading("n"), corpus="en", rejects=Rejects(), where="corpora.en"))


def test_datasets_and_files_make_one_corpus(saved, tmp_path):
    (tmp_path / "a.txt").write_text("A text.")
    place = find_place([str(saved / "one"), str(tmp_path / "a.txt")], "corpora.en")
    record = prepare_corpus("en", tmp_path / "out", place, Preparation(validation=0.0))
    assert record["train_documents"] == 31
    assert next(read_prepared(tmp_path / "out" / "train.jsonl")).text == "A text."
