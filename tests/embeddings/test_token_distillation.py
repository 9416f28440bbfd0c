"""Token Distillation on a tiny Llama: the objective by hand, that it falls, and that the base model stands still."""

import hashlib
from dataclasses import replace

import pytest
import torch

from lingraft.embeddings import InitContext, fill_rows, subword_mean, token_distillation
from lingraft.embeddings.methods.token_distillation import Snippet, cut_snippets, distance
from lingraft.errors import ModelError, RecipeError
from lingraft.model.base import head_of, hidden_states, load_model
from lingraft.model.resize import replace_embeddings
from lingraft.vocabulary import LearnOptions, NewToken, VocabularyExpansion, expand_vocabulary

BASQUE = [
    "Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki.",
    "Gelaxka batek zenbaki bat, testu bat edo formula bat eduki dezake.",
    "Botoia sakatzean leihoa itxi egiten da eta ezarpenak gorde egiten dira.",
] * 12
HELD_OUT = ["Leihoa ireki eta testu bat hautatu; formula batek zenbaki bat eduki dezake eta gorde egiten da."]
FAST = {"snippets": 12, "batch": 8, "lr": 3e-3}


@pytest.fixture(scope="module")
def expansion(tokenizer) -> VocabularyExpansion:
    return expand_vocabulary(tokenizer, BASQUE, [], LearnOptions(16, min_count=5))


@pytest.fixture(scope="module", params=["tied", "untied"])
def folder(request, tied_folder, untied_folder):
    return {"tied": tied_folder, "untied": untied_folder}[request.param]


def context_of(expansion, model, side="input", texts=BASQUE, seed=0):
    table = model.get_input_embeddings() if side == "input" else model.get_output_embeddings()
    old = table.weight.detach()[: expansion.num_old].clone()
    generator = torch.Generator().manual_seed(seed)
    return InitContext(expansion, old, side, generator, lambda: texts, lambda: model)


def digest(model):
    sha = hashlib.sha256()
    for tensor in (*model.parameters(), *model.buffers()):
        sha.update(tensor.detach().numpy().tobytes())
    return sha.hexdigest()


# Snippets -------------------------------------------------------------------------------------------------------------


def by_spelling(expansion):
    return {token.spelling: place for place, token in enumerate(expansion.new_tokens)}


def test_stretches_by_hand(tokenizer):
    """` qzx` is 4 old tokens (the space is one), so stretches of 9 hold two of them."""
    expansion = expand_vocabulary(tokenizer, [" qzx"] * 12, [], LearnOptions(3))
    place = by_spelling(expansion)["Ġqzx"]
    new_id = expansion.new_tokens[place].id
    found = cut_snippets(expansion, [" qzx qzx qzx qzx qzx"], 10, 9)
    assert found == [Snippet(place, (new_id, new_id))] * 2 + [Snippet(place, (new_id,))]
    assert len(cut_snippets(expansion, [" qzx qzx qzx qzx qzx"], 1, 9)) == 1
    assert cut_snippets(expansion, [" qzx"], 10, 3) == []


def test_every_token_gets_as_many_snippets_as_asked_for_and_each_holds_it(expansion):
    found = cut_snippets(expansion, BASQUE, 5, 20)
    pieces = {token.id: token.pieces for token in expansion.new_tokens}
    for snippet in found:
        assert expansion.new_tokens[snippet.place].id in snippet.ids
        assert sum(len(pieces.get(token_id, "x")) for token_id in snippet.ids) <= 20
    counts = [sum(snippet.place == place for snippet in found) for place in range(expansion.num_new)]
    assert set(counts) <= {0, 5}
    assert counts.count(5) > 8


def test_text_is_read_no_further_than_needed(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qz"] * 12, [], LearnOptions(1))

    def texts():
        yield from ["qz"] * 64
        raise AssertionError("more text was asked for")

    assert len(cut_snippets(expansion, texts(), 64, 8)) == 64


def test_pieces_of_a_snippet_are_what_the_old_tokenizer_makes_of_it(expansion):
    """So the states that rows are trained towards are those of the base model on its own tokens."""
    pieces = {token.id: token.pieces for token in expansion.new_tokens}
    for text in BASQUE[:3]:
        spelled = [piece for token_id in expansion.new.encode(text) for piece in pieces.get(token_id, (token_id,))]
        assert spelled == expansion.old.encode(text)


# The objective --------------------------------------------------------------------------------------------------------


def test_objective_is_what_a_slow_and_obvious_version_says(expansion, folder):
    """One snippet with one new token in the middle: the states from its place on, against those behind its last piece."""
    model = load_model(folder)
    context = context_of(expansion, model)
    token = expansion.new_tokens[5]
    before, after = expansion.old.encode("the light"), expansion.old.encode(" of the file")
    rows = subword_mean(context) + 0.01
    table = model.get_input_embeddings()
    merged = torch.cat([table(torch.tensor(before)), rows[5][None], table(torch.tensor(after))])
    with torch.no_grad():
        got = model.model(inputs_embeds=merged[None]).last_hidden_state[0, len(before) :]
        wanted = hidden_states(model, torch.tensor([[*before, *token.pieces, *after]]))[0]
    slow = (got - wanted[len(before) + len(token.pieces) - 1 :]).square().mean()
    snippet = Snippet(5, (*before, token.id, *after))
    torch.testing.assert_close(distance(model, expansion, rows, [snippet]), slow)
    filled_up = [snippet, Snippet(5, (*before, *after, *before, token.id))]
    alone = distance(model, expansion, rows, [filled_up[1]])
    weights = torch.tensor([1.0 + len(after), 1.0])
    both = (torch.stack([slow, alone]) * weights).sum() / weights.sum()
    torch.testing.assert_close(distance(model, expansion, rows, filled_up), both)


def test_other_new_tokens_in_the_snippet_are_spelled_by_their_pieces(expansion, folder):
    model = load_model(folder)
    rows = subword_mean(context_of(expansion, model))
    token, other = expansion.new_tokens[5], expansion.new_tokens[7]
    one = distance(model, expansion, rows, [Snippet(5, (token.id, other.id))])
    two = distance(model, expansion, rows, [Snippet(5, (token.id, *other.pieces))])
    assert torch.equal(one, two)


def test_a_token_that_is_one_old_token_over_again_is_at_no_distance(expansion, folder):
    model = load_model(folder)
    first, *others = expansion.new_tokens
    again = replace(expansion, new_tokens=(NewToken(first.id, "again", (60,), 1), *others))
    rows = context_of(again, model).old[60].repeat(16, 1)
    assert distance(model, again, rows, [Snippet(0, (5, first.id, 7, 8))]).item() < 1e-12


def test_objective_falls_and_held_out_states_come_nearer(expansion, folder):
    model = load_model(folder)
    context = context_of(expansion, model)
    made = token_distillation(context, **FAST)
    assert made.matrix.shape == (16, 32)
    for texts, share in ((BASQUE, 0.8), (HELD_OUT, 0.95)):
        snippets = cut_snippets(expansion, texts, 12, 50)
        start, end = (
            distance(model, expansion, rows, snippets).item() for rows in (subword_mean(context), made.matrix)
        )
        assert end < share * start


def test_the_expanded_model_itself_comes_nearer(expansion, untied_folder):
    """Not our own arithmetic: the rows are put into the model, which reads the text with the new tokenizer."""
    base = load_model(untied_folder)
    ids = expansion.new.encode(HELD_OUT[0])
    pieces = {token.id: token.pieces for token in expansion.new_tokens}
    last = torch.tensor([len(pieces.get(token_id, "x")) for token_id in ids]).cumsum(dim=0) - 1
    with torch.no_grad():
        wanted = hidden_states(base, torch.tensor([expansion.old.encode(HELD_OUT[0])]))[0, last]

    def off(method):
        model = load_model(untied_folder)
        context = context_of(expansion, load_model(untied_folder))
        rows = fill_rows(context, model.get_input_embeddings().weight.detach(), method, "method", 450)
        head = fill_rows(context, model.get_output_embeddings().weight.detach(), subword_mean, "subword_mean", 450)
        replace_embeddings(model, rows, head)
        with torch.no_grad():
            return (hidden_states(model, torch.tensor([ids]))[0] - wanted).square().mean().item()

    assert off(lambda context: token_distillation(context, **FAST)) < 0.95 * off(subword_mean)


# What stands still ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["input", "output"])
def test_the_base_model_is_the_same_afterwards(expansion, untied_folder, side):
    model = load_model(untied_folder).train()
    next(model.parameters()).requires_grad_(False)
    before, wanted = digest(model), [parameter.requires_grad for parameter in model.parameters()]
    token_distillation(context_of(expansion, model, side), **FAST, steps=3, output="cross_entropy")
    assert digest(model) == before
    assert model.training
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.get_input_embeddings()._forward_hooks


def test_the_base_model_is_let_go_when_something_fails(expansion, untied_folder, monkeypatch):
    model = load_model(untied_folder).train()
    monkeypatch.setattr(model.model.norm, "forward", lambda states: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        token_distillation(context_of(expansion, model), **FAST)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not model.get_input_embeddings()._forward_hooks


def test_the_same_seed_gives_the_same_bits_and_another_does_not(expansion, tied_folder):
    def rows(seed):
        return token_distillation(context_of(expansion, load_model(tied_folder), seed=seed), **FAST, steps=4).matrix

    assert torch.equal(rows(1), rows(1))
    assert not torch.equal(rows(1), rows(2))


def test_what_no_snippet_holds_keeps_its_mean_and_is_on_record(expansion, tied_folder):
    model = load_model(tied_folder)
    context = context_of(expansion, model, texts=["testu bat eta testu bat"])
    made = token_distillation(context, **FAST)
    used = set(expansion.new.encode("testu bat eta testu bat"))
    start = subword_mean(context)
    for place, token in enumerate(expansion.new_tokens):
        is_fallback = token.id in made.fallbacks
        assert is_fallback == (token.id not in used)
        assert torch.equal(made.matrix[place], start[place]) == is_fallback
    assert set(made.fallbacks.values()) == {"mean of its pieces: no snippet of the text holds it"}
    assert used & {token.id for token in expansion.new_tokens}


def test_what_has_no_turn_in_so_few_steps_keeps_its_mean_and_is_on_record(expansion, tied_folder):
    context = context_of(expansion, load_model(tied_folder))
    made = token_distillation(context, snippets=12, batch=2, steps=1)
    waiting = {token_id for token_id, why in made.fallbacks.items() if why.endswith("ended before it had its turn")}
    assert 16 - len(made.fallbacks) in (1, 2)
    assert len(waiting) > 8
    start = subword_mean(context)
    moved = (made.matrix != start).any(dim=1).tolist()
    assert [token.id not in made.fallbacks for token in expansion.new_tokens] == moved


# Norms, and the output side -------------------------------------------------------------------------------------------


def growth(expansion, folder, limit):
    context = context_of(expansion, load_model(folder))
    rows = token_distillation(context, snippets=12, batch=8, lr=0.1, norm_limit=limit).matrix
    return (rows.norm(dim=1) / subword_mean(context).norm(dim=1)).max().item()


def test_tied_rows_may_grow_to_the_limit_and_no_further(expansion, tied_folder, untied_folder):
    assert growth(expansion, tied_folder, 1.5) == pytest.approx(1.5, abs=1e-3)
    assert growth(expansion, tied_folder, 1.0) == pytest.approx(1.0, abs=1e-3)
    assert growth(expansion, untied_folder, 1.0) > 2


def test_output_rows_are_the_mean_unless_asked_for_and_run_no_model(expansion, untied_folder):
    context = replace(context_of(expansion, load_model(untied_folder), "output"), base_model=None)
    assert torch.equal(token_distillation(context).matrix, subword_mean(context))


def head_loss(model, expansion, rows, text):
    """−log p of the text's tokens, new ones merged, from the states of the base model on the pieces."""
    ids = expansion.new.encode(text)
    pieces = {token.id: token.pieces for token in expansion.new_tokens}
    last = torch.tensor([len(pieces.get(token_id, "x")) for token_id in ids]).cumsum(dim=0) - 1
    with torch.no_grad():
        states = hidden_states(model, torch.tensor([expansion.old.encode(text)]))[0, last[:-1]]
        head = torch.cat([model.get_output_embeddings().weight[: expansion.num_old], rows])
    return torch.nn.functional.cross_entropy(states @ head.T, torch.tensor(ids[1:])).item()


def test_output_rows_can_learn_what_comes_next(expansion, untied_folder):
    model = load_model(untied_folder)
    context = context_of(expansion, model, "output")
    made = token_distillation(context, **FAST, output="cross_entropy")
    assert head_loss(model, expansion, made.matrix, HELD_OUT[0]) < head_loss(
        model, expansion, subword_mean(context), HELD_OUT[0]
    )


def test_tokens_that_gave_way_take_no_probability(tokenizer, untied_folder):
    expansion = expand_vocabulary(tokenizer, BASQUE, ["the light"] * 20, LearnOptions(8, min_count=5, replace=True))
    assert len(expansion.removed) == 8

    def rows(height):
        model = load_model(untied_folder)
        with torch.no_grad():
            model.get_output_embeddings().weight[expansion.removed[0].id] = height
        return token_distillation(context_of(expansion, model, "output"), **FAST, output="cross_entropy").matrix

    torch.testing.assert_close(rows(0.1), rows(5.0))


def test_without_a_base_model_nothing_can_be_distilled(expansion, tied_folder):
    context = replace(context_of(expansion, load_model(tied_folder)), base_model=None)
    with pytest.raises(ModelError, match="runs the base model, and was given none"):
        token_distillation(context)


def test_a_model_that_looks_up_its_rows_in_another_way_is_refused(expansion, tied_folder):
    model = load_model(tied_folder)
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(ModelError, match="Embedding looks up its rows in a way"):
        token_distillation(context_of(expansion, model), **FAST)


def test_rows_that_a_model_scales_are_scaled(expansion, tied_folder):
    """Gemma multiplies rows by √dim as it looks them up; a token that is one old token again stays at no distance."""
    model = load_model(tied_folder)
    table = model.get_input_embeddings()
    table.embed_scale = 3.0
    table.register_forward_hook(lambda module, inputs, output: output * 3)
    first, *others = expansion.new_tokens
    again = replace(expansion, new_tokens=(NewToken(first.id, "again", (60,), 1), *others))
    rows = context_of(again, model).old[60].repeat(16, 1)
    assert distance(model, again, rows, [Snippet(0, (5, first.id, 7))]).item() < 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps is -1; it must be at least 0"),
        ({"snippets": 0}, "snippets is 0"),
        ({"length": 1}, "length is 1; it must be at least 2"),
        ({"batch": 0}, "batch is 0"),
        ({"max_texts": 0}, "max_texts is 0"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"norm_limit": 0.9}, "norm_limit 0.9"),
        ({"output": "subword-mean"}, "output is 'subword-mean', did you mean 'subword_mean'"),
    ],
)
def test_options_without_a_meaning_are_refused(expansion, tied_folder, options, message):
    with pytest.raises(RecipeError, match=message):
        token_distillation(context_of(expansion, load_model(tied_folder)), **options)


# Source text (case O-21) ----------------------------------------------------------------------------------------------

ENGLISH = [
    "To open a document, choose File and then Open; the dialog shows the folders.",
    "A cell can hold a number, a text or a formula, and the sheet shows its value.",
]


@pytest.fixture(scope="module")
def learned_folder(tied_folder, tokenizer, tmp_path_factory):
    """The tiny tied model after it has learned two English sentences."""
    model = load_model(tied_folder).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = [torch.tensor([[0, *ids]]) for ids in tokenizer.encode_batch(ENGLISH)]
    for step in range(40):
        optimiser.zero_grad()
        model(input_ids=rows[step % 2], labels=rows[step % 2]).loss.backward()
        optimiser.step()
    folder = tmp_path_factory.mktemp("learned")
    model.eval().save_pretrained(folder)
    return folder


def source_loss(model, tokenizer):
    losses = []
    for ids in tokenizer.encode_batch(ENGLISH):
        inputs = torch.tensor([[0, *ids]])
        with torch.no_grad():
            logits = head_of(model, tokenizer.num_ids).logits(hidden_states(model, inputs)[0])
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], inputs[0, 1:]).item())
    return sum(losses) / len(losses)


def test_o21_source_text_of_a_tied_model_is_nearly_as_likely_as_before(expansion, learned_folder):
    """The bound of the case: source loss rises by less than 0.05. Rows that are much too long are seen in it."""
    before = source_loss(load_model(learned_folder), expansion.old)

    def rise(times):
        model = load_model(learned_folder)
        base = model.get_input_embeddings().weight.detach()
        context = context_of(expansion, load_model(learned_folder))
        filled = fill_rows(context, base, lambda c: times * token_distillation(c, **FAST).matrix, "method", 450)
        replace_embeddings(model, filled, None)
        return source_loss(model, expansion.new) - before

    assert 0 <= rise(1) < 0.05
    assert rise(-40) > 0.05
