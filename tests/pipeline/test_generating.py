"""What models of a run write: in which language, with which tokens, before and after."""

import pytest
from torch import nn

from lingraft.corpus.language_id import Guess, Label
from lingraft.errors import MissingExtraError
from lingraft.model.base import load_model
from lingraft.model.generate import continue_all, continue_text
from lingraft.pipeline import generating
from lingraft.pipeline.adapt import adapt
from lingraft.pipeline.generating import GenerationCheck
from lingraft.pipeline.settings import DocumentTokens
from lingraft.recipe import Generation, Languages

MODEL = nn.Identity()
TEXTS = [
    "Gelaxka batek zenbaki bat eduki dezake, eta orriak haren balioa erakusten du, beti. Nola irekiko dut hori?"
] * 3


def check(source: str = "en", target: str = "eu", texts=TEXTS, **spec) -> GenerationCheck:
    spec = Generation(**({"prompts": 4, "tokens": 6} | spec))
    return GenerationCheck(spec, Languages(source=source, target=target), DocumentTokens(None, 0, 0), texts, 4)


@pytest.fixture
def no_identifier(monkeypatch):
    def missing(*_):
        raise MissingExtraError("language identification", "lid")

    monkeypatch.setattr(generating, "identifier", missing)


def says(monkeypatch, labels: dict[str, str]) -> None:
    """Make the identifier tell the label of the first key that a text holds."""

    def guess(text: str) -> Guess:
        label = next((label for key, label in labels.items() if key in text), "und")
        return Guess(Label(label), 0.9, "Latin", is_plausible=True)

    monkeypatch.setattr(generating, "identifier", lambda *_: guess)


def writes(monkeypatch, tokenizer, *texts: str) -> None:
    """Make every model write these texts, in turn."""
    made = [tokenizer.encode(text) for text in texts]
    monkeypatch.setattr(
        generating, "continue_all", lambda _, prompts, **__: [made[n % len(made)] for n in range(len(prompts))]
    )


def values(rows) -> dict[str, float]:
    return {row.name.removeprefix("generation/"): row.value for row in rows}


def test_answers_in_english_to_target_questions_are_seen(monkeypatch, tokenizer) -> None:
    """O-56: the model goes on with Basque documents in Basque, and answers Basque questions in English."""
    says(monkeypatch, {"erak": "eu", "shows": "en"})
    writes(monkeypatch, tokenizer, " erakusten du", " it shows that")
    subject = check(prompts=1)
    found = values(subject.rows(MODEL, tokenizer, (), "cpt", 10))
    assert list(subject.prompts) == ["base", "question"]
    assert (found["base/target_share"], found["base/source_share"]) == (1, 0)
    assert (found["question/target_share"], found["question/source_share"]) == (0, 1)
    assert found["question/identified_share"] == 0
    assert found["question/script_share"] == 1


def test_o56_scripts_judge_alone_where_they_can(no_identifier, monkeypatch, tokenizer) -> None:
    """Without an identifier, Devanagari can be told from Latin, and Basque from English cannot."""
    writes(monkeypatch, tokenizer, "पेरिस है", "It is Paris")
    found = values(check(target="hi", texts=["यह एक दस्तावेज़ है।"], prompts=2).rows(MODEL, tokenizer, (), "cpt", 10))
    assert (found["question/target_share"], found["question/source_share"]) == (0.5, 0.5)
    assert "question/identified_share" not in found
    latin = values(check().rows(MODEL, tokenizer, (), "cpt", 10))
    assert "base/script_share" in latin
    assert "base/target_share" not in latin


def test_an_identifier_that_does_not_know_true_target_text_is_not_asked(monkeypatch, tokenizer) -> None:
    says(monkeypatch, {"": "es"})
    writes(monkeypatch, tokenizer, "erakusten")
    found = values(check().rows(MODEL, tokenizer, (), "base", 0))
    assert not {name for name in found if "identified" in name or "target" in name}


def test_true_text_stands_beside_the_base(monkeypatch, tokenizer) -> None:
    says(monkeypatch, {"erak": "eu", "haren": "eu"})
    writes(monkeypatch, tokenizer, "erakusten")
    rows = list(check().rows(MODEL, tokenizer, (), "base", 0))
    assert values(rows)["reference/target_share"] == 1
    share = next(row for row in rows if row.name == "generation/base/target_share")
    assert (share.low, share.high, share.count) == (pytest.approx(0.2065, abs=1e-4), 1.0, 1)
    assert "reference/target_share" not in values(check().rows(MODEL, tokenizer, (), "cpt", 5))


def test_questions_of_the_recipe_of_the_table_and_of_the_text(tokenizer) -> None:
    assert check(questions=("Zer da hau?",)).prompts["question"] == ["Zer da hau?\n"]
    assert check().prompts["question"][0] == "Zein da Frantziako hiriburua?\n"
    assert check(target="fi").prompts["question"] == ["Nola irekiko dut hori?\n"]
    assert list(check(target="fi", texts=["Ei kysymyksiä."]).prompts) == ["base"]
    assert list(check(prompts=0).rows(MODEL, tokenizer, (), "cpt", 0)) == []


def test_many_at_a_time_are_what_each_is_alone(untied_folder, tokenizer) -> None:
    model = load_model(untied_folder)
    prompts = ["A cell", "To open a document, choose", "", "The light in the night is bright"]
    alone = [continue_text(model, tokenizer, p, condition_id=0, end_id=0, max_tokens=9) for p in prompts]
    ids = continue_all(
        model,
        [tokenizer.encode(p) for p in prompts],
        num_ids=tokenizer.num_ids,
        condition_id=0,
        end_id=0,
        max_tokens=9,
        batch_size=3,
    )
    assert [tokenizer.decode(i) for i in ids] == alone
    assert all(0 < len(i) <= 9 for i in ids)


def test_a_prompt_as_long_as_the_model_keeps_its_end(tied_folder, tokenizer) -> None:
    made = continue_all(
        load_model(tied_folder), [[5] * 600], num_ids=394, condition_id=0, end_id=0, max_tokens=4, batch_size=1
    )
    assert len(made[0]) <= 4


def test_rows_of_a_run_before_and_after(make_recipe, tmp_path) -> None:
    """O-56 in a run: the base and the end of each stage."""
    run = adapt(
        make_recipe(
            "stages.1.tokens=256",
            "embeddings.max_source_mass=1.0",
            "embeddings.max_source_rise=9",
            "measure={at: [50%], probes: [], validation_bytes: 1000, drift: {tokens: 0, spectral_layers: 0}, "
            "generation: {prompts: 3, tokens: 5}}",
        ),
        tmp_path / "run",
        until="second",
    )
    rows = [row for row in run.measurements() if row.name.startswith("generation/")]
    assert {(row.stage, row.tokens) for row in rows} == {("base", 0), ("first", 512), ("second", 768)}
    names = {row.name for row in rows if row.stage == "second"}
    assert {
        "generation/base/script_share",
        "generation/question/repetition",
        "generation/base/new_token_share",
    } <= names
    assert all(row.value == 0 for row in rows if row.stage == "base" and "new_token" in row.name)
