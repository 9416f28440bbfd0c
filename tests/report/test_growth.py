"""What the page and the card say of the vocabulary's growth; absent, older, damaged and hostile records."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lingraft.report import model_card
from lingraft.report.growth import curve_chart, gates_table, growth_facts
from lingraft.report.new_rows import bakeoff_table, new_rows
from lingraft.report.page import render_page
from lingraft.report.reading import read_record

HOSTILE = "<script>window.hostile = 1</script><img src=x onerror=1>\x1b[31m\x00\u202eexe | `code` &amp; $x {y}"
EXPANSION = {
    "method": "replace",
    "family": "byte_bpe",
    "num_old": 49_152,
    "num_new": 8,
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
        "style": "pair",
        "learned": 10,
        "vetoed": 28,
        "simulation": {"compared": 3_000, "different": 1},
        "words": {
            "words": 1000,
            "cut": 883,
            "pre_tokens": 2480,
            "cut_fraction": 0.883,
            "floor": 2.48,
            "causes": {"mark": 880, "joiner": 0, "apostrophe": 3, "other": 0},
            "examples": ["हिन्दी → ह|ि|न|्|द|ी"],
        },
        "pre_tokenizer": {"patched": True, "after": {"cut": 2, "floor": 1.01}},
        "normaliser": {
            "documents": 40,
            "changed": 4,
            "deleted": {"Cf": {"count": 3, "examples": ["U+200B ZERO WIDTH SPACE ×3"]}},
            "folded": {"count": 1, "examples": ["ﬁ → fi ×1"]},
            "is_lossy_for_marks": True,
        },
        "sample_bytes": {"eu": 2_500_000},
        "share_seen": {"eu": 0.25},
        "share_protected": 0.5,
        "pinned_scripts": ["Devanagari"],
        "on_the_way": 3,
        "parallel": {"documents": 12, "source_tokens": 60},
    },
    "new_tokens": [{"id": 7 + n, "text": " etxe", "count": 9, "pieces": [1, 2]} for n in range(8)],
}
STEPS = {
    "embeddings": {
        "methods": "focus(vectors=/somebody/secret/eu.vec)",
        "rows": 49_200,
        "tied": True,
        "input": {"copied": 49_144, "initialised": 5, "fallback": 3, "padding": 48},
    },
    "bakeoff": {
        "chosen": "focus",
        "tastings": [
            {"label": "focus", "target": {"0": 3.1, "50": 2.0}, "source": {"0": 0.9, "50": 0.95}, "failure": None},
            {"label": "omp", "target": {}, "source": {}, "failure": "the donor has no shared token"},
        ],
    },
}
PATTERN = r"'s| ?(?:\p{L}[\u0900-\u0903]*)+|\s+"
TOKENIZER = {
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Split", "pattern": {"Regex": PATTERN}}, {"type": "ByteLevel"}],
    }
}


def copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def write(folder: Path, expansion: Any, steps: dict[str, Any], tokenizer: Any = TOKENIZER) -> None:
    for name, value in (("expansion", expansion), ("tokenizer", tokenizer)):
        (folder / "vocabulary" / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    (folder / "steps").mkdir(exist_ok=True)
    for name, record in steps.items():
        (folder / "steps" / f"{name}.json").write_text(json.dumps({"inputs": "x", "record": record}), encoding="utf-8")


def write_gates(folder: Path, gates: Any) -> None:
    (folder / "vocabulary" / "gates.json").write_text(json.dumps(gates), encoding="utf-8")


@pytest.fixture
def folder(finished_run: Path, tmp_path: Path) -> Path:
    """A finished run of an older version, to be written over."""
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def grown(folder: Path) -> Path:
    """A finished run whose vocabulary was replaced, with every record that there can be."""
    write(folder, EXPANSION, STEPS)
    return folder


def test_the_curve_is_tokens_per_word_of_each_text_and_the_chosen_size_is_marked(grown: Path) -> None:
    chart = curve_chart([read_record(grown)])
    assert chart is not None
    assert chart.rows == (
        ("Basque (eu)", "0", "3.500"),
        ("Basque (eu)", "8 (chosen)", "3.000"),
        ("parallel text", "0", "3.600"),
        ("parallel text", "8 (chosen)", "2.400"),
    )
    first, second = chart.figure.data
    assert list(first.x) == [0, 8]
    assert list(first.marker.symbol) == ["circle", "star"]
    assert list(first.customdata) == ["", "chosen: "]
    assert first.line.dash != second.line.dash


def test_curves_of_two_runs_are_named_by_run(grown: Path) -> None:
    record = read_record(grown)
    chart = curve_chart([record, record])
    assert chart is not None
    assert chart.rows[0][0] == f"{record.name}, Basque (eu)"


def test_facts_are_told_in_words(grown: Path) -> None:
    page = growth_facts(read_record(grown))
    for words in (
        "cuts 883 of 1,000 target words apart (88.3%): 880 at marks, 3 at apostrophes.",
        "हिन्दी → ह|ि|न|्|द|ी",
        "keeps marks in words (still cut: 2). Text without",
        "Not for llama.cpp: its converter to GGUF takes the model without an error",
        "at the marks as before, so that the ids are wrong. vocabulary.pre_tokenizer: keep avoids that.",
        "fewer than 2.48 tokens per word with this pattern, after the change 1.01",
        "normaliser changes 4 of 40 target documents",
        "Deleted control or format characters (Cf), 3 in all: U+200B ZERO WIDTH SPACE ×3",
        "Characters replaced by others, 1 in all: ﬁ → fi ×1",
        "this base cannot write the target",
        "learned on 2.50 MB, 25.0% of the training text",
        "50.0% of the training text in other languages was looked at; what occurs in the rest alone",
        "Written in the target alone: Devanagari",
        "Of 10 learned tokens the first 8 were taken",
        "28 candidates were left out because they occur in protected text",
        "3 of the new tokens are no tokens of the second tokenizer",
        "cuts 2,999 of 3,000 words as they were left in learning",
        "12 held-out documents in both languages the target takes 3.00 tokens for one of the source before, 2.00 after",
        "Old tokens that gave way: 1, of which 1 are shown",
        "Ġrare",
        r"(?:\p{L}[\u0900-\u0903]*)+",
    ):
        assert words in page, words


def test_only_the_first_hundred_that_gave_way_are_listed(grown: Path) -> None:
    expansion = copied(EXPANSION)
    expansion["removed"] = [{"id": n, "spelling": f"t{n}", "source_count": 0, "target_count": 0} for n in range(1234)]
    write(grown, expansion, {})
    page = growth_facts(read_record(grown))
    assert "Old tokens that gave way: 1,234, of which 100 are shown" in page
    assert "t99<" in page
    assert "t100<" not in page


def test_a_pattern_that_was_left_alone_and_a_normaliser_that_does_nothing_are_said(folder: Path) -> None:
    facts = {
        "words": {"words": 163_369, "cut": 4, "causes": {"mark": 0, "apostrophe": 4}, "examples": []},
        "normaliser": {"documents": 7, "changed": 0, "deleted": {}, "folded": {"count": 0, "examples": []}},
        "share_seen": {"eu": 1.0},
        "share_protected": 1.0,
    }
    write(folder, {"method": "keep", "record": facts, "curve": {"sizes": {}, "points": []}, "removed": []}, {})
    record = read_record(folder)
    page = growth_facts(record)
    for words in (
        "cuts 4 of 163,369 target words apart (0.0%): 4 at apostrophes.",
        "The pattern was not changed.",
        "leaves all 7 target documents as they are",
        "learned on all of the training text",
        "all of the training text in other languages was looked at.",
    ):
        assert words in page, words
    assert "GGUF" not in page
    assert record.pattern is None


def test_warnings_are_no_failures_and_evidence_is_listed(grown: Path) -> None:
    evidence = ["made: ' zab' 3x", HOSTILE, *map(str, range(10))]
    gates = [
        {"name": "T7 used", "passed": False, "stops": False, "expected": "few", "found": "many", "evidence": evidence},
        {"name": "T1 reachable", "passed": False, "stops": True, "evidence": []},
        {"name": "old", "passed": True, "evidence": "1,000 documents"},
    ]
    write_gates(grown, gates)
    block = gates_table(read_record(grown))
    assert "1 of 3 checks passed; 1 failed; 1 gave a warning, which stops nothing." in block
    assert block.count("! warning") == block.count("✕ failed") == block.count("✓ passed") == 1
    assert block.index(">reachable<") < block.index(">used<") < block.index(">old<")
    assert "made: &#x27; zab&#x27; 3x" in block
    assert "6 more in gates.json" in block
    assert "1,000 documents" in block
    assert "<script" not in block
    assert "<img" not in block


def test_a_warning_is_told_and_does_not_decide(grown: Path) -> None:
    write_gates(grown, [{"name": "T7 used", "passed": False, "stops": False}])
    page = render_page([read_record(grown)])
    assert "The vocabulary check “T7 used” gave a warning; it does not decide." in page
    assert "“T7 used” failed" not in page
    assert "0 of 1 checks of the vocabulary passed, 1 gave a warning." in model_card(grown)


def test_o79_the_card_names_the_one_tokenizer_file_and_what_was_changed(grown: Path) -> None:
    card = model_card(grown)
    for words in (
        "tokenizer.json is the one authoritative tokenizer file. No tokenizer.model is shipped, nor vocab.json",
        "1 of the 49,152 tokens of the base model gave way; the matrices have 49,200 rows, the rest padding.",
        "Their ids now belong to 8 new tokens; vocabulary/expansion.json of the run lists what went.",
        "converter to GGUF takes these files without an error or a warning",
        "so target text gets wrong ids. (Measured with SmolLM2 expanded for Hindi: wrong ids on 212 of 212",
        "A run with `vocabulary.pre_tokenizer: keep` leaves the pattern as it is and avoids this.",
        r"The pattern: 's\| ?(?:\\p{L}\[\\u0900-\\u0903\]\*)+\|\\s+",
        "New rows began as `focus(vectors=eu.vec)`, the best of 1 in a bake-off, 3 of them by a fallback.",
    ):
        assert words in card, words
    assert "/somebody" not in card


@pytest.mark.parametrize(
    ("rows", "words"), [(49_159, "49,159 rows. Their"), (49_160, "49,160 rows, the rest padding. Their")]
)
def test_padding_is_what_no_id_owns(grown: Path, rows: int, words: str) -> None:
    # 49,152 old ids, of which 1 gave way, and 8 new ones.
    steps = copied(STEPS)
    steps["embeddings"]["rows"] = rows
    write(grown, EXPANSION, steps)
    assert words in model_card(grown)


def test_the_card_of_an_older_run_says_the_same_of_the_file_and_nothing_of_a_pattern(finished_run: Path) -> None:
    card = model_card(finished_run)
    assert "tokenizer.json is the one authoritative tokenizer file" in card
    assert "390 tokens were added to the 49,152 of the base model; the matrices have 51,200 rows, the rest" in card
    assert "New rows began as `subword_mean`. " in card
    assert "GGUF" not in card


def test_a_run_without_these_records_has_a_page(finished_run: Path) -> None:
    record = read_record(finished_run)
    assert curve_chart([record]) is None
    assert growth_facts(record) == ""
    assert not [words for words in record.missing if "steps/" in words]
    page = render_page([record])
    for title in ("How the vocabulary grew", "Which init methods were tried"):
        assert title not in page


@pytest.mark.parametrize(
    "damage",
    [
        [],
        3,
        "x",
        None,
        {"curve": 3, "num_old": 10**400, "num_new": True, "removed": {"id": 1}},
        {"curve": {"sizes": [], "points": {}}, "record": {"pre_tokenizer": {"patched": True}}},
        {"record": [], "chosen": [], "tastings": [3, {"target": {"²": 1, "9" * 5000: 2, "1": "x"}, "source": []}]},
        {"record": {"words": {"words": 10**400, "cut": float("nan")}, "normaliser": {"documents": 1, "changed": 1}}},
        {"curve": {"sizes": {"eu": {"words": 1}}, "points": [{"num_new": 1, "tokens": {"eu": float("inf")}}]}},
        {"methods": [], "rows": 1e308, "num_old": 5, "input": {"fallback": float("inf")}, "output": 7},
        {"input": {"fallback": 10**400}, "rows": -1, "new_tokens": [], "record": {"sample_bytes": {"": None}}},
    ],
)
def test_damaged_records_count_as_absent(folder: Path, damage: Any) -> None:
    write(folder, damage, {"bakeoff": damage, "embeddings": damage}, damage)
    write_gates(folder, [damage, {"name": damage, "evidence": [damage], "found": damage}])
    render_page([read_record(folder)])
    model_card(folder)


@pytest.mark.parametrize("name", ["steps/bakeoff.json", "vocabulary/tokenizer.json", "embeddings/model/config.json"])
def test_files_cut_off_are_named(grown: Path, name: str) -> None:
    (grown / name).parent.mkdir(parents=True, exist_ok=True)
    (grown / name).write_text('{"record": {', encoding="utf-8")
    record = read_record(grown)
    assert any(words.startswith(f"{name}: damaged") for words in record.missing)
    render_page([record])


def test_hostile_spellings_are_text(grown: Path) -> None:
    expansion = copied(EXPANSION)
    facts = expansion["record"]
    expansion["removed"][0]["spelling"] = HOSTILE
    facts["words"] |= {"examples": [HOSTILE], "causes": {HOSTILE: 2}}
    facts["normaliser"]["deleted"] = {HOSTILE: {"count": 1, "examples": [HOSTILE]}}
    facts["normaliser"]["folded"]["examples"] = [HOSTILE]
    facts["pinned_scripts"] = [HOSTILE]
    facts["share_seen"] = {HOSTILE: 0.5}
    expansion["curve"]["sizes"][HOSTILE] = expansion["curve"]["sizes"]["eu"]
    expansion["curve"]["points"][0]["tokens"][HOSTILE] = 5
    steps = copied(STEPS)
    steps["embeddings"]["methods"] = HOSTILE
    steps["bakeoff"]["tastings"][1] |= {"label": HOSTILE, "failure": HOSTILE}
    tokenizer = copied(TOKENIZER)
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = HOSTILE
    write(grown, expansion, steps, tokenizer)
    record = read_record(grown)
    chart = curve_chart([record])
    assert chart is not None
    card = model_card(grown)
    for block in (growth_facts(record), new_rows(record), bakeoff_table(record), card):
        assert "<script" not in block
        assert "<img" not in block
        assert not set("\x1b\x00\u202e") & set(block)
    assert "`code`" not in card
    assert "<script>window" not in str(chart.figure.to_json())
