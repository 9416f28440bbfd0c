"""What a file can hold, row by row: the document it gives, or the place and the reason where it does not."""

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from lingraft.corpus import Document, Reading, Rejects, read_files
from lingraft.corpus import rows as rows_module
from lingraft.corpus import streams as streams_module
from lingraft.errors import CorpusError, MissingExtraError

GOOD = b'{"text": "Kaixo"}\n'


def read(path: Path, policy: str = "error", limit: float = 1.0, rejects: Rejects | None = None, **options):
    reading = Reading(bad_lines=policy, max_bad_fraction=limit, **options)  # type: ignore[arg-type]
    rejects = rejects if rejects is not None else Rejects()
    return list(read_files([path], reading, corpus="eu", rejects=rejects, where="corpora.eu"))


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


BAD_LINES = {
    "invalid UTF-8": (b'{"text": "\xff"}\n', 10, "not UTF-8"),
    "raw NUL": (b'{"text": "a\x00"}\n', 11, "NUL character"),
    "escaped NUL": (b'{"text": "\\u0000"}\n', 0, "NUL character"),
    "lone surrogate": (b'{"text": "\\ud83d"}\n', 0, "lone surrogate"),
    "encoded surrogate": (b'{"text": "\xed\xa0\xbd"}\n', 10, "not UTF-8"),
    "surrogate in the id": (b'{"text": "a", "id": "\\ud83d"}\n', 0, "lone surrogate"),
    "not JSON": (b"Kaixo\n", 0, "not JSON"),
    "too deep": (b"[" * 200_000 + b"\n", 0, "not JSON"),
    "no object": (b'["text"]\n', 0, "not a JSON object"),
    "a key twice": (b'{"text": "a", "text": "b"}\n', 0, "a key twice in one JSON object"),
    "a key twice inside": (b'{"text": "a", "meta": {"k": 1, "k": 2}}\n', 0, "a key twice in one JSON object"),
    "wrong column": (b'{"txt": "a"}\n', 0, "no field 'text'"),
    "null": (b'{"text": null}\n', 0, "field 'text' is null"),
    "a number": (b'{"text": 5}\n', 0, "field 'text' is of type int, not text"),
    "lines of an old Mac": (b'{"text": "a"}\r{"text": "b"}\r', 14, "not JSON"),
    "truncated last line": (b'{"text": "Kai', 9, "cut off at the end of the file"),
    "truncated character": (b'{"text": "\xc3', 10, "cut off at the end of the file"),
}


@pytest.mark.parametrize(("line", "byte", "reason"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_line_is_an_error_at_its_place(tmp_path, line, byte, reason):
    path = write(tmp_path, "a.jsonl", GOOD + line)
    with pytest.raises(CorpusError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:2: byte {len(GOOD) + byte}: {reason}")
    assert "corpora.eu.bad_lines: skip" in str(caught.value)


@pytest.mark.parametrize(("line", "byte", "reason"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_line_is_counted_and_the_rest_is_read(tmp_path, line, byte, reason):
    rejects = Rejects()
    documents = read(write(tmp_path, "a.jsonl", GOOD + line), "skip", rejects=rejects)
    assert documents == [Document("Kaixo", "eu", "a:1")]
    assert rejects.counts == {reason: 1}
    assert rejects.samples[reason][0].text.isascii()


def test_wrong_column_is_told_the_nearest(tmp_path):
    with pytest.raises(CorpusError, match=r"did you mean 'texto'\? \(fields: id, texto\)"):
        read(write(tmp_path, "a.jsonl", b'{"id": 1, "texto": "a"}\n'))


def test_lines_that_end_in_carriage_returns_are_said_to_do_so(tmp_path):
    with pytest.raises(CorpusError, match=r"Extra data; lines end in a line feed, not in a carriage return alone"):
        read(write(tmp_path, "a.jsonl", b'{"text": "a"}\r{"text": "b"}'))


@pytest.mark.parametrize(("limit", "fails"), [(0.5, False), (0.49, True)])
def test_share_of_skipped_lines_has_a_limit(tmp_path, limit, fails):
    path = write(tmp_path, "a.jsonl", GOOD + b"x\n")
    if not fails:
        assert len(read(path, "skip", limit)) == 1
        return
    with pytest.raises(CorpusError, match=r"corpora\.eu: 1 of 2 lines .50\.00%.*max_bad_fraction 49\.00%.*not JSON: 1"):
        read(path, "skip", limit)


GOOD_FILES = {
    "last line without an end": (b'{"text": "a"}', ["a"]),
    "CRLF line ends": (b'{"text": "a"}\r\n{"text": "b"}\r\n', ["a", "b"]),
    "BOM at the start only": (b'\xef\xbb\xbf{"text": "\xef\xbb\xbfa"}\n', ["\ufeffa"]),
    "U+2028, U+0085 and VT end no line": (
        '{"text": "a\u2028b\x85c\\u000b"}\n'.encode(),
        ["a\u2028b\x85c\x0b"],
    ),
    "surrogate pair": (b'{"text": "\\ud83d\\ude00"}\n', ["\U0001f600"]),
    "blank lines": (b'\n{"text": "a"}\n \n', ["a"]),
    "joiners and bidi marks": ('{"text": "ක්\u200dෂ\u200c\u200f"}\n'.encode(), ["ක්\u200dෂ\u200c\u200f"]),
    "empty file": (b"", []),
}


@pytest.mark.parametrize(("content", "texts"), GOOD_FILES.values(), ids=GOOD_FILES.keys())
def test_what_is_not_bad_is_kept_as_it_is(tmp_path, content, texts):
    assert [document.text for document in read(write(tmp_path, "a.jsonl", content))] == texts


def test_what_is_let_through_is_noted(tmp_path):
    rejects = Rejects()
    read(write(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + GOOD + b"\n\n"), rejects=rejects)
    assert rejects.notes == {"byte order marks at the start of a file": 1, "blank lines": 2}


@pytest.mark.parametrize(
    ("field", "expected"), [("7", "7"), ('"p/1"', "p/1"), ("true", "a:1"), ("null", "a:1"), ('""', "a:1")]
)
def test_id_is_the_field_or_the_place(tmp_path, field, expected):
    line = f'{{"text": "a", "id": {field}}}\n'.encode()
    assert read(write(tmp_path, "a.jsonl", line))[0].id == expected


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_overlong_line_is_skipped_without_being_held(tmp_path, packed):
    content = GOOD + b'{"text": "' + b"a" * 300_000 + b'"}\n' + GOOD
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[packed]
    lines = list(streams_module.read_lines(write(tmp_path, f"a.jsonl{packed}", pack(content)), 1000))
    assert [line.too_long for line in lines] == [False, True, False]
    assert len(lines[1].content) == 1001
    assert lines[2].byte == content.rindex(b"{")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_of_several_parts_are_read_to_the_end(tmp_path, pack):
    name = "a.jsonl.gz" if pack is gzip.compress else "a.jsonl.zst"
    documents = read(write(tmp_path, name, pack(GOOD) + pack(GOOD * 2)))
    assert [document.id for document in documents] == ["a:1", "a:2", "a:3"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_damaged_packed_file_is_an_error(tmp_path, pack, damage):
    name = "a.jsonl.gz" if pack is gzip.compress else "a.jsonl.zst"
    packed = bytearray(pack(b"".join(b'{"text": "%d"}\n' % n for n in range(5000))))
    if damage == "truncated":
        del packed[-20:]
    else:
        packed[2] ^= 0xFF
    with pytest.raises(CorpusError, match=f"{name}: cannot be unpacked beyond byte"):
        read(write(tmp_path, name, bytes(packed)), "skip")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_decompression_bomb_is_refused(tmp_path, pack, monkeypatch):
    monkeypatch.setattr(streams_module, "_RATIO_MATTERS_FROM", 2**20)
    name = "a.txt.gz" if pack is gzip.compress else "a.txt.zst"
    with pytest.raises(CorpusError, match="unpacks to more than 200 times"):
        read(write(tmp_path, name, pack((b"a" * 99 + b"\n") * 200_000)))


def test_zstd_window_is_limited(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=28, compression_level=1, write_content_size=False)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = write(tmp_path, "a.jsonl.zst", packed.compress(GOOD) + packed.flush())
    with pytest.raises(CorpusError, match="too much memory"):
        read(path)


TEXTS = {
    "one file is one document": ("A.\n\nB.\nC.\n", ["A.\n\nB.\nC."]),
    "two blank lines part documents": ("\nA.\n\n\nB.\n \n\t\n\nC.", ["A.", "B.", "C."]),
    "BOM": ("\ufeffA\ufeff", ["A\ufeff"]),
    "form feed ends no line": ("A\fB\n", ["A\fB"]),
    "blank": ("\n\n\n", []),
}


@pytest.mark.parametrize(("content", "texts"), TEXTS.values(), ids=TEXTS.keys())
def test_plain_text(tmp_path, content, texts):
    assert [document.text for document in read(write(tmp_path, "a.txt", content.encode()))] == texts


def test_plain_text_without_gaps_comes_in_pieces_of_whole_lines(tmp_path):
    rejects = Rejects()
    sentence = "Esaldi bat. " * 10
    documents = read(write(tmp_path, "a.txt", f"{sentence}\n".encode() * 3000), rejects=rejects)
    assert [document.text.count("\n") + 1 for document in documents] == [542, 542, 542, 542, 542, 290]
    assert documents[1].id == "a:543"
    assert rejects.notes == {"long texts cut at a line end": 5}


def test_plain_text_with_a_bad_line(tmp_path):
    path = write(tmp_path, "a.txt", b"A\n\xff\nB\n")
    assert read(path, "skip")[0].text == "A\nB"
    with pytest.raises(CorpusError, match=r"a\.txt:2: byte 2: not UTF-8"):
        read(path)


def write_table(path: Path, columns: dict[str, pyarrow.Array]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_rows(tmp_path):
    columns = {
        "id": pyarrow.array([7, None, 9]),
        "text": pyarrow.array(["a", "b", None]),
        "x": pyarrow.array([1, 2, 3]),
    }
    path = write_table(tmp_path / "a.parquet", columns)
    rejects = Rejects()
    assert [(d.text, d.id) for d in read(path, "skip", rejects=rejects)] == [("a", "7"), ("b", "a:2")]
    assert rejects.counts == {"field 'text' is null": 1}
    with pytest.raises(CorpusError, match=r"a\.parquet:3: field 'text' is null"):
        read(path)


def test_parquet_strings_need_not_be_utf8(tmp_path):
    column = pyarrow.array([b"\xff", b"a"], type=pyarrow.binary()).view(pyarrow.string())
    path = write_table(tmp_path / "a.parquet", {"text": column})
    assert [document.text for document in read(path, "skip")] == ["a"]


def test_parquet_faults(tmp_path, monkeypatch):
    path = write_table(tmp_path / "a.parquet", {"texts": pyarrow.array(["a"])})
    with pytest.raises(CorpusError, match=r"corpora\.eu\.text: .* no column 'text', did you mean 'texts'"):
        read(path)
    with pytest.raises(CorpusError, match="cannot be read as parquet"):
        read(write(tmp_path, "b.parquet", b"PAR1 not"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"lingraft\[parquet\]"):
        read(path)


REPAIRED = {
    "invalid UTF-8": (b'{"text": "a\xffb"}\n', "a\ufffdb", "not UTF-8"),
    "raw NUL": (b'{"text": "a\x00b"}\n', "a\ufffdb", "NUL character"),
    "escaped NUL": (b'{"text": "a\\u0000"}\n', "a\ufffd", "NUL character"),
    "lone surrogate": (b'{"text": "\\ud83d!"}\n', "\ufffd!", "lone surrogate"),
}


@pytest.mark.parametrize(("line", "text", "reason"), REPAIRED.values(), ids=REPAIRED.keys())
def test_with_replace_what_cannot_be_text_becomes_u_fffd_and_is_counted(tmp_path, line, text, reason):
    rejects = Rejects()
    documents = read(write(tmp_path, "a.jsonl", GOOD + line), "replace", rejects=rejects)
    assert [document.text for document in documents] == ["Kaixo", text]
    assert (rejects.repairs, rejects.counts) == ({reason: 1}, {})
    assert rejects.as_json()["repairs"][0]["samples"][0]["at"].startswith("a.jsonl:2:")


def test_with_replace_what_is_no_document_even_so_is_left_out(tmp_path):
    rejects = Rejects()
    lines = GOOD + b'{"txt": "a"}\nx\n{"text": "a", "id": "\\ud83d"}\n'
    assert len(read(write(tmp_path, "a.jsonl", lines), "replace", rejects=rejects)) == 1
    assert rejects.counts == {"no field 'text'": 1, "not JSON": 1, "lone surrogate": 1}


def test_repairs_count_towards_the_limit(tmp_path):
    """A whole file in Latin-1 is not to become a corpus of question marks."""
    path = write(tmp_path, "a.txt", "señor\n".encode("latin-1") * 3 + b"ok\n")
    with pytest.raises(CorpusError, match=r"3 of 4 lines \(75\.00%\) cannot be read or were repaired.*not UTF-8: 3"):
        read(path, "replace", 0.5)
    assert read(path, "replace")[0].text == "se\ufffdor\n" * 3 + "ok"


@pytest.mark.parametrize("tail", [b'{"text": "Kai', b'{"text": "\xc3', b"{"])
def test_a_truncated_tail_may_be_tolerated(tmp_path, tail):
    rejects = Rejects()
    path = write(tmp_path, "a.jsonl", GOOD + tail)
    assert len(read(path, limit=0.0, rejects=rejects, tolerate_truncated_tail=True)) == 1
    assert rejects.notes == {"last lines cut off, left out": 1}
    with pytest.raises(CorpusError, match=r"a\.jsonl:2: byte \d+: cut off at the end of the file"):
        read(path)


def test_tolerance_is_for_the_tail_alone(tmp_path):
    with pytest.raises(CorpusError, match="not JSON"):
        read(write(tmp_path, "a.jsonl", b'{"text": "Kai\n' + GOOD), tolerate_truncated_tail=True)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_file_cut_off_in_its_compression_may_be_tolerated(tmp_path, pack):
    lines = [b'{"text": "%d %d"}\n' % (n, n * 2654435761 % 2**31) for n in range(20_000)]
    packed = pack(b"".join(lines))
    path = write(tmp_path, "a.jsonl.gz" if pack is gzip.compress else "a.jsonl.zst", packed[: len(packed) // 2])
    rejects = Rejects()
    found = [document.text for document in read(path, rejects=rejects, tolerate_truncated_tail=True)]
    assert 1000 < len(found) < 20_000
    assert found == [line[10:-3].decode() for line in lines[: len(found)]]
    assert "files cut off in their compression, read up to there" in rejects.notes


def test_altered_compression_is_never_tolerated(tmp_path):
    packed = bytearray(zstandard.compress(GOOD * 1000))
    packed[2] ^= 0xFF
    with pytest.raises(CorpusError, match="cannot be unpacked"):
        read(write(tmp_path, "a.jsonl.zst", bytes(packed)), tolerate_truncated_tail=True)


def test_the_longest_line_is_an_option(tmp_path):
    path = write(tmp_path, "a.jsonl", b'{"text": "' + b"a" * 5000 + b'"}\n')
    assert len(read(path, max_line_bytes=6000)[0].text) == 5000
    with pytest.raises(CorpusError, match=r"a\.jsonl:1: byte 0: longer than 4000 bytes"):
        read(path, max_line_bytes=4000)


def test_a_dotted_text_field_is_refused_plainly(tmp_path):
    line = b'{"meta": {"text": "a"}}\n'
    with pytest.raises(CorpusError, match=r"no field 'meta\.text'.*must be at the top of a row"):
        read(write(tmp_path, "a.jsonl", line), text_field="meta.text")
    with pytest.raises(CorpusError, match=r"field 'meta' is of type dict, not text"):
        read(write(tmp_path, "b.jsonl", line), text_field="meta")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pyarrow.array([1, 2]), "int64"),
        (pyarrow.array([{"a": "b"}]), "struct<a: string>"),
        (pyarrow.array([["a"]]), "list<.*string>"),
        (pyarrow.array([b"a"]), "binary"),
    ],
)
def test_a_parquet_column_that_is_no_text_is_refused_at_once(tmp_path, column, kind):
    path = write_table(tmp_path / "a.parquet", {"text": column})
    with pytest.raises(
        CorpusError, match=rf"corpora\.eu\.text: .*a\.parquet: column 'text' is of type {kind}, not text"
    ):
        read(path, "skip")


def test_parquet_texts_of_every_kind_of_string(tmp_path):
    words = pyarrow.array(["a", "b", "a"])
    for kind in (pyarrow.large_string(), pyarrow.string_view(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        path = write_table(tmp_path / "a.parquet", {"text": words.cast(kind)})
        assert [document.text for document in read(path)] == ["a", "b", "a"]


def test_parquet_files_of_different_columns_are_read_together(tmp_path):
    one = write_table(tmp_path / "1.parquet", {"text": pyarrow.array(["a"]), "n": pyarrow.array([1])})
    two = write_table(tmp_path / "2.parquet", {"id": pyarrow.array(["x"]), "text": pyarrow.array(["b"])})
    found = list(read_files([one, two], Reading(), corpus="eu", rejects=Rejects(), where="corpora.eu"))
    assert [(document.text, document.id) for document in found] == [("a", "1:1"), ("b", "x")]


def test_parquet_rows_are_held_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "_PARQUET_BYTES", 10_000)
    sizes = []
    real = pyarrow.parquet.ParquetFile.iter_batches

    def spy(self, **options):
        sizes.append(options["batch_size"])
        return real(self, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", spy)
    path = write_table(tmp_path / "a.parquet", {"text": pyarrow.array([f"{n} " * 1000 for n in range(50)])})
    assert len(read(path)) == 50
    assert 1 <= sizes[0] < 10


def test_parquet_strings_that_are_not_utf8_are_repaired_with_replace(tmp_path):
    column = pyarrow.array([b"a\xff", b"b"], type=pyarrow.binary()).view(pyarrow.string())
    rejects = Rejects()
    path = write_table(tmp_path / "a.parquet", {"text": column})
    assert [document.text for document in read(path, "replace", rejects=rejects)] == ["a\ufffd", "b"]
    assert rejects.repairs == {"not UTF-8": 1}
    with pytest.raises(CorpusError, match=r"a\.parquet:1: not UTF-8"):
        read(path)


@pytest.mark.parametrize("names", [["text", "text", "id"], ["text", "id", "id"]])
def test_two_parquet_columns_of_one_name_are_refused(tmp_path, names):
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"]), pyarrow.array(["c"])], names=names)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"corpora\.eu\.text: .*a\.parquet: 2 columns are called '(text|id)'"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "ids", [pyarrow.array([2**62], type=pyarrow.timestamp("us")), pyarrow.array([b"\xff"]), pyarrow.array([1.5])]
)
def test_a_parquet_id_that_is_neither_text_nor_a_whole_number_is_none(tmp_path, ids):
    """The time lies beyond what Python's calendar holds."""
    path = write_table(tmp_path / "a.parquet", {"id": ids, "text": pyarrow.array(["a"])})
    assert read(path) == [Document("a", "eu", "a:1")]


def test_a_file_that_is_gone_since_it_was_found_is_told(tmp_path):
    with pytest.raises(CorpusError, match=r"gone\.txt: cannot be read: .*No such file"):
        read(tmp_path / "gone.txt")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "txt"])
def test_a_line_of_two_gigabytes_fails_in_bounded_memory(tmp_path, kind):
    """The line is zeros of a sparse file behind one good line: the process may hold 256 MiB in all beyond its start."""
    path = write(tmp_path, f"a.{kind}", GOOD)
    with path.open("r+b") as file:
        file.truncate(2 * 2**30)
    code = (
        "import resource, sys; from pathlib import Path; from lingraft.corpus import *\n"
        "from lingraft.errors import CorpusError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: list(read_files([Path(sys.argv[1])], Reading(), corpus='eu', rejects=Rejects(), where='corpora.eu'))\n"
        "except CorpusError as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    message, mebibytes = done.stdout.strip().split("\n")
    assert "longer than 16777216 bytes" in message
    assert int(mebibytes) < 256
