"""Old tokens that mean nearly the same, as word vectors or an encoder have it."""

import math
import sys
import types

import numpy as np
import pytest
import torch

from lingraft.embeddings import InitContext, fill_rows, similarity, subword_mean
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import LearnOptions, NewToken, VocabularyExpansion, expand_vocabulary

# cos(qz, +) = 1, cos(qz, =) = 0.6, cos(qz, ~) = 0, cos(qz, *) = −1; each of the four is one old token's text.
VECTORS = "qz 2 0\n+ 1 0\n= 3 4\n~ 0 1\n* -1 0\n"


@pytest.fixture
def expansion(tokenizer):
    """New tokens `qz` and `qzx`."""
    return expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))


@pytest.fixture
def context(expansion):
    old = torch.eye(expansion.num_old)
    return InitContext(expansion, old, "input", torch.Generator())


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "own.vec"
    path.write_text(VECTORS)
    return str(path)


@pytest.fixture
def own_module(monkeypatch):
    """A module of the user's with encoders in it."""
    module = types.ModuleType("own_encoders")
    monkeypatch.setitem(sys.modules, "own_encoders", module)
    return module


def weights_of(row, tokenizer, *tokens):
    return [row[tokenizer.id_of(token)].item() for token in tokens]


def test_softmax_weights_by_hand(context, vectors, tokenizer):
    """The two nearest are + (1) and = (0.6); at temperature 0.4 their weights are e / (1 + e) and 1 / (1 + e)."""
    row = similarity(context, vectors=vectors, k=2, temperature=0.4).matrix[0]
    share = math.e / (1 + math.e)
    assert weights_of(row, tokenizer, "+", "=") == pytest.approx([share, 1 - share])
    assert row.count_nonzero() == 2


def test_cosine_weights_by_hand(context, vectors, tokenizer):
    """Of + (1), = (0.6), ~ (0) and * (−1) only what is alike counts: 1 / 1.6 and 0.6 / 1.6."""
    row = similarity(context, vectors=vectors, k=10, weights="cosine").matrix[0]
    assert weights_of(row, tokenizer, "+", "=", "~", "*") == pytest.approx([0.625, 0.375, 0.0, 0.0])


def test_tokens_of_one_text_share_its_vector(context, tmp_path, tokenizer):
    """`Ġa`, `a` and `A` all have the vector of "a", so each of them is nearest."""
    path = tmp_path / "own.vec"
    path.write_text("qz 2 0\na 1 0\n")
    row = similarity(context, vectors=str(path), k=3).matrix[0]
    assert weights_of(row, tokenizer, "a", "Ġa", "A") == pytest.approx([1 / 3] * 3)


def test_words_are_looked_up_in_lower_case_where_they_are_not_there(context, tmp_path, tokenizer):
    path = tmp_path / "own.vec"
    path.write_text("qz 2 0\na 1 0\nb 3 4\nB 0 1\n")
    row = similarity(context, vectors=str(path), k=50).matrix[0]
    assert row[tokenizer.id_of("A")] == row[tokenizer.id_of("a")] > 0
    assert row[tokenizer.id_of("B")] < row[tokenizer.id_of("b")]


@pytest.mark.parametrize("options", [{}, {"weights": "cosine"}, {"k": 1}, {"temperature": 5.0}])
def test_weights_are_convex(context, vectors, options):
    row = similarity(context, vectors=vectors, **options).matrix[0]
    assert (row >= 0).all()
    assert row.sum().item() == pytest.approx(1.0)


def test_tokens_without_a_vector_get_the_mean_of_their_pieces_on_record(context, expansion, vectors):
    made = similarity(context, vectors=vectors)
    assert made.fallbacks == {expansion.new_tokens[1].id: "mean of its pieces: there is no vector for its text"}
    assert torch.equal(made.matrix[1], subword_mean(context)[1])
    filled = fill_rows(context, context.old, lambda c: made, "similarity", expansion.new.num_ids)
    assert filled.counts() == {"copied": expansion.num_old, "initialised": 1, "fallback": 1}


@pytest.mark.parametrize("vector", ["-1 0", "0 0"])
def test_a_token_that_is_like_nothing_is_on_record(context, expansion, tmp_path, vector):
    path = tmp_path / "own.vec"
    path.write_text(f"qz {vector}\nqzx 1 0\na 1 0\n")
    made = similarity(context, vectors=str(path))
    assert made.fallbacks == {expansion.new_tokens[0].id: "mean of its pieces: no old token is like it"}


def test_parts_of_characters_have_no_meaning(tokenizer, vectors):
    new = tokenizer.extended(["âĤ"], [("â", "Ĥ")])
    part = NewToken(tokenizer.num_ids, "âĤ", (tokenizer.id_of("â"), tokenizer.id_of("Ĥ")), 5)
    expansion = VocabularyExpansion("expand", tokenizer, new, (part,))
    made = similarity(InitContext(expansion, torch.eye(expansion.num_old), "input", torch.Generator()), vectors=vectors)
    assert made.fallbacks == {part.id: "mean of its pieces: it is no clean text"}


def test_an_encoder_sees_clean_stripped_texts_once(context, own_module, tokenizer):
    seen = []

    def encode(texts):
        seen.extend(texts)
        return np.array([[1.0, 0.0] if text.startswith(("qz", "th")) else [0.0, 1.0] for text in texts])

    own_module.encode = encode
    made = similarity(context, encoder="own_encoders:encode", k=2)
    assert len(seen) == len(set(seen))
    assert all(text == text.strip() != "" and "�" not in text and "<|" not in text for text in seen)
    assert {"the", "qz", "qzx"} <= set(seen)
    assert made.fallbacks == {}
    alike = [i for i in range(tokenizer.num_ids) if tokenizer.decode([i]).strip().startswith("th")]
    assert len(alike) >= 2
    assert set(made.matrix[0].nonzero()[:, 0].tolist()) <= set(alike)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            lambda texts: [[1.0]],
            r"one vector of floating-point numbers for each of \d+ texts, it returned shape \(1, 1\)",
        ),
        (lambda texts: [1.0] * len(texts), r"it returned shape \(\d+,\)"),
        (lambda texts: [[1]] * len(texts), "of torch.int64"),
        (lambda texts: [[math.nan]] * len(texts), "vectors that are not finite"),
    ],
)
def test_what_an_encoder_returns_is_checked(context, own_module, returned, message):
    own_module.encode = returned
    with pytest.raises(ModelError, match=f"embeddings.input.encoder: 'own_encoders:encode' .*{message}"):
        similarity(context, encoder="own_encoders:encode")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "embeddings.input: similarity needs .*, not neither"),
        ({"vectors": "a", "encoder": "b:c"}, "not both"),
        ({"vectors": "nowhere.vec"}, "embeddings.input.vectors: there is no file 'nowhere.vec'"),
        ({"encoder": "own:none"}, "embeddings.input.encoder: cannot import encoder 'own:none'"),
        ({"encoder": "own"}, "embeddings.input.encoder: unknown encoder 'own'.*module:function"),
        ({"vectors": "a", "k": 0}, "embeddings.input.k: at least 1 old token"),
        ({"vectors": "a", "temperature": 0.0}, "embeddings.input.temperature: must be over 0, is 0.0"),
        ({"vectors": "a", "weights": "cosin"}, r"embeddings.input.weights: .*'cosin', did you mean 'cosine'"),
    ],
)
def test_options_without_a_meaning_are_refused(context, options, message):
    with pytest.raises(RecipeError, match=message):
        similarity(context, **options)


def test_vectors_of_no_old_token_are_refused(context, tmp_path):
    path = tmp_path / "own.vec"
    path.write_text("qz 2 0\n")
    with pytest.raises(ModelError, match=r"embeddings.input: no old token has a vector in '.*own.vec'"):
        similarity(context, vectors=str(path))
