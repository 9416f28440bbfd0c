"""The lines and rows of files: each is decoded, parsed and found fit, or counted as bad.

Documents and pairs of texts come through here alike, so that what is bad in the one is bad in the other.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lingraft.corpus.bad_values import BadValueError, BadValues, FitRow
from lingraft.corpus.document import RejectSample, escape
from lingraft.corpus.streams import Line, TruncatedFileError, read_lines
from lingraft.errors import CorpusError, MissingExtraError, nearest
from lingraft.polling import poll

__all__ = [
    "DecodedLine",
    "decode_line",
    "file_lines",
    "has_text",
    "is_json_lines",
    "line_sample",
    "read_rows",
    "refuse_line",
    "stem_of",
]

_PARQUET_BATCH = 1000
_PARQUET_BYTES = 2**26
_PARQUET_BUFFER = 2**20
_TEXT_TYPES = ("string", "large_string", "string_view", "null")
_NUMBER_TYPES = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_NOT_UTF8 = "not UTF-8"
_CUT_OFF = "cut off at the end of the file"
_MORE_BEHIND = "Extra data"  # in the words of the json module


def stem_of(path: Path) -> str:
    """Return the name of a file up to its first dot: what its rows are told by."""
    return path.name.partition(".")[0] or path.name


def is_json_lines(path: Path) -> bool:
    """Return whether a file, by its name, holds JSON lines, packed or not."""
    return ".jsonl" in path.suffixes[-2:]


def has_text(path: Path, bad: BadValues) -> bool:
    """Return whether a file has any byte; one that has none is counted.

    Raises:
        CorpusError: it is not there any more.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error
    bad.rejects.note("empty files", int(size == 0))
    return size > 0


def read_rows(path: Path, bad: BadValues) -> Iterator[tuple[str, FitRow]]:
    """Yield what is taken from the rows of a table or of JSON lines, each with its id or else ``file:line``.

    Raises:
        CorpusError: at the first bad one (``bad_lines`` is ``error``); at a file that cannot be unpacked or a table
            without the fields.
        MissingExtraError: a parquet file, and pyarrow is not installed.
    """
    rows = _table_rows if path.suffix == ".parquet" else _json_rows
    for number, fit in rows(path, bad):
        yield fit.name or f"{stem_of(path)}:{number}", fit


def file_lines(path: Path, bad: BadValues) -> Generator[Line, None, bool]:
    """Yield the lines, counting the blank ones and a byte order mark; return whether the file's packing is cut off.

    Raises:
        CorpusError: the file cannot be opened or unpacked, or is cut off where that is not tolerated.
    """
    try:
        for line in read_lines(path, bad.reading.max_line_bytes):
            poll()
            if line.number == 1 and line.byte:
                bad.rejects.note("byte order marks at the start of a file")
            if not line.content.strip():
                bad.rejects.note("blank lines")
            yield line
    except TruncatedFileError:
        if not bad.reading.tolerate_truncated_tail:
            raise
        bad.rejects.note("files cut off in their compression, read up to there")
        return True
    return False


class DecodedLine(NamedTuple):
    """The text of a line; where U+FFFD had to be put, why and at which byte."""

    text: str
    repair: BadValueError | None = None


def decode_line(line: Line, bad: BadValues) -> DecodedLine:
    """Return a line as text.

    Raises:
        BadValueError: it is too long, or holds what cannot be text and is not to be mended, or is cut off.
    """
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
    return DecodedLine(text.replace("\0", "\ufffd") if fault else text, fault)


def refuse_line(path: Path, line: Line, error: BadValueError, bad: BadValues) -> bool:
    """Count a line that is not fit, or stop at it; return whether it is a tail whose loss is tolerated.

    Raises:
        CorpusError: ``bad_lines`` is ``error``, and the line is no such tail.
    """
    if error.reason == _CUT_OFF and bad.reading.tolerate_truncated_tail:
        bad.rejects.note("last lines cut off, left out")
        return True
    bad.refuse(line_sample(path, line, error), error.hint)
    return False


def line_sample(path: Path, line: Line, error: BadValueError) -> RejectSample:
    """Return a line as an account shows it, with the place of what is wrong in it."""
    return RejectSample(str(path), line.number, line.byte + error.offset, error.reason, escape(line.content))


def _json_rows(path: Path, bad: BadValues) -> Iterator[tuple[int, FitRow]]:
    for line in file_lines(path, bad):
        if not line.content.strip():
            continue
        bad.num_seen += 1
        try:
            row, repair = _parse_json(line, bad)
            fit = bad.check(row)
        except BadValueError as error:
            refuse_line(path, line, error, bad)
            continue
        if repair or fit.repair:
            bad.repaired(line_sample(path, line, repair or BadValueError(str(fit.repair))))
        yield line.number, fit


def _parse_json(line: Line, bad: BadValues) -> tuple[dict[str, Any], BadValueError | None]:
    text = ""
    try:
        decoded = decode_line(line, bad)
        text = decoded.text
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        # A line with more behind its object is not one that was cut off in it.
        is_cut = not line.ended and error.msg != _MORE_BEHIND
        is_old_mac = error.msg == _MORE_BEHIND and text[: error.pos].endswith("\r")
        hint = f" ({error.msg}{'; lines end in a line feed, not in a carriage return alone' if is_old_mac else ''})"
        raise BadValueError(_CUT_OFF if is_cut else "not JSON", len(text[: error.pos].encode()), hint) from error
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


# json.loads would build one for every line.
_DECODER = json.JSONDecoder(object_pairs_hook=_object_without_repeats)


def _table_rows(path: Path, bad: BadValues) -> Iterator[tuple[int, FitRow]]:
    for number, row in enumerate(_parquet_rows(path, bad.fields, bad.option), start=1):
        fit = bad.table_row(row, str(path), number)
        if fit is not None:
            yield number, fit


def _parquet_rows(path: Path, fields: Sequence[str], option: str) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("reading parquet files", "parquet") from error
    try:
        with parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER) as table:
            columns = _columns(table.schema_arrow, fields, f"{option}: {path}")
            for batch in table.iter_batches(batch_size=_batch_rows(table.metadata), columns=columns):
                yield from (
                    _plain_row(dict(zip(columns, cells, strict=True)))
                    for cells in zip(*(batch[c] for c in columns), strict=True)
                )
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: cannot be read as parquet: {error}") from error


def _columns(schema: Any, fields: Sequence[str], problem: str) -> list[str]:
    """Return the columns to read; an ``id`` of times or decimals is none, and need not be a value that Python has.

    Raises:
        CorpusError: there is no such column, or more than one, or it is of numbers, lists or structs.
    """
    names = schema.names
    for field in fields:
        if field not in names:
            known = ", ".join(map(escape, names))
            nested = "; the text must be a column, not a part of one" if field.partition(".")[0] in names else ""
            raise CorpusError(f"{problem} has no column {field!r}{nearest(field, names)} (columns: {known}){nested}")
    has_id = "id" in names and (names.count("id") > 1 or _is_of_type(schema, "id", (*_TEXT_TYPES, *_NUMBER_TYPES)))
    wanted = [*fields, *(["id"] if has_id and "id" not in fields else [])]
    for name in wanted:
        if names.count(name) > 1:
            raise CorpusError(f"{problem}: {names.count(name)} columns are called {name!r}; which is meant")
    for field in fields:
        if not _is_of_type(schema, field, _TEXT_TYPES):
            raise CorpusError(f"{problem}: column {field!r} is of type {schema.field(field).type}, not text")
    return wanted


def _is_of_type(schema: Any, name: str, types: Sequence[str]) -> bool:
    kind = schema.field(name).type
    return str(getattr(kind, "value_type", kind) if str(kind).startswith("dictionary") else kind) in types


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
