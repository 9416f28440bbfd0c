"""The lines of a text file, plain or compressed, in bounded memory.

A file may be longer than memory, one of its lines may be, and 1 kB of it may unpack to 32 MB: nothing here
holds more than one line of the largest allowed size and one unpacked chunk.
"""

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

from lingraft.errors import CorpusError

__all__ = ["MAX_LINE_BYTES", "Line", "TruncatedFileError", "read_lines"]

MAX_LINE_BYTES = 16 * 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A bomb is told from a repetitive text by both together: zeros pack 1,029:1 (gzip) and 32,696:1 (zstd), text
# 3:1 to 20:1.
_MAX_RATIO = 200
_RATIO_MATTERS_FROM = 2**30
_MAX_ZSTD_WINDOW = 2**27
# zstd gives back all that a chunk unpacks to, so the chunk is small enough for the worst of it to be 64 MB.
_ZSTD_CHUNK = 2**11
_GZIP_CHUNK = 2**16
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class Line(NamedTuple):
    r"""One line of a file.

    Attributes:
        number: counted from 1; ``\n`` is the only thing that ends a line.
        byte: where it begins in the (unpacked) file, counted from 0.
        content: its bytes without the ``\n``, and without a byte order mark at the start of the file.
        ended: whether a ``\n`` stood at its end; only the last line can lack it.
        too_long: whether it exceeds the limit; its content is then only the beginning.
    """

    number: int
    byte: int
    content: bytes
    ended: bool
    too_long: bool


class TruncatedFileError(CorpusError):
    """A compressed file ends before its end, as one does that is still being written or copied."""


def read_lines(path: Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    r"""Yield the lines of a file; ``.gz`` and ``.zst`` are unpacked on the way.

    Neither U+2028 nor ``\r`` nor a form feed ends a line, unlike in ``str.splitlines``.

    Raises:
        TruncatedFileError: the file is cut off in its compression; the lines before have been given.
        CorpusError: the file cannot be opened, is corrupt in its compression, needs a zstd window above 128 MiB, or
            unpacks to more than 200 times its size (looked at beyond 1 GiB).
    """
    try:
        with _open(path) as file:
            yield from _split(file, max_line_bytes)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error


def _split(file: io.BufferedReader, max_line_bytes: int) -> Iterator[Line]:
    number = byte = 0
    while raw := file.readline(max_line_bytes + 1):
        number += 1
        ended = raw.endswith(b"\n")
        too_long = not ended and len(raw) > max_line_bytes
        rest = _skip_line(file) if too_long else 0
        content = raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw
        start = byte + len(raw) - len(content)
        yield Line(number, start, content.removesuffix(b"\n"), ended or too_long, too_long)
        byte += len(raw) + rest


def _skip_line(file: io.BufferedReader) -> int:
    """Read to the end of the line, keeping none of it; return how many bytes that was."""
    skipped = 0
    while part := file.readline(_GZIP_CHUNK):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def _open(path: Path) -> io.BufferedReader:
    if path.suffix == ".gz":
        return io.BufferedReader(_Unpacked(path, _unpack_gzip(path)))
    if path.suffix == ".zst":
        return io.BufferedReader(_Unpacked(path, _unpack_zstd(path)))
    return path.open("rb")


def _unpack_gzip(path: Path) -> Iterator[bytes]:
    """Unpack member after member; the library's own reader keeps what it has of a chunk when the file is cut in it."""
    member, padding = None, b""
    with path.open("rb") as file:
        while chunk := file.read(_GZIP_CHUNK):
            chunk = chunk.lstrip(padding)
            while chunk:
                member, padding = member or zlib.decompressobj(_GZIP_FORMAT), b""
                yield member.decompress(chunk, _GZIP_CHUNK)
                chunk = member.unconsumed_tail
                if member.eof:
                    # Zeros may stand behind a member, as tapes are filled up; in front of the first they may not.
                    padding = b"\0"
                    chunk = member.unused_data.lstrip(padding)
                    member = None
    if member is not None:
        yield member.flush()
        raise EOFError("the file ends inside a gzip member")


def _unpack_zstd(path: Path) -> Iterator[bytes]:
    """Unpack frame after frame; zstandard's own reader takes a cut-off frame for a whole one."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
    frame = None
    with path.open("rb") as file:
        while chunk := file.read(_ZSTD_CHUNK):
            while chunk:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(chunk)
                chunk = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the file ends inside a zstd frame")


class _Unpacked(io.RawIOBase):
    """Unpacked chunks as a file, watched for how much they become."""

    def __init__(self, path: Path, chunks: Iterator[bytes]) -> None:
        self._path = path
        self._chunks = chunks
        self._packed_size = path.stat().st_size
        self._pending = memoryview(b"")
        self._total = 0

    def readable(self) -> bool:
        """Return True: this is what a buffered reader asks first."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer with what comes next and return how much that was; 0 at the end."""
        while not self._pending:
            chunk = self._next_chunk()
            if chunk is None:
                return 0
            self._pending = memoryview(chunk)
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _next_chunk(self) -> bytes | None:
        try:
            chunk = next(self._chunks, None)
        except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
            kind = TruncatedFileError if isinstance(error, EOFError) else CorpusError
            raise kind(f"{self._path}: cannot be unpacked beyond byte {self._total} of its text: {error}") from error
        self._total += len(chunk or b"")
        if self._total > max(_RATIO_MATTERS_FROM, _MAX_RATIO * self._packed_size):
            raise CorpusError(f"{self._path}: unpacks to more than {_MAX_RATIO} times its {self._packed_size} bytes")
        return chunk
