"""How long rows are, and new rows brought to the length of old ones where that is safe."""

import unicodedata
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lingraft.corpus.scripts import script_of
from lingraft.embeddings.token_text import token_texts
from lingraft.errors import ModelError, RecipeError
from lingraft.vocabulary import TokenizerFile

__all__ = [
    "NormReport",
    "NormSummary",
    "calibrate",
    "ids_in_scripts",
    "norm_report",
    "refuse_calibration",
    "target_norm",
]

_ENOUGH_ROWS = 20
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class NormSummary:
    """Lengths ‖row‖₂ of some rows.

    Attributes:
        count: rows.
        mean: of their lengths.
        quantiles: of their lengths, at 5, 25, 50, 75 and 95 %.
    """

    count: int
    mean: float
    quantiles: tuple[float, ...]

    @property
    def median(self) -> float:
        """The length that half of the rows do not reach."""
        return self.quantiles[_QUANTILES.index(0.5)]


@dataclass(frozen=True)
class NormReport:
    """Lengths of the rows of one matrix.

    Attributes:
        old: all old rows.
        script: old rows of the target's scripts, None where there is none.
        new: rows of new tokens, None where there is none.
    """

    old: NormSummary
    script: NormSummary | None
    new: NormSummary | None


def norm_report(
    old: Float[Tensor, "old_vocab dim"], new: Float[Tensor, "new dim"], ids_of_script: Sequence[int]
) -> NormReport:
    """Return the lengths of old rows, of those of the target's scripts, and of new rows, for one matrix.

    New rows that are longer than old ones are what the embedding-only stage was introduced against (arXiv 2407.12869).

    Args:
        old: rows of old tokens, without padding.
        new: rows of new tokens.
        ids_of_script: old ids of the target's scripts, as of :func:`ids_in_scripts`.
    """
    summary = _summarise(old)
    assert summary is not None, "a matrix has rows"
    return NormReport(summary, _summarise(old[list(ids_of_script)]), _summarise(new))


def _summarise(rows: Float[Tensor, "rows dim"]) -> NormSummary | None:
    if not len(rows):
        return None
    norms = rows.double().norm(dim=1)
    # torch.quantile refuses more than 16 million values; no vocabulary has as many.
    quantiles = torch.quantile(norms, torch.tensor(_QUANTILES, dtype=norms.dtype))
    return NormSummary(len(rows), norms.mean().item(), tuple(quantiles.tolist()))


def ids_in_scripts(tokenizer: TokenizerFile, scripts: AbstractSet[str]) -> tuple[int, ...]:
    """Return the ids of the tokens that hold a letter or mark, and none but of the given scripts."""
    return tuple(token_id for token_id, text in sorted(token_texts(tokenizer).items()) if _is_in(text, scripts))


def _is_in(text: str, scripts: AbstractSet[str]) -> bool:
    found = {script_of(character) for character in text if unicodedata.category(character)[0] in "LM"} - {None}
    return bool(found) and found <= scripts


def target_norm(old: Float[Tensor, "old_vocab dim"], ids_of_script: Sequence[int]) -> float:
    """Return the length that new input rows are brought to.

    The median length of the old rows of the target's scripts if there are at least 20, else of all old rows.

    Args:
        old: rows of old tokens, without padding.
        ids_of_script: old ids of the target's scripts, as of :func:`ids_in_scripts`.
    """
    report = norm_report(old, old[:0], ids_of_script)
    if report.script is not None and report.script.count >= _ENOUGH_ROWS:
        return report.script.median
    return report.old.median


def calibrate(rows: Float[Tensor, "new dim"], norm: float) -> Float[Tensor, "new dim"]:
    """Return the rows, each brought to the same length: row · norm / ‖row‖₂.

    Only for input rows of untied models, see :func:`refuse_calibration`.

    Args:
        rows: of new tokens.
        norm: the length, as of :func:`target_norm`.

    Raises:
        ModelError: a row is zero, and has no direction to keep; or the length is not above zero.
    """
    if not 0 < norm < float("inf"):
        raise ModelError(f"rows cannot be brought to the length {norm}; it must be above 0")
    lengths = rows.double().norm(dim=1, keepdim=True)
    if zero := (lengths[:, 0] == 0).nonzero()[:, 0].tolist():
        raise ModelError(
            f"{len(zero)} of {len(rows)} new rows are zero (the first is the {zero[0] + 1}. new token's), and a row of "
            "zeros cannot be brought to a length; take another init method, or leave the rows as they are"
        )
    scaled: Tensor = rows.double() * (norm / lengths)
    return scaled.to(rows.dtype)


def refuse_calibration(
    tied: bool, side: Literal["input", "output"], where: str = "embeddings.calibrate", value: object = True
) -> None:
    """Raise where bringing new rows to a length does harm: all but the input rows of untied models.

    Args:
        tied: whether the model has one matrix for both sides.
        side: the matrix that is to be calibrated.
        where: the recipe path of the option.
        value: what the recipe says there.

    Raises:
        RecipeError: the model is tied, or the side is ``output``.
    """
    if tied:
        raise RecipeError(
            f"{where}: {value} is for the input rows of untied models, and in this model the input matrix is the "
            "output matrix too: a longer row takes probability from all other tokens. Measured on a tied model, Basque "
            "went from 2.6 to 7.3 bits per byte, English from 1.37 to 4.12 (allowed here: false)"
        )
    if side == "output":
        raise RecipeError(
            f"{where}: {value} is for input rows; the length of an output row is the size of its logit, so a longer "
            "row takes probability from all other tokens (allowed here: false)"
        )
