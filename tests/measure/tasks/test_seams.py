"""Tokens that span the seam between prompt and answer."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.errors import MeasurementError
from lingraft.measure.tasks.seams import join_answers
from lingraft.vocabulary import TokenizerFile


@pytest.fixture(scope="module")
def grown(tokenizer_text: str) -> TokenizerFile:
    """The tokenizer with the tokens ``eu``, ``ra`` and ``eura`` more: the last spans the seam in "eu" + "ra"."""
    raw = json.loads(tokenizer_text)
    vocabulary, merges = raw["model"]["vocab"], raw["model"]["merges"]
    first, *_ = merges
    for left, right in (("e", "u"), ("r", "a"), ("eu", "ra")):
        merges.append(f"{left} {right}" if isinstance(first, str) else [left, right])
        vocabulary.setdefault(left + right, max(vocabulary.values()) + 1)
    return TokenizerFile(json.dumps(raw), "grown")


def test_where_no_token_spans_the_seam_the_answer_is_scored_and_nothing_else(tokenizer) -> None:
    (one,) = join_answers(tokenizer, "The light", [" in"], 100)
    assert one.ids == tuple(tokenizer.encode("The light in"))
    assert one.start == len(tokenizer.encode("The light"))
    assert (one.is_crossed, one.cut) == (False, 0)


def test_a_token_over_the_seam_is_scored_whole_and_no_answer_is_empty(grown) -> None:
    assert len(grown.encode("eura")) == 1
    crossed, other = join_answers(grown, "eu", ["ra", "x"], 100)
    assert crossed.ids == tuple(grown.encode("eura"))
    assert crossed.start == other.start == 0
    assert (crossed.is_crossed, other.is_crossed) == (True, False)
    assert crossed.scored == crossed.ids
    # The same piece of prompt is scored in the other answer, so that the two can be compared.
    assert other.scored == tuple(grown.encode("eux"))


def test_space_at_the_prompts_end_belongs_to_the_answer(tokenizer) -> None:
    (inner,) = join_answers(tokenizer, "The ", ["light"], 100)
    (usual,) = join_answers(tokenizer, "The", [" light"], 100)
    assert inner == usual
    assert not inner.is_crossed


def test_an_empty_prompt_leaves_all_to_the_answer(tokenizer) -> None:
    (one,) = join_answers(tokenizer, "", ["The light"], 100)
    assert (one.start, one.scored) == (0, tuple(tokenizer.encode("The light")))


def test_a_long_prompt_loses_its_beginning_alike_for_all_answers(tokenizer) -> None:
    prompt = "The light in the night is bright. " * 5 + "Then"
    whole = tokenizer.encode(prompt + " in the night")
    short, long = join_answers(tokenizer, prompt, [" in", " in the night"], 20)
    assert len(long.ids) == 20
    assert long.ids == tuple(whole[-20:])
    assert short.cut == long.cut == len(whole) - 20
    assert short.start == long.start
    assert long.scored == tuple(tokenizer.encode(" in the night"))


@pytest.mark.parametrize("answers", [[], [""], [" a", ""]])
def test_an_empty_answer_is_refused(tokenizer, answers: list[str]) -> None:
    with pytest.raises(MeasurementError, match="is empty"):
        join_answers(tokenizer, "The light", answers, 100)


def test_an_answer_longer_than_the_window_is_refused(tokenizer) -> None:
    with pytest.raises(MeasurementError, match="the model sees 5 at once"):
        join_answers(tokenizer, "The light", [" " + "xyz " * 10], 5)


@settings(deadline=None)
@given(st.text("eura x\n", max_size=8), st.lists(st.text("eura x\n", min_size=1, max_size=6), min_size=1, max_size=4))
def test_laws(grown, prompt: str, answers: list[str]) -> None:
    for joined, answer in zip(join_answers(grown, prompt, answers, 100), answers, strict=True):
        assert list(joined.ids) == grown.encode(prompt + answer)
        assert joined.scored
        # What stands before the first scored token is prompt, and all of the answer is scored.
        assert prompt.startswith(grown.decode(joined.ids[: joined.start]))
