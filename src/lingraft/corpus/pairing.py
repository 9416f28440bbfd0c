"""Parallel text made into documents: a text and its translation, in either order.

What a pair is read from goes through the same rules as any other text (:mod:`lingraft.corpus.rows`). The unit is the
pair: it is good or bad as a whole, so that the lines of two aligned files stay aligned.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lingraft.corpus.bad_values import BadValueError, BadValues, Reading
from lingraft.corpus.document import Document, Rejects
from lingraft.corpus.rows import (
    decode_line,
    file_lines,
    has_text,
    is_json_lines,
    line_sample,
    read_rows,
    refuse_line,
    stem_of,
)
from lingraft.corpus.streams import Line
from lingraft.errors import CorpusError
from lingraft.polling import poll
from lingraft.run import publish_folder

__all__ = ["PAIRS", "Pairing", "count_sides", "pair_texts", "read_pairs", "read_sides", "write_pairs"]

PAIRS = "pairs.jsonl"
"""The file of a corpus's pairs."""

Direction = Literal["both", "forward", "backward"]
_Pair = tuple[str, tuple[str, str]]
_BATCH = 256


@dataclass(frozen=True)
class Pairing:
    """How parallel text becomes documents: the options of a recipe's corpus of pairs, in the words of this room.

    Attributes:
        languages: of the two sides.
        fields: of the two sides in a row; without, they are two files, line for line translations of each other.
        direction: which side stands first.
        separator: what stands between them.
        seed: of the run.
    """

    languages: tuple[str, str]
    fields: tuple[str, str] | None = None
    direction: Direction = "both"
    separator: str = "\n"
    seed: int = 0


def pair_texts(first: str, second: str, *, direction: Direction, separator: str, seed: int) -> str:
    """Return a document of two texts; with ``both``, a hash of seed and texts decides which stands first."""
    digest = hashlib.blake2b(f"{seed}\0{first}\0{second}".encode(), digest_size=1).digest()
    is_forward = digest[0] % 2 == 0 if direction == "both" else direction == "forward"
    return separator.join([first, second] if is_forward else [second, first])


def write_pairs(
    files: Sequence[Path],
    folder: Path,
    pairing: Pairing,
    reading: Reading,
    *,
    rejects: Rejects,
    where: str,
    limit: int | None = None,
) -> Path:
    """Write the documents of parallel text as ``pairs.jsonl`` into ``folder``, which appears whole; return the file.

    A line is ``{"id", "text", "sides": {language: text}}``; the id is that of the row, or else ``file:line``.

    A pair is bad where a row or either of two lines is, by the rules of :func:`lingraft.corpus.readers.read_files`, or
    where one side is blank and the other is not. It is counted once, under the reason found first; of two aligned
    files both lines are left out. Lines that are blank in both are counted only. Where a file may be cut off, pairs
    are read up to there, and the lines beyond it in the other file are counted.

    Args:
        files: with ``fields``, JSON lines or parquet; without, two text files, that of the first language first.
        folder: where to.
        pairing: what becomes of them.
        reading: how lines and rows are read; its ``text_field`` is of no account here.
        rejects: where bad ones are counted.
        where: the recipe path of the corpus, such as ``corpora.both``.
        limit: how many pairs to keep; all by default. With a limit the share of bad ones is not judged.

    Raises:
        CorpusError: there are not two files where two are needed, a file is of another kind, one of the two is
            shorter, a pair is bad (``bad_lines`` is ``error``; the message names file, line and byte), or too many
            are. Nothing is written.
        MissingExtraError: a parquet file, and pyarrow is not installed.
    """
    bad = BadValues(reading, rejects, where, fields=pairing.fields or ())
    read = _rows if pairing.fields else _aligned

    def fill(temporary: Path) -> None:
        with (temporary / PAIRS).open("w", encoding="utf-8", newline="\n") as file:
            for name, sides in itertools.islice(read(files, bad), limit):
                poll()
                text = pair_texts(*sides, direction=pairing.direction, separator=pairing.separator, seed=pairing.seed)
                row = {"id": name, "text": text, "sides": dict(zip(pairing.languages, sides, strict=True))}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if limit is None:
            bad.settle()

    return publish_folder(folder, fill) / PAIRS


def _rows(files: Sequence[Path], bad: BadValues) -> Iterator[_Pair]:
    for path in files:
        if path.suffix != ".parquet" and not is_json_lines(path):
            raise CorpusError(f"{bad.option}: {path} is plain text, which has no fields; give .jsonl or .parquet")
    for path in filter(lambda path: has_text(path, bad), files):
        for name, fit in read_rows(path, bad):
            first, second = fit.texts
            yield name, (first, second)


def _aligned(files: Sequence[Path], bad: BadValues) -> Iterator[_Pair]:
    if len(files) != 2 or any(path.suffix == ".parquet" or is_json_lines(path) for path in files):
        listed = ", ".join(path.name for path in files)
        raise CorpusError(
            f"{bad.where}.path: without pairs.fields it lists two text files, here are {len(files)} ({listed})"
        )
    one, other = (_Side(path, bad) for path in files)
    while True:
        lines = one.next_line(), other.next_line()
        if lines[0] is None or lines[1] is None:
            return _end_together(one, other, lines, bad)
        texts = _pair_of_lines((one, lines[0]), (other, lines[1]), bad)
        if texts is not None:
            yield f"{stem_of(one.path)}:{one.number}", texts


class _Side:
    """One of two aligned files, as it is being read.

    Attributes:
        path: the file.
        number: lines so far.
        is_cut: whether it was found to be cut off, and that is tolerated.
    """

    def __init__(self, path: Path, bad: BadValues) -> None:
        self.path = path
        self.number = 0
        self.is_cut = False
        self._lines = file_lines(path, bad) if has_text(path, bad) else None

    def next_line(self) -> Line | None:
        """Return the next line, or None at the end."""
        if self._lines is None:
            return None
        try:
            line = next(self._lines)
        except StopIteration as end:
            self._lines = None
            self.is_cut = self.is_cut or bool(end.value)
            return None
        self.number = line.number
        return line


def _pair_of_lines(one: tuple[_Side, Line], other: tuple[_Side, Line], bad: BadValues) -> tuple[str, str] | None:
    """Return the texts of two lines; None where both are blank, or the pair is not fit and was counted."""
    if not one[1].content.strip() and not other[1].content.strip():
        return None
    bad.num_seen += 1
    texts, repair = [], None
    for side, line in (one, other):
        try:
            decoded = decode_line(line, bad)
            text = decoded.text.rstrip("\r")
            if not text.strip():
                raise BadValueError("blank where the other side has text")
        except BadValueError as error:
            side.is_cut = refuse_line(side.path, line, error, bad) or side.is_cut
            return None
        texts.append(text)
        bad.rejects.note("lines with \\r line ends, taken off", int(text != decoded.text))
        if decoded.repair and repair is None:
            repair = line_sample(side.path, line, decoded.repair)
    if repair:
        bad.repaired(repair)
    return texts[0], texts[1]


def _end_together(one: _Side, other: _Side, lines: tuple[Line | None, Line | None], bad: BadValues) -> None:
    """Count the lines that a cut left without their translation.

    Raises:
        CorpusError: one file has more lines than the other, and was not cut off: which lines belong together cannot
            be known.
    """
    if lines == (None, None):
        return
    short, long = (one, other) if lines[0] is None else (other, one)
    if not short.is_cut:
        raise CorpusError(
            f"{short.path}:{short.number + 1}: it has {short.number} lines and {long.path.name} has more; "
            "they are not aligned"
        )
    rest = 1 + sum(1 for _ in iter(long.next_line, None))
    bad.rejects.note("lines whose translation is cut off, left out", rest)


def read_pairs(path: Path, corpus: str) -> Iterator[Document]:
    """Yield the documents of a ``pairs.jsonl``, in their order.

    Raises:
        CorpusError: the file is missing, or a line of it is not as :func:`write_pairs` writes them.
    """
    for row in _written(path):
        yield Document(row["text"], corpus, row["id"])


def read_sides(path: Path, limit: int | None = None) -> Iterator[dict[str, str]]:
    """Yield the sides, language → text, of the first ``limit`` pairs of a ``pairs.jsonl``; of all by default.

    Raises:
        CorpusError: see :func:`read_pairs`.
    """
    for row in itertools.islice(_written(path), limit):
        yield row["sides"]


def _written(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                poll()
                row = json.loads(line)
                if row.keys() != {"id", "text", "sides"}:
                    raise CorpusError(f"{path}:{number}: not a pair of texts as it was written here")
                yield row
    except (OSError, ValueError, AttributeError) as error:
        raise CorpusError(f"{path}: the pairs of texts cannot be read: {error}") from error


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
