"""The data report as a part of the page, and as a page of its own."""

import json

import pytest

from lingraft.report import write_data_page
from lingraft.report.data import data_of
from lingraft.report.reading import read_record

HOSTILE = "<script>alert(1)</script>\u202e"
OVERLAP = {
    "watched": [
        {"name": f"validation of {HOSTILE}", "documents": 1200, "overlapping": 3, "share": 0.0025, "found_in": {"eu": 3},
         "too_short": 7},
        {"name": "items.jsonl", "documents": 10, "overlapping": 0, "share": 0.0, "found_in": {}, "too_short": 0},
    ],
    "shared_documents": [{"corpora": ["eu", "web"], "documents": 41}],
    "warnings": [f"corpora eu and {HOSTILE} share 41 documents"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    report = {"documents": 9, "warnings": [f"mixed {HOSTILE}"], "scripts": {"Latin": 90}, "repairs": [
        {"reason": "not UTF-8", "count": 2, "samples": [{"at": "a.jsonl:2: byte 3", "text": HOSTILE}]},
    ]}  # fmt: skip
    (tmp_path / "corpora" / "eu").mkdir(parents=True)
    (tmp_path / "corpora" / "eu" / "report.json").write_text(json.dumps(report))
    (tmp_path / "corpora" / "overlap.json").write_text(json.dumps(OVERLAP))
    return tmp_path


def test_overlap_and_warnings_are_shown_and_nothing_is_markup(folder):
    page = str(data_of(read_record(folder)))
    for shown in ("1,200", "0.2 %", "eu: 3", "41", "not UTF-8", "mixed", "eu and web"):
        assert shown in page
    assert "<script>alert" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize(
    "overlap", ["{", "[]", '{"watched": 3, "warnings": "x"}', '{"watched": [{"share": "x", "found_in": [1]}]}']
)
def test_damaged_overlap_breaks_no_page(folder, overlap):
    (folder / "corpora" / "overlap.json").write_text(overlap)
    assert "not UTF-8" in str(data_of(read_record(folder)))


def test_the_page_alone_has_no_scripts_of_plotly_and_says_what_it_is(folder):
    page = write_data_page(folder, folder / "data.html").read_text(encoding="utf-8")
    assert len(page) < 100_000
    assert "Data report" in page
    assert "script-src" in page
    assert "<script>alert" not in page
