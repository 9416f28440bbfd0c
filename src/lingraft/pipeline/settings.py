"""From the words of a recipe to the numbers of the other rooms. Loads no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.corpus import find_files
from lingraft.corpus.apportionment import Apportionment, apportion
from lingraft.corpus.mixing import Schedule, make_schedule
from lingraft.errors import CorpusError, RecipeError, VocabularyError, nearest
from lingraft.model.locate import BaseDescription
from lingraft.polling import poll
from lingraft.quantities import length_in_tokens
from lingraft.recipe import Corpus, Recipe, Stage
from lingraft.run import hash_file
from lingraft.training.horizon import half_life, start_share
from lingraft.vocabulary import (
    LearnOptions,
    TokenizerFile,
    WordCuts,
    audit_words,
    dominant_scripts,
    needs_patch,
    patch_marks,
)

__all__ = [
    "DocumentTokens",
    "average_in_words",
    "average_options",
    "checkpoint_steps",
    "document_tokens",
    "learn_options",
    "measure_steps",
    "needed_tokens",
    "patched_tokenizer",
    "refuse_shared_files",
    "refuse_too_many_epochs",
    "refuse_unmeasurable",
    "stage_mix",
    "stage_schedule",
    "target_cuts",
    "warmup_steps",
    "watch_steps",
]


@dataclass(frozen=True)
class DocumentTokens:
    """Ids at the borders of documents (``start`` may be none), and the one that likelihoods are conditioned on."""

    start: int | None
    end: int
    condition: int


def document_tokens(recipe: Recipe, base: BaseDescription) -> DocumentTokens:
    """Return the border ids that ``documents`` asks for.

    Raises:
        RecipeError: a token is not in the base vocabulary, or ``auto`` finds none.
    """
    wanted, tokenizer = recipe.documents, base.tokenizer
    if wanted.start == "auto":
        leading = tokenizer.leading_ids()
        start = leading[0] if leading else None
    else:
        start = None if wanted.start == "none" else _id_of(wanted.start, tokenizer, "documents.start")
    end = _auto_id(wanted.end, (base.eos,), tokenizer, "documents.end")
    condition = _auto_id(wanted.condition_on, (base.bos, base.eos), tokenizer, "documents.condition_on")
    return DocumentTokens(start, end, condition)


def _auto_id(wanted: str, candidates: tuple[str | None, ...], tokenizer: TokenizerFile, where: str) -> int:
    if wanted != "auto":
        return _id_of(wanted, tokenizer, where)
    found = next((token for token in candidates if token is not None), None)
    if found is None:
        raise RecipeError(f"{where}: the tokenizer states no such token; name one")
    return _id_of(found, tokenizer, where)


def _id_of(token: str, tokenizer: TokenizerFile, where: str) -> int:
    token_id = tokenizer.id_of(token)
    if token_id is None:
        special = [entry["content"] for entry in tokenizer.raw.get("added_tokens") or ()]
        raise RecipeError(f"{where}: {token!r} is not in the base vocabulary{nearest(token, special)}")
    return token_id


def learn_options(recipe: Recipe) -> LearnOptions:
    """Return what ``vocabulary`` admits and how many; which scripts are pinned depends on the texts."""
    chosen = recipe.vocabulary
    return LearnOptions(
        num_tokens=max(1, chosen.most_new_tokens),
        min_count=chosen.min_count,
        max_characters=chosen.max_characters,
        veto_per_million=chosen.veto_per_million,
        allow_digits=chosen.allow_digits,
        min_saving=chosen.min_saving if chosen.new_tokens == "auto" else None,
        replace=chosen.method == "replace",
    )


def target_cuts(tokenizer: TokenizerFile, texts: Mapping[str, Sequence[str]], recipe: Recipe) -> dict[str, WordCuts]:
    """Return what the base's pattern does to the words of each language that the vocabulary grows for.

    Raises:
        VocabularyError: the text of a language holds no word with a letter.
    """
    cuts = {}
    for language, part in texts.items():
        try:
            cuts[language] = audit_words(tokenizer, part)
        except VocabularyError as error:
            names = ", ".join(f"corpora.{name}" for name in recipe.corpora if recipe.language_of(name) == language)
            way_out = "vocabulary.method: keep leaves the vocabulary as it is"
            if language != recipe.languages.target:
                way_out = f"leave {language!r} out of vocabulary.languages"
            raise VocabularyError(
                f"{names}: no word with a letter is in this text, so no token can be learned for {language!r}; "
                f"give it text, or {way_out}"
            ) from error
    return cuts


def patched_tokenizer(
    tokenizer: TokenizerFile, texts: Mapping[str, Sequence[str]], cuts: Mapping[str, WordCuts], recipe: Recipe
) -> TokenizerFile:
    """Return the tokenizer to grow: the base, or with a pattern that keeps the marks of the target's scripts in words.

    Args:
        tokenizer: the base.
        texts: language → target text; each language is judged by itself.
        cuts: what the base does to its words (:func:`target_cuts`).
        recipe: says whether to.

    Raises:
        VocabularyError: it should be changed, and its pattern is not understood.
    """
    wish = recipe.vocabulary.pre_tokenizer
    if tokenizer.family != "byte_bpe" or wish == "keep":
        return tokenizer
    cut = [part for language, part in texts.items() if wish == "patch" or needs_patch(cuts[language])]
    scripts = frozenset().union(*(dominant_scripts(part) for part in cut))
    if "Other" in scripts:
        raise VocabularyError(
            "the base's pattern cuts target words of a script that is newer than Unicode 16, whose marks are not known "
            "here; set vocabulary.pre_tokenizer: keep"
        )
    try:
        return patch_marks(tokenizer, scripts) if scripts else tokenizer
    except VocabularyError as error:
        raise VocabularyError(f"{error} (vocabulary.pre_tokenizer: keep leaves the pattern as it is)") from error


def stage_schedule(recipe: Recipe, index: int, tokens: Mapping[str, int]) -> Schedule:
    """Return the mix of a stage over time.

    Args:
        recipe: the recipe.
        index: of the stage.
        tokens: corpus → training tokens that it has, which temperature weighting goes by.

    Raises:
        RecipeError: as :func:`make_schedule`.
    """
    stage = recipe.stages[index]
    moments = {"warmup_end": min(1.0, warmup_steps(stage) / stage.num_steps)}
    spec, where = stage.mix, f"stages.{index}.mix"
    return make_schedule(spec.schedule, spec.options, where, moments=moments, tokens=dict(tokens))


def stage_mix(recipe: Recipe, index: int, tokens: Mapping[str, int]) -> Apportionment:
    """Return which corpus supplies which sequence of a stage: shared out among languages, then among their corpora.

    Args:
        recipe: the recipe.
        index: of the stage.
        tokens: corpus → training tokens that it has.
    """
    stage = recipe.stages[index]
    names = [name for name in recipe.corpora if name in stage.mix.corpora()]
    return apportion(
        stage_schedule(recipe, index, tokens),
        names,
        stage.num_steps * stage.batch.sequences,
        groups=[recipe.language_of(name) for name in names],
        grain=stage.batch.sequences,
    )


def needed_tokens(recipe: Recipe, tokens: Mapping[str, int]) -> dict[str, int]:
    """Return, per corpus, the tokens that all stages together take from it; ``tokens`` are what each corpus has."""
    needed = dict.fromkeys(recipe.corpora, 0)
    for index, stage in enumerate(recipe.stages):
        for name, sequences in stage_mix(recipe, index, tokens).totals.items():
            needed[name] += sequences * stage.batch.sequence_length
    return needed


def refuse_shared_files(recipe: Recipe) -> None:
    """Raise a CorpusError when two corpora that stages train on hold the same file, by its path or by its content.

    It would be read twice in one order, and the shares of the mix would not be what is read. Two corpora may read
    different fields of one file: a text and its translation.
    """
    places: dict[tuple[Path, str], str] = {}
    sizes: dict[tuple[int, str], list[tuple[str, Path]]] = {}
    used = set().union(*(stage.mix.corpora() for stage in recipe.stages))
    for name, corpus in recipe.corpora.items():
        for path in [] if corpus.split or name not in used else find_files(corpus.paths, f"corpora.{name}.path"):
            other = places.setdefault((path.resolve(), _field_of(corpus)), name)
            if other != name:
                raise CorpusError(f"corpora.{name}: {path} is in corpora.{other} as well; a text is in one corpus only")
            sizes.setdefault((path.stat().st_size, _field_of(corpus)), []).append((name, path))
    for (size, _), same in sizes.items():
        seen: dict[str, tuple[str, Path]] = {}
        for name, path in same if len(same) > 1 and size else ():
            other, twin = seen.setdefault(hash_file(path, poll), (name, path))
            if other != name:
                raise CorpusError(
                    f"corpora.{name}: {path} has the same content as {twin} of corpora.{other}; a text is in one "
                    "corpus only"
                )


def _field_of(corpus: Corpus) -> str:
    return corpus.pairs.label if corpus.pairs else corpus.text


def refuse_too_many_epochs(recipe: Recipe, corpus: str, needed: float, available: float, what: str = "") -> None:
    """Raise a CorpusError when a corpus would be repeated more often than the recipe allows.

    Args:
        recipe: the recipe.
        corpus: the corpus.
        needed: tokens over all stages.
        available: training tokens of the corpus.
        what: how the numbers came about, as in "estimated before expansion".
    """
    if needed and recipe.corpora[corpus].validation == 1:
        raise CorpusError(
            f"corpora.{corpus}.validation: all of the text is held out, and stages train on {needed:,.0f} tokens of it"
        )
    limit = recipe.corpora[corpus].max_epochs
    epochs = needed / available if available else float("inf") if needed else 0.0
    if epochs > limit:
        raise CorpusError(
            f"corpora.{corpus}: its share is {needed:,.0f} tokens and it has {available:,.0f}{what}: "
            f"{epochs:.1f} passes, at most {limit:g} are allowed (corpora.{corpus}.max_epochs); give it more text, "
            "a smaller share, or fewer tokens to the stages"
        )


def refuse_unmeasurable(recipe: Recipe, holds_out: Callable[[str], bool]) -> None:
    """Raise a CorpusError where a language that is measured has no held-out text.

    Args:
        recipe: the recipe.
        holds_out: says of a corpus whether text of it is held out.
    """
    for code in dict.fromkeys([recipe.languages.source, recipe.languages.target, *recipe.measured_languages()]):
        names = [name for name in recipe.corpora if recipe.language_of(name) == code]
        if not any(map(holds_out, names)):
            raise CorpusError(
                f"corpora.{names[0]}.validation: no text in {code!r} is held out, so nothing can be measured in it; "
                "hold out a share"
            )


def warmup_steps(stage: Stage) -> int:
    """Return the steps of warm-up: its tokens over the batch's, rounded up."""
    tokens = length_in_tokens(stage.lr.warmup, stage.num_steps * stage.batch.tokens)
    return -(-tokens // stage.batch.tokens)


def average_options(stage: Stage) -> dict[str, Any]:
    """Return the options of a stage's average, in steps; empty without one."""
    if stage.ema is None:
        return {}
    chosen = {"decay": stage.ema.decay, "every": stage.ema.every, "warmup": stage.ema.warmup}
    options = {name: value for name, value in chosen.items() if value is not None}
    if stage.ema.after is not None:
        options["after"] = length_in_tokens(stage.ema.after, stage.num_steps * stage.batch.tokens) // stage.batch.tokens
    return options


def average_in_words(stage: Stage) -> tuple[str, str, str]:
    """Return how a stage averages, its half-life, and what is left of the start when it ends."""
    ema, options = stage.ema, average_options(stage)
    if ema is None or ema.decay is None:
        start = "none of it" if ema else "–"
        return ema.label if ema else "none", "–", start
    every = ema.every or 1
    if ema.kind == "lr_matched":
        return ema.label, "–", f"rate × {1 - ema.decay:.3g}"
    if ema.kind == "to_start":
        return ema.label, f"{half_life(1 - ema.decay, every):,.1f} steps to the start", f"{ema.decay:.2%} each time"
    share = start_share(stage.num_steps, **options)
    return ema.label, f"{half_life(ema.decay, every):,.1f} steps", f"{share:.2%}"


def measure_steps(recipe: Recipe, stage: Stage) -> frozenset[int]:
    """Return the steps after which to measure, the last one always among them."""
    steps = {max(1, round(fraction * stage.num_steps)) for fraction in recipe.measure.at if fraction > 0}
    return frozenset(steps | {stage.num_steps})


def watch_steps(recipe: Recipe, stage: Stage) -> frozenset[int]:
    """Return the steps after which only what the alarm on forgetting asks for is measured."""
    if (every := recipe.measure.alarm.every) is None or recipe.measure.alarm.action == "off" or stage.slices:
        return frozenset()
    tokens = length_in_tokens(every, stage.num_steps * stage.batch.tokens)
    size = max(1, tokens // stage.batch.tokens)
    return frozenset(range(size, stage.num_steps, size)) - measure_steps(recipe, stage)


def checkpoint_steps(stage: Stage) -> frozenset[int]:
    """Return the steps after which a checkpoint is made; the end of a stage needs none, its weights are kept."""
    tokens = length_in_tokens(stage.checkpoint_every, stage.num_steps * stage.batch.tokens)
    every = max(1, tokens // stage.batch.tokens)
    return frozenset(range(every, stage.num_steps, every))
