"""The same likelihoods as lm-eval's rolling ones, in both of its conventions."""

import json
import math

import pytest
from transformers import PreTrainedTokenizerFast

from lingraft.measure.bits_per_byte import measure_bits_per_byte
from lingraft.measure.scoring import Scorer

DOCUMENTS = {
    "ascii": "The light in the night is bright: 1 + 1 = 2.",
    "two windows": "A cell can hold a number, a text or a formula. " * 30,
    "mixed": "東京 ñandú مرحبا بالعالم 🙂👩‍👩‍👧 हिन्दी e\u0301",
    "english": "To open a document, choose File and then Open; the dialog shows the folders.\nWhen it is pressed it closes.",
}


@pytest.fixture(scope="module")
def peer(model, tokenizer_text: str, scorer):
    """Return lm-eval's model over ours, the tokenizer putting BOS in front by itself, as Llama's does."""
    pytest.importorskip("lm_eval")
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    raw = Tokenizer.from_str(json.dumps(json.loads(tokenizer_text)))
    raw.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<|endoftext|>", eos_token="<|endoftext|>")

    def make(**options):
        # What lm-eval calls the length is the number of inputs, ours is one more: the last target is one of them.
        return HFLM(
            pretrained=model, tokenizer=fast, batch_size=2, device="cpu", max_length=scorer.window - 1, **options
        )

    return make


@pytest.fixture(scope="module")
def scorer(model) -> Scorer:
    # lm-eval does not mask rows that no token owns, so here all rows take part.
    return Scorer(model, num_ids=420, condition_id=0)


def rolled(peer, text: str) -> float:
    from lm_eval.api.instance import Instance

    request = Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0)
    return peer.loglikelihood_rolling([request], disable_tqdm=True)[0]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_o73_it_equals_lm_eval_without_bos_in_the_text(peer, scorer, tokenizer, name: str) -> None:
    text = DOCUMENTS[name]
    found = measure_bits_per_byte(scorer, tokenizer, [text], segment_bytes=None, disjoint=True)
    theirs = -rolled(peer(add_bos_token=False), text) / math.log(2) / len(text.encode())
    assert found.value == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_o74_by_default_lm_eval_scores_the_start_token_as_text(peer, scorer, tokenizer, name: str) -> None:
    text = DOCUMENTS[name]
    ids = [0, *tokenizer.encode(text)]
    scored = scorer.score([ids], disjoint=True)[0].log_probabilities.double()
    theirs = rolled(peer(), text)
    assert scored.sum().item() == pytest.approx(theirs, rel=1e-6)
    # What ours leaves out: the token that stands there by itself, behind itself.
    ours = measure_bits_per_byte(scorer, tokenizer, [text], segment_bytes=None, disjoint=True)
    assert abs(-theirs / math.log(2) - ours.bits) > 0.5


def test_the_second_document_has_two_windows(scorer, tokenizer) -> None:
    lengths = {name: len(tokenizer.encode(text)) for name, text in DOCUMENTS.items()}
    assert scorer.window - 1 < lengths["two windows"] < 2 * (scorer.window - 1)
    assert all(length < scorer.window for name, length in lengths.items() if name != "two windows")
