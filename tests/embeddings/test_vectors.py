"""Word vectors: the usual files, what is refused, and neighbours by cosine."""

import gzip

import numpy as np
import pytest
import torch

from lingraft.embeddings import cosine_neighbours, read_vectors
from lingraft.errors import ModelError, RecipeError

TEXT = "etxe 1 0.5\nkatu -2 3\nnew york 0 1\netxe 9 9\n"


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["own.vec", "own.txt", "own.vec.gz", "own.txt.gz"])
@pytest.mark.parametrize("header", ["", "4 2\n"])
def test_text_form_with_and_without_first_line(tmp_path, name, header):
    found = read_vectors(written(tmp_path, name, header + TEXT))
    assert dict(found.words) == {"etxe": 0, "katu": 1, "new york": 2}
    assert found.matrix.tolist() == [[1.0, 0.5], [-2.0, 3.0], [0.0, 1.0]]
    assert found.find("katu").tolist() == [-2.0, 3.0]
    assert found.find("zakur") is None


def test_trailing_spaces_as_fasttext_writes_them(tmp_path):
    assert read_vectors(written(tmp_path, "own.vec", "1 2\netxe 1 0.5 \n")).matrix.tolist() == [[1.0, 0.5]]


def test_npz(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, words=np.array(["etxe", "katu", "etxe"]), vectors=np.array([[1, 2], [3, 4], [5, 6]]))
    found = read_vectors(path)
    assert (dict(found.words), found.matrix.tolist()) == ({"etxe": 0, "katu": 1}, [[1.0, 2.0], [3.0, 4.0]])
    assert read_vectors(path, wanted={"katu"}).matrix.tolist() == [[3.0, 4.0]]


def test_only_wanted_words_are_kept(tmp_path):
    found = read_vectors(written(tmp_path, "own.vec", TEXT), wanted={"katu", "zakur"})
    assert (dict(found.words), found.matrix.tolist()) == ({"katu": 0}, [[-2.0, 3.0]])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.vec", "etxe 1 2\nkatu 1\n", "a.vec:2: 1 numbers after the word, 2 are expected"),
        ("a.vec", "etxe 1 2\n\n", "a.vec:2: 0 numbers"),
        ("a.vec", "\n", "a.vec:1: 0 numbers"),
        ("a.vec", "etxe 1 x\n", "not word vectors in text form"),
        ("a.vec", "etxe 1 nan\n", "not finite"),
        ("a.vec", "", "holds no vectors"),
        ("a.npz", "etxe 1 2\n", "no .npz file with the arrays"),
    ],
)
def test_other_files_are_refused(tmp_path, name, text, message):
    with pytest.raises(ModelError, match=message):
        read_vectors(written(tmp_path, name, text))


def test_damaged_gz_is_refused(tmp_path):
    path = tmp_path / "a.vec.gz"
    path.write_bytes(gzip.compress(TEXT.encode() * 50)[:60])
    with pytest.raises(ModelError, match="not word vectors"):
        read_vectors(path)


def test_npz_without_the_arrays_or_with_other_counts_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", words=np.array(["etxe"]))
    with pytest.raises(ModelError, match="the arrays 'words' and 'vectors'"):
        read_vectors(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", words=np.array(["etxe"]), vectors=np.zeros((2, 3)))
    with pytest.raises(ModelError, match=r"1 words, but vectors of shape \(2, 3\)"):
        read_vectors(tmp_path / "b.npz")


def test_nothing_wanted_and_nothing_there(tmp_path):
    with pytest.raises(ModelError, match="for any of the words that are needed"):
        read_vectors(written(tmp_path, "own.vec", TEXT), wanted={"zakur"})
    with pytest.raises(RecipeError, match=r"embeddings.options.vectors: there is no file '.*none.vec'"):
        read_vectors(tmp_path / "none.vec", "embeddings.options.vectors")


def test_neighbours_by_hand():
    keys = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 4.0], [0.0, 0.0]])
    values, indices = cosine_neighbours(torch.tensor([[5.0, 0.0], [0.0, -2.0]]), keys, 2)
    assert indices.tolist() == [[0, 2], [0, 3]] or indices.tolist() == [[0, 2], [3, 0]]
    torch.testing.assert_close(values, torch.tensor([[1.0, 0.6], [0.0, 0.0]]))


def test_neighbours_over_many_blocks_are_the_slow_ones():
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(1300, 5, generator=generator), torch.randn(40, 5, generator=generator)
    values, indices = cosine_neighbours(queries, keys, 3)
    table = torch.nn.functional.cosine_similarity(queries[:, None], keys[None], dim=2)
    wanted = table.sort(dim=1, descending=True)
    torch.testing.assert_close(values, wanted.values[:, :3])
    assert torch.equal(indices, wanted.indices[:, :3])


def test_fewer_keys_than_asked_for_and_no_queries():
    assert cosine_neighbours(torch.ones(2, 3), torch.ones(4, 3), 9)[1].shape == (2, 4)
    assert cosine_neighbours(torch.ones(0, 3), torch.ones(4, 3), 9)[0].shape == (0, 4)
    with pytest.raises(ModelError, match="the 3 nearest of 0 vectors"):
        cosine_neighbours(torch.ones(2, 3), torch.ones(0, 3), 3)
