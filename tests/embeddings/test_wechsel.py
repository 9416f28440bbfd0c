"""WECHSEL: alignment, vectors of tokens and mixtures by hand; files that cannot be used are refused by name."""

import math

import pytest
import torch

from lingraft.embeddings import InitContext, Vectors, fill_rows, subword_mean, wechsel
from lingraft.embeddings.methods.wechsel import (
    align_vectors,
    dictionary_pairs,
    read_dictionary,
    token_vectors,
    wechsel_rows,
)
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import LearnOptions, VocabularyExpansion, expand_vocabulary


def rotation(width, seed=0):
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed))).Q


def test_a_quarter_turn_is_found_by_hand():
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[0.0, 2.0], [-3.0, 0.0]])
    torch.testing.assert_close(align_vectors(source, target), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))


def test_turned_vectors_are_turned_back_and_lengths_stay():
    source = torch.randn(30, 6, generator=torch.Generator().manual_seed(1))
    turn = rotation(6)
    found = align_vectors(source, source @ turn)
    torch.testing.assert_close(found, turn, atol=1e-5, rtol=0)
    noisy = align_vectors(source, torch.randn(30, 6, generator=torch.Generator().manual_seed(2)))
    torch.testing.assert_close(noisy @ noisy.T, torch.eye(6), atol=1e-5, rtol=0)


def test_no_other_turn_fits_better():
    source, target = (torch.randn(20, 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    best = (source @ align_vectors(source, target) - target).norm()
    assert all((source @ rotation(4, seed) - target).norm() >= best for seed in range(200))


def test_fewer_pairs_than_dimensions_leave_the_turn_open():
    with pytest.raises(ModelError, match="share 2 word pairs; vectors of 3 numbers need at least 3"):
        align_vectors(torch.eye(3)[[0, 1, 1]], torch.eye(3)[[1, 2, 2]])


def test_pairs_are_tried_in_lower_and_title_case():
    source = Vectors({"cat": 0, "Cat": 1}, torch.tensor([[1.0], [2.0]]))
    target = Vectors({"katu": 0}, torch.tensor([[5.0]]))
    ones, others = dictionary_pairs([("cat", "Katu"), ("dog", "txakur")], source, target)
    assert ones.flatten().tolist() == [1.0, 1.0, 2.0]
    assert others.flatten().tolist() == [5.0, 5.0, 5.0]


def test_no_pair_at_all_is_an_empty_table():
    vectors = Vectors({"cat": 0}, torch.ones(1, 3))
    assert dictionary_pairs([("dog", "txakur")], vectors, vectors)[0].shape == (0, 3)


def test_vector_of_a_token_by_hand(tokenizer):
    """qz weighs 2 and qx 1; the base cuts both into letters, behind a space too."""
    vectors = Vectors({"qz": 0, "qx": 1}, torch.tensor([[3.0, 0.0], [0.0, 6.0]]))
    found = token_vectors(tokenizer, vectors, torch.tensor([2.0, 1.0]))
    q, z, x, other = (tokenizer.id_of(letter) for letter in "qzxw")
    assert found[q].tolist() == [2.0, 2.0]
    assert found[z].tolist() == [3.0, 0.0]
    assert found[x].tolist() == [0.0, 6.0]
    assert found[other].tolist() == [0.0, 0.0]


def test_a_token_counts_for_each_of_the_two_cuts_that_hold_it(tokenizer):
    """` a` is one token: `a` is held by the cut without the space alone, by `qa` in both cuts."""
    vectors = Vectors({"a": 0, "qa": 1}, torch.tensor([[3.0], [9.0]]))
    found = token_vectors(tokenizer, vectors, torch.ones(2))
    assert tokenizer.encode(" a") == [tokenizer.id_of("Ġa")]
    assert found[tokenizer.id_of("a")].item() == (3.0 + 9.0 + 9.0) / 3
    assert found[tokenizer.id_of("Ġa")].item() == 3.0


def test_rows_by_hand():
    """Cosines 1, 0 and −1: with two neighbours and T = 0.5, weights are softmax(2, 0)."""
    keys, old = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.tensor([[1.0], [10.0], [100.0]])
    row = wechsel_rows(torch.tensor([[7.0, 0.0]]), keys, old, 2, 0.5)
    first = math.e**2 / (math.e**2 + 1)
    assert row.item() == pytest.approx(first * 1 + (1 - first) * 10)


# From files -----------------------------------------------------------------------------------------------------------

SOURCE = {"folder": [1.0, 0.1], "window": [0.1, 1.0], "file": [0.9, 0.4]}
TARGET = {"karpeta": [0.1, -1.0], "leihoa": [1.0, -0.1]}


@pytest.fixture(scope="module")
def expansion(tokenizer) -> VocabularyExpansion:
    return expand_vocabulary(tokenizer, ["karpeta leihoa qzx"] * 12, [], LearnOptions(40))


def write(path, vectors):
    lines = [f"{len(vectors)} 2", *[f"{word} {a} {b}" for word, (a, b) in vectors.items()]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pairs.txt").write_text("folder\tkarpeta\n\nwindow leihoa\n", encoding="utf-8")
    return {
        "source_vectors": write(tmp_path / "en.vec", SOURCE),
        "target_vectors": write(tmp_path / "eu.vec", TARGET),
        "dictionary": str(tmp_path / "pairs.txt"),
    }


def context_of(expansion, seed=0):
    old = torch.randn(expansion.num_old, 4, generator=torch.Generator().manual_seed(9))
    return InitContext(expansion, old, "input", torch.Generator().manual_seed(seed))


def place_of(expansion, spelling):
    return next(place for place, token in enumerate(expansion.new_tokens) if token.spelling == spelling)


def test_a_new_word_gets_the_rows_of_the_tokens_of_its_translation(expansion, files, tokenizer):
    """With one neighbour, `leihoa` is the row of a token that is in `window` and in no other source word."""
    context = context_of(expansion)
    row = wechsel(context, **files, neighbours=1).matrix[place_of(expansion, "Ġleihoa")]
    cuts = {word: {*tokenizer.encode(word), *tokenizer.encode(f" {word}")} for word in SOURCE}
    only = cuts["window"] - cuts["folder"] - cuts["file"]
    assert any(torch.allclose(row, context.old[token_id]) for token_id in only)


def test_rows_are_mixtures_and_what_is_in_no_word_is_drawn_and_on_record(expansion, files):
    context = context_of(expansion)
    made = wechsel(context, **files)
    spelling = {token.id: token.spelling for token in expansion.new_tokens}
    unmatched = {spelling[token_id] for token_id in made.fallbacks}
    assert "Ġqzx" in unmatched
    assert not {"Ġkarpeta", "Ġleihoa"} & unmatched
    assert set(made.fallbacks.values()) == {"a draw from N(μ, σ): it is part of no word in target_vectors"}
    matched = made.matrix[[token.id not in made.fallbacks for token in expansion.new_tokens]]
    assert (matched >= context.old.min(dim=0).values).all()
    assert (matched <= context.old.max(dim=0).values).all()


def test_fallback_can_be_the_mean_of_the_pieces(expansion, files):
    context = context_of(expansion)
    made = wechsel(context, **files, fallback="subword_mean")
    place = place_of(expansion, "Ġqzx")
    torch.testing.assert_close(made.matrix[place], subword_mean(context)[place])


def test_old_rows_stay_and_the_same_seed_gives_the_same_bits(expansion, files):
    def filled(seed):
        context = context_of(expansion, seed)
        return context.old, fill_rows(context, context.old, lambda c: wechsel(c, **files).matrix, "wechsel", 500).matrix

    old, one = filled(1)
    assert torch.equal(one[: expansion.num_old], old)
    assert torch.equal(one, filled(1)[1])
    assert not torch.equal(one, filled(2)[1])


def test_only_the_most_frequent_words_are_used(expansion, files):
    made = wechsel(context_of(expansion), **files, max_words=2)
    other = wechsel(context_of(expansion), **files)
    assert not torch.equal(made.matrix, other.matrix)


@pytest.mark.parametrize("option", ["source_vectors", "target_vectors", "dictionary"])
def test_a_file_that_is_not_there_is_named_with_its_option(expansion, files, option):
    with pytest.raises(RecipeError, match=f"{option}: there is no file 'nowhere.vec'"):
        wechsel(context_of(expansion), **(files | {option: "nowhere.vec"}))


def test_a_line_that_is_no_pair_is_named(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("cat\tkatu\nice cream izozki\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"pairs.txt:2: 'ice cream izozki' is no pair"):
        read_dictionary(str(path))


def test_a_tab_parts_words_that_hold_spaces(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("ice cream\tizozki\n", encoding="utf-8")
    assert read_dictionary(str(path)) == [("ice cream", "izozki")]


def test_vectors_of_another_width_are_refused(expansion, files, tmp_path):
    (tmp_path / "wide.vec").write_text("karpeta 1 2 3\n")
    with pytest.raises(ModelError, match="source_vectors have 2 numbers a word, target_vectors 3"):
        wechsel(context_of(expansion), **(files | {"target_vectors": str(tmp_path / "wide.vec")}))


@pytest.mark.parametrize("options", [{"neighbours": 0}, {"temperature": 0.0}, {"max_words": 0}])
def test_options_without_a_meaning_are_refused(expansion, files, options):
    with pytest.raises(RecipeError, match="must be above 0"):
        wechsel(context_of(expansion), **files, **options)
