"""Tables of one run and of several, by hand; nothing per token is ranked between tokenizers."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lingraft.measurement import Measurement
from lingraft.report.measured import measured_table
from lingraft.report.reading import RunRecord, read_record
from lingraft.report.rows import Rows


class Cells(HTMLParser):
    """The texts of a table's cells, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self.is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.is_cell = tag in ("td", "th") or (self.is_cell and tag != "caption")

    def handle_endtag(self, tag: str) -> None:
        self.is_cell = self.is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.is_cell:
            self.rows[-1][-1] += data


@pytest.fixture
def record(unfinished_run: Path) -> RunRecord:
    return replace(read_record(unfinished_run), tokenizer="one")


def of(record: RunRecord, name: str, value: float, base: float = 2.0, tokenizer: str | None = "one") -> RunRecord:
    rows = [Measurement("base", 0, name, base, "eu"), Measurement("a", 9, name, value, "eu", value - 0.5, value + 0.5)]
    return replace(record, name=f"run {value:g}", rows=Rows(rows), tokenizer=tokenizer)


def table(records: list[RunRecord]) -> list[list[str]]:
    return Cells(measured_table(records, ".*", "C")).rows


def test_one_run_goes_from_base_to_last(record: RunRecord) -> None:
    head, line = table([of(record, "bits_per_byte", 1.5)])
    assert head == ["quantity", "base model", "last in training", "change"]
    assert line == ["Basque (eu) bits per byte lower is better", "2.000", "1.500 [1.000, 2.000]", "−25.0 %"]


def test_several_runs_have_a_column_each_and_the_difference_from_the_first(record: RunRecord) -> None:
    head, line = table([of(record, "bits_per_byte", value) for value in (1.5, 1.25, 1.5)])
    assert head == ["quantity", "base model", "run 1.5", "run 1.25", "run 1.5"]
    assert line[1:] == ["2.000", "1.500 [1.000, 2.000]", "1.250 [0.750, 1.750] −0.250", "1.500 [1.000, 2.000] the same"]


def test_bases_that_differ_are_told_run_by_run(record: RunRecord) -> None:
    _, line = table([of(record, "bits_per_byte", 1.5), of(record, "bits_per_byte", 1.5, base=3.0)])
    assert line[1] == "not the same in all runs"
    assert line[3].endswith("its base: 3.000")


@pytest.mark.parametrize("other", ["another", None])
@pytest.mark.parametrize(
    "name",
    [
        "nats_per_token",
        "new_token_nats",
        "token_perplexity",
        "averaged/token_perplexity",
        "label_perplexity/xstorycloze_eu/gold",
        "label_perplexity/both/colours/all_nats",
    ],
)
def test_numbers_per_token_are_not_ranked_between_tokenizers(record: RunRecord, name: str, other: str | None) -> None:
    """Perplexity per token says nothing where tokens are of another size."""
    runs = [of(record, name, 1.5), of(record, name, 1.25, tokenizer=other)]
    assert table(runs)[1][3] == "1.250 [0.750, 1.750] another tokenizer: not comparable"
    same = [of(record, name, 1.5), of(record, name, 1.25)]
    assert table(same)[1][3].endswith("−0.250")
    # Perplexity per token is only measured where base and adapted model have the same tokenizer.
    assert ("change" in table(runs[:1])[0]) is name.endswith("token_perplexity")


def test_label_bits_per_byte_are_ranked_between_tokenizers(record: RunRecord) -> None:
    name = "label_perplexity/xstorycloze_eu/gold_bits_per_byte"
    assert table([of(record, name, 1.5), of(record, name, 1.25, tokenizer="another")])[1][3].endswith("−0.250")


def test_what_one_run_lacks_is_a_dash(record: RunRecord) -> None:
    rows = table([of(record, "bits_per_byte", 1.5), of(record, "task/x/acc", 0.5, base=0.25)])
    assert [row[2:] for row in rows[1:]] == [["1.500 [1.000, 2.000]", "—"], ["—", "50.0 % [0.0 %, 100.0 %]"]]
