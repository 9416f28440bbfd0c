"""An expansion foreseen: what the base's pattern cuts, a fertility curve on a sample, and what rows cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lingraft.corpus.characters import count_words
from lingraft.errors import VocabularyError
from lingraft.model.locate import BaseDescription, locate_tokenizer
from lingraft.pipeline.settings import learn_options, patched_tokenizer, target_cuts
from lingraft.recipe import Recipe
from lingraft.vocabulary import (
    FertilityCurve,
    NormaliserAudit,
    WordCuts,
    audit_normaliser,
    candidates_from,
    dominant_scripts,
    expand_vocabulary,
    sum_cuts,
)

__all__ = ["RowCost", "VocabularyPlan", "num_rows", "plan_vocabulary"]

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class RowCost:
    """What a vocabulary of some size costs.

    Attributes:
        rows: of each matrix, padding included.
        matrix_bytes: of all of them, in fp32.
        head_flops: of the output matrix for each byte of target text: 2 · rows · width · tokens per byte.
        body_flops: of all other layers for each byte of target text.
    """

    rows: int
    matrix_bytes: int
    head_flops: float
    body_flops: float


@dataclass(frozen=True)
class VocabularyPlan:
    """The vocabulary step, estimated on a sample of the target text.

    Attributes:
        fertility: tokens per word before and after.
        shrink: language → tokens after over tokens before.
        curve: tokens of the sample as the vocabulary grows.
        sample_bytes: how much text that is.
        cuts: what the base's pattern does to target words.
        normaliser: what its normaliser does to target text.
        is_patched: whether the pattern will be changed.
        cost: of the base vocabulary, and of the one that is planned.
    """

    fertility: tuple[float, float]
    shrink: Mapping[str, float]
    curve: FertilityCurve
    sample_bytes: int
    cuts: WordCuts
    normaliser: NormaliserAudit
    is_patched: bool
    cost: tuple[RowCost, RowCost]


def num_rows(recipe: Recipe, base: BaseDescription) -> int:
    """Return the rows that a matrix will have; with ``auto``, at most."""
    if recipe.vocabulary.method != "expand":
        return base.num_rows
    ids = base.tokenizer.num_ids + recipe.vocabulary.most_new_tokens
    multiple = recipe.vocabulary.row_multiple
    return base.num_rows if ids <= base.num_rows else -(-ids // multiple) * multiple


def plan_vocabulary(
    recipe: Recipe,
    base: BaseDescription,
    targets: Mapping[str, Sequence[str]],
    protected: Sequence[str],
    whole_bytes: Mapping[str, float],
) -> VocabularyPlan | None:
    """Return what the vocabulary step will come to; None if there is no target text to tell from.

    A small vocabulary is learned on the sample, rare tokens being admitted in proportion; the real one is learned on
    more text and does a little better.

    Args:
        recipe: what is wanted.
        base: the base model.
        targets: language → sample of its text, for every language that the vocabulary grows for.
        protected: sample of all other text.
        whole_bytes: language → bytes of all its text.

    Raises:
        VocabularyError: the base tokenizer cannot be expanded, its pattern not be changed, or the text of a language
            holds no word.
    """
    texts = [text for sample in targets.values() for text in sample]
    words = {language: sum(map(count_words, sample)) for language, sample in targets.items()}
    target = recipe.languages.target
    if not all(words.values()) or not words:
        return None
    tokenizer = base.tokenizer
    try:
        cuts = target_cuts(tokenizer, targets, recipe)
    except VocabularyError:
        if recipe.vocabulary.method == "keep":
            return None
        raise
    before = {language: sum(map(len, tokenizer.encode_batch(sample))) for language, sample in targets.items()}
    seen = {language: sum(len(text.encode()) for text in sample) for language, sample in targets.items()}
    after, curve, start = dict(before), FertilityCurve(), tokenizer
    if recipe.vocabulary.method != "keep":
        start = patched_tokenizer(tokenizer, targets, cuts, recipe)
        options = learn_options(recipe)
        pinned = frozenset(dominant_scripts(texts) - dominant_scripts(protected))
        scale = sum(seen.values()) / max(1.0, sum(whole_bytes.values()))
        options = replace(
            options,
            min_count=max(2, round(options.min_count * min(1.0, scale))),
            min_saving=None,
            pinned_scripts=pinned,
            pinned_only=all(dominant_scripts(sample) <= pinned for sample in targets.values()),
        )
        if recipe.vocabulary.second_tokenizer:
            second = locate_tokenizer(recipe.vocabulary.second_tokenizer, where="vocabulary.second_tokenizer")
            options = replace(options, candidates=candidates_from(second))
        curve = expand_vocabulary(start, targets, protected, options, targets).curve
        after = dict(curve.points[-1].tokens)
    return VocabularyPlan(
        fertility=(before[target] / words[target], after[target] / words[target]),
        shrink={language: after[language] / max(1, before[language]) for language in targets} if curve.points else {},
        curve=curve,
        sample_bytes=sum(seen.values()),
        cuts=sum_cuts(cuts.values()),
        normaliser=audit_normaliser(tokenizer, texts),
        is_patched=start is not tokenizer,
        cost=(
            _cost(base, base.num_rows, before[target] / seen[target]),
            _cost(base, num_rows(recipe, base), after[target] / seen[target]),
        ),
    )


def _cost(base: BaseDescription, rows: int, tokens_per_byte: float) -> RowCost:
    matrices = 1 if base.is_tied else 2
    body = base.num_parameters - base.num_rows * base.hidden_size * matrices
    return RowCost(
        rows=rows,
        matrix_bytes=rows * base.hidden_size * matrices * _FLOAT_BYTES,
        head_flops=2.0 * rows * base.hidden_size * tokens_per_byte,
        body_flops=2.0 * body * tokens_per_byte,
    )
