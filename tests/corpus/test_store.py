"""Tokens on disk: what goes in comes out, and nothing else is ever taken for it."""

import json
from dataclasses import fields

import numpy as np
import pytest

from lingraft.corpus import build_store, open_store, store_name
from lingraft.corpus.parts import Encoding
from lingraft.corpus.store import Manifest
from lingraft.errors import CorpusError
from lingraft.run import fingerprint

TEXTS = ["ab", "ñ", "c d e"]


def spell(texts: list[str]) -> list[list[int]]:
    """Encode every character as its code point, which a test can read."""
    return [[ord(character) for character in text] for text in texts]


def build(folder, texts=TEXTS, encode=spell, *, corpus_sha256="c", tokenizer_sha256="t", **options):
    encoding = Encoding(encode, **({"vocabulary_size": 300, "start_id": 1, "end_id": 2} | options))
    keys = {"tokenizer_sha256": tokenizer_sha256, "corpus_sha256": corpus_sha256}
    return build_store(iter(texts), encoding, folder / "store", **keys)


def test_documents_come_back(tmp_path):
    store = build(tmp_path)
    assert store.tokens.tolist() == [1, 97, 98, 2, 1, 241, 2, 1, 99, 32, 100, 32, 101, 2]
    assert store.document_ends.tolist() == [4, 7, 14]
    assert [store.document(n).tolist() for n in (0, 1)] == [[1, 97, 98, 2], [1, 241, 2]]
    assert (store.num_tokens, store.num_documents, store.num_bytes) == (14, 3, 9)


@pytest.mark.parametrize("start", [None, 1])
def test_o43_every_document_ends_with_eos(tmp_path, start):
    store = build(tmp_path, [f"text {n}" for n in range(1000)], start_id=start)
    assert store.num_documents == 1000
    assert (store.tokens[store.document_ends - 1] == 2).all()
    assert (store.tokens == 2).sum() == 1000


def test_o46_start_and_end_do_not_depend_on_each_other(tmp_path):
    assert build(tmp_path, ["a"], start_id=None).tokens.tolist() == [97, 2]
    assert build(tmp_path, ["a"], start_id=1).tokens.tolist() == [1, 97, 2]


@pytest.mark.parametrize(("entries", "width"), [(65_536, 2), (65_537, 4)])
def test_width_follows_the_vocabulary_and_files_are_bare(tmp_path, entries, width):
    store = build(tmp_path, ["a"], lambda texts: [[entries - 1]], vocabulary_size=entries, start_id=None)
    assert store.tokens.tolist() == [entries - 1, 2]
    assert (tmp_path / "store/tokens.ds").read_bytes() == b"".join(
        n.to_bytes(width, "little") for n in (entries - 1, 2)
    )
    assert (tmp_path / "store/tokens.ds.index").read_bytes() == (2).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary_size": 200}, r"document 2 encodes to id 241; the vocabulary has 200"),
        ({"encode": lambda texts: [[-1]] * len(texts)}, r"document 1 encodes to id -1"),
        ({"texts": ["a", ""]}, r"document 2 encodes to no token"),
        ({"texts": []}, r"an empty corpus"),
        ({"encode": lambda texts: [[97, 2]] * len(texts)}, r"document 1 has the start or end token 2 inside"),
        ({"encode": lambda texts: [[1, 97]] * len(texts)}, r"document 1 has the start or end token 1 inside"),
        ({"encode": lambda texts: [[97]]}, r"3 documents were encoded to 1"),
        ({"end_id": 300}, r"documents\.end: id 300 is not in a vocabulary of 300"),
    ],
)
def test_what_cannot_be_stored_is_an_error_and_leaves_nothing(tmp_path, options, message):
    with pytest.raises(CorpusError, match=message):
        build(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_batches_are_bounded(tmp_path):
    sizes: list[tuple[int, int]] = []

    def encode(texts):
        sizes.append((len(texts), sum(map(len, texts))))
        return spell(texts)

    build(tmp_path, ["a"] * 300 + ["b" * 400_000] * 4, encode)
    assert sizes == [(256, 256), (47, 1_200_044), (1, 400_000)]


def test_o49_stale_store_is_impossible_after_the_tokenizer_changed(tmp_path):
    assert store_name("eu", "t", "c", 1, 2) != store_name("eu", "expanded", "c", 1, 2)
    build(tmp_path)
    with pytest.raises(CorpusError, match="of another tokenizer"):
        open_store(tmp_path / "store", tokenizer_sha256="expanded", corpus_sha256="c")
    with pytest.raises(CorpusError, match="of another text"):
        open_store(tmp_path / "store", tokenizer_sha256="t", corpus_sha256="other")


def test_name_depends_on_everything_that_tokens_depend_on():
    base = ("eu", "t", "c", 1, 2)
    others = [("en", "t", "c", 1, 2), ("eu", "u", "c", 1, 2), ("eu", "t", "d", 1, 2)]
    others += [("eu", "t", "c", None, 2), ("eu", "t", "c", 1, 3)]
    names = [store_name(*given) for given in (base, *others)]
    assert len(set(names)) == len(names)
    assert store_name("eu", "t", "c", 1, 2).startswith("eu-")


@pytest.mark.parametrize("name", ["tokens.ds", "tokens.ds.index", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_damage_is_found(tmp_path, name, damage):
    build(tmp_path)
    path = tmp_path / "store" / name
    content = bytearray(path.read_bytes())
    content[1] ^= 0x80
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[:-1] if damage == "truncated" else content)
    with pytest.raises(CorpusError, match=name):
        open_store(tmp_path / "store", tokenizer_sha256="t", corpus_sha256="c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end_id": 3}, "does not end with the end token 3"),
        ({"start_id": 5}, "does not begin with the start token 5"),
        ({"num_documents": 4}, "does not divide"),
        ({"format": 4}, "format 4"),
        ({"width": 3}, "width 3"),
        ({"extra": 1}, "not the manifest"),
    ],
)
def test_manifest_must_fit_the_files(tmp_path, change, message):
    build(tmp_path)
    path = tmp_path / "store/manifest.json"
    stored = json.loads(path.read_text()) | change
    stored["seal"] = fingerprint({key: value for key, value in stored.items() if key != "seal"})
    path.write_text(json.dumps(stored))
    with pytest.raises(CorpusError, match=message):
        open_store(tmp_path / "store", tokenizer_sha256="t", corpus_sha256="c")


def test_tokens_are_mapped_and_cannot_be_written(tmp_path):
    store = build(tmp_path)
    assert isinstance(store.tokens, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        store.tokens[0] = 7


@pytest.mark.parametrize("key", [field.name for field in fields(Manifest)])
def test_every_entry_of_a_manifest_is_under_its_seal(tmp_path, key):
    build(tmp_path)
    path = tmp_path / "store/manifest.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {key: {0: 1, None: 0}.get(stored[key], stored[key] * 2)}))
    with pytest.raises(CorpusError, match="store"):
        open_store(tmp_path / "store", tokenizer_sha256="t", corpus_sha256="c")
    path.write_text(json.dumps(stored))
    assert open_store(tmp_path / "store", tokenizer_sha256="t", corpus_sha256="c").num_documents
