"""Parallel text made into documents: a text and its translation, in either order."""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lingraft.corpus.streams import read_lines
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import publish_folder

__all__ = ["count_sides", "pair_texts", "read_sides", "write_pairs"]

Direction = Literal["both", "forward", "backward"]
_BATCH = 256
_NAME = "pairs.jsonl"


def pair_texts(first: str, second: str, *, direction: Direction, separator: str, seed: int) -> str:
    """Return a document of two texts; with ``both``, a hash of seed and texts decides which stands first."""
    digest = hashlib.blake2b(f"{seed}\0{first}\0{second}".encode(), digest_size=1).digest()
    is_forward = digest[0] % 2 == 0 if direction == "both" else direction == "forward"
    return separator.join([first, second] if is_forward else [second, first])


def write_pairs(
    files: Sequence[Path],
    folder: Path,
    *,
    languages: tuple[str, str],
    fields: tuple[str, str] | None,
    direction: Direction,
    separator: str,
    seed: int,
    where: str,
    limit: int | None = None,
) -> Path:
    """Write the documents of parallel text as ``pairs.jsonl`` into ``folder``, which appears whole; return the file.

    A line is ``{"id", "text", "sides": {language: text}}``.

    Args:
        files: with ``fields``, JSON lines; without, two text files, line for line translations of each other.
        folder: where to.
        languages: of the two sides.
        fields: of the two sides.
        direction: which stands first.
        separator: what stands between them.
        seed: of the run.
        where: the recipe path, for messages.
        limit: how many pairs to read; all by default.

    Raises:
        CorpusError: there are not two files where two are needed, they have different numbers of lines, or a side is
            missing, empty or unreadable; the message names the file and the line. Nothing is written.
    """
    rows = _fields_of_lines(files, fields) if fields else _aligned(files, where)

    def fill(temporary: Path) -> None:
        with (temporary / _NAME).open("w", encoding="utf-8", newline="\n") as file:
            for name, first, second in itertools.islice(rows, limit):
                poll()
                text = pair_texts(first, second, direction=direction, separator=separator, seed=seed)
                row = {"id": name, "text": text, "sides": dict(zip(languages, (first, second), strict=True))}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    return publish_folder(folder, fill) / _NAME


def _aligned(files: Sequence[Path], where: str) -> Iterator[tuple[str, str, str]]:
    if len(files) != 2:
        listed = ", ".join(path.name for path in files)
        raise CorpusError(f"{where}.path: without pairs.fields it lists two files, here are {len(files)} ({listed})")
    one, other = files
    for number, (left, right) in enumerate(itertools.zip_longest(_plain(one), _plain(other)), start=1):
        if left is None or right is None:
            short, long = (one, other) if left is None else (other, one)
            raise CorpusError(
                f"{short}:{number}: it has {number - 1} lines and {long.name} has more; they are not aligned"
            )
        for path, text in ((one, left), (other, right)):
            if not text.strip():
                raise CorpusError(f"{path}:{number}: an empty line has no translation; drop it from both files")
        yield f"{one.name.partition('.')[0]}:{number}", left, right


def _plain(path: Path) -> Iterator[str]:
    for line in read_lines(path):
        try:
            yield line.content.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}:{line.number}: byte {line.byte + error.start}: not UTF-8") from error


def _fields_of_lines(files: Sequence[Path], fields: tuple[str, str]) -> Iterator[tuple[str, str, str]]:
    for path in files:
        for line in read_lines(path):
            if not line.content.strip():
                continue
            first, second = _sides(path, line.number, line.content, fields)
            yield f"{path.name.partition('.')[0]}:{line.number}", first, second


def _sides(path: Path, number: int, content: bytes, fields: tuple[str, str]) -> list[str]:
    try:
        row: Any = json.loads(content)
    except ValueError as error:
        raise CorpusError(f"{path}:{number}: not JSON: {error}") from error
    found = []
    for field in fields:
        text = row.get(field) if isinstance(row, dict) else None
        if not isinstance(text, str) or not text.strip():
            known = ", ".join(row) if isinstance(row, dict) else type(row).__name__
            raise CorpusError(f"{path}:{number}: no text in {field!r} (there is: {known})")
        found.append(text)
    return found


def read_sides(path: Path, limit: int | None = None) -> Iterator[dict[str, str]]:
    """Yield the sides, language → text, of the first ``limit`` pairs of a ``pairs.jsonl``; of all by default."""
    with path.open(encoding="utf-8") as file:
        for line in itertools.islice(file, limit):
            yield json.loads(line)["sides"]


def count_sides(
    sides: Iterable[Mapping[str, str]], encode_batch: Callable[[list[str]], list[list[int]]]
) -> dict[str, float]:
    """Return language → share of the tokens of parallel text, each side encoded by itself."""
    counts: Counter[str] = Counter()
    rows = iter(sides)
    while batch := list(itertools.islice(rows, _BATCH)):
        for language in batch[0]:
            counts[language] += sum(map(len, encode_batch([row[language] for row in batch])))
    return {language: count / counts.total() for language, count in counts.items()}
