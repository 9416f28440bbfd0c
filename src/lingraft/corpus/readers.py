"""Documents out of files: plain text, JSON lines, parquet.

Nothing is dropped in silence. What cannot be read is either an error at its file, line and byte, or is
counted under a reason with samples; and there is a limit on how much may be counted.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

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

__all__ = ["read_files", "read_some"]

_PIECE_BYTES = 2**16


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
    for path in filter(lambda path: has_text(path, bad), files):
        if path.suffix == ".parquet" or is_json_lines(path):
            yield from (Document(fit.texts[0], corpus, name) for name, fit in read_rows(path, bad))
        else:
            yield from _read_text(path, corpus, bad)


def _read_text(path: Path, corpus: str, bad: BadValues) -> Iterator[Document]:
    block: list[str] = []
    size = first = blank = 0
    for line in file_lines(path, bad):
        bad.num_seen += bool(line.content.strip())
        try:
            decoded = decode_line(line, bad)
        except BadValueError as error:
            refuse_line(path, line, error, bad)
            continue
        if decoded.repair:
            bad.repaired(line_sample(path, line, decoded.repair))
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
    return Document("\n".join(block).rstrip(), corpus, f"{stem_of(path)}:{first}")
