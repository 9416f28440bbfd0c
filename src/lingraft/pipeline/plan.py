"""What a recipe will do, before anything is loaded: stages, tokens, passes, rates, memory, time, warnings."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lingraft.batching import first_bytes
from lingraft.corpus import Document, Rejects, clean
from lingraft.corpus.characters import count_words
from lingraft.corpus.pairing import count_sides, read_pairs, read_sides
from lingraft.corpus.prepare import Place, read_place, refuse_empty
from lingraft.corpus.split import is_held_out
from lingraft.errors import ModelError, RecipeError, VocabularyError
from lingraft.model.locate import BaseDescription, describe_base, locate_base
from lingraft.pipeline.alarming import refuse_unwatchable
from lingraft.pipeline.data import benchmark_files, place_of, preparation_of
from lingraft.pipeline.guard_plan import deeper_base, guard_copies
from lingraft.pipeline.init_plan import init_needs
from lingraft.pipeline.outline import StageOutline, outline_stage, product_rate
from lingraft.pipeline.parallel import pair_corpus
from lingraft.pipeline.rates import refuse_unusable_optimizer, stage_rates
from lingraft.pipeline.settings import (
    DocumentTokens,
    document_tokens,
    needed_tokens,
    refuse_shared_files,
    refuse_too_many_epochs,
    refuse_unmeasurable,
    stage_schedule,
)
from lingraft.pipeline.task_plan import refuse_unaskable_tasks, refuse_unusable_tasks
from lingraft.pipeline.tracking import refuse_unusable_trackers
from lingraft.pipeline.trainable_plan import refuse_untrainable_stages
from lingraft.pipeline.vocabulary_plan import VocabularyPlan, num_rows, plan_vocabulary
from lingraft.quantities import format_tokens
from lingraft.recipe import Recipe
from lingraft.recipe_measure import Measure
from lingraft.vocabulary import needs_patch, refuse_unexpandable
from lingraft.vocabulary.dropout import BPE_FAMILIES

__all__ = ["CorpusPlan", "Plan", "make_plan"]

_SAMPLE_BYTES = 300_000
_WHOLE_BYTES = 8_000_000
_SAMPLE_PAIRS = 5_000
_NEVER_APART = ("bloom", "mamba", "mamba2", "falcon_mamba", "rwkv")
_PACKED_RATIO = {".gz": 3.0, ".zst": 4.0}
# Where the rates of a stage add up to more than this, the base is soon gone (4e-4 over 100,000 steps is 20 and
# more); the runs of arXiv 2506.00288 stay near 0.5.
_FAR = 3.0
# A stage is made of whole steps; from this on, what it trains is told to be more than was asked for.
_MUCH_MORE = 1.1


@dataclass(frozen=True)
class CorpusPlan:
    """A corpus as far as its files tell: training tokens by the base tokenizer, and estimated after expansion."""

    name: str
    language: str
    files: int
    bytes: int
    words: int
    base_tokens: int
    tokens: int
    is_estimate: bool
    needed: int = 0

    @property
    def epochs(self) -> float:
        """Passes over the corpus, all stages together."""
        return self.needed / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class Plan:
    """A checked recipe with everything that can be known of its run beforehand."""

    recipe: Recipe
    base: BaseDescription
    base_name: str
    documents: DocumentTokens
    corpora: tuple[CorpusPlan, ...]
    stages: tuple[StageOutline, ...]
    num_rows: int
    vocabulary: VocabularyPlan | None
    needs: tuple[str, ...]
    warnings: tuple[str, ...]


def make_plan(recipe: Recipe) -> Plan:
    """Return the plan of a recipe. No weight is loaded; of large corpora only a sample is read.

    Raises:
        RecipeError: a name, an option or a value cannot be used, or not by so many processes as WORLD_SIZE says; the
            message holds the recipe path.
        CorpusError: a corpus is missing, empty, unreadable, too small for its share, or too small to hold text out.
        ModelError: the base model's files contradict each other.
        VocabularyError: the base tokenizer cannot be expanded.
    """
    _refuse_undivided(recipe)
    refuse_unusable_trackers(recipe)
    refuse_unwatchable(recipe)
    _refuse_unusable_probes(recipe)
    location = locate_base(recipe.base_model, recipe.revision)
    for index, stage in enumerate(recipe.stages):
        stage_rates(recipe, index)
        refuse_unusable_optimizer(recipe, index)
        guard_copies(stage, index)
        stage_schedule(recipe, index, dict.fromkeys(recipe.corpora, 1))
    places = {name: place_of(recipe, name) for name in recipe.corpora}
    refuse_shared_files(recipe)
    benchmark_files(recipe)
    refuse_unusable_tasks(recipe)
    samples = {name: _sample(recipe, name, place) for name, place in places.items()}
    refuse_unmeasurable(recipe, lambda name: samples[name].holds_out)
    base = describe_base(location)
    _refuse_ids_beyond_the_matrix(base)
    refuse_unaskable_tasks(recipe, base.tokenizer, base.max_positions)
    _refuse_unexpandable(recipe, base)
    deeper_base(recipe, base)
    needs = init_needs(recipe, is_tied=base.is_tied)
    _refuse_dropout_without_merges(recipe, base)
    _refuse_too_many_layers(recipe, base)
    if location.kind == "folder" and location.path is not None:
        refuse_untrainable_stages(recipe, location.path)
    _refuse_long_bakeoff(recipe)
    documents = document_tokens(recipe, base)
    _refuse_long_sequences(recipe, base)
    _refuse_unisolable(recipe, base)
    vocabulary = _plan_vocabulary(recipe, base, samples)
    shrink = vocabulary.shrink if vocabulary else {}
    sizes = [_plan_corpus(recipe, base, name, samples[name], shrink) for name in recipe.corpora]
    tokens = {corpus.name: corpus.tokens for corpus in sizes}
    needed = needed_tokens(recipe, tokens)
    corpora = tuple(replace(corpus, needed=needed[corpus.name]) for corpus in sizes)
    for corpus in corpora:
        if corpus.files:
            refuse_too_many_epochs(
                recipe, corpus.name, corpus.needed, corpus.tokens, " (estimated)" if corpus.is_estimate else ""
            )
    rows = num_rows(recipe, base)
    rate = product_rate()
    stages = tuple(outline_stage(recipe, base, index, rows, rate, tokens) for index in range(len(recipe.stages)))
    warnings = (*_vocabulary_warnings(recipe, vocabulary), *_warnings(recipe, corpora, stages))
    return Plan(
        recipe, base, location.public_name, documents, corpora, stages, rows, vocabulary, tuple(needs), warnings
    )


def _refuse_undivided(recipe: Recipe) -> None:
    """Refuse what so many processes as the environment says cannot do together; only then is torch loaded for it."""
    if os.environ.get("WORLD_SIZE", "").strip() not in ("", "1"):
        from lingraft.pipeline.ranks import refuse_undivided
        from lingraft.training.distributed import world_size

        refuse_undivided(recipe, world_size())


def _refuse_ids_beyond_the_matrix(base: BaseDescription) -> None:
    if base.tokenizer.num_ids > base.num_rows:
        token = max(base.tokenizer.vocabulary, key=base.tokenizer.vocabulary.__getitem__)
        raise ModelError(
            f"base_model: the tokenizer gives {token!r} the id {base.tokenizer.num_ids - 1}, the embedding matrix has "
            f"{base.num_rows} rows: tokenizer and weights do not belong together"
        )


def _refuse_unusable_probes(recipe: Recipe) -> None:
    if recipe.measure.probes != Measure().probes:
        # Probes import torch, which a plan can do without.
        from lingraft.pipeline.probing import bind_probes

        bind_probes(recipe)


def _refuse_unexpandable(recipe: Recipe, base: BaseDescription) -> None:
    if recipe.vocabulary.method == "keep":
        return
    try:
        refuse_unexpandable(base.tokenizer)
    except VocabularyError as error:
        raise VocabularyError(f"vocabulary.method: {error}") from error


def _refuse_dropout_without_merges(recipe: Recipe, base: BaseDescription) -> None:
    for index, stage in enumerate(recipe.stages):
        if stage.bpe_dropout and base.tokenizer.family not in BPE_FAMILIES:
            raise RecipeError(
                f"stages.{index}.bpe_dropout: merges are left out, and the base's tokenizer, of kind "
                f"{base.tokenizer.family}, has none"
            )


def _refuse_too_many_layers(recipe: Recipe, base: BaseDescription) -> None:
    for index, stage in enumerate(recipe.stages):
        asked = sum(int(word.partition(":")[2]) for word in stage.trains if word.startswith(("top_layers:", "bottom_")))
        if asked > base.num_layers:
            raise RecipeError(
                f"stages.{index}.train: {asked} layers are asked for at the two ends, the base has {base.num_layers}"
            )


def _refuse_long_bakeoff(recipe: Recipe) -> None:
    steps, stage = recipe.embeddings.choose_steps, recipe.stages[0]
    if len(recipe.embeddings.choose) > 1 and steps > stage.num_steps:
        raise RecipeError(
            f"embeddings.choose_steps: {steps} steps are more than the {stage.num_steps} of the first stage, on whose "
            "text the bake-off trains"
        )


def _vocabulary_warnings(recipe: Recipe, plan: VocabularyPlan | None) -> Iterator[str]:
    if plan is None:
        return
    if plan.is_patched:
        yield (
            f"vocabulary: the base's pattern cuts {plan.cuts.cut_fraction:.0%} of the target words "
            f"({'; '.join(plan.cuts.examples[:2])}); it will be changed to keep marks in words. llama.cpp's converter "
            "to GGUF takes such a model without an error and then gives target text wrong ids, since it cuts with a "
            "pattern of its own; vocabulary.pre_tokenizer: keep avoids that"
        )
    elif recipe.vocabulary.method != "keep" and needs_patch(plan.cuts):
        yield (
            f"vocabulary: the base's pattern cuts {plan.cuts.cut_fraction:.0%} of the target words "
            f"({'; '.join(plan.cuts.examples[:2])}), and no vocabulary can get below {plan.cuts.floor:.2f} tokens a "
            "word; vocabulary.pre_tokenizer: patch changes that"
        )
    if plan.normaliser.is_lossy_for_marks:
        yield "vocabulary: the base's normaliser deletes marks of the target's script; the gates will refuse it"


def _refuse_long_sequences(recipe: Recipe, base: BaseDescription) -> None:
    for index, stage in enumerate(recipe.stages):
        if stage.batch.sequence_length > base.max_positions:
            raise RecipeError(
                f"stages.{index}.batch.sequence_length: {stage.batch.sequence_length} is longer than the base model's "
                f"{base.max_positions} positions"
            )


def _refuse_unisolable(recipe: Recipe, base: BaseDescription) -> None:
    """Refuse what is known beforehand; the stage asks the model itself, whatever its architecture."""
    for index, stage in enumerate(recipe.stages):
        if stage.batch.isolate and (base.architecture in _NEVER_APART or base.has_alibi):
            raise RecipeError(
                f"stages.{index}.batch.isolate: {base.architecture} takes no mask that keeps documents apart; write "
                "isolate: false, and documents of one sequence see each other"
            )


@dataclass(frozen=True)
class _Sample:
    """Training texts of a corpus, how many times as much there is, and whether any other text is held out."""

    texts: list[str]
    scale: float
    files: int
    holds_out: bool
    sides: tuple[Mapping[str, str], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(len(text.encode()) for text in self.texts)


def _sample(recipe: Recipe, name: str, place: Place) -> _Sample:
    """Read a corpus, or the beginning of a large one, by the rules that the run will use.

    Of a large one too, reading goes on until a document is held out, since the run refuses a corpus without one.
    """
    corpus, preparation = recipe.corpora[name], preparation_of(recipe, name)
    preparation.cleaning.refuse_unusable(f"corpora.{name}")
    files, rejects, where = place.sources.files, Rejects(), f"corpora.{name}"
    if corpus.pairs:
        with TemporaryDirectory() as folder:
            limit = None if sum(path.stat().st_size for path in files) <= _WHOLE_BYTES else _SAMPLE_PAIRS
            path = pair_corpus(recipe, name, place, preparation, Path(folder) / "pairs", rejects, limit)
            sample = _sample_of(recipe, name, read_pairs(path, name), files, rejects)
            return replace(sample, sides=tuple(read_sides(path, _SAMPLE_PAIRS)))
    if place.datasets:
        return _Sample([], 1.0, 0, corpus.validation > 0)
    found = read_place(place, preparation.reading, corpus=name, rejects=rejects, where=where)
    return _sample_of(recipe, name, found, files, rejects)


def _sample_of(
    recipe: Recipe, name: str, found: Iterable[Document], sources: Sequence[Path], rejects: Rejects
) -> _Sample:
    """Clean documents, which are all or the first of those in ``sources``, until there are enough."""
    corpus = recipe.corpora[name]
    text_bytes = sum(path.stat().st_size * _PACKED_RATIO.get(path.suffix, 1.0) for path in sources)
    limit = float("inf") if text_bytes <= _WHOLE_BYTES else _SAMPLE_BYTES
    texts: list[str] = []
    train = held_out = read = 0
    for document in clean(found, preparation_of(recipe, name).cleaning, rejects, f"corpora.{name}"):
        if is_held_out(document, corpus.validation, corpus.split_by):
            held_out += 1
        else:
            train += 1
            if read < limit:
                texts.append(document.text)
                read += len(document.text.encode())
        if (read >= limit or corpus.validation == 1) and (held_out or not corpus.validation):
            break
    refuse_empty(train, held_out, fraction=corpus.validation, rejects=rejects, where=f"corpora.{name}")
    scale = 1.0
    if read >= limit:
        scale = max(1.0, text_bytes * (1 - corpus.validation) / read)
        if corpus.max_documents:
            scale = min(scale, max(1.0, corpus.max_documents * (1 - corpus.validation) / len(texts)))
    return _Sample(texts, scale, len(sources), held_out > 0)


def _plan_vocabulary(recipe: Recipe, base: BaseDescription, samples: dict[str, _Sample]) -> VocabularyPlan | None:
    grown = recipe.grown_languages()
    targets: dict[str, list[str]] = {language: [] for language in grown}
    whole = dict.fromkeys(grown, 0.0)
    protected: list[str] = []
    for name, sample in samples.items():
        language = recipe.language_of(name)
        if sample.sides:
            continue
        if language in targets:
            targets[language] += first_bytes(sample.texts, _SAMPLE_BYTES)
            whole[language] += sample.bytes * sample.scale
        else:
            protected += first_bytes(sample.texts, _SAMPLE_BYTES)
    return plan_vocabulary(recipe, base, targets, protected, whole)


def _plan_corpus(
    recipe: Recipe, base: BaseDescription, name: str, sample: _Sample, shrink: Mapping[str, float]
) -> CorpusPlan:
    language = recipe.language_of(name)
    encoded = sum(map(len, base.tokenizer.encode_batch(sample.texts))) + len(sample.texts)
    shares = count_sides(sample.sides, base.tokenizer.encode_batch) or {language: 1.0}
    left = sum(share * shrink.get(code, 1.0) for code, share in shares.items())
    return CorpusPlan(
        name=name,
        language=" + ".join(f"{c} {share:.0%}" for c, share in shares.items()) if sample.sides else language,
        files=sample.files,
        bytes=round(sample.bytes * sample.scale),
        words=round(sum(map(count_words, sample.texts)) * sample.scale),
        base_tokens=round(encoded * sample.scale),
        tokens=round(encoded * sample.scale * left),
        is_estimate=sample.scale > 1 or any(code in shrink for code in shares),
    )


def _warnings(recipe: Recipe, corpora: tuple[CorpusPlan, ...], stages: tuple[StageOutline, ...]) -> Iterator[str]:
    source = recipe.languages.source
    speakers = {name for name in recipe.corpora if recipe.language_of(name) == source}
    for index, outline in enumerate(stages):
        has_source = any(mix.get(name, 0) > 0 for mix in outline.mix for name in speakers)
        if not has_source and outline.stage.trains == ("embeddings",):
            yield (
                f"stages.{index}: every row trains and no {source} text is in the mix: old rows move away from the "
                f"body and {source} gets worse; train new_embeddings, or add replay"
            )
        elif not has_source and "all" in outline.stage.trains and not outline.stage.is_guarded:
            yield (
                f"stages.{index}: no {source} text, no averaging and no guard: in-context learning collapses early "
                "(arXiv 2506.00288)"
            )
        if outline.tokens >= _MUCH_MORE * outline.stage.tokens:
            yield (
                f"stages.{index}.tokens: {outline.stage.tokens:,} are asked for and {outline.tokens:,} are trained on, "
                f"since a step is {outline.stage.batch.tokens:,} (batch.tokens): make it smaller"
            )
        every, steps = (outline.stage.ema.every if outline.stage.ema else None) or 1, outline.num_steps
        if every > steps:
            yield f"stages.{index}.ema.every: {every} is more than the stage's {steps} steps: nothing is averaged"
        if outline.path > _FAR and not all("embeddings" in word for word in outline.stage.trains):
            yield (
                f"stages.{index}.lr.peak: {max(outline.rates):g} every {outline.stage.batch.tokens:,} tokens is much"
                f" for {outline.tokens:,} tokens: the rates add up to {outline.path:.1f}, and AdamW may move every "
                "weight that far (arXiv 2506.00288's 10,000 steps add up to 0.5); larger batch.tokens or a smaller rate"
            )
    for corpus in corpora:
        if not corpus.files:
            yield f"corpora.{corpus.name}: a hub data set; its size is known only once it has been read"
        elif corpus.epochs > 1:
            yield f"corpora.{corpus.name}: {corpus.epochs:.1f} passes over the same text"
        elif not corpus.needed and not (corpus.name in speakers and any(stage.guards for stage in recipe.stages)):
            yield f"corpora.{corpus.name}: no stage trains on it"
    available = _available_memory()
    worst = max(outline.memory_bytes for outline in stages)
    if recipe.device != "cuda" and available and worst > available:
        need, free = worst / 2**30, available / 2**30
        yield f"about {need:.1f} GiB are needed at the peak, {free:.1f} GiB are free: smaller micro_batch"
    if recipe.total_tokens < 10_000:
        yield f"only {format_tokens(recipe.total_tokens)} training tokens in all"


def _available_memory(accounts: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes that can be had without swapping, or 0 where the system does not say.

    That is Linux's ``MemAvailable``: pages that are free would be too few, since what files were read into counts as
    used until somebody wants it.
    """
    try:
        lines = accounts.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else 0
