"""Rows that nobody has trained are found before training, and named with their tokens where these occur."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lingraft.corpus import TokenStore, build_store
from lingraft.corpus.parts import Encoding
from lingraft.errors import ModelError
from lingraft.model import preflight
from lingraft.model.preflight import UntrainedRow, count_tokens, refuse_untrained_rows, untrained_rows

IDS, ROWS = 394, 420


@pytest.fixture
def matrix():
    """Rows of norm 1 and up to 3, none like another."""
    rows = torch.nn.functional.normalize(torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    return rows * torch.linspace(1, 3, ROWS)[:, None]


def counts_of(**counts: int) -> np.ndarray:
    """Return counts by id, as in ``counts_of(id7=2)``."""
    found = np.zeros(IDS, dtype=np.int64)
    for name, count in counts.items():
        found[int(name.removeprefix("id"))] = count
    return found


@pytest.fixture
def make_store(tmp_path):
    """Return a maker of real stores on disk; every document ends with ``end``."""

    def make(documents: list[list[int]], *, start: int | None = None, end: int = 0) -> TokenStore:
        folder = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
        ids = iter(documents)
        return build_store(
            [str(n) for n in range(len(documents))], Encoding(lambda texts: [next(ids) for _ in texts], IDS, start, end),
            folder, tokenizer_sha256="t", corpus_sha256="c",
        )  # fmt: skip

    return make


def spoiled(folder: Path, to: Path, name: str = "model.embed_tokens.weight", **rows) -> Path:
    """Return a copy of a model folder with other rows, as in ``spoiled(folder, to, id7=0.0)``."""
    shutil.copytree(folder, to)
    weights = load_file(to / "model.safetensors")
    for row, value in rows.items():
        weights[name][int(row.removeprefix("id"))] = value
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    return to


def test_a_trained_matrix_has_none(matrix, tokenizer):
    assert untrained_rows(matrix, np.ones(IDS, dtype=np.int64), tokenizer) == []


def test_rows_that_vanish_or_are_no_numbers(matrix, tokenizer):
    matrix[5], matrix[6], matrix[7] = 0.0, 1e-5, 1.0  # the median norm is 2: 1e-5 times sqrt(8) is below 2e-3
    matrix[8, 3], matrix[9, 2] = torch.nan, torch.inf
    found = untrained_rows(matrix, counts_of(id5=3, id8=1), tokenizer)
    assert [(row.id, row.kind, row.count) for row in found] == [
        (5, "vanishing", 3), (6, "vanishing", 0), (8, "not finite", 1), (9, "not finite", 0),
    ]  # fmt: skip
    assert [tokenizer.id_of(row.token) for row in found] == [5, 6, 8, 9]
    assert found[0].norm == 0
    assert found[1].norm == pytest.approx(1e-5 * 8**0.5)


@pytest.mark.parametrize(("share", "found"), [(0.9e-3, 1), (1.1e-3, 0)])
def test_the_border_is_a_thousandth_of_the_median_norm(tokenizer, share, found):
    matrix = torch.nn.functional.normalize(torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    matrix[5] *= share
    assert len(untrained_rows(matrix, counts_of(id5=1), tokenizer)) == found


def test_many_zeros_do_not_make_zero_typical(matrix, tokenizer):
    """Rows of no token are no news, however many they are."""
    matrix[200:] = 0.0
    assert [row.id for row in untrained_rows(matrix, counts_of(), tokenizer)] == list(range(200, IDS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_control_token_that_holds_the_filler_of_unused_rows(matrix, tokenizer, dtype):
    """Ids 0 and 1 are control tokens, rows from 394 on belong to no token."""
    matrix[1] = matrix[400] = matrix[401] = torch.arange(8.0) / 8
    found = untrained_rows(matrix.to(dtype), counts_of(id1=4, id2=1), tokenizer)
    assert [(row.id, row.kind, row.count, row.twin) for row in found] == [(1, "filler", 4, 400)]
    assert untrained_rows(matrix.to(dtype), counts_of(id2=1), tokenizer) == []  # unused filler is as it should be


def test_a_control_token_that_shares_one_row_was_given_it_on_purpose(matrix, tokenizer):
    matrix[1] = matrix[0]
    assert untrained_rows(matrix, counts_of(id0=3, id1=4), tokenizer) == []


def test_two_tokens_of_the_text_with_one_row_are_no_filler(matrix, tokenizer):
    matrix[7] = matrix[9]
    assert untrained_rows(matrix, counts_of(id7=1, id9=1), tokenizer) == []


def test_a_row_of_equal_length_is_not_an_equal_row(matrix, tokenizer):
    matrix[1] = matrix[400].flip(0)
    assert untrained_rows(matrix, counts_of(id1=1), tokenizer) == []


def test_rows_that_are_made_anew_are_passed_over(matrix, tokenizer):
    """A new token takes an old id, or a spare row of the base that still holds its filler."""
    matrix[5], matrix[390] = 0.0, torch.nan
    assert [row.id for row in untrained_rows(matrix, counts_of(id5=1, id390=1), tokenizer, (5,))] == [390]
    matrix[1] = matrix[390] = matrix[400] = torch.ones(8)
    found = untrained_rows(matrix, counts_of(id1=1, id390=1), tokenizer, (5, 390))
    assert [(row.id, row.twin) for row in found] == [(1, 390)]


def test_ids_past_the_matrix_are_those_of_new_tokens(matrix, tokenizer):
    assert untrained_rows(matrix[:390], np.ones(IDS, dtype=np.int64), tokenizer, range(390, IDS)) == []


def test_tokens_are_counted_over_stores_and_pieces(make_store, monkeypatch):
    monkeypatch.setattr(preflight, "_CHUNK_TOKENS", 3)
    stores = [make_store([[5, 6, 5], [7]], start=2, end=1), make_store([[5, 393]], end=0)]
    counts = count_tokens(stores, IDS)
    assert {i: int(counts[i]) for i in np.flatnonzero(counts)} == {0: 1, 1: 2, 2: 2, 5: 3, 6: 1, 7: 1, 393: 1}
    assert counts.shape == (IDS,)
    with pytest.raises(ModelError, match="id 393 occurs, the tokenizer has 300 ids"):
        count_tokens(stores, 300)


@pytest.mark.parametrize(("side", "name"), [("input", "model.embed_tokens.weight"), ("output", "lm_head.weight")])
def test_o30_an_untrained_token_of_the_text_is_refused_by_name(
    untied_folder, tokenizer, make_store, tmp_path, side, name
):
    base = spoiled(untied_folder, tmp_path / "base", name, id7=0.0, id8=torch.nan)
    token = {i: t for t, i in tokenizer.vocabulary.items()}
    with pytest.raises(ModelError) as refused:
        refuse_untrained_rows(base, {"eu": make_store([[7, 7, 8, 9]])}, tokenizer)
    said = str(refused.value)
    assert f"the {side} matrix ({name}) that nobody has trained, 2 in all: " in said
    assert f"{token[7]!r} (id 7, norm 0, occurs 2 times) has a row of zeros" in said
    assert f"{token[8]!r} (id 8, norm nan, occurs 1 times) has a row that is not finite" in said
    assert "documents.end" not in said


@pytest.mark.parametrize("border", [{"start": None, "end": 1}, {"start": 1, "end": 0}])
def test_o30_a_border_token_is_text_too(tied_folder, tokenizer, make_store, tmp_path, border):
    """The case: a reserved id that was never trained ends every document."""
    base = spoiled(tied_folder, tmp_path / "base", id1=1e-9)
    with pytest.raises(ModelError, match=r"<\|im_start\|>' \(id 1, .*, occurs 2 times\).* choose another token than "
                                         r"'<\|im_start\|>' for documents\.start or documents\.end"):  # fmt: skip
        refuse_untrained_rows(base, {"eu": make_store([[7], [8]], **border)}, tokenizer)
    assert refuse_untrained_rows(tied_folder, {"eu": make_store([[7], [8]], **border)}, tokenizer) == []


def test_o30_untrained_tokens_that_do_not_occur_are_a_note(tied_folder, tokenizer, make_store, tmp_path):
    base = spoiled(tied_folder, tmp_path / "base", id1=0.0, id400=0.0)
    (note,) = refuse_untrained_rows(base, {"eu": make_store([[7]])}, tokenizer)
    assert note.startswith(
        "tokens whose input rows nobody has trained, and which do not occur in the training text, 1 in"
    )
    assert note.endswith("'<|im_start|>' (id 1)")


def test_long_lists_are_cut(tied_folder, tokenizer, make_store, tmp_path):
    base = spoiled(tied_folder, tmp_path / "base", **{f"id{n}": 0.0 for n in range(20, 40)})
    with pytest.raises(ModelError, match=r"20 in all: .* \(id 29, [^)]*\)[^)]*, and 10 more\. What can be done"):
        refuse_untrained_rows(base, {"eu": make_store([list(range(20, 40))])}, tokenizer)


def test_new_tokens_in_old_places_are_not_asked_about(tied_folder, tokenizer, make_store, tmp_path):
    base = spoiled(tied_folder, tmp_path / "base", id7=0.0)
    assert refuse_untrained_rows(base, {"eu": make_store([[7, 8]])}, tokenizer, (7,)) == []


def test_a_folder_without_an_input_matrix_is_refused(tokenizer, make_store, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="no input embedding matrix"):
        refuse_untrained_rows(tmp_path / "empty", {"eu": make_store([[7]])}, tokenizer)


def test_a_row_says_what_is_wrong_with_it():
    row = UntrainedRow(9, "<|r|>", "filler", 0.5, 1200, 7)
    assert re.fullmatch(
        r"'<\|r\|>' \(id 9, norm 0\.5, occurs 1,200 times\) has the same row as the unused id 7", str(row)
    )
