"""Greedy continuations: owned ids only, whole characters, an end."""

import pytest
import torch

from lingraft.model.base import load_model
from lingraft.model.generate import continue_text, continue_until


class Chain(torch.nn.Module):
    """Stands in for a body: the hidden state is one-hot at the id that shall come next."""

    def __init__(self, follow, width):
        super().__init__()
        self.follow, self.width = follow, width

    def forward(self, ids):
        following = torch.tensor([self.follow.get(i, 0) for i in ids.flatten().tolist()])
        return torch.nn.functional.one_hot(following, self.width).float().view(*ids.shape, self.width)


@pytest.fixture
def model(untied_folder):
    return load_model(untied_folder)


def chain(model, follow):
    """Make a model say, after each id, the one that ``follow`` names."""
    rows = model.get_output_embeddings().weight.shape[0]
    table = Chain(follow, rows)

    def states(module, arguments, keywords, output):
        output.last_hidden_state = table(keywords["input_ids"])
        return output

    model.model.register_forward_hook(states, with_kwargs=True)
    model.get_output_embeddings().weight = torch.nn.Parameter(torch.eye(rows))
    return model


def test_most_likely_continuation_until_the_end(model, tokenizer):
    a, b, c = (tokenizer.id_of(letter) for letter in "abc")
    chain(model, {a: b, b: c, c: 0})
    assert continue_text(model, tokenizer, "xa", condition_id=0, end_id=0) == "bc"


def test_no_more_tokens_than_asked(model, tokenizer):
    a, b = tokenizer.id_of("a"), tokenizer.id_of("b")
    chain(model, {a: b, b: a})
    assert continue_text(model, tokenizer, "a", condition_id=0, end_id=0, max_tokens=5) == "babab"


def test_characters_of_several_tokens_come_out_whole(model, tokenizer):
    euro = tokenizer.encode("€")
    assert len(euro) == 3
    follow = dict(zip([tokenizer.id_of("a"), *euro], [*euro, 0], strict=True))
    assert continue_text(chain(model, follow), tokenizer, "a", condition_id=0, end_id=0) == "€"


@pytest.mark.parametrize("prompt", ["", "a cell"])
def test_o18_rows_that_no_token_owns_are_never_generated(model, tokenizer, prompt):
    """The matrix has 420 rows, the tokenizer fewer ids; the spare rows would win every step."""
    assert tokenizer.num_ids < 420
    chain(model, dict.fromkeys(range(420), 419))
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        head[419] *= 100
        head[tokenizer.id_of("b")] = head[419] / 1000
    assert continue_text(model, tokenizer, prompt, condition_id=0, end_id=0, max_tokens=4) == "bbbb"


def test_empty_prompt_begins_after_the_condition_token(model, tokenizer):
    chain(model, {1: tokenizer.id_of("q")})
    assert continue_text(model, tokenizer, "", condition_id=1, end_id=0) == "q"


def test_control_token_named_in_a_prompt_is_text(model, tokenizer):
    last = tokenizer.encode("<|im_start|>")[-1]
    chain(model, {last: tokenizer.id_of("q"), 1: tokenizer.id_of("z")})
    assert continue_text(model, tokenizer, "<|im_start|>", condition_id=0, end_id=0, max_tokens=1) == "q"


def test_generation_ends_in_front_of_the_first_stop_string_whatever_tokens_spell_it(model, tokenizer):
    ids = tokenizer.encode("ab. Then")
    follow = dict(zip([5, *ids], [*ids, ids[0]], strict=True))
    chained = chain(model, follow)
    options = {"condition_id": 0, "end_id": 0, "max_tokens": 30}
    assert continue_until(chained, tokenizer, [5], stops=["hen", ". "], **options) == "ab"
    endless = continue_until(chained, tokenizer, [5], stops=["Z"], **options)
    assert endless.startswith("ab. Thenab. Then")
    assert continue_until(chained, tokenizer, [5], **options) == endless
