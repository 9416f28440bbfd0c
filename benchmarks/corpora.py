"""How fast text is read, cleaned, checked and compared, step by step, and a whole corpus by one process and by tasks.

    python benchmarks/corpora.py TEXT... [--megabytes 50] [--tasks 4] [--workers 2]

TEXT are files or folders of text (jsonl, txt, parquet; .gz, .zst). Every step runs by itself over the same documents;
megabytes are of UTF-8 text.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lingraft.corpus import (
    Cleaning,
    Document,
    NearDuplicates,
    Overlap,
    Preparation,
    Reading,
    Rejects,
    clean,
    count_words,
    find_place,
    is_held_out,
    prepare_corpus,
    quality_filters,
    read_files,
)
from lingraft.corpus.characters import count_noted, script_counts
from lingraft.corpus.distributed import prepare_by_tasks
from lingraft.corpus.language_id import identifier
from lingraft.corpus.near_duplicates import NearIndex, signatures
from lingraft.corpus.prepare import Place, read_place


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    place = find_place(given.text, "TEXT")
    documents, seconds = read(place, given.megabytes * 1e6)
    size = sum(len(document.text.encode()) for document in documents)
    print(f"{size / 1e6:.1f} MB, {len(documents):,} documents\n\n| step | MB/s |\n| --- | --- |")
    print(f"| read | {size / seconds / 1e6:.1f} |")
    print(f"| read plain `.jsonl` of short rows | {read_short_rows(documents):.1f} |")
    for name, step in steps(documents):
        began = time.perf_counter()
        step()
        print(f"| {name} | {size / (time.perf_counter() - began) / 1e6:.1f} |", flush=True)
    whole(place, given.tasks, given.workers)


def read(place: Place, limit: float) -> tuple[list[Document], float]:
    """Return documents up to a number of bytes, and the seconds it took to read them."""
    began, documents, size = time.perf_counter(), [], 0
    for document in read_place(place, Reading(), corpus="x", rejects=Rejects(), where="TEXT"):
        documents.append(document)
        size += len(document.text.encode())
        if size >= limit:
            break
    return documents, time.perf_counter() - began


def read_short_rows(documents: list[Document]) -> float:
    """Return the megabytes of JSON lines read in a second, where each row has 100 characters of text."""
    pieces = (text[at : at + 100] for text in (d.text for d in documents) for at in range(0, len(text), 100))
    rows = ({"id": f"row-{number}", "text": piece} for number, piece in enumerate(pieces))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        began = time.perf_counter()
        for _ in read_files([path], Reading(), corpus="x", rejects=Rejects(), where="TEXT"):
            pass
        return path.stat().st_size / 1e6 / (time.perf_counter() - began)


def steps(documents: list[Document]) -> Iterable[tuple[str, Callable[[], Any]]]:
    """Yield each step with its name."""
    texts = [document.text for document in documents]
    for function in (count_words, script_counts, count_noted):
        function("á")  # tables are made on the first call
    yield "clean (NFC, characters, exact duplicates)", lambda: list(clean(documents, Cleaning("nfc"), Rejects(), "x"))
    yield "split by content", lambda: [is_held_out(document, 0.05, "content") for document in documents]
    yield "count words", lambda: [count_words(text) for text in texts]
    yield "count scripts", lambda: [script_counts(text) for text in texts]
    for entry in quality_filters:
        options = {"names": ["Latin"]} if entry.name == "scripts" else {}
        yield f"filter {entry.name}", lambda entry=entry, options=options: [entry.function(t, **options) for t in texts]
    guess = identifier("small", "x")
    yield "language identification", lambda: [guess(text) for text in texts]
    yield "near-duplicates", lambda: near(texts)
    yield "overlap, 13 words", lambda: overlap(documents)


def near(texts: list[str]) -> None:
    """Find near-duplicates."""
    index = NearIndex(NearDuplicates())
    for text in texts:
        index.is_repeated(signatures([text], index.options)[0])


def overlap(documents: list[Document]) -> None:
    """Look for a twentieth of the documents in the rest."""
    found = Overlap()
    found.watch("x", documents[::20])
    for document in documents:
        found.read(document.text, "x")
    found.settle()


def whole(place: Place, tasks: int, workers: int) -> None:
    """Prepare all of it by one process and by tasks, and say whether the files are equal."""
    preparation = Preparation(cleaning=Cleaning("nfc", near_duplicates=NearDuplicates()))
    with tempfile.TemporaryDirectory() as name:
        folder, seconds = Path(name), []
        began = time.perf_counter()
        record = prepare_corpus("x", folder / "one", place, preparation)
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        prepare_by_tasks("x", folder / "many", place, preparation, folder / "work", tasks=tasks, workers=workers)
        seconds.append(time.perf_counter() - began)
        files = ("train.jsonl", "validation.jsonl", "report.json")
        is_equal = all((folder / "one" / file).read_bytes() == (folder / "many" / file).read_bytes() for file in files)
        size = (folder / "one" / "train.jsonl").stat().st_size / 1e6
    print(
        f"\nwhole corpus, near-duplicates included ({size:.0f} MB to train on, {record['rejected']} rejected): "
        f"{seconds[0]:.1f} s by one process, {seconds[1]:.1f} s by {tasks} tasks on {workers} processes, "
        f"files equal: {is_equal}"
    )


if __name__ == "__main__":
    main()
