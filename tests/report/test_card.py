"""The model card: front matter that parses, the measured table, nothing hostile, no local path."""

from pathlib import Path
from typing import Any

import yaml

from lingraft.report import model_card


def front_matter(card: str) -> dict[str, Any]:
    _, head, _ = card.split("---\n", 2)
    return yaml.safe_load(head)


def test_the_front_matter(finished_run: Path) -> None:
    assert front_matter(model_card(finished_run)) == {
        "license": "unknown",
        "language": ["eu", "en"],
        "base_model": "HuggingFaceTB/SmolLM2-135M",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["lingraft", "language-adaptation", "continued-pretraining", "vocabulary-expansion"],
    }


def test_the_card_says_what_was_measured_and_how_it_was_made(finished_run: Path) -> None:
    card = model_card(finished_run)
    for words in (
        r"| Basque (eu): bits per byte | 1.900 \[1.870, 1.930\] | 1.423 \[1.393, 1.453\] | −25.1 % | 180 |",
        "| embeddings-only | embeddings | 20.5k | eu 90%, en 10% | cosine, peak 0.001 | no |",
        "| continued-pretraining | all | 81.9k | eu 80%, en 20% | cosine, peak 0.0001 | live, decay 0.92 |",
        "390 tokens were added to the 49,152 of the base model; the matrices have 51,200 rows",
        "| eu | Basque (eu) | eu.jsonl.zst | 1,820 | 331,225 | 2,412,331 |",
        "AutoModelForCausalLM.from_pretrained(folder)",
        "One training run: the intervals are item uncertainty only",
    ):
        assert words in card, words
    assert "/somebody" not in card


def test_hostile_text_is_literal(hostile_run: Path) -> None:
    card = model_card(hostile_run)
    assert "<script" not in card
    assert "](javascript" not in card.replace(r"\]", "")
    assert not set("\x1b\x00\u202e\u2028") & set(card)
    widths = {
        line.replace(r"\|", "").count("|")
        for line in card.split("## How it was made")[0].split("\n")
        if line[:2] == "| "
    }
    assert widths == {6}


def test_an_unfinished_run_has_a_card_that_says_so(unfinished_run: Path) -> None:
    card = model_card(unfinished_run)
    assert "**Too early to say.**" in card
    assert "The record of the expansion is missing." in card
    assert "not recorded" in card


def test_a_folder_without_a_recipe_has_a_card(tmp_path: Path) -> None:
    assert "Nothing has been measured yet." in model_card(tmp_path)
