"""What the page says of the vocabulary's growth and of how rows began; absent, older and hostile records."""

import json
from pathlib import Path
from typing import Any

import pytest

from lingraft.report import model_card
from lingraft.report.growth import curve_chart, growth_facts, rows_facts
from lingraft.report.page import render_page
from lingraft.report.reading import RunRecord, read_record

HOSTILE = "<script>window.hostile = 1</script><img src=x onerror=1>\x1b[31m\x00\u202eexe | `code`"
EXPANSION = {
    "method": "replace",
    "family": "byte_bpe",
    "num_old": 49_152,
    "num_new": 2,
    "curve": {
        "sizes": {
            "eu": {"words": 100, "characters": 600, "bytes": 610},
            "parallel": {"words": 50, "characters": 1, "bytes": 1},
        },
        "points": [
            {"num_new": 0, "tokens": {"eu": 350, "parallel": 180}},
            {"num_new": 8, "tokens": {"eu": 300, "parallel": 120}},
        ],
    },
    "removed": [{"id": 7, "spelling": "Ġrare", "source_count": 0, "target_count": 3}],
    "record": {
        "words": {"words": 1000, "cut": 883, "causes": {"mark": 883}, "examples": ["हिन्दी → ह|ि|न|्|द|ी"]},
        "pre_tokenizer": {"patched": True, "after": {"cut": 2}},
        "normaliser": {
            "documents": 40,
            "changed": 4,
            "deleted": {"Cf": {"count": 3, "examples": ["U+200B ZERO WIDTH SPACE ×3"]}},
            "folded": {"count": 1, "examples": ["ﬁ → fi ×1"]},
        },
        "sample_bytes": {"eu": 2_500_000},
        "share_seen": {"eu": 0.25},
        "vetoed": 28,
        "on_the_way": 3,
        "parallel": {"documents": 12, "source_tokens": 60},
    },
    "new_tokens": [{"id": 7, "text": " etxe", "count": 9, "pieces": [1, 2]}],
}
STEPS = {
    "embeddings": {"methods": "focus", "input": {"copied": 9, "initialised": 1, "fallback": 1}},
    "bakeoff": {
        "chosen": "focus",
        "tastings": [
            {"label": "focus", "target": {"0": 3.1, "50": 2.0}, "source": {"0": 0.9, "50": 0.95}, "failure": None},
            {"label": "omp", "target": {}, "source": {}, "failure": "the donor has no shared token"},
        ],
    },
}


@pytest.fixture
def grown(finished_run: Path, tmp_path: Path) -> Path:
    """A finished run whose vocabulary was replaced, with every record that there can be."""
    import shutil

    folder = shutil.copytree(finished_run, tmp_path / "run")
    write(folder, EXPANSION, STEPS)
    return folder


def write(folder: Path, expansion: Any, steps: dict[str, Any]) -> None:
    (folder / "vocabulary" / "expansion.json").write_text(json.dumps(expansion), encoding="utf-8")
    (folder / "steps").mkdir(exist_ok=True)
    for name, record in steps.items():
        (folder / "steps" / f"{name}.json").write_text(json.dumps({"inputs": "x", "record": record}), encoding="utf-8")


def test_the_curve_is_tokens_per_word_of_each_text(grown: Path) -> None:
    chart = curve_chart([read_record(grown)])
    assert chart.rows == (
        ("Basque (eu)", "0", "3.500"),
        ("Basque (eu)", "8", "3.000"),
        ("parallel text", "0", "3.600"),
        ("parallel text", "8", "2.400"),
    )
    assert [list(trace.x) for trace in chart.figure.data] == [[0, 8], [0, 8]]


def test_facts_are_told_in_words(grown: Path) -> None:
    page = growth_facts(read_record(grown))
    for words in (
        "cuts 883 of 1,000 target words apart (88.3 %)",
        "हिन्दी → ह|ि|न|्|द|ी",
        "keeps marks in words; 2 words are still cut",
        "normaliser changes 4 of 40 target documents",
        "deletes characters of category Cf: U+200B ZERO WIDTH SPACE ×3",
        "replaces: ﬁ → fi ×1",
        "learned on 2.50 MB, 25 % of the training text",
        "28 joins were left out because they occur in protected text",
        "3 of the new tokens are no tokens of the second tokenizer",
        "12 held-out documents in both languages the target takes 3.00 tokens for one of the source before, 2.00 after",
        "1 of 1 old tokens that gave way",
        "Ġrare",
    ):
        assert words in page, words


def test_rows_and_the_bakeoff_are_told(grown: Path) -> None:
    page = rows_facts(read_record(grown))
    for words in ("focus", "→ focus", "2.0000", "0.9500", "the donor has no shared token", "failed", "step 50"):
        assert words in page, words
    assert "1 (embeddings/origins-input.jsonl says why)" in page
    assert "New input rows are 27% shorter than old ones" in page


def test_warnings_are_no_failures(grown: Path) -> None:
    gates = [{"name": "T7", "passed": False, "stops": False}, {"name": "T1", "passed": False, "stops": True}]
    (grown / "vocabulary" / "gates.json").write_text(json.dumps(gates), encoding="utf-8")
    page = render_page([read_record(grown)])
    assert page.count("! warning") == 1
    assert page.count("✕ failed") == 1


def test_o79_the_card_names_the_one_tokenizer_file_and_what_was_changed(grown: Path) -> None:
    card = model_card(grown)
    assert "The tokenizer is tokenizer.json alone: a tokenizer.model would be another one, and is not shipped." in card
    assert "gave way to as many new ones" in card
    assert "converters to GGUF do not know it" in card
    assert "New rows began as `focus`" in card


def test_a_run_without_these_records_has_a_page(finished_run: Path) -> None:
    record = read_record(finished_run)
    assert curve_chart([record]) is None
    assert growth_facts(record) == ""
    assert "changed so that it keeps" not in model_card(finished_run)


@pytest.mark.parametrize(
    "damage", [[], 3, "x", None, {"curve": 3}, {"curve": {"sizes": [], "points": {}}}, {"record": []}]
)
def test_damaged_records_count_as_absent(finished_run: Path, tmp_path: Path, damage: Any) -> None:
    import shutil

    folder = shutil.copytree(finished_run, tmp_path / "run")
    write(folder, damage, {"bakeoff": damage, "embeddings": damage})
    render_page([read_record(folder)])


def test_hostile_spellings_are_text(grown: Path) -> None:
    expansion = json.loads(json.dumps(EXPANSION))
    expansion["removed"][0]["spelling"] = HOSTILE
    expansion["record"]["words"]["examples"] = [HOSTILE]
    expansion["curve"]["sizes"][HOSTILE] = expansion["curve"]["sizes"]["eu"]
    expansion["curve"]["points"][0]["tokens"][HOSTILE] = 5
    steps = json.loads(json.dumps(STEPS))
    steps["bakeoff"]["tastings"][1] |= {"label": HOSTILE, "failure": HOSTILE}
    write(grown, expansion, steps)
    record: RunRecord = read_record(grown)
    for block in (growth_facts(record), rows_facts(record)):
        assert "<script" not in block
        assert "<img" not in block
        assert not set("\x1b\x00\u202e") & set(block)
    assert "<script>window" not in str(curve_chart([record]).figure.to_json())
