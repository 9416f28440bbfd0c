"""The model card: front matter that parses, the measured table, nothing hostile, no local path."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from lingraft.recipe import Export
from lingraft.recipe_file import dump_recipe
from lingraft.report import model_card
from lingraft.run import Run


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


def with_licences(finished_run: Path, folder: Path, **export: str) -> str:
    """Return the card of a copy of a run whose recipe states licences."""
    shutil.copytree(finished_run, folder)
    recipe = Run(folder).recipe
    corpora = recipe.corpora | {"eu": recipe.corpora["eu"].model_copy(update={"license": "CC-BY-SA-4.0"})}
    told = recipe.model_copy(update={"corpora": corpora, "export": Export(**export)})
    (folder / "recipe.yaml").write_text(dump_recipe(told), encoding="utf-8")
    return model_card(folder)


def test_licences_are_told_as_stated_and_not_worked_out(finished_run: Path, tmp_path: Path) -> None:
    card = with_licences(finished_run, tmp_path / "run")
    assert "| HuggingFaceTB/SmolLM2-135M | base model | not stated |" in card
    assert "| eu | corpus | CC-BY-SA-4.0 |" in card
    assert "| en | corpus | not stated |" in card
    assert "No licence has been chosen" in card
    assert front_matter(card)["license"] == "unknown"


def test_a_chosen_licence_stands_in_the_front_matter(finished_run: Path, tmp_path: Path) -> None:
    card = with_licences(finished_run, tmp_path / "run", license="apache-2.0", base_license="mit <script>")
    assert front_matter(card)["license"] == "apache-2.0"
    assert "| HuggingFaceTB/SmolLM2-135M | base model | mit &lt;script&gt; |" in card
    assert "published under: apache-2.0." in card


def test_what_the_base_states_is_read_from_the_run(finished_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder)
    (folder / "steps").mkdir(exist_ok=True)
    marker = {"inputs": "x", "record": {"name": "b", "license": "gemma"}}
    (folder / "steps" / "base.json").write_text(json.dumps(marker), encoding="utf-8")
    assert "| HuggingFaceTB/SmolLM2-135M | base model | gemma |" in model_card(folder)


def test_the_card_says_how_text_was_normalised(finished_run: Path) -> None:
    """As by default nothing is, nothing is said; otherwise a prompt in another form has other tokens."""
    run = Run(finished_run)
    assert "Unicode's form C" not in model_card(finished_run)
    changed = {name: corpus.model_copy(update={"normalise": "nfc"}) for name, corpus in run.recipe.corpora.items()}
    changed["eu"] = changed["eu"].model_copy(update={"strip_bidi": True})
    recipe = run.recipe.model_copy(update={"corpora": changed})
    (finished_run / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    section = model_card(finished_run).split("## Corpora")[1].split("## Licences")[0]
    said = " before anything was learned from it or measured on it; give the model text in that form too"
    assert f"Text of {', '.join(changed)} was put into Unicode's form C (NFC){said}" in section
    assert f"Text of eu had its direction marks taken out (bidi controls){said}" in section


def test_the_card_of_a_tokenizer_with_scores_elsewhere_says_what_llama_cpp_needs(finished_run: Path) -> None:
    assert "--sentencepiece" not in model_card(finished_run)
    path = finished_run / "vocabulary" / "expansion.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"family": "sentencepiece_bpe"}), encoding="utf-8")
    assert "export the run with `lingraft export RUN --to FOLDER --sentencepiece`" in model_card(finished_run)
