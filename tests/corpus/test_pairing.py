"""Parallel text as documents: both sides, in either order, and nothing lost on the way."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from lingraft.corpus import Reading, Rejects, read_files
from lingraft.corpus.pairing import Pairing, count_sides, pair_texts, read_pairs, read_sides, write_pairs
from lingraft.errors import CorpusError

EU, EN = ["Kaixo mundua", "Egun on", "Gabon"], ["Hello world", "Good morning", "Good night"]


@pytest.fixture
def aligned(tmp_path):
    for name, texts in (("a.eu.txt", EU), ("a.en.txt", EN)):
        (tmp_path / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return [tmp_path / "a.eu.txt", tmp_path / "a.en.txt"]


def write(files, folder, reading: Reading | None = None, rejects: Rejects | None = None, **options):
    pairing = Pairing(**{"languages": ("eu", "en"), "direction": "forward"} | options)
    rejects = Rejects() if rejects is None else rejects
    return write_pairs(files, folder / "pairs", pairing, reading or Reading(), rejects=rejects, where="corpora.p")


def rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def test_two_aligned_files_by_hand(aligned, tmp_path) -> None:
    found = rows(write(aligned, tmp_path, separator=" = "))
    assert found[0] == {"id": "a:1", "text": "Kaixo mundua = Hello world", "sides": {"eu": EU[0], "en": EN[0]}}
    assert [row["text"] for row in found[1:]] == ["Egun on = Good morning", "Gabon = Good night"]
    assert list(read_sides(tmp_path / "pairs" / "pairs.jsonl", 1)) == [{"eu": EU[0], "en": EN[0]}]


def test_two_fields_of_a_line_by_hand(tmp_path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({"x": a, "y": b}) + "\n\n" for a, b in zip(EU, EN, strict=True)))
    found = rows(write([path], tmp_path, fields=("x", "y"), direction="backward"))
    assert [row["text"] for row in found] == [f"{b}\n{a}" for a, b in zip(EU, EN, strict=True)]
    assert [row["id"] for row in found] == ["p:1", "p:3", "p:5"]


def test_either_direction_in_half_of_the_documents_by_seed() -> None:
    def firsts(seed: int) -> list[bool]:
        made = [pair_texts(f"a{n}", f"b{n}", direction="both", separator="|", seed=seed) for n in range(1000)]
        assert all(set(text.split("|")) == {f"a{n}", f"b{n}"} for n, text in enumerate(made))
        return [text.startswith("a") for text in made]

    assert 440 < sum(firsts(0)) < 560
    assert firsts(0) == firsts(0) != firsts(1)


def test_tokens_of_both_sides_are_counted() -> None:
    """Letters for tokens: 10 of one language and 30 of the other, over more than one batch."""
    sides = [{"eu": "a", "en": "bcd"}] * 600
    assert count_sides(sides, lambda texts: [list(map(ord, text)) for text in texts]) == {"eu": 0.25, "en": 0.75}
    assert count_sides([], lambda texts: []) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b: b.write_text("Hello\nGood\n"), r"a\.en\.txt:3: it has 2 lines and a\.eu\.txt has more"),
        (lambda a, b: a.write_text("Kaixo\n \nGabon\n"), r"a\.eu\.txt:2: byte 6: blank where the other side has text"),
        (lambda a, b: a.write_bytes(b"Kaixo\n\xff\nGabon\n"), r"a\.eu\.txt:2: byte 6: not UTF-8"),
    ],
)
def test_files_that_are_not_aligned_are_refused_by_line(aligned, tmp_path, change, message: str) -> None:
    change(*aligned)
    with pytest.raises(CorpusError, match=message):
        write(aligned, tmp_path)
    assert not (tmp_path / "pairs").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"x": "Kaixo"}', r"p\.jsonl:1: byte 0: no field 'y' \(fields: x\)"),
        ('{"x": "Kaixo", "y": " "}', r"p\.jsonl:1: byte 0: field 'y' is blank"),
        ("[1]", r"p\.jsonl:1: byte 0: not a JSON object"),
        ("{", r"p\.jsonl:1: byte 1: not JSON"),
    ],
)
def test_a_line_without_both_sides_is_refused(tmp_path, line: str, message: str) -> None:
    (tmp_path / "p.jsonl").write_text(line + "\n")
    with pytest.raises(CorpusError, match=message):
        write([tmp_path / "p.jsonl"], tmp_path, fields=("x", "y"))


def test_three_files_are_no_pair(aligned, tmp_path) -> None:
    with pytest.raises(
        CorpusError, match=r"corpora\.p\.path: without pairs\.fields it lists two text files, here are 3"
    ):
        write([*aligned, aligned[0]], tmp_path)


LONG = 5000
READINGS = {policy: Reading("x", policy, 1.0, LONG) for policy in ("error", "skip", "replace")}
HOSTILE = {
    "sound": b'{"x": "Kaixo", "y": "Hello"}\n',
    "with an id": b'{"x": "a", "y": "b", "id": 7}\n',
    "invalid UTF-8": b'{"x": "\xff", "y": "b"}\n',
    "raw NUL": b'{"x": "a\x00", "y": "b"}\n',
    "escaped NUL": b'{"x": "\\u0000", "y": "b"}\n',
    "lone surrogate": b'{"x": "\\ud83d", "y": "b"}\n',
    "surrogate pair": b'{"x": "\\ud83d\\ude00", "y": "b"}\n',
    "encoded surrogate": b'{"x": "\xed\xa0\xbd", "y": "b"}\n',
    "surrogate in the id": b'{"x": "a", "y": "b", "id": "\\ud83d"}\n',
    "not JSON": b"Kaixo\n",
    "too deep": b'{"x": "a", "y": "b", "z": ' + b"[" * 2000 + b"]" * 2000 + b"}\n",
    "a long number": b'{"x": "a", "y": "b", "z": ' + b"9" * 4500 + b"}\n",
    "no object": b'["x"]\n',
    "a key twice": b'{"x": "a", "x": "c", "y": "b"}\n',
    "a key twice inside": b'{"x": "a", "y": "b", "z": {"k": 1, "k": 2}}\n',
    "wrong column": b'{"xx": "a", "y": "b"}\n',
    "null": b'{"x": null, "y": "b"}\n',
    "a number": b'{"x": 5, "y": "b"}\n',
    "too long": b'{"x": "' + b"a" * LONG + b'", "y": "b"}\n',
    "as long as may be": b'{"x": "' + b"a" * (LONG - 18) + b'", "y": "b"}\n',
    "blank": b" \n",
    "CRLF": b'{"x": "a", "y": "b"}\r\n',
    "cut off": b'{"x": "Kai',
    "cut off in a character": b'{"x": "\xc3',
    "UTF-16": '{"x": "a", "y": "b"}\n'.encode("utf-16"),
    "mark inside": b'\xef\xbb\xbf{"x": "a", "y": "b"}\n',
}


def verdict(read, reading: Reading):
    """What became of a file: the texts of the first side, or the message; and the account."""
    rejects = Rejects()
    try:
        texts = read(reading, rejects)
    except CorpusError as error:
        return str(error).replace("corpora.p", "corpora.eu"), rejects.as_json()
    return texts, rejects.as_json()


def ordinary(path: Path, reading: Reading, rejects: Rejects) -> list[tuple[str, str]]:
    found = read_files([path], reading, corpus="eu", rejects=rejects, where="corpora.eu")
    return [(document.id, document.text) for document in found]


@pytest.mark.parametrize("policy", READINGS)
@pytest.mark.parametrize("swapped", [False, True], ids=["first side", "second side"])
@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_row_of_two_fields_is_judged_as_a_row_of_one(tmp_path, line: bytes, swapped: bool, policy: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(HOSTILE["sound"] + line + (b"" if b"cut" in line or line[-1:] != b"\n" else HOSTILE["sound"]))
    fields, side = (("y", "x"), "en") if swapped else (("x", "y"), "eu")

    def pairs(reading: Reading, rejects: Rejects) -> list[tuple[str, str]]:
        made = rows(write([path], tmp_path, reading, rejects, fields=fields))
        return [(row["id"], row["sides"][side]) for row in made]

    for tolerant in (False, True):
        reading = Reading(**vars(READINGS[policy]) | {"tolerate_truncated_tail": tolerant})
        expected = verdict(lambda *given: ordinary(path, *given), reading)
        assert verdict(pairs, reading) == expected


HOSTILE_TEXT = {
    "sound": b"Kaixo\n",
    "invalid UTF-8": b"a\xff\n",
    "NUL": b"a\x00b\n",
    "encoded surrogate": b"\xed\xa0\xbd\n",
    "too long": b"a" * (LONG + 1) + b"\n",
    "as long as may be": b"a" * LONG + b"\n",
    "cut off in a character": b"a\xc3",
    "no end": b"a",
    "separators that end no line": "a\u2028b\x85c\x0bd\n".encode(),
    "UTF-16": "Kaixo".encode("utf-16") + b"\n",
    "mark inside": b"\xef\xbb\xbfa\n",
}


@pytest.mark.parametrize("policy", READINGS)
@pytest.mark.parametrize("bad_side", [0, 1], ids=["first side", "second side"])
@pytest.mark.parametrize("line", HOSTILE_TEXT.values(), ids=HOSTILE_TEXT.keys())
def test_a_line_of_aligned_files_is_judged_as_a_line(tmp_path, line: bytes, bad_side: int, policy: str) -> None:
    """A bad line takes its translation with it, so that what follows stays aligned."""
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    ends = [] if line[-1:] != b"\n" else [b"third\n"]
    files[bad_side].write_bytes(b"first\n" + line + b"".join(ends))
    files[1 - bad_side].write_bytes(b"FIRST\nSECOND\n" + b"THIRD\n" * line.endswith(b"\n"))
    side = ("eu", "en")[bad_side]

    def pairs(reading: Reading, rejects: Rejects) -> str:
        made = rows(write(files, tmp_path, reading, rejects))
        expected = ["FIRST", "SECOND", "THIRD"][: 2 + len(ends)]
        if rejects.total or rejects.notes:
            expected.remove("SECOND")
        assert [row["sides"][("en", "eu")[bad_side]] for row in made] == expected
        return "\n".join(row["sides"][side] for row in made)

    for tolerant in (False, True):
        reading = Reading(**vars(READINGS[policy]) | {"tolerate_truncated_tail": tolerant})
        texts, account = verdict(lambda *given: ordinary(files[bad_side], *given), reading)
        expected = texts if isinstance(texts, str) else "".join(text for _, text in texts)
        assert verdict(pairs, reading) == (expected, account)


def test_both_sides_bad_are_one_bad_pair_and_the_limit_is_one_on_pairs(tmp_path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"one\n\xff\nthree\n\n")
    files, rejects = [tmp_path / "a.txt", tmp_path / "b.txt"], Rejects()
    made = rows(write(files, tmp_path, Reading(bad_lines="skip", max_bad_fraction=0.34), rejects))
    assert [row["id"] for row in made] == ["a:1", "a:3"]
    assert (rejects.counts, rejects.notes) == ({"not UTF-8": 1}, {"blank lines": 2})
    mended = Rejects()
    assert len(rows(write(files, tmp_path, Reading(bad_lines="replace", max_bad_fraction=0.34), mended))) == 3
    assert (mended.repairs, mended.counts) == ({"not UTF-8": 1}, {})
    with pytest.raises(CorpusError, match=r"corpora\.p: 1 of 3 lines \(33\.33%\) cannot be read.*not UTF-8: 1"):
        write(files, tmp_path, Reading(bad_lines="skip", max_bad_fraction=0.33))


def test_one_null_side_does_not_stop_the_corpus(tmp_path) -> None:
    path, rejects = tmp_path / "p.jsonl", Rejects()
    path.write_text('{"x": "a", "y": "b"}\n{"x": "a", "y": null}\n{"x": "a", "y": "\\u3000"}\n{"x": "c", "y": "d"}\n')
    skipping = Reading(bad_lines="skip", max_bad_fraction=0.5)
    assert [row["id"] for row in rows(write([path], tmp_path, skipping, rejects, fields=("x", "y")))] == ["p:1", "p:4"]
    assert rejects.counts == {"field 'y' is null": 1, "field 'y' is blank": 1}


def test_pairs_of_a_table(tmp_path) -> None:
    path, rejects = tmp_path / "p.jsonl.parquet", Rejects()
    damaged = pyarrow.array([b"b", b"\xff", b"d"], type=pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"id": ["one", "two", None], "x": ["a", "b", "c"], "y": damaged}), path)
    skipping = Reading(bad_lines="skip", max_bad_fraction=0.5)
    made = rows(write([path], tmp_path, skipping, rejects, fields=("x", "y")))
    assert [(row["id"], row["text"]) for row in made] == [("one", "a\nb"), ("p:3", "c\nd")]
    assert rejects.counts == {"not UTF-8": 1}
    with pytest.raises(CorpusError, match=r"corpora\.p\.pairs\.fields: .* no column 'yy', did you mean 'y'"):
        write([path], tmp_path, fields=("x", "yy"))


@pytest.mark.parametrize("ends", [b"\r\n", b"\r\r\n"])
def test_line_ends_and_marks_do_not_get_between_the_sides(tmp_path, ends: bytes) -> None:
    files, rejects = [tmp_path / "a.txt", tmp_path / "b.txt"], Rejects()
    files[0].write_bytes(b"\xef\xbb\xbf" + b"Kaixo" + ends + b"Bai" + ends)
    files[1].write_bytes(b"Hello\nYes")
    assert [row["text"] for row in rows(write(files, tmp_path, rejects=rejects, separator=" = "))] == [
        "Kaixo = Hello",
        "Bai = Yes",
    ]
    assert rejects.notes == {"byte order marks at the start of a file": 1, "lines with \\r line ends, taken off": 2}


@pytest.mark.parametrize(("name", "pack"), [("a.txt.gz", gzip.compress), ("a.txt.zst", zstandard.compress)])
@pytest.mark.parametrize("cut_side", [0, 1])
def test_a_side_cut_off_in_its_compression_ends_both(tmp_path, name: str, pack, cut_side: int) -> None:
    lines = [b"%d %d\n" % (n, n * 2654435761 % 2**31) for n in range(500)]
    packed = b"".join(pack(b"".join(lines[begin : begin + 100])) for begin in range(0, 500, 100))
    files = [tmp_path / name, tmp_path / "b.txt"]
    files[0].write_bytes(packed[: len(packed) * 2 // 3])
    files[1].write_bytes(b"".join(lines))
    files, rejects = files[::-1] if cut_side else files, Rejects()
    made = rows(write(files, tmp_path, Reading(tolerate_truncated_tail=True), rejects))
    assert 0 < len(made) < 500
    assert all(row["sides"]["eu"] == row["sides"]["en"] for row in made)
    assert rejects.notes == {
        "files cut off in their compression, read up to there": 1,
        "lines whose translation is cut off, left out": 500 - len(made),
    }
    with pytest.raises(CorpusError, match="cannot be unpacked"):
        write(files, tmp_path)


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_shorter_side_that_is_whole_is_never_tolerated(tmp_path, tolerant: bool) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for first, second, message in (
        (b"a\nb\n", b"a\n", r"b\.txt:2: it has 1 lines and a\.txt has more"),
        (b"", b"a\n", r"a\.txt:1: it has 0 lines and b\.txt has more"),
    ):
        files[0].write_bytes(first)
        files[1].write_bytes(second)
        with pytest.raises(CorpusError, match=message):
            write(files, tmp_path, Reading(tolerate_truncated_tail=tolerant))


def test_sides_of_the_largest_size_are_pairs_whatever_they_become_together(tmp_path) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in files:
        path.write_text("a" * LONG + "\n")
    made = write(files, tmp_path, READINGS["error"])
    assert [document.text for document in read_pairs(made, "p")] == ["a" * LONG + "\n" + "a" * LONG]


def test_files_of_another_kind_are_refused(aligned, tmp_path) -> None:
    with pytest.raises(
        CorpusError, match=r"corpora\.p\.pairs\.fields: .*a\.eu\.txt is plain text, which has no fields"
    ):
        write(aligned, tmp_path, fields=("x", "y"))
    with pytest.raises(CorpusError, match=r"lists two text files, here are 2 \(a\.jsonl, b\.parquet\)"):
        write([tmp_path / "a.jsonl", tmp_path / "b.parquet"], tmp_path)


@pytest.mark.parametrize("line", ["{", "[1]", '{"id": "a", "text": "b"}'])
def test_pairs_that_were_damaged_are_refused(tmp_path, line: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(line + "\n")
    for read in (lambda: list(read_pairs(path, "p")), lambda: list(read_sides(path))):
        with pytest.raises(CorpusError, match=r"pairs\.jsonl"):
            read()
