"""lm-eval's three kinds of requests, over our scorer."""

import math

import pytest
from lm_eval.api.instance import Instance

from lingraft.errors import MeasurementError
from lingraft.measure import scoring
from lingraft.measure.scoring import Scorer
from lingraft.measure.tasks.adapter import ScorerLM


def requests(kind: str, *arguments: tuple) -> list[Instance]:
    return [
        Instance(request_type=kind, doc={}, arguments=args, idx=n, metadata=("t", 0, 1))
        for n, args in enumerate(arguments)
    ]


@pytest.fixture
def asked(monkeypatch) -> list[list[list[int]]]:
    """Every batch of ids that the model is given."""
    seen, whole = [], scoring.hidden_states

    def watch(model, ids, mask=None):
        seen.append(ids.tolist())
        return whole(model, ids, mask)

    monkeypatch.setattr(scoring, "hidden_states", watch)
    return seen


def test_o74_the_start_token_stands_in_front_once_and_is_not_scored(adapter, tokenizer, asked) -> None:
    adapter.loglikelihood_rolling(requests("loglikelihood_rolling", ("The light",)))
    assert asked == [[[0, *tokenizer.encode("The light")]]]
    asked.clear()
    # Spelled out in the text it is text, not the start token.
    adapter.loglikelihood_rolling(requests("loglikelihood_rolling", ("<|endoftext|>x",)))
    assert asked[0][0].count(0) == 1


def test_answers_to_an_empty_prompt_are_conditioned_on_the_start_token(adapter, scorer, tokenizer) -> None:
    ((told, _),) = adapter.loglikelihood(requests("loglikelihood", ("", "The light")))
    (row,) = scorer.score([tokenizer.encode("The light")])
    assert told == pytest.approx(row.log_probabilities.sum().item(), abs=1e-5)


def test_the_greedy_continuation_is_known_as_such(adapter, scorer, tokenizer) -> None:
    from lingraft.model.generate import continue_until

    prompt = tokenizer.encode("The light in")
    text = continue_until(scorer.model, tokenizer, prompt, condition_id=0, end_id=0, max_tokens=1)
    answers = [("The light in", text), ("The light in", " the night")]
    (_, is_greedy), (_, other) = adapter.loglikelihood(requests("loglikelihood", *answers))
    assert tokenizer.encode("The light in" + text)[: len(prompt)] == prompt
    assert (is_greedy, other) == (True, False)


@pytest.fixture
def peer(model, tokenizer_text):
    """lm-eval's own model over ours; its tokenizer puts BOS in front by itself unless told otherwise."""
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer.from_str(tokenizer_text)
    raw.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    return lambda **options: HFLM(
        pretrained=model, tokenizer=fast, batch_size=2, device="cpu", max_length=255, **options
    )


@pytest.fixture
def every_row(model, tokenizer) -> ScorerLM:
    """Our adapter with all rows of the matrix, as lm-eval has them."""
    return ScorerLM(Scorer(model, num_ids=420, condition_id=0), tokenizer, end_id=0)


def test_rolling_equals_lm_evals_own_model(peer, every_row) -> None:
    texts = requests("loglikelihood_rolling", ("The light in the night. " * 40,), ("東京 ñandú مرحبا 🙂",))
    theirs = peer(add_bos_token=False).loglikelihood_rolling(texts, disable_tqdm=True)
    assert every_row.loglikelihood_rolling(texts) == pytest.approx(theirs, rel=1e-6)


def test_answers_score_as_by_lm_evals_own_model_with_bos(peer, every_row) -> None:
    pairs = [("The light in the", " night"), ("The light ", "in"), ("", "The light"), ("A cell", " can hold a sheet")]
    asked = requests("loglikelihood", *pairs)
    mine, theirs = every_row.loglikelihood(asked), peer().loglikelihood(asked, disable_tqdm=True)
    assert [told for told, _ in mine] == pytest.approx([told for told, _ in theirs], rel=1e-5)
    assert [greedy for _, greedy in mine] == [greedy for _, greedy in theirs]


def test_a_prompt_that_is_too_long_loses_its_beginning_and_is_counted(adapter, scorer, tokenizer) -> None:
    long = requests("loglikelihood", ("The light in the night. " * 60, "Then"))
    adapter.loglikelihood(long)
    assert adapter.scores[id(long[0])].cut == len(tokenizer.encode("The light in the night. " * 60 + "Then")) - 254
    made = requests("generate_until", ("The light in the night. " * 60, {"until": ["\n"], "max_gen_toks": 3}))
    assert len(adapter.generate_until(made)) == 1
    assert adapter.cut_prompts == 1


def test_generation_is_greedy_and_stops_in_front_of_the_string(adapter, tokenizer) -> None:
    from lingraft.model.generate import continue_until

    prompt = tokenizer.encode("The light")
    whole = continue_until(adapter.scorer.model, tokenizer, prompt, condition_id=0, end_id=0, max_tokens=8)
    stop = whole[len(whole) // 2 :][:1]
    options = {"until": stop, "max_gen_toks": 8, "temperature": 0.0, "do_sample": False}
    (text,) = adapter.generate_until(requests("generate_until", ("The light", options)))
    assert text == whole[: whole.index(stop)]


def test_sampled_answers_are_refused(adapter) -> None:
    options = {"until": ["\n"], "do_sample": True, "temperature": 0.7}
    with pytest.raises(MeasurementError, match=r"task 't' samples its answers .*temperature 0\.7"):
        adapter.generate_until(requests("generate_until", ("The light", options)))


def test_rows_that_no_token_owns_take_no_probability_from_answers(adapter, every_row) -> None:
    pair = ("The light in the", " night")
    ((masked, _),), ((whole, _),) = (lm.loglikelihood(requests("loglikelihood", pair)) for lm in (adapter, every_row))
    assert masked > whole
    assert math.isfinite(masked)
