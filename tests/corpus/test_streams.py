"""Packed files that are cut, padded, damaged or made of several parts: what stands before the fault is given."""

import gzip
import random
import tracemalloc

import pytest

from lingraft.corpus.streams import TruncatedFileError, read_lines
from lingraft.errors import CorpusError

LINES = [b"%d %x" % (n, random.Random(n).getrandbits(96)) for n in range(10_000)]
TEXT = b"\n".join(LINES) + b"\n"


def read(path) -> tuple[list[bytes], type | None]:
    """The lines that were given, and how it ended."""
    found: list[bytes] = []
    try:
        found.extend(line.content for line in read_lines(path))
    except CorpusError as error:
        return found, type(error)
    return found, None


def readable(packed: bytes) -> int:
    """How many lines can be had of the beginning of a gzip file, by a slow way: byte after byte, as far as it goes."""
    import zlib

    text, member = b"", zlib.decompressobj(31)
    for place in range(len(packed)):
        text += member.decompress(packed[place : place + 1])
        if member.eof:
            member = zlib.decompressobj(31)
    return text.count(b"\n")


@pytest.mark.parametrize("share", [0.03, 0.2, 0.45, 0.6, 0.8, 0.999])
def test_of_a_cut_gzip_every_line_before_the_cut_is_given(tmp_path, share: float) -> None:
    """The packed file is about 170 kB: the cuts lie in the first 64 KiB, in the second, in the third."""
    packed = gzip.compress(TEXT)
    assert len(packed) > 2.5 * 2**16
    cut = packed[: int(share * len(packed))]
    (tmp_path / "a.txt.gz").write_bytes(cut)
    found, end = read(tmp_path / "a.txt.gz")
    assert end is TruncatedFileError
    assert len(found) == readable(cut) > 0
    assert found == LINES[: len(found)]


def test_a_gzip_of_two_members_cut_at_any_byte_is_cut_off_or_ends_between_them(tmp_path) -> None:
    one, two = gzip.compress(b"a\nb\n" * 9), gzip.compress(b"c\n" * 9)
    for cut in range(len(one) + len(two) + 1):
        (tmp_path / "a.txt.gz").write_bytes((one + two)[:cut])
        found, end = read(tmp_path / "a.txt.gz")
        assert end is (None if cut in (0, len(one), len(one) + len(two)) else TruncatedFileError)
        assert len(found) == readable((one + two)[:cut])
    assert found == [b"a", b"b"] * 9 + [b"c"] * 9


def test_a_cut_inside_what_a_few_bytes_unpack_to_loses_nothing(tmp_path) -> None:
    """One byte of a run of equal lines stands for much more than a chunk; none of it may stay behind in the library."""
    packed = gzip.compress((b"a" * 999 + b"\n") * 2000)
    for cut in (len(packed) - 9, len(packed) // 2, 100):
        (tmp_path / "a.txt.gz").write_bytes(packed[:cut])
        found, end = read(tmp_path / "a.txt.gz")
        assert (len(found), end) == (readable(packed[:cut]), TruncatedFileError)


@pytest.mark.parametrize("zeros", [1, 512, 2**16, 200_000])
def test_zeros_may_stand_behind_a_gzip_member_and_nothing_else_may(tmp_path, zeros: int) -> None:
    path, member = tmp_path / "a.txt.gz", gzip.compress(b"a\n")
    for content, lines, end in (
        (member + b"\0" * zeros, [b"a"], None),
        (member + b"\0" * zeros + member, [b"a", b"a"], None),
        (member + b"\0" * zeros + b"rest", [b"a"], CorpusError),
        (b"\0" * zeros, [], CorpusError),
        (b"\0" * zeros + member, [], CorpusError),
    ):
        path.write_bytes(content)
        found, how = read(path)
        assert found == lines
        assert issubclass(how, end) if end and how else how is end


def test_a_gzip_with_a_wrong_bit_is_damaged_and_not_cut(tmp_path) -> None:
    """Of a whole file: every bit of the text is under the checksum, so no fault passes as an early end."""
    packed = gzip.compress(TEXT[:3000])
    for place in range(10, len(packed), 7):
        altered = bytearray(packed)
        altered[place] ^= 1 << place % 8
        (tmp_path / "a.txt.gz").write_bytes(altered)
        assert read(tmp_path / "a.txt.gz")[1] is not None


def test_unpacking_gzip_holds_little(tmp_path) -> None:
    """A file of 32 MB of equal lines, packed to 32 kB, is never held whole."""
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress((b"a" * 9999 + b"\n") * 3200))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(tmp_path / "a.txt.gz")) == 3200
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
