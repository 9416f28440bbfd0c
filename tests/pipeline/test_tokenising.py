"""Token stores made in parts: by several processes, over a kill, with any tokenizer's own border tokens."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors

from lingraft.corpus import open_store, store_name
from lingraft.errors import CorpusError
from lingraft.pipeline import tokenising
from lingraft.pipeline.tokenising import tokenise
from lingraft.run import hash_file
from lingraft.vocabulary import TokenizerFile


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "train.jsonl"
    lines = [json.dumps({"id": str(n), "text": f"The light of file {n} is bright, ñ."}) for n in range(200)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def make(text: Path, tokenizer, folder: Path, **options):
    return tokenise(text, tokenizer, folder, start_id=None, end_id=0, corpus_sha256=hash_file(text), **options)


@pytest.mark.parametrize(("processes", "part_bytes"), [(1, 1), (1, 3000), (2, 3000)])
def test_the_store_is_the_same_however_it_is_made(text, tokenizer, tmp_path, processes: int, part_bytes: int) -> None:
    whole = make(text, tokenizer, tmp_path / "whole")
    made = make(text, tokenizer, tmp_path / "made", processes=processes, part_bytes=part_bytes)
    assert files_of(made.folder) == files_of(whole.folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "train.jsonl", "whole"]


def test_parts_that_a_kill_left_are_kept_and_damaged_ones_made_again(text, tokenizer, tmp_path, monkeypatch) -> None:
    made: list[int] = []
    write_part = tokenising.write_part

    def until_the_third(texts, encoding, folder, **options):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(int(folder.name))
        return write_part(texts, encoding, folder, **options)

    monkeypatch.setattr(tokenising, "write_part", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        make(text, tokenizer, tmp_path / "store", part_bytes=2000)
    assert made == [0, 1, 2]
    (tmp_path / "store.parts" / "00001" / "tokens.ds").write_bytes(b"torn")
    monkeypatch.setattr(tokenising, "write_part", lambda *given, **options: _noted(made, write_part, *given, **options))
    store = make(text, tokenizer, tmp_path / "store", part_bytes=2000)
    assert made[3:5] == [1, 3]
    assert files_of(store.folder) == files_of(make(text, tokenizer, tmp_path / "whole").folder)


def _noted(made: list[int], write_part, texts, encoding, folder: Path, **options):
    made.append(int(folder.name))
    return write_part(texts, encoding, folder, **options)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_bad_document_is_named_by_its_number_and_nothing_is_published(tokenizer, tmp_path, processes: int) -> None:
    path = tmp_path / "train.jsonl"
    lines = [json.dumps({"id": str(n), "text": "light" if n != 76 else ""}) for n in range(100)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"^document 77 encodes to no token$"):
        make(path, tokenizer, tmp_path / "store", processes=processes, part_bytes=700)
    assert not (tmp_path / "store").exists()


def test_o49_another_tokenizer_never_meets_the_parts_of_the_first(text, tokenizer, tmp_path) -> None:
    """Not even where the folder has the same name: a part knows its tokenizer."""
    other = TokenizerFile(tokenizer.text + " ", "other")
    store = make(text, tokenizer, tmp_path / "first", part_bytes=2000)
    shutil.copytree(store.folder, tmp_path / "kept")
    part = tokenising.write_part
    key = tokenising._key({"keys": {"tokenizer_sha256": tokenizer.sha256, "corpus_sha256": hash_file(text)},
                           "start_id": None, "end_id": 0}, tokenising.cut_text(text, 2000)[0])  # fmt: skip
    encoding = tokenising.Encoding(lambda texts: [[7]] * len(texts), tokenizer.num_ids, None, 0)
    part(["a"], encoding, tmp_path / "second.parts" / "00000", key=key)
    assert (
        files_of(make(text, other, tmp_path / "second", part_bytes=2000).folder)["tokens.ds"]
        == (tmp_path / "kept" / "tokens.ds").read_bytes()
    )
    names = {store_name("eu", t.sha256, "c", None, 0) for t in (tokenizer, other)}
    assert len(names) == 2


def test_o46_o43_a_tokenizer_that_puts_its_own_bos_in_front_gets_each_border_as_asked(
    text, tokenizer, tmp_path
) -> None:
    """A post-processor in the manner of Llama 3 adds BOS to every text; the ids of texts never pass through it."""
    theirs = Tokenizer.from_str(tokenizer.text)
    theirs.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    llama = TokenizerFile(theirs.to_str(), "llama-3 style")
    assert llama.leading_ids() == [1]
    for start in (None, 1):
        folder = tmp_path / f"store-{start}"
        store = tokenise(text, llama, folder, start_id=start, end_id=0, corpus_sha256=hash_file(text), part_bytes=2000)
        first = store.document(0).tolist()
        assert (first[0] == 1, first.count(1), first[-1], first.count(0)) == (start == 1, int(start == 1), 0, 1)
        assert (store.tokens[store.document_ends - 1] == 0).all()
        assert int((store.tokens == 1).sum()) == (200 if start == 1 else 0)
        open_store(folder, tokenizer_sha256=llama.sha256, corpus_sha256=hash_file(text))


def test_a_worker_ends_with_the_process_that_wanted_it(text, tokenizer, tmp_path) -> None:
    """Its parent is not this one, so it stops at the first document and writes nothing."""
    parts = tmp_path / "store.parts"
    parts.mkdir()
    (parts / "tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
    job = {"text": str(text), "parts": str(parts), "start_id": None, "end_id": 0, "keys": {}, "parent": -1,
           "pieces": [[0, 0, text.stat().st_size, 1]]}  # fmt: skip
    (parts / "job-0.json").write_text(json.dumps(job))
    source = Path(tokenising.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "lingraft.pipeline.tokenising", str(parts / "job-0.json")],
        env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert sorted(path.name for path in parts.iterdir()) == ["job-0.json", "tokenizer.json"]


def test_a_worker_that_is_killed_is_an_error(text, tokenizer, tmp_path, monkeypatch) -> None:
    popen = subprocess.Popen

    def killed(command, **options):
        process = popen([sys.executable, "-c", "import time; time.sleep(60)"], **options)
        process.send_signal(signal.SIGKILL)
        process.wait()
        started.append(process)
        return process

    started: list[subprocess.Popen] = []
    monkeypatch.setattr(tokenising.subprocess, "Popen", killed)
    with pytest.raises(CorpusError, match="a process that makes tokens ended with status -9: nothing was said"):
        make(text, tokenizer, tmp_path / "store", processes=2, part_bytes=3000)
    assert [process.stderr.closed for process in started] == [True, True]
