"""Mean of the rows that spelled the token before; and what all methods must not do to source text (O-21)."""

import json
import math

import pytest
import torch

from lingraft.embeddings import InitContext, fill_rows, gaussian, mean, subword_mean
from lingraft.embeddings.methods.subword_mean import character_lengths
from lingraft.errors import RecipeError
from lingraft.measure.mass import probability_mass
from lingraft.model.base import head_of, hidden_states, load_model
from lingraft.model.resize import replace_embeddings
from lingraft.vocabulary import LearnOptions, expand_vocabulary

Z = math.exp(2) + math.exp(4) + math.exp(6)


def texts_of(folder, language):
    return [json.loads(line)["text"] for line in (folder / f"{language}.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def expansion(tokenizer, corpora_folder):
    texts = texts_of(corpora_folder, "eu"), texts_of(corpora_folder, "en")
    return expand_vocabulary(tokenizer, *texts, LearnOptions(24, min_count=5))


def test_rows_by_hand(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    q, z, x = (tokenizer.id_of(letter) for letter in "qzx")
    assert [token.pieces for token in expansion.new_tokens] == [(q, z), (q, z, x)]
    old = torch.zeros(tokenizer.num_ids, 2)
    old[q], old[z], old[x] = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]), torch.tensor([5.0, -1.0])
    rows = subword_mean(InitContext(expansion, old, "input", torch.Generator()))
    assert rows.tolist() == [[2.0, 2.0], [3.0, 1.0]]


def test_a_piece_that_occurs_twice_counts_twice(tokenizer):
    expansion = expand_vocabulary(tokenizer, ["qqqz"] * 12, [], LearnOptions(9))
    wanted = next(token for token in expansion.new_tokens if token.spelling == "qqqz")
    old = torch.zeros(tokenizer.num_ids, 1)
    old[tokenizer.id_of("q")], old[tokenizer.id_of("z")] = 4.0, 8.0
    rows = subword_mean(InitContext(expansion, old, "input", torch.Generator()))
    assert rows[expansion.new_tokens.index(wanted)].item() == (3 * 4.0 + 8.0) / 4


def test_logit_of_a_new_token_is_the_mean_logit_of_its_pieces(expansion):
    old = torch.randn(expansion.num_old, 8, generator=torch.Generator().manual_seed(0))
    rows = subword_mean(InitContext(expansion, old, "output", torch.Generator()))
    hidden = torch.linspace(-1, 1, 8)
    logits = old @ hidden
    wanted = [logits[list(token.pieces)].mean() for token in expansion.new_tokens]
    torch.testing.assert_close(rows @ hidden, torch.stack(wanted))


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ("uniform", [1 / 3, 1 / 3, 1 / 3]),
        ("length", [1 / 3, 1 / 3, 1 / 3]),
        ("first", [1.0, 0.0, 0.0]),
        ("last", [0.0, 0.0, 1.0]),
        ("late", [math.exp(2) / Z, math.exp(4) / Z, math.exp(6) / Z]),
        ("early", [math.exp(6) / Z, math.exp(4) / Z, math.exp(2) / Z]),
    ],
)
def test_weights_by_hand(tokenizer, weights, wanted):
    """The rows of q, z and x are unit vectors, so the new row is its weights."""
    expansion = expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))
    old = torch.zeros(tokenizer.num_ids, 3)
    old[[tokenizer.id_of(letter) for letter in "qzx"]] = torch.eye(3)
    rows = subword_mean(InitContext(expansion, old, "input", torch.Generator()), weights=weights)
    torch.testing.assert_close(rows[1], torch.tensor(wanted))


def test_length_counts_characters_and_shares_of_them(tokenizer):
    """`Ġthe` is four characters, `ñ` comes as two bytes, which are half a character each."""
    expansion = expand_vocabulary(tokenizer, [" theñ"] * 12, [], LearnOptions(9, min_count=2))
    token = max(expansion.new_tokens, key=lambda token: len(token.spelling))
    assert token.text(expansion.new) == " theñ"
    lengths = character_lengths([tokenizer.decode([piece]).encode() for piece in token.pieces[:-2]])
    assert sum(lengths) == 4
    old = torch.zeros(tokenizer.num_ids, 2)
    old[list(token.pieces[-2:]), 1] = 1.0
    rows = subword_mean(InitContext(expansion, old, "input", torch.Generator()), weights="length")
    torch.testing.assert_close(rows[expansion.new_tokens.index(token)], torch.tensor([0.0, 1 / 5]))


@pytest.mark.parametrize(
    ("pieces", "lengths"),
    [
        ([b" the", b"a"], [4.0, 1.0]),
        (["ñ".encode()[:1], "ñ".encode()[1:]], [1 / 2, 1 / 2]),
        (["€".encode()[:2], "€".encode()[2:] + b"x"], [2 / 3, 4 / 3]),
        (["😀".encode()[:3], "😀".encode()[3:]], [3 / 4, 1 / 4]),
        (["€".encode()[1:2], "€".encode()[2:], b"x"], [1 / 3, 1 / 3, 1.0]),
        (["€".encode()[:1]], [1 / 3]),
        ([b"ab", None, b"c"], [2.0, 1.0, 1.0]),
    ],
)
def test_lengths_of_pieces(pieces, lengths):
    assert character_lengths(pieces) == pytest.approx(lengths)


@pytest.mark.parametrize("weights", ["uniform", "length", "first", "last", "late", "early"])
def test_weights_are_convex(expansion, weights):
    """With unit vectors as rows a new row is its weights: none is negative, they sum to 1, none is off its pieces."""
    old = torch.eye(expansion.num_old)
    rows = subword_mean(InitContext(expansion, old, "input", torch.Generator()), weights=weights)
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(expansion.num_new))
    for row, token in zip(rows, expansion.new_tokens, strict=True):
        assert set(row.nonzero()[:, 0].tolist()) <= set(token.pieces)


def test_unknown_weights_are_refused(expansion):
    context = InitContext(expansion, torch.eye(expansion.num_old), "output", torch.Generator())
    with pytest.raises(RecipeError, match=r"embeddings.output.weights: .* 'lenght', did you mean 'length'\? \(uniform"):
        subword_mean(context, weights="lenght")


@pytest.fixture(scope="module")
def learned_folder(tied_folder, tokenizer, corpora_folder, tmp_path_factory):
    """The tiny model after it has learned the English sentences, so that it knows what comes next and what does not."""
    model = load_model(tied_folder).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(0)
    rows = [torch.tensor([[0, *ids]]) for ids in tokenizer.encode_batch(texts_of(corpora_folder, "en"))]
    for step in range(64):
        model(input_ids=rows[step % 48], labels=rows[step % 48]).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    folder = tmp_path_factory.mktemp("learned")
    model.eval().save_pretrained(folder)
    return folder


def source_loss(model, sequences, num_ids):
    losses = []
    for ids in sequences:
        inputs = torch.tensor([[0, *ids]])
        with torch.no_grad():
            logits = head_of(model, num_ids).logits(hidden_states(model, inputs)[0])
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], inputs[0, 1:]))
    return torch.stack(losses).mean().item()


def rise_and_mass(folder, expansion, sequences, method):
    """Return by how much source loss (nats) rises right after the expansion, and what the new rows take."""
    model = load_model(folder)
    before = source_loss(model, sequences, expansion.num_old)
    base = model.get_input_embeddings().weight.detach()
    context = InitContext(expansion, base[: expansion.num_old], "input", torch.Generator().manual_seed(0))
    rows = max(expansion.new.num_ids, len(base))
    replace_embeddings(model, fill_rows(context, base, method, "method", rows), None)
    new = expansion.new.num_ids
    mass = probability_mass(model, sequences, condition_id=0, ids=expansion.new_ids, num_ids=new)
    return source_loss(model, sequences, new) - before, mass


@pytest.mark.parametrize("method", [mean, subword_mean])
def test_o21_source_text_is_as_likely_as_before(learned_folder, expansion, corpora_folder, method):
    """The bounds of the case: less than 0.05 nats, and new tokens take less than 5 % where English is expected."""
    sequences = expansion.new.encode_batch(texts_of(corpora_folder, "en")[:8])
    rise, mass = rise_and_mass(learned_folder, expansion, sequences, method)
    assert 0 <= rise < 0.05
    assert 0 < mass < 0.05


def test_o21_rows_that_are_too_long_are_seen_in_both_numbers(learned_folder, expansion, corpora_folder):
    """What the case is about: random rows that win. Both numbers show it, and agree with each other."""
    sequences = expansion.new.encode_batch(texts_of(corpora_folder, "en")[:8])

    def wild(context):
        return gaussian(context, scale=100.0)

    rise, mass = rise_and_mass(learned_folder, expansion, sequences, wild)
    assert mass > 0.2
    assert rise > 1.0
    assert rise > -0.8 * math.log(1 - mass)


@pytest.mark.peers
def test_parity_with_mergekit(expansion, tokenizer_text, tmp_path):
    """The uniform mean is mergekit's ``mean``.

    Its other weightings differ by name: ``weighted_mean`` counts up from 1 where ``early`` and ``late`` are exponential,
    and gives the first piece of input rows most, against what it says of itself.
    """
    peer = pytest.importorskip("mergekit.tokensurgeon.subword")
    from transformers import PreTrainedTokenizerFast

    (tmp_path / "tokenizer.json").write_text(tokenizer_text, encoding="utf-8")
    base = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    old = torch.randn(expansion.num_old, 16, generator=torch.Generator().manual_seed(0))
    names = [token.text(expansion.new) for token in expansion.new_tokens]
    theirs = peer.subword_approximate(old, names, False, base)
    ours = subword_mean(InitContext(expansion, old, "input", torch.Generator()))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
