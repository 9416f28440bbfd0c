"""From a recipe's words to numbers, by hand: steps, quotas, warm-up, moments to measure and to save, border tokens."""

import pytest

from lingraft.errors import CorpusError, RecipeError, VocabularyError
from lingraft.model.locate import describe_base, locate_base
from lingraft.pipeline import settings
from lingraft.pipeline.settings import (
    DocumentTokens,
    checkpoint_steps,
    document_tokens,
    measure_steps,
    needed_tokens,
    patched_tokenizer,
    refuse_too_many_epochs,
    stage_mix,
    stage_schedule,
    target_cuts,
    warmup_steps,
)

SIZES = {"eu": 1000, "en": 9000}


@pytest.mark.parametrize(("tokens", "steps"), [("128", 1), ("129", 2), ("500", 4), ("512", 4), ("1.28k", 10)])
def test_steps_are_tokens_over_the_batch_rounded_up(make_recipe, tokens, steps):
    assert make_recipe(f"stages.0.tokens={tokens}").stages[0].num_steps == steps


@pytest.mark.parametrize(
    ("warmup", "steps"), [("0%", 0), ("1%", 1), ("10%", 10), ("10.5%", 11), ("128", 1), ("129", 2), ("1", 1)]
)
def test_warmup_in_steps(make_recipe, warmup, steps):
    assert warmup_steps(make_recipe(f"stages.1.lr.warmup={warmup}").stages[1]) == steps


@pytest.mark.parametrize(
    ("at", "steps"),
    [
        ("[0, 1%, 2%, 50%, 100%]", {1, 2, 50, 100}),
        ("[0.1%]", {1, 100}),
        ("[0]", {100}),
        ("[25.4%, 25.6%]", {25, 26, 100}),
    ],
)
def test_measuring_is_at_fractions_and_always_at_the_end(make_recipe, at, steps):
    recipe = make_recipe(f"measure.at={at}")
    assert measure_steps(recipe, recipe.stages[1]) == steps


@pytest.mark.parametrize(
    ("every", "steps"),
    [("25%", {25, 50, 75}), ("40%", {40, 80}), ("100%", set()), ("1280", set(range(10, 100, 10))), ("99.9%", {99})],
)
def test_checkpoints_are_made_inside_a_stage_not_at_its_end(make_recipe, every, steps):
    assert checkpoint_steps(make_recipe(f"stages.1.checkpoint_every={every}").stages[1]) == steps


def test_a_checkpoint_oftener_than_every_step_is_every_step(make_recipe):
    assert checkpoint_steps(make_recipe("stages.0.checkpoint_every=1").stages[0]) == {1, 2, 3}


@pytest.mark.parametrize(
    ("stage", "mix", "quotas"),
    [
        (0, None, {"eu": 16}),  # 4 steps of 4 sequences
        (1, None, {"eu": 300, "en": 100}),  # 50 steps of 2 + 2, 50 of 4
        (1, "{eu: 0.9, en: 0.1}", {"eu": 360, "en": 40}),
        (1, "{en: 1.0}", {"en": 400}),
        (1, "{eu: 1.0, en: 0.0}", {"eu": 400}),
    ],
)
def test_quotas_of_a_stage_by_hand(make_recipe, stage, mix, quotas):
    recipe = make_recipe(*([f"stages.{stage}.mix={mix}"] if mix else []))
    made = stage_mix(recipe, stage, SIZES)
    assert made.totals == quotas
    assert list(made.corpora) == list(quotas)


def test_the_schedule_is_the_stage_s_own(make_recipe):
    recipe = make_recipe()
    assert dict(stage_schedule(recipe, 0, SIZES)(0.9)) == {"eu": 1.0}
    assert dict(stage_schedule(recipe, 1, SIZES)(0.49)) == {"eu": 0.5, "en": 0.5}
    assert dict(stage_schedule(recipe, 1, SIZES)(0.5)) == {"eu": 1.0}


def test_until_warmup_end_is_the_end_of_the_rate_s_warm_up(make_recipe):
    """The warm-up of the second stage is 10 steps of 100."""
    mix = "{schedule: step, until: warmup_end, before: {eu: 0.5, en: 0.5}, after: {eu: 1.0}}"
    recipe = make_recipe(f"stages.1.mix={mix}")
    assert warmup_steps(recipe.stages[1]) == 10
    assert (stage_mix(recipe, 1, SIZES).slots(0, 400)[40:] == 0).all()
    assert stage_mix(recipe, 1, SIZES).totals == {"eu": 380, "en": 20}


def test_temperature_goes_by_the_tokens_that_are_there(make_recipe):
    recipe = make_recipe("stages.1.mix={schedule: temperature, corpora: [eu, en], alpha: 0.5}")
    assert stage_mix(recipe, 1, SIZES).totals == {"eu": 100, "en": 300}
    assert needed_tokens(recipe, SIZES) == {"eu": 116 * 32, "en": 300 * 32}


def test_an_unknown_mix_schedule_is_refused_with_the_recipe_path(make_recipe):
    with pytest.raises(RecipeError, match=r"stages\.1\.mix: unknown mix schedule 'stp', did you mean 'step'"):
        stage_schedule(make_recipe("stages.1.mix={schedule: stp, at: 10%}"), 1, SIZES)


def test_as_many_passes_as_are_allowed(make_recipe):
    refuse_too_many_epochs(make_recipe("corpora.eu.max_epochs=4"), "eu", 400, 100)


@pytest.mark.parametrize(("needed", "available"), [(401, 100), (1, 0)])
def test_more_passes_than_are_allowed_are_refused(make_recipe, needed, available):
    recipe = make_recipe("corpora.eu.max_epochs=4")
    with pytest.raises(CorpusError, match=r"corpora\.eu: its share is .* at most 4 are allowed .*max_epochs"):
        refuse_too_many_epochs(recipe, "eu", needed, available)


def test_a_corpus_that_is_all_held_out_is_nothing_to_train_on(make_recipe):
    recipe = make_recipe("corpora.eu.validation=100%")
    with pytest.raises(CorpusError, match=r"corpora\.eu\.validation: all of the text is held out, and stages train on"):
        refuse_too_many_epochs(recipe, "eu", 500, 0)
    refuse_too_many_epochs(recipe, "eu", 0, 0)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), DocumentTokens(None, 0, 0)),  # the tiny tokenizer puts nothing in front of a text
        (("documents.start=<|im_start|>",), DocumentTokens(1, 0, 0)),
        (("documents.start=none", "documents.end=<|im_start|>"), DocumentTokens(None, 1, 0)),
        (("documents.condition_on=<|im_start|>",), DocumentTokens(None, 0, 1)),
    ],
)
def test_border_tokens(make_recipe, overrides, expected):
    recipe = make_recipe(*overrides)
    assert document_tokens(recipe, describe_base(locate_base(recipe.base_model))) == expected


@pytest.mark.parametrize("role", ["start", "end", "condition_on"])
def test_a_border_token_that_is_not_there_is_refused_with_the_nearest(make_recipe, role):
    recipe = make_recipe(f"documents.{role}=<|endoftex|>")
    message = rf"documents\.{role}: '<\|endoftex\|>' is not in the base vocabulary, did you mean '<\|endoftext\|>'"
    with pytest.raises(RecipeError, match=message):
        document_tokens(recipe, describe_base(locate_base(recipe.base_model)))


def test_auto_needs_a_token_that_the_tokenizer_states(make_recipe):
    import dataclasses

    recipe = make_recipe()
    base = dataclasses.replace(describe_base(locate_base(recipe.base_model)), bos=None, eos=None)
    with pytest.raises(RecipeError, match=r"documents\.end: the tokenizer states no such token; name one"):
        document_tokens(recipe, base)


CHAKMA = "𑄌𑄋𑄴𑄟𑄳𑄦 𑄃𑄧𑄏𑄛𑄖𑄴"


def test_marks_of_a_rare_script_are_kept_in_words_as_those_of_any_other(make_recipe, tokenizer):
    """The script is one that few texts hold; its vowel signs cut every word of the text."""
    texts = {"ccp": [CHAKMA] * 5}
    patched = patched_tokenizer(tokenizer, texts, target_cuts(tokenizer, texts, make_recipe()), make_recipe())
    assert patched is not tokenizer
    assert len(tokenizer.pre_tokenize(CHAKMA)) > 2
    assert len(patched.pre_tokenize(CHAKMA)) == 2
    assert patched.pre_tokenize("plain text, 12 words") == tokenizer.pre_tokenize("plain text, 12 words")


def test_a_script_that_is_not_listed_is_refused_and_keep_lets_it_through(make_recipe, tokenizer, monkeypatch):
    monkeypatch.setattr(settings, "dominant_scripts", lambda texts: {"Other", "Latin"})
    texts = {"ccp": [CHAKMA]}
    cuts = target_cuts(tokenizer, texts, make_recipe())
    with pytest.raises(VocabularyError, match=r"newer than Unicode 16.* set vocabulary\.pre_tokenizer: keep"):
        patched_tokenizer(tokenizer, texts, cuts, make_recipe())
    kept = patched_tokenizer(tokenizer, texts, cuts, make_recipe("vocabulary.pre_tokenizer=keep"))
    assert kept is tokenizer


def test_the_words_of_a_language_are_counted_once_a_tokenizer(make_recipe, tokenizer, monkeypatch):
    counted = []
    inner = settings.audit_words
    monkeypatch.setattr(settings, "audit_words", lambda *given: (counted.append(given), inner(*given))[1])
    texts = {"hi": ["हिन्दी"], "eu": ["etxea"]}
    cuts = target_cuts(tokenizer, texts, make_recipe())
    patched_tokenizer(tokenizer, texts, cuts, make_recipe())
    assert [(found.words, found.cut) for found in cuts.values()] == [(1, 1), (1, 0)]
    assert len(counted) == 2
