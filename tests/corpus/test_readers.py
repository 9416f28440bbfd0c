"""What a file can hold, row by row: the document it gives, or the place and the reason where it does not."""

import gzip
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from lingraft.corpus import Document, Rejects, find_files, read_files
from lingraft.corpus import streams as streams_module
from lingraft.errors import CorpusError, MissingExtraError

GOOD = b'{"text": "Kaixo"}\n'


def read(path: Path, policy: str = "error", limit: float = 1.0, rejects: Rejects | None = None) -> list[Document]:
    return list(
        read_files(
            [path],
            corpus="eu",
            text_field="text",
            bad_lines=policy,  # type: ignore[arg-type]
            max_bad_fraction=limit,
            rejects=rejects if rejects is not None else Rejects(),
            where="corpora.eu",
        )
    )


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
def test_overlong_line_is_skipped_without_being_held(tmp_path, packed, monkeypatch):
    monkeypatch.setattr(streams_module, "MAX_LINE_BYTES", 1000)
    content = GOOD + b'{"text": "' + b"a" * 300_000 + b'"}\n' + GOOD
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[packed]
    lines = list(streams_module.read_lines(write(tmp_path, f"a.jsonl{packed}", pack(content))))
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


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "sub" / ".hidden").mkdir(parents=True)
    for name in ("b.jsonl", "a.txt.gz", "README.md", "sub/c.parquet", "sub/.hidden/d.txt", "sub/.e.txt"):
        (tmp_path / name).touch()
    (tmp_path / "z.jsonl").symlink_to(tmp_path / "b.jsonl")
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["."], ["a.txt.gz", "b.jsonl", "sub/c.parquet"]),
        (["*.jsonl", "b.jsonl", "z.jsonl"], ["b.jsonl"]),
        (["**/*.parquet", "a.*"], ["a.txt.gz", "sub/c.parquet"]),
    ],
)
def test_files_are_found_once_and_in_order(tree, paths, names):
    found = find_files([str(tree / path) for path in paths], "corpora.eu.path")
    assert [str(path.relative_to(tree)) for path in found] == names


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("c.jsonl", r"c\.jsonl' does not exist, did you mean '[bz]\.jsonl'"),
        (
            "HuggingFaceFW/fineweb-edu",
            r"for the Hugging Face dataset HuggingFaceFW/fineweb-edu, add split: train",
        ),
        ("README.md", r"is not a file of a kind that can be read: \.txt, \.jsonl"),
        ("*.md", r"leads to no \.txt"),
        ("sub/.hidden/*.jsonl", r"leads to no \.txt"),
    ],
)
def test_path_that_leads_nowhere(tree, path, message):
    with pytest.raises(CorpusError, match=rf"corpora\.eu\.path: .*{message}"):
        find_files([str(tree / path)], "corpora.eu.path")
