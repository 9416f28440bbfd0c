"""Documents out of files: plain text, JSON lines, parquet.

Nothing is dropped in silence. What cannot be read is either an error at its file, line and byte, or is
counted under a reason with samples; and there is a limit on how much may be counted.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.corpus.bad_values import BadValueError, BadValues, Reading, check_row
from lingraft.corpus.document import Document, Rejects, RejectSample, escape
from lingraft.corpus.streams import Line, TruncatedFileError, read_lines
from lingraft.errors import CorpusError, MissingExtraError, nearest

__all__ = ["read_files", "read_some"]

_PIECE_BYTES = 2**16
_PARQUET_BATCH = 1000
_PARQUET_BYTES = 2**26
_PARQUET_BUFFER = 2**20
_TEXT_TYPES = ("string", "large_string", "string_view", "null")
_NOT_UTF8 = "not UTF-8"
_CUT_OFF = "cut off at the end of the file"


def read_files(
    files: Sequence[Path], reading: Reading, *, corpus: str, rejects: Rejects, where: str
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

    A line can be bad: not UTF-8, longer than ``max_line_bytes``, with a NUL or a lone surrogate, not JSON, cut off at
    the end of the file, with a key twice, or without a text in ``text_field``. Blank lines are counted only.

    Raises:
        CorpusError: at the first bad line (``bad_lines`` is ``error``); after the last one, when more than
            ``max_bad_fraction`` were bad; at a file that cannot be unpacked or a table without the field.
        MissingExtraError: a parquet file, and pyarrow is not installed.
    """
    bad = BadValues(reading, rejects, where)
    yield from read_some(files, corpus, bad)
    bad.settle()


def read_some(files: Sequence[Path], corpus: str, bad: BadValues) -> Iterator[Document]:
    """Yield the documents of some files of a corpus; the share of bad lines is left to whoever knows of all of them."""
    for path in files:
        if path.stat().st_size == 0:
            bad.rejects.note("empty files")
        elif path.suffix == ".parquet":
            yield from _read_parquet(path, corpus, bad)
        elif ".jsonl" in path.suffixes[-2:]:
            yield from _read_json_lines(path, corpus, bad)
        else:
            yield from _read_text(path, corpus, bad)


def _stem(path: Path) -> str:
    return path.name.partition(".")[0] or path.name


def _lines(path: Path, bad: BadValues) -> Iterator[Line]:
    """Yield the lines, counting them, the blank ones and a byte order mark."""
    try:
        for line in read_lines(path, bad.reading.max_line_bytes):
            if line.number == 1 and line.byte:
                bad.rejects.note("byte order marks at the start of a file")
            if line.content.strip():
                bad.num_seen += 1
            else:
                bad.rejects.note("blank lines")
            yield line
    except TruncatedFileError:
        if not bad.reading.tolerate_truncated_tail:
            raise
        bad.rejects.note("files cut off in their compression, read up to there")


@dataclass(frozen=True)
class _Decoded:
    """The text of a line; where U+FFFD had to be put, why and at which byte."""

    text: str
    repair: BadValueError | None = None


def _decode(line: Line, bad: BadValues) -> _Decoded:
    if line.too_long:
        raise BadValueError(f"longer than {bad.reading.max_line_bytes} bytes")
    fault = BadValueError("NUL character", line.content.index(b"\0")) if b"\0" in line.content else None
    try:
        text = line.content.decode()
    except UnicodeDecodeError as error:
        cut = not line.ended and error.end == len(line.content) and error.reason == "unexpected end of data"
        fault = fault or BadValueError(_CUT_OFF if cut else _NOT_UTF8, error.start)
        text = line.content.decode(errors="replace")
    if fault and (not bad.mends or fault.reason == _CUT_OFF):
        raise fault
    return _Decoded(text.replace("\0", "\ufffd") if fault else text, fault)


def _refuse_line(path: Path, line: Line, error: BadValueError, bad: BadValues) -> None:
    if error.reason == _CUT_OFF and bad.reading.tolerate_truncated_tail:
        bad.rejects.note("last lines cut off, left out")
        return
    bad.refuse(_sample(path, line, error), error.hint)


def _sample(path: Path, line: Line, error: BadValueError) -> RejectSample:
    return RejectSample(str(path), line.number, line.byte + error.offset, error.reason, escape(line.content))


def _read_json_lines(path: Path, corpus: str, bad: BadValues) -> Iterator[Document]:
    for line in _lines(path, bad):
        if not line.content.strip():
            continue
        try:
            row, repair = _parse_json(line, bad)
            text, name, mended = check_row(row, bad.reading, mends=bad.mends)
        except BadValueError as error:
            _refuse_line(path, line, error, bad)
            continue
        if repair or mended:
            bad.repaired(_sample(path, line, repair or BadValueError(str(mended))))
        yield Document(text, corpus, name or f"{_stem(path)}:{line.number}")


def _parse_json(line: Line, bad: BadValues) -> tuple[dict[str, Any], BadValueError | None]:
    text = ""
    try:
        decoded = _decode(line, bad)
        text = decoded.text
        value = json.loads(text, object_pairs_hook=_object_without_repeats)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        raise BadValueError("not JSON" if line.ended else _CUT_OFF, offset, f" ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise BadValueError("not JSON", hint=f" ({error})") from error
    if not isinstance(value, dict):
        raise BadValueError("not a JSON object")
    return value, decoded.repair


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
            decoded = _decode(line, bad)
        except BadValueError as error:
            _refuse_line(path, line, error, bad)
            continue
        if decoded.repair:
            bad.repaired(_sample(path, line, decoded.repair))
        text = decoded.text
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


def _read_parquet(path: Path, corpus: str, bad: BadValues) -> Iterator[Document]:
    for number, row in enumerate(_parquet_rows(path, bad.reading.text_field, bad.where), start=1):
        document = bad.row(row, str(path), number, corpus, f"{_stem(path)}:{number}")
        if document is not None:
            yield document


def _parquet_rows(path: Path, text_field: str, where: str) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("reading parquet files", "parquet") from error
    try:
        with parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER) as table:
            columns = _columns(table.schema_arrow, text_field, f"{where}.text: {path}")
            for batch in table.iter_batches(batch_size=_batch_rows(table.metadata), columns=columns):
                yield from (
                    _plain_row(dict(zip(columns, cells, strict=True)))
                    for cells in zip(*(batch[c] for c in columns), strict=True)
                )
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: cannot be read as parquet: {error}") from error


def _columns(schema: Any, text_field: str, problem: str) -> list[str]:
    """Return the columns to read.

    Raises:
        CorpusError: there is no such column, or it is of numbers, lists or structs.
    """
    names = schema.names
    if text_field not in names:
        known = ", ".join(map(escape, names))
        nested = "; the text must be a column, not a part of one" if text_field.partition(".")[0] in names else ""
        raise CorpusError(
            f"{problem} has no column {text_field!r}{nearest(text_field, names)} (columns: {known}){nested}"
        )
    kind = schema.field(text_field).type
    if str(getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind) not in _TEXT_TYPES:
        raise CorpusError(f"{problem}: column {text_field!r} is of type {kind}, not text")
    return [name for name in dict.fromkeys((text_field, "id")) if name in names]


def _batch_rows(metadata: Any) -> int:
    """Return how many rows to hold at a time: about 64 MB of them by the file's own account, 1000 at most."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    heaviest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
    return max(1, min(_PARQUET_BATCH, int(_PARQUET_BYTES / max(1.0, heaviest))))


def _plain_row(row: dict[str, Any]) -> Mapping[str, Any]:
    """Arrow checks neither what it writes nor what it reads: its strings need not be UTF-8."""
    return {name: _plain_cell(cell) for name, cell in row.items()}


def _plain_cell(cell: Any) -> Any:
    """Return the value of a cell; of a string that is not UTF-8, its bytes."""
    try:
        return cell.as_py()
    except UnicodeDecodeError as error:
        return bytes(error.object)
