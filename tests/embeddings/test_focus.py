"""FOCUS: sparsemax and mixtures by hand; what has no vector is drawn and on record."""

from dataclasses import replace

import pytest
import torch

from lingraft.embeddings import InitContext, Vectors, fill_rows, focus, subword_mean
from lingraft.embeddings.methods.focus import focus_rows, rows_from_vectors, sparsemax
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import LearnOptions, VocabularyExpansion, expand_vocabulary

BASQUE = [
    "Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki.",
    "Gelaxka batek zenbaki bat, testu bat edo formula bat eduki dezake.",
    "Botoia sakatzean leihoa itxi egiten da eta ezarpenak gorde egiten dira.",
] * 12


@pytest.fixture(scope="module")
def expansion(tokenizer) -> VocabularyExpansion:
    return expand_vocabulary(tokenizer, BASQUE, [], LearnOptions(24, min_count=5))


@pytest.fixture(scope="module")
def qzx(tokenizer) -> VocabularyExpansion:
    return expand_vocabulary(tokenizer, ["qzx"] * 12, [], LearnOptions(2))


def context_of(expansion, old=None, texts=tuple, seed=0):
    old = torch.randn(expansion.num_old, 4, generator=torch.Generator().manual_seed(9)) if old is None else old
    return InitContext(expansion, old, "input", torch.Generator().manual_seed(seed), texts)


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ([1.0, 0.5, -1.0], [0.75, 0.25, 0.0]),  # k = 2, τ = (1.5 − 1) / 2
        ([2.0, 0.0, 0.0], [1.0, 0.0, 0.0]),  # k = 1, τ = 1
        ([0.3, 0.3, 0.3], [1 / 3, 1 / 3, 1 / 3]),
        ([0.6, 0.4, 0.0], [0.6, 0.4, 0.0]),  # a point of the simplex is its own nearest
        ([-7.0], [1.0]),
    ],
)
def test_sparsemax_by_hand(scores, wanted):
    torch.testing.assert_close(sparsemax(torch.tensor([scores])), torch.tensor([wanted]))


def test_sparsemax_is_nearer_to_the_scores_than_any_other_point_of_the_simplex():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    nearest = sparsemax(scores)
    torch.testing.assert_close(nearest.sum(dim=1), torch.ones(16, dtype=torch.float64))
    assert (nearest >= 0).all()
    others = torch.softmax(4 * torch.randn(4000, 1, 6, generator=generator, dtype=torch.float64), dim=2)
    assert ((others - scores).norm(dim=2) >= (nearest - scores).norm(dim=1)).all()
    torch.testing.assert_close(sparsemax(scores + 5), nearest)


def test_rows_by_hand(qzx, tokenizer):
    """qz is used like q: its row is q's. Were it between q and z, it would be the mean of both."""
    q, z = tokenizer.id_of("q"), tokenizer.id_of("z")
    old = torch.zeros(qzx.num_old, 2)
    old[q], old[z] = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0])
    words = {"q": 0, "z": 1, "qz": 2, "qzx": 3}
    matrix = torch.tensor([[2.0, 0.0], [0.0, 1.0], [5.0, 0.0], [1.0, 1.0]])
    made = rows_from_vectors(context_of(qzx, old), Vectors(words, matrix))
    torch.testing.assert_close(made.matrix, torch.tensor([[1.0, 2.0], [2.0, -1.0]]))
    assert made.fallbacks == {}


def test_what_has_no_vector_or_one_of_zeros_is_drawn_and_on_record(qzx):
    vectors = Vectors({"q": 0, "qz": 1}, torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    context = context_of(qzx)
    made = rows_from_vectors(context, vectors)
    assert set(made.fallbacks) == {token.id for token in qzx.new_tokens}
    noise = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    wanted = context.old.mean(dim=0) + noise * context.old.std(dim=0, correction=0)
    torch.testing.assert_close(made.matrix, wanted)


def test_fallback_can_be_the_mean_of_the_pieces(qzx):
    context = context_of(qzx)
    made = rows_from_vectors(context, Vectors({"q": 0}, torch.ones(1, 2)), "subword_mean")
    torch.testing.assert_close(made.matrix, subword_mean(context))
    assert all(why.startswith("mean of its pieces: the text holds it too rarely") for why in made.fallbacks.values())
    with pytest.raises(RecipeError, match=r"fallback 'mean' is not known.*known: normal, subword_mean"):
        rows_from_vectors(context, Vectors({"q": 0}, torch.ones(1, 2)), "mean")


def test_rows_lie_among_old_rows_and_old_rows_are_what_they_were(expansion):
    """deepfocus overwrote 473 old rows; here none but those of new tokens is made."""
    context = context_of(expansion, texts=lambda: BASQUE)
    made = focus(context, dim=12)
    inner = {token.id for token in expansion.new_tokens} - {
        token_id for ids in expansion.new.encode_batch(BASQUE) for token_id in ids
    }
    assert set(made.fallbacks) == inner
    mixed = made.matrix[[token.id not in inner for token in expansion.new_tokens]]
    low, high = context.old.min(dim=0).values, context.old.max(dim=0).values
    assert (mixed >= low - 1e-5).all()
    assert (mixed <= high + 1e-5).all()
    filled = fill_rows(context_of(expansion, context.old, lambda: BASQUE), context.old, focus, "focus", 500)
    assert torch.equal(filled.matrix[: expansion.num_old], context.old)
    assert filled.counts()["initialised"] == expansion.num_new - len(inner)


def test_a_convex_mixture_of_equal_rows_is_that_row(expansion):
    old = torch.tensor([0.5, -2.0]).repeat(expansion.num_old, 1)
    rows = focus(context_of(expansion, old, lambda: BASQUE), fallback="subword_mean").matrix
    torch.testing.assert_close(rows, old[: expansion.num_new])


def test_an_id_that_a_new_token_took_over_is_no_old_token(qzx, tokenizer):
    """Under `replace` a new token stands at an old id; the old row there belongs to another token."""
    z = tokenizer.id_of("z")
    first, *others = qzx.new_tokens
    taken = replace(qzx, new_tokens=(replace(first, id=z), *others))
    old = torch.zeros(qzx.num_old, 1)
    old[z], old[tokenizer.id_of("q")] = 100.0, 1.0
    vectors = Vectors({"z": 0, "q": 1, "qzx": 2}, torch.tensor([[1.0, 0.1], [0.0, 1.0], [1.0, 0.0]]))
    made = rows_from_vectors(context_of(taken, old), vectors)
    assert made.matrix.tolist() == [[1.0], [1.0]]


def test_many_rows_are_what_few_rows_are():
    generator = torch.Generator().manual_seed(0)
    queries, keys, old = (torch.randn(n, 5, generator=generator) for n in (600, 30, 30))
    together = focus_rows(queries, keys, old)
    torch.testing.assert_close(together[512:], focus_rows(queries[512:], keys, old))


def test_the_same_seed_gives_the_same_bits_and_another_does_not(expansion):
    def rows(seed):
        return focus(context_of(expansion, texts=lambda: BASQUE[:2] * 3, seed=seed), dim=6).matrix

    assert torch.equal(rows(1), rows(1))
    assert not torch.equal(rows(1), rows(2))


def test_text_in_which_no_old_token_occurs_is_refused(qzx):
    with pytest.raises(ModelError, match="none of the old tokens has a vector"):
        rows_from_vectors(context_of(qzx), Vectors({"qz": 0}, torch.ones(1, 2)))
    with pytest.raises(ModelError, match="no token occurs 2 times"):
        focus(context_of(qzx))


def test_engine_that_does_not_exist_is_refused(qzx):
    with pytest.raises(RecipeError, match=r"known: svd, fasttext"):
        focus(context_of(qzx, texts=lambda: BASQUE), engine="glove")
