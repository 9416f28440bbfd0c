"""The vocabulary step: what is learned on, what is protected, what is proved."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lingraft.batching import first_bytes
from lingraft.corpus import read_prepared
from lingraft.measurement import Measurement
from lingraft.model.locate import locate_tokenizer
from lingraft.pipeline.prepare import corpora_key, texts_of
from lingraft.pipeline.probing import bind_probes, probe_texts
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.settings import learn_options, patched_tokenizer, target_cuts
from lingraft.recipe import Recipe
from lingraft.run import Run, publish_folder
from lingraft.vocabulary import (
    ENGLISH_SAMPLE,
    PARALLEL,
    AuditTexts,
    TokenizerFile,
    VocabularyExpansion,
    audit_expansion,
    audit_normaliser,
    candidates_from,
    dominant_scripts,
    expand_vocabulary,
    keep_vocabulary,
    measure_fertility,
    open_expansion,
    refuse_failed_gates,
    segmentation_drift,
    sum_cuts,
)

__all__ = ["Sample", "prepare_vocabulary", "second_tokenizer"]

_AUDITED_BYTES = 5_000_000
_PARTS = 200


@dataclass(frozen=True)
class Sample:
    """Documents of some corpora, all of them or an even choice; which share of their bytes that is, and how many."""

    texts: list[str]
    share: float
    total: int


def prepare_vocabulary(run: Run, recipe: Recipe, tokenizer: TokenizerFile, progress: Progress) -> VocabularyExpansion:
    """Learn, apply and prove the vocabulary expansion.

    Raises:
        VocabularyError: the tokenizer cannot be expanded.
        GateError: it was, and failed a check; the verdicts are in ``vocabulary/gates.json`` all the same.
    """
    progress.phase("vocabulary")
    second = second_tokenizer(recipe)
    if second is not None:
        found = {"tokenizer": second.sha256}
        run.step("second-tokenizer", found, lambda: found, source="the tokenizer of vocabulary.second_tokenizer")
    inputs = {
        "vocabulary": recipe.vocabulary.model_dump(mode="json"),
        "second": second.sha256 if second else None,
        "tokenizer": tokenizer.sha256,
        "corpora": corpora_key(run, recipe),
    }
    folder = run.path("vocabulary")
    makes = [folder / "tokenizer.json", folder / "expansion.json", folder / "gates.json"]
    run.step("vocabulary", inputs, lambda: _expand_and_prove(run, recipe, tokenizer, second, progress), makes)
    return open_expansion(folder, tokenizer)


def second_tokenizer(recipe: Recipe) -> TokenizerFile | None:
    """Return the tokenizer that ``vocabulary.second_tokenizer`` names, or None."""
    name = recipe.vocabulary.second_tokenizer
    return locate_tokenizer(name, where="vocabulary.second_tokenizer") if name else None


@dataclass(frozen=True)
class _Texts:
    """Everything that the step reads, at most ``sample_bytes`` of each kind."""

    targets: Mapping[str, Sample]
    protected: Sample
    held_out: Mapping[str, list[str]]
    parallel: tuple[list[str], list[str]]
    pinned: frozenset[str]

    @property
    def learning(self) -> list[str]:
        """The target texts of all languages."""
        return [text for sample in self.targets.values() for text in sample.texts]

    def watched(self) -> dict[str, list[str]]:
        """The texts of the fertility curve, the held-out target text first."""
        named = {language: self.held_out[language] for language in self.targets}
        return named | ({PARALLEL: self.parallel[0]} if self.parallel[0] else {})


def _read_texts(run: Run, recipe: Recipe) -> _Texts:
    limit, grown = recipe.vocabulary.sample_bytes, recipe.grown_languages()
    # Parallel text is of both kinds: protecting it would veto the tokens that are wanted.
    others = {name for name in recipe.single_language_corpora() if recipe.language_of(name) not in grown}
    targets = {
        language: _sample(run, {name for name in recipe.corpora if recipe.language_of(name) == language}, limit)
        for language in grown
    }
    foreign = {
        language: _sample(run, {name for name in others if recipe.language_of(name) == language}, limit)
        for language in dict.fromkeys(recipe.language_of(name) for name in sorted(others))
    }
    protected = _together(foreign.values())
    english = () if "en" in grown else ENGLISH_SAMPLE
    # The probes' prompts are protected like source text, so that both models read the same tokens.
    asked = probe_texts(bind_probes(recipe))
    protected = replace(protected, texts=[*protected.texts, *english, *asked])
    spoken = dict.fromkeys([*grown, recipe.languages.source])
    held_out = {language: list(texts_of(run, recipe, language, "validation")) for language in spoken}
    learning = (text for sample in targets.values() for text in sample.texts)
    # Language by language: a small corpus must not lose its script in the text of a large one.
    used = set().union(*(dominant_scripts(sample.texts) for sample in foreign.values()))
    pinned = frozenset(dominant_scripts(learning) - used - dominant_scripts(protected.texts))
    return _Texts(targets, protected, held_out, _parallel(run, recipe), pinned)


def _sample(run: Run, names: set[str], limit: int) -> Sample:
    """Return the training documents of some corpora; of too much text, parts of them spread evenly by a hash."""
    files = [run.path("corpora", name, "train.jsonl") for name in sorted(names)]
    total = sum((run.finished(f"corpus-{name}") or {})["record"]["train_bytes"] for name in names)
    documents = (document.text for file in files for document in read_prepared(file))
    if total <= limit:
        texts = list(documents)
    else:
        parts = (part for text in documents for part in _parts(text, max(1000, limit // _PARTS)))
        texts = [part for part in parts if zlib.crc32(part.encode()) < limit / total * 2**32]
    return Sample(texts, sum(len(text.encode()) for text in texts) / max(1, total), total)


def _parts(text: str, length: int) -> Iterator[str]:
    """Yield a text in parts of about so many characters, cut at spaces: few long documents can be sampled too."""
    start = 0
    while len(text) - start > length:
        cut = text.find(" ", start + length)
        if cut < 0:
            break
        yield text[start:cut]
        start = cut
    yield text[start:]


def _together(samples: Iterable[Sample]) -> Sample:
    parts = list(samples)
    total = sum(sample.total for sample in parts)
    seen = sum(sample.share * sample.total for sample in parts)
    return Sample([text for sample in parts for text in sample.texts], seen / max(1, total), total)


def _parallel(run: Run, recipe: Recipe) -> tuple[list[str], list[str]]:
    """Return held-out documents that exist in target and source under the same id: the same content, twice."""
    sides = []
    for language in (recipe.languages.target, recipe.languages.source):
        names = [n for n in recipe.corpora if recipe.language_of(n) == language and recipe.corpora[n].split_by == "id"]
        files = [run.path("corpora", name, "validation.jsonl") for name in names]
        sides.append({document.id: document.text for file in files for document in read_prepared(file)})
    shared = sorted(sides[0].keys() & sides[1].keys())
    return [sides[0][name] for name in shared], [sides[1][name] for name in shared]


def _expand_and_prove(
    run: Run, recipe: Recipe, tokenizer: TokenizerFile, second: TokenizerFile | None, progress: Progress
) -> dict[str, Any]:
    texts = _read_texts(run, recipe)
    expansion = _expanded(recipe, tokenizer, second, texts)
    _tell(recipe, expansion, progress)
    gates = audit_expansion(expansion, _audit_texts(recipe, texts))

    def fill(folder: Any) -> None:
        expansion.save(folder)
        verdicts = json.dumps([gate.as_dict() for gate in gates], ensure_ascii=False, indent=1)
        (folder / "gates.json").write_text(verdicts, encoding="utf-8")

    publish_folder(run.path("vocabulary"), fill)
    refuse_failed_gates(gates)
    run.forget_measurements_named("fertility", "tokens_per_byte", "tokens_per_character", "segmentation_drift")
    rows = list(_vocabulary_rows(expansion, texts.held_out, recipe.languages.source))
    run.measure(rows)
    progress.measured(rows)
    return {
        "method": expansion.method,
        "num_new": expansion.num_new,
        "num_removed": len(expansion.removed),
        "old_sha256": expansion.old.sha256,
        "new_sha256": expansion.new.sha256,
        "gates": {gate.name: gate.found for gate in gates},
    }


def _audit_texts(recipe: Recipe, texts: _Texts) -> AuditTexts:
    return AuditTexts(
        target=texts.held_out[recipe.languages.target],
        protected=texts.protected.texts,
        source=texts.held_out[recipe.languages.source],
        max_source_drift=recipe.vocabulary.max_source_drift,
        exact_protection=recipe.vocabulary.veto_per_million == 0 and recipe.vocabulary.method == "expand",
        pinned_scripts=texts.pinned,
        learning=texts.learning,
    )


def _expanded(
    recipe: Recipe, tokenizer: TokenizerFile, second: TokenizerFile | None, texts: _Texts
) -> VocabularyExpansion:
    if recipe.vocabulary.method == "keep":
        return keep_vocabulary(tokenizer)
    each = _AUDITED_BYTES // len(texts.targets)
    parts = {name: list(first_bytes(sample.texts, each)) for name, sample in texts.targets.items()}
    audited = [text for part in parts.values() for text in part]
    cuts = target_cuts(tokenizer, parts, recipe)
    facts: dict[str, Any] = {
        "words": sum_cuts(cuts.values()).as_dict(),
        "normaliser": audit_normaliser(tokenizer, audited).as_dict(),
    }
    start = patched_tokenizer(tokenizer, parts, cuts, recipe)
    # A target with scripts of its own takes no Latin names and such from its text: its new tokens are its script's.
    own = all(dominant_scripts(part) <= texts.pinned for part in parts.values())
    options = replace(learn_options(recipe), pinned_scripts=texts.pinned, pinned_only=own)
    options = replace(options, scripts=frozenset(dominant_scripts(audited)) - {"Latin"})
    if second is not None:
        options = replace(options, candidates=candidates_from(second))
    targets = {language: sample.texts for language, sample in texts.targets.items()}
    expansion = expand_vocabulary(start, targets, texts.protected.texts, options, texts.watched())
    facts["share_seen"] = {language: sample.share for language, sample in texts.targets.items()}
    facts["share_protected"] = texts.protected.share
    facts["pinned_scripts"] = sorted(texts.pinned)
    if texts.parallel[0]:
        source_tokens = sum(map(len, tokenizer.encode_batch(texts.parallel[1])))
        facts["parallel"] = {"documents": len(texts.parallel[0]), "source_tokens": source_tokens}
    if start is not tokenizer:
        facts["pre_tokenizer"] = {
            "patched": True,
            "after": sum_cuts(target_cuts(start, parts, recipe).values()).as_dict(),
        }
        expansion = _from_unpatched(expansion, tokenizer, texts)
    return replace(expansion, record={**expansion.record, **facts})


def _from_unpatched(expansion: VocabularyExpansion, tokenizer: TokenizerFile, texts: _Texts) -> VocabularyExpansion:
    """Return the expansion as one of the tokenizer that the base ships, whose pattern was changed on the way."""
    curve = expansion.curve
    before = {name: sum(map(len, tokenizer.encode_batch(text))) for name, text in texts.watched().items()}
    points = (replace(curve.points[0], tokens=before), *curve.points[1:])
    return replace(expansion, old=tokenizer, curve=replace(curve, points=points))


def _tell(recipe: Recipe, expansion: VocabularyExpansion, progress: Progress) -> None:
    chosen = recipe.vocabulary
    if chosen.new_tokens == "auto" and expansion.method != "keep":
        progress.note(f"vocabulary: {expansion.num_new} new tokens; {_why_no_more(recipe, expansion)}")
    elif expansion.num_new < chosen.most_new_tokens:
        progress.note(
            f"vocabulary: {expansion.num_new} of {chosen.new_tokens} tokens were learned; no other pair "
            f"occurs {chosen.min_count} times and is admitted (vocabulary.min_count)"
        )
    if "pre_tokenizer" in expansion.record:
        cuts = expansion.record["words"]
        progress.note(
            f"vocabulary: the base's pattern cuts {cuts['cut']} of {cuts['words']} target words at their marks; it was "
            "changed to keep them whole; llama.cpp would cut this text wrongly, which vocabulary.pre_tokenizer: keep "
            "avoids"
        )


def _why_no_more(recipe: Recipe, expansion: VocabularyExpansion) -> str:
    chosen = recipe.vocabulary
    if expansion.num_new < expansion.record["learned"]:
        return (
            f"a further thousand would save less than {chosen.min_saving:.1%} of the held-out target tokens "
            "(vocabulary.min_saving)"
        )
    if expansion.num_new == chosen.max_new_tokens:
        return "more would pay, and are not allowed (vocabulary.max_new_tokens)"
    return f"no other pair occurs {chosen.min_count} times and is admitted (vocabulary.min_count)"


def _vocabulary_rows(
    expansion: VocabularyExpansion, held_out: Mapping[str, list[str]], source: str
) -> Iterator[Measurement]:
    for language, texts in held_out.items():
        for stage, tokenizer in (("base", expansion.old), ("expanded", expansion.new)):
            found = measure_fertility(tokenizer, texts)
            yield Measurement(stage, 0, "fertility", found.tokens_per_word, language, count=found.words)
            yield Measurement(stage, 0, "tokens_per_byte", found.tokens_per_byte, language, count=found.bytes)
            characters = found.tokens_per_character
            yield Measurement(stage, 0, "tokens_per_character", characters, language, count=found.characters)
    drift = segmentation_drift(expansion.old, expansion.new, held_out[source])
    yield Measurement("expanded", 0, "segmentation_drift", drift.document_share, source, count=drift.documents)
    yield Measurement("expanded", 0, "segmentation_drift/tokens", drift.token_share, source, count=drift.tokens)
