"""Documents out of files: plain text, JSON lines, parquet.

Nothing is dropped in silence. What cannot be read is either an error at its file, line and byte, or is
counted under a reason with samples; and there is a limit on how much may be counted.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lingraft.corpus.bad_values import BadLines, BadValueError, BadValues, check_row
from lingraft.corpus.document import Document, Rejects, RejectSample, escape
from lingraft.corpus.sources import find_files
from lingraft.corpus.streams import MAX_LINE_BYTES, Line, read_lines
from lingraft.errors import CorpusError, MissingExtraError, nearest

__all__ = ["find_files", "read_files"]

_PIECE_BYTES = 2**16
_PARQUET_BATCH = 1000
_CUT_OFF = "cut off at the end of the file"


def read_files(
    files: Sequence[Path],
    *,
    corpus: str,
    text_field: str,
    bad_lines: BadLines,
    max_bad_fraction: float,
    rejects: Rejects,
    where: str,
) -> Iterator[Document]:
    r"""Yield the documents of files, file after file, in bounded memory.

    ``.jsonl``: one document a line, ``.parquet``: one a row; ``text_field`` is its text, and ``id``, where it
    is a text or a whole number, its id. Else the id is ``file:line``, with the file's name up to its first
    dot.

    ``.txt``: two or more blank lines in a row separate documents; so a file with a text in it is one
    document, its paragraphs kept together. A document that has reached 64 KiB ends at the next line end, so
    that a file of one sentence a line, or a dump without separators, comes as pieces of about 64 KiB: no line
    is ever cut, and pieces are large enough that a random split by piece is nearly one by source. Where
    smaller documents matter, use ``.jsonl``.

    A line can be bad: not UTF-8, longer than 16 MiB, with a NUL or a lone surrogate, not JSON, cut off at the
    end of the file, with a key twice, or without a text in ``text_field``. Blank lines are counted only.

    Raises:
        CorpusError: at the first bad line (``bad_lines`` is ``error``); after the last one, when more than
            ``max_bad_fraction`` were bad (``skip``); at a file that cannot be unpacked or a table without the
            field.
        MissingExtraError: a parquet file, and pyarrow is not installed.
    """
    bad = BadValues(bad_lines, max_bad_fraction, rejects, where)
    for path in files:
        if path.stat().st_size == 0:
            rejects.note("empty files")
        elif path.suffix == ".parquet":
            yield from _read_parquet(path, corpus, text_field, bad)
        elif ".jsonl" in path.suffixes[-2:]:
            yield from _read_json_lines(path, corpus, text_field, bad)
        else:
            yield from _read_text(path, corpus, bad)
    bad.settle()


def _stem(path: Path) -> str:
    return path.name.partition(".")[0] or path.name


def _lines(path: Path, bad: BadValues) -> Iterator[Line]:
    """Yield the lines, counting them, the blank ones and a byte order mark."""
    for line in read_lines(path):
        if line.number == 1 and line.byte:
            bad.rejects.note("byte order marks at the start of a file")
        if line.content.strip():
            bad.num_seen += 1
        else:
            bad.rejects.note("blank lines")
        yield line


def _decode(line: Line) -> str:
    if line.too_long:
        raise BadValueError(f"longer than {MAX_LINE_BYTES} bytes")
    if b"\0" in line.content:
        raise BadValueError("NUL character", line.content.index(b"\0"))
    try:
        return line.content.decode()
    except UnicodeDecodeError as error:
        raise BadValueError("not UTF-8", error.start) from error


def _refuse_line(path: Path, line: Line, error: BadValueError, bad: BadValues) -> None:
    sample = RejectSample(str(path), line.number, line.byte + error.offset, error.reason, escape(line.content))
    bad.refuse(sample, error.hint)


def _read_json_lines(path: Path, corpus: str, text_field: str, bad: BadValues) -> Iterator[Document]:
    for line in _lines(path, bad):
        if not line.content.strip():
            continue
        try:
            text, name = check_row(_parse_json(line), text_field)
        except BadValueError as error:
            _refuse_line(path, line, error, bad)
            continue
        yield Document(text, corpus, name or f"{_stem(path)}:{line.number}")


def _parse_json(line: Line) -> dict[str, Any]:
    text = ""
    try:
        text = _decode(line)
        value = json.loads(text, object_pairs_hook=_object_without_repeats)
    except BadValueError as error:
        raise (error if line.ended or error.reason != "not UTF-8" else BadValueError(_CUT_OFF, error.offset)) from error
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        raise BadValueError("not JSON" if line.ended else _CUT_OFF, offset, f" ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise BadValueError("not JSON", hint=f" ({error})") from error
    if not isinstance(value, dict):
        raise BadValueError("not a JSON object")
    return value


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Python keeps the last of two equal keys without a word; which of them was meant cannot be known."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise BadValueError("a key twice in one JSON object")
    return value


def _read_text(path: Path, corpus: str, bad: BadValues) -> Iterator[Document]:
    block: list[str] = []
    size = first = blank = 0
    for line in _lines(path, bad):
        try:
            text = _decode(line)
        except BadValueError as error:
            _refuse_line(path, line, error, bad)
            continue
        blank = 0 if text.strip() else blank + 1
        if block and (blank == 2 or size >= _PIECE_BYTES):
            bad.rejects.note("long texts cut at a line end", int(blank < 2))
            yield _block_document(path, corpus, first, block)
            block, size = [], 0
        if block or not blank:
            first = first if block else line.number
            block.append(text)
            size += len(line.content) + 1
    if block:
        yield _block_document(path, corpus, first, block)


def _block_document(path: Path, corpus: str, first: int, block: list[str]) -> Document:
    return Document("\n".join(block).rstrip(), corpus, f"{_stem(path)}:{first}")


def _read_parquet(path: Path, corpus: str, text_field: str, bad: BadValues) -> Iterator[Document]:
    number = 0
    for row in _parquet_rows(path, text_field, bad.where):
        number += 1
        bad.num_seen += 1
        plain: dict[str, Any] = {}
        try:
            plain = _plain_row(row)
            text, name = check_row(plain, text_field)
        except BadValueError as error:
            bad.refuse(RejectSample(str(path), number, None, error.reason, escape(repr(plain))), error.hint)
            continue
        yield Document(text, corpus, name or f"{_stem(path)}:{number}")


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Arrow checks neither what it writes nor what it reads: its strings need not be UTF-8."""
    try:
        return {name: cell.as_py() for name, cell in row.items()}
    except UnicodeDecodeError as error:
        raise BadValueError("not UTF-8") from error


def _parquet_rows(path: Path, text_field: str, where: str) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("reading parquet files", "parquet") from error
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if text_field not in names:
                known = ", ".join(map(escape, names))
                hint = f"{nearest(text_field, names)} (columns: {known})"
                raise CorpusError(f"{where}.text: {path} has no column {text_field!r}{hint}")
            columns = [name for name in dict.fromkeys((text_field, "id")) if name in names]
            for batch in table.iter_batches(batch_size=_PARQUET_BATCH, columns=columns):
                yield from (
                    dict(zip(columns, cells, strict=True)) for cells in zip(*(batch[c] for c in columns), strict=True)
                )
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: cannot be read as parquet: {error}") from error
