"""The tokens of a corpus, made in parts by as many processes as pay off; what a killed run had made is kept.

Run as a module, this is one of those processes: ``python -m lingraft.pipeline.tokenising JOB``. A process of its own
imports nothing of the caller's script, and its tokenizer uses its own threads.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lingraft.corpus import TokenStore
from lingraft.corpus.parts import Encoding, Part, TextRange, cut_text, is_part, read_range, write_part
from lingraft.corpus.store import clear_parts, join_parts, parts_folder
from lingraft.errors import CorpusError, LingraftError
from lingraft.polling import poll
from lingraft.run import write_file
from lingraft.vocabulary import TokenizerFile

__all__ = ["tokenise"]

_PART_BYTES = 16 * 2**20
# One process's tokenizer has a thread for every core; beyond some four, handing its ids to Python is what takes time.
_CORES_PER_PROCESS = 4
_REFUSED = 3


def tokenise(
    text: Path,
    tokenizer: TokenizerFile,
    folder: Path,
    *,
    start_id: int | None,
    end_id: int,
    corpus_sha256: str,
    processes: int | None = None,
    part_bytes: int = _PART_BYTES,
) -> TokenStore:
    """Return the token store of a prepared text, made in ``folder``, which appears whole.

    Parts that a killed process had finished stand beside it, as ``NAME.parts``; they are taken after every byte of them
    has been checked, and removed when the store is there.

    Args:
        text: a ``train.jsonl``.
        tokenizer: its tokenizer; part of the name of ``folder`` by its hash, so another one can never meet these parts.
        folder: see :func:`lingraft.corpus.store_name`.
        start_id: in front of every document, or None.
        end_id: behind every document.
        corpus_sha256: the hash of ``text``.
        processes: how many to use; by default one for every four cores, and no more than there are parts.
        part_bytes: bytes of text in a part.

    Raises:
        CorpusError: there is no document, or one cannot be stored (:func:`lingraft.corpus.parts.write_part`).
    """
    keys = {"tokenizer_sha256": tokenizer.sha256, "corpus_sha256": corpus_sha256}
    encoding = Encoding(tokenizer.encode_batch, tokenizer.num_ids, start_id, end_id)
    parts = parts_folder(folder)
    job = {"text": str(text), "parts": str(parts), "start_id": start_id, "end_id": end_id, "keys": keys}
    ranges = cut_text(text, part_bytes)
    missing = [n for n, piece in enumerate(ranges) if _made(job, n, piece) is None]
    count = min(len(missing), processes or max(1, _cores() // _CORES_PER_PROCESS))
    if count > 1:
        _share_out(job, [missing[n::count] for n in range(count)], ranges, tokenizer)
    else:
        for number in missing:
            _make(job, number, ranges[number], encoding, read_range(text, ranges[number]))
    done = [part for n, piece in enumerate(ranges) if (part := _made(job, n, piece)) is not None]
    store = join_parts(done, encoding, folder, **keys)
    clear_parts(folder)
    return store


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _key(job: Mapping[str, Any], piece: TextRange) -> dict[str, Any]:
    borders = {"start_id": job["start_id"], "end_id": job["end_id"]}
    return {**job["keys"], **borders, "begin": piece.begin, "end": piece.end}


def _made(job: Mapping[str, Any], number: int, piece: TextRange) -> Part | None:
    return is_part(Path(job["parts"]) / f"{number:05d}", _key(job, piece))


def _make(job: Mapping[str, Any], number: int, piece: TextRange, encoding: Encoding, texts: Iterator[str]) -> None:
    write_part(texts, encoding, Path(job["parts"]) / f"{number:05d}", first=piece.first, key=_key(job, piece))


def _share_out(
    job: dict[str, Any], shares: Sequence[list[int]], ranges: Sequence[TextRange], tokenizer: TokenizerFile
) -> None:
    """Let processes make the missing parts; the first that fails ends them all."""
    parts = Path(job["parts"])
    write_file(parts / "tokenizer.json", tokenizer.text)
    source = str(Path(__file__).parents[2])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = str(max(1, _cores() // len(shares)))
    environment = os.environ | {"PYTHONPATH": paths, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
    with ExitStack() as stack:
        workers = []
        for number, share in enumerate(shares):
            pieces = [[n, ranges[n].begin, ranges[n].end, ranges[n].first] for n in share]
            path = parts / f"job-{number}.json"
            write_file(path, json.dumps(job | {"pieces": pieces, "parent": os.getpid()}))
            command = [sys.executable, "-m", "lingraft.pipeline.tokenising", str(path)]
            # In a session of its own, so that Ctrl-C reaches the one process that knows what to do about it.
            worker = subprocess.Popen(
                command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            stack.callback(_end, worker)
            workers.append(worker)
        for worker in workers:
            said = _said(worker)
            if worker.returncode == _REFUSED:
                raise CorpusError(said.strip())
            if worker.returncode:
                last = said.strip().splitlines()[-1] if said.strip() else "nothing was said"
                raise CorpusError(f"a process that makes tokens ended with status {worker.returncode}: {last}")


def _said(worker: "subprocess.Popen[str]") -> str:
    """Return what a process said, when it has ended; a stop is heard while waiting."""
    while True:
        try:
            return worker.communicate(timeout=0.5)[1]
        except subprocess.TimeoutExpired:
            poll()


def _end(worker: "subprocess.Popen[str]") -> None:
    if worker.poll() is None:
        worker.kill()
    # One that had ended by itself, unasked, still has its end of the pipe open.
    if worker.stderr is not None and not worker.stderr.closed:
        worker.communicate()


def _orphan_free(texts: Iterator[str], parent: int) -> Iterator[str]:
    """Yield texts as long as the process that wants their tokens is there."""
    for text in texts:
        if os.getppid() != parent:
            raise SystemExit(1)
        yield text


def _main(path: Path) -> int:
    job = json.loads(path.read_text(encoding="utf-8"))
    tokenizer = TokenizerFile.read(Path(job["parts"]) / "tokenizer.json")
    encoding = Encoding(tokenizer.encode_batch, tokenizer.num_ids, job["start_id"], job["end_id"])
    try:
        for number, begin, end, first in job["pieces"]:
            piece = TextRange(begin, end, first)
            texts = _orphan_free(read_range(Path(job["text"]), piece), job["parent"])
            _make(job, number, piece, encoding, texts)
    except LingraftError as error:
        sys.stderr.write(str(error))
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
