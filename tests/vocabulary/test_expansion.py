"""An expansion goes to disk and back, and belongs to one tokenizer."""

import json

import pytest

from lingraft.errors import VocabularyError
from lingraft.vocabulary import LearnOptions, expand_vocabulary, keep_vocabulary, open_expansion


@pytest.fixture(scope="module")
def expansion(tokenizer, corpora_folder):
    texts = [json.loads(line)["text"] for line in (corpora_folder / "eu.jsonl").read_text("utf-8").splitlines()]
    return expand_vocabulary(tokenizer, texts, [], LearnOptions(20))


def test_saved_and_opened_is_the_same(expansion, tokenizer, tmp_path):
    expansion.save(tmp_path)
    again = open_expansion(tmp_path, tokenizer)
    assert again.new_tokens == expansion.new_tokens
    assert (again.method, again.curve, again.record) == ("expand", expansion.curve, expansion.record)
    assert again.new.text == expansion.new.text


def test_sizes(expansion, tokenizer):
    assert (expansion.num_old, expansion.num_new) == (tokenizer.num_ids, 20)
    assert expansion.new.num_ids == tokenizer.num_ids + 20


def test_o05_hashes_of_both_tokenizers_are_recorded(expansion, tokenizer, tmp_path):
    expansion.save(tmp_path)
    record = json.loads((tmp_path / "expansion.json").read_text("utf-8"))
    assert (record["old_sha256"], record["new_sha256"]) == (tokenizer.sha256, expansion.new.sha256)
    assert (record["family"], record["num_old"], record["num_new"]) == ("byte_bpe", tokenizer.num_ids, 20)
    first = record["new_tokens"][0]
    assert first["text"] == tokenizer.decode(first["pieces"])


def test_changed_tokenizer_is_refused(expansion, tokenizer, tmp_path):
    expansion.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text("utf-8").replace('"version": "1.0"', '"version": "1.0" '), encoding="utf-8")
    with pytest.raises(VocabularyError, match=r"tokenizer\.json was changed"):
        open_expansion(tmp_path, tokenizer)


@pytest.mark.parametrize("content", [None, "{", "{}", "[]", '{"new_tokens": 3}'])
def test_damaged_expansion_is_named(expansion, tokenizer, tmp_path, content):
    expansion.save(tmp_path)
    path = tmp_path / "expansion.json"
    path.write_text(content) if content else path.unlink()
    with pytest.raises(VocabularyError, match=r"expansion\.json: missing or damaged"):
        open_expansion(tmp_path, tokenizer)


def test_expansion_of_another_tokenizer_is_refused(expansion, tokenizer, tmp_path):
    expansion.save(tmp_path)
    with pytest.raises(VocabularyError, match="does not belong to tiny"):
        open_expansion(tmp_path, tokenizer.extended(["qz"], [("q", "z")]))


def test_o16_keep_is_the_identity_by_name(tokenizer, tmp_path):
    kept = keep_vocabulary(tokenizer)
    assert kept.new is kept.old is tokenizer
    assert (kept.method, kept.num_new, kept.new_tokens) == ("keep", 0, ())
    kept.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text("utf-8") == tokenizer.text
    assert open_expansion(tmp_path, tokenizer).method == "keep"
