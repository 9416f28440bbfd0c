"""Old tokens that stood where the new token stands, over the target text."""

import pytest
import torch

from lingraft.embeddings import InitContext, align, fill_rows, subword_mean
from lingraft.embeddings.methods.align import seen_cuts
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import LearnOptions, NewToken, VocabularyExpansion, expand_vocabulary


def context_of(expansion, texts, side="input"):
    old = torch.randn(expansion.num_old, 4, generator=torch.Generator().manual_seed(0))
    return InitContext(expansion, old, side, torch.Generator(), texts=lambda: texts)


def other_cuts(tokenizer):
    """`qz` as a token that ranks before the old merge of `zx`: in "qzx" it covers `q` and half of `zx`."""
    before = tokenizer.extended(["zx"], [("z", "x")])
    new = tokenizer.extended(["qz"], [("q", "z")], ids=[tokenizer.num_ids])
    token = NewToken(tokenizer.num_ids, "qz", (tokenizer.id_of("q"), tokenizer.id_of("z")), 9)
    return VocabularyExpansion("replace", before, new, (token,))


def test_cuts_by_hand(tokenizer):
    """Three times in "qz" it stands for q and z, once in "qzx" for q and `zx`."""
    expansion = other_cuts(tokenizer)
    q, z, zx = (expansion.old.id_of(token) for token in ("q", "z", "zx"))
    lines = ["qz qz", "qz", "a qzx"]
    assert seen_cuts(expansion, lines) == {expansion.new_tokens[0].id: {(q, z): 3, (q, zx): 1}}
    context = context_of(expansion, ["qz qz\nqz", "a qzx"])
    made = align(context)
    wanted = 3 / 4 * context.old[[q, z]].mean(dim=0) + 1 / 4 * context.old[[q, zx]].mean(dim=0)
    torch.testing.assert_close(made.matrix[0], wanted)
    assert not torch.allclose(made.matrix[0], subword_mean(context)[0])
    assert made.fallbacks == {}


def test_law_after_appending_it_is_the_mean_of_the_pieces(tokenizer, corpora_folder):
    text = (corpora_folder / "eu.jsonl").read_text("utf-8")
    expansion = expand_vocabulary(tokenizer, [text], [], LearnOptions(80, min_count=2))
    cuts = seen_cuts(expansion, text.splitlines())
    assert {token.id: set(cuts[token.id]) for token in expansion.new_tokens if cuts[token.id]} == {
        token.id: {token.pieces} for token in expansion.new_tokens if cuts[token.id]
    }
    context = context_of(expansion, [text])
    made = align(context)
    assert len(made.fallbacks) < 40
    torch.testing.assert_close(made.matrix, subword_mean(context))


def test_parts_of_characters_are_laid_over_each_other_to_the_byte(tokenizer):
    """`âĤ` is two of the three bytes of €; offsets in characters could not tell them apart."""
    new = tokenizer.extended(["âĤ"], [("â", "Ĥ")])
    pieces = tokenizer.id_of("â"), tokenizer.id_of("Ĥ")
    expansion = VocabularyExpansion("expand", tokenizer, new, (NewToken(tokenizer.num_ids, "âĤ", pieces, 5),))
    assert seen_cuts(expansion, ["5 € a"]) == {tokenizer.num_ids: {pieces: 1}}


@pytest.mark.parametrize("token", ["<|endoftext|>", "q"])
def test_lines_that_the_two_do_not_read_alike_are_left_out(tokenizer, monkeypatch, token):
    """As where a character is unknown to the old tokenizer alone, or is nothing to it."""
    expansion = other_cuts(tokenizer)
    monkeypatch.setattr(expansion.old, "encode_batch", lambda texts: [[tokenizer.id_of(token)]] * len(texts))
    assert seen_cuts(expansion, ["qz"]) == {}


def test_tokens_that_do_not_occur_are_on_record(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    first = expansion.new_tokens[0]
    context = context_of(expansion, ["qzx"])
    made = align(context)
    why = "mean of its pieces: it does not occur in the target text that was read"
    assert made.fallbacks == {first.id: why}
    assert torch.equal(made.matrix[0], subword_mean(context)[0])


def test_no_more_text_is_read_than_asked_for(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))

    def texts():
        yield "qz\nqzx"
        raise AssertionError("read too far")

    old = torch.eye(expansion.num_old)
    context = InitContext(expansion, old, "input", torch.Generator(), texts=texts)
    assert set(align(context, max_characters=4).fallbacks) == {expansion.new_tokens[1].id}
    with pytest.raises(RecipeError, match=r"embeddings.input.max_characters: at least 1 is needed, not 0"):
        align(context, max_characters=0)


def test_without_target_text_it_is_refused(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    context = context_of(expansion, [])
    with pytest.raises(ModelError, match=r"'align' could not be used for 2 of 2 .*does not occur in the target text"):
        fill_rows(context, context.old, align, "align", expansion.new.num_ids)
