"""Lengths of rows by hand; and that nothing is brought to a length where that does harm."""

import pytest
import torch

from lingraft.embeddings import NormSummary, calibrate, ids_in_scripts, norm_report, refuse_calibration, target_norm
from lingraft.errors import ModelError, RecipeError


def lengths(*values):
    """Rows of width 2 that have these lengths."""
    return torch.tensor([[0.6 * value, -0.8 * value] for value in values]).reshape(-1, 2)


def test_report_by_hand():
    report = norm_report(lengths(1, 2, 3, 4, 10), lengths(5, 7), [0, 2])
    assert report.old.mean == pytest.approx(4)
    assert report.old.median == pytest.approx(3)
    assert report.old.quantiles == pytest.approx((1.2, 2, 3, 4, 8.8))
    assert (report.script.count, report.script.mean) == (2, pytest.approx(2))
    assert (report.new.count, report.new.median) == (2, pytest.approx(6))


def test_report_says_none_where_there_are_no_rows():
    report = norm_report(lengths(1), lengths(), [])
    assert (report.script, report.new) == (None, None)
    assert isinstance(report.old, NormSummary)


@pytest.mark.parametrize(("count", "wanted"), [(20, 4.0), (19, 1.0)])
def test_length_is_of_the_script_where_it_has_twenty_rows(count, wanted):
    old = lengths(*[4.0] * count, *[1.0] * 40)
    assert target_norm(old, range(count)) == pytest.approx(wanted)


def test_rows_keep_their_direction_and_get_the_length():
    rows = calibrate(torch.tensor([[3.0, 4.0], [0.0, -0.5]]), 10.0)
    torch.testing.assert_close(rows, torch.tensor([[6.0, 8.0], [0.0, -10.0]]))


def test_rows_that_have_the_length_stay():
    rows = torch.nn.functional.normalize(torch.randn(5, 7, generator=torch.Generator().manual_seed(0)), dim=1)
    torch.testing.assert_close(calibrate(rows, 1.0), rows)
    assert calibrate(rows.bfloat16(), 2.0).dtype == torch.bfloat16


def test_zero_rows_have_no_direction():
    with pytest.raises(ModelError, match=r"1 of 3 new rows are zero \(the first is the 2\. new token's"):
        calibrate(lengths(1, 0, 2), 1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
def test_length_must_be_above_nought(norm):
    with pytest.raises(ModelError, match="cannot be brought to the length"):
        calibrate(lengths(1), norm)


def test_input_rows_of_untied_models_may_be_calibrated():
    refuse_calibration(False, "input")


@pytest.mark.parametrize("side", ["input", "output"])
def test_rows_of_tied_models_may_not(side):
    with pytest.raises(RecipeError, match=r"embeddings.calibrate: True .* from 2.6 to 7.3 bits .* 1.37 to 4.12"):
        refuse_calibration(True, side)


def test_output_rows_may_not():
    with pytest.raises(RecipeError, match=r"here\.it: always is for input rows"):
        refuse_calibration(False, "output", "here.it", "always")


def test_longer_rows_of_a_tied_matrix_take_probability():
    """Why it is refused: one row of three, twice as long, in a head whose states point its way."""
    old, state = torch.tensor([[2.0, 0.0], [2.0, 1.0]]), torch.tensor([1.5, 0.0])
    new = torch.tensor([[2.0, -1.0]])

    def mass(rows):
        return torch.softmax(torch.cat([old, rows]) @ state, dim=0)[2].item()

    assert mass(new) == pytest.approx(1 / 3)
    assert mass(calibrate(new, 2 * 5**0.5)) > 0.9


def test_ids_of_a_script_hold_letters_of_it_and_of_no_other(tokenizer):
    latin = ids_in_scripts(tokenizer, {"Latin"})
    texts = {tokenizer.decode([token_id]) for token_id in latin}
    assert {"a", " the", " a"} <= texts
    assert not texts & {" ", ",", "<|endoftext|>", "1"}
    assert ids_in_scripts(tokenizer, {"Arabic"}) == ()
