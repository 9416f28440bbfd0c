"""A Hugging Face dataset, without the hub: the one call to it is replaced, all behind it is real."""

import json
import sys

import datasets
import pytest

from lingraft.corpus import Document, Rejects, prepare_corpus, read_hub
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
    return list(
        read_hub(
            name,
            split=split,
            config="v2",
            revision="v1",
            text_field="text",
            corpus="en",
            bad_lines=policy,
            max_bad_fraction=0.5,
            rejects=rejects or Rejects(),
            where="corpora.en",
        )
    )


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
    record = prepare_corpus("en", tmp_path / "out", paths=["org/text"], split="train", validation=0.2)
    assert record["train_documents"] + record["validation_documents"] == 50
    assert json.loads((tmp_path / "out/report.json").read_text())["sources"] == [{"dataset": "org/text"}]
