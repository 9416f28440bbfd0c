"""The steps before training: corpora, base model, vocabulary, embeddings, token stores."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lingraft.corpus import (
    TokenStore,
    build_store,
    find_files,
    open_store,
    prepare_corpus,
    read_prepared,
    source_fingerprint,
    store_name,
)
from lingraft.embeddings import InitContext, fill_rows, init_methods
from lingraft.errors import CorpusError
from lingraft.measure.probes import probes
from lingraft.measure.probes.copain import TASKS, make_item
from lingraft.measurement import Measurement
from lingraft.model.base import convert_gguf, fetch_folder, is_tied, load_model
from lingraft.model.export import check_folder, save_model
from lingraft.model.freeze import weights_digest
from lingraft.model.locate import describe_base, locate_base
from lingraft.model.resize import padded_rows, replace_embeddings
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.settings import DocumentTokens, document_tokens, needed_tokens, refuse_too_many_epochs
from lingraft.recipe import Recipe
from lingraft.run import Run, publish_folder
from lingraft.vocabulary import (
    AuditTexts,
    LearnOptions,
    TokenizerFile,
    VocabularyExpansion,
    audit_expansion,
    dominant_scripts,
    expand_vocabulary,
    keep_vocabulary,
    measure_fertility,
    open_expansion,
    refuse_failed_gates,
    segmentation_drift,
)

__all__ = [
    "Prepared",
    "bind_init_methods",
    "prepare_base",
    "prepare_corpora",
    "prepare_embeddings",
    "prepare_stores",
    "prepare_vocabulary",
    "texts_of",
]


@dataclass(frozen=True)
class Prepared:
    """What the later steps stand on: the base's folder, its border tokens and its tokenizer."""

    base_folder: Path
    documents: DocumentTokens
    tokenizer: TokenizerFile
    base_sha256: str


def prepare_corpora(run: Run, recipe: Recipe, progress: Progress) -> None:
    """Read, clean and split every corpus into the run folder; a corpus whose files did not change is not read again.

    Raises:
        CorpusError: see :func:`lingraft.corpus.prepare_corpus`.
    """
    for name, corpus in recipe.corpora.items():
        progress.phase(f"corpus {name}")
        files = [] if corpus.split else find_files(corpus.paths, f"corpora.{name}.path")
        options: dict[str, Any] = {
            "paths": corpus.paths,
            "split": corpus.split,
            "config": corpus.config,
            "revision": corpus.revision,
            "text_field": corpus.text,
            "bad_lines": corpus.bad_lines,
            "max_bad_fraction": corpus.max_bad_fraction,
            "normalise": corpus.normalise,
            "deduplicate": corpus.deduplicate,
            "min_characters": corpus.min_characters,
            "max_documents": corpus.max_documents,
            "validation": corpus.validation,
            "split_by": corpus.split_by,
        }
        inputs = {
            "options": options | {"paths": [Path(p).name for p in corpus.paths]},
            "sources": source_fingerprint(files),
        }
        folder = run.path("corpora", name)
        run.step(
            f"corpus-{name}",
            inputs,
            partial(prepare_corpus, name, folder, **options),
            makes=[folder / "train.jsonl", folder / "validation.jsonl"],
            source=f"the text of corpora.{name}",
        )
    _refuse_unmeasurable(run, recipe)


def _refuse_unmeasurable(run: Run, recipe: Recipe) -> None:
    for code in dict.fromkeys([recipe.languages.source, recipe.languages.target, *recipe.measured_languages()]):
        names = [name for name in recipe.corpora if recipe.language_of(name) == code]
        if not any(run.path("corpora", name, "validation.jsonl").stat().st_size for name in names):
            raise CorpusError(
                f"corpora.{names[0]}.validation: no text in {code!r} is held out, so nothing can be measured in it; "
                "hold out a share"
            )


def texts_of(run: Run, recipe: Recipe, language: str, side: str) -> Iterator[str]:
    """Yield the texts of one language's corpora, ``train`` or ``validation``."""
    for name in recipe.corpora:
        if recipe.language_of(name) == language:
            for document in read_prepared(run.path("corpora", name, f"{side}.jsonl")):
                yield document.text


def prepare_base(run: Run, recipe: Recipe, progress: Progress) -> Prepared:
    """Return the base model as a local folder: fetched from the hub, converted from GGUF, or where it is."""
    location = locate_base(recipe.base_model, recipe.revision)
    progress.phase(f"base model {location.public_name}")
    description = describe_base(location)
    documents = document_tokens(recipe, description)
    if location.kind == "gguf":
        assert location.path is not None
        path = location.path
        inputs = {"file": path.name, "sha256": source_fingerprint([path])}
        folder = run.path("base")
        run.step(
            "base-conversion",
            inputs,
            lambda: {"folder": publish_folder(folder, lambda to: convert_gguf(path, to)).name},
            makes=[folder / "config.json", folder / "model.safetensors"],
            source=f"the base model {path.name}",
        )
    else:
        folder = fetch_folder(location)
    tokenizer, weights = TokenizerFile.open(folder), source_fingerprint(sorted(folder.glob("*.safetensors")))
    found = {"weights": weights, "tokenizer": tokenizer.sha256}
    run.step("base", found, lambda: {"name": location.public_name}, source=f"the base model {location.public_name}")
    return Prepared(folder, documents, tokenizer, weights)


def prepare_vocabulary(run: Run, recipe: Recipe, base: Prepared, progress: Progress) -> VocabularyExpansion:
    """Learn, apply and prove the vocabulary expansion.

    Raises:
        VocabularyError: the tokenizer cannot be expanded.
        GateError: it was, and failed a check; the verdicts are in ``vocabulary/gates.json`` all the same.
    """
    progress.phase("vocabulary")
    inputs = {
        "vocabulary": recipe.vocabulary.model_dump(),
        "tokenizer": base.tokenizer.sha256,
        "corpora": _corpora_key(run, recipe),
    }
    folder = run.path("vocabulary")
    makes = [folder / "tokenizer.json", folder / "expansion.json", folder / "gates.json"]
    run.step("vocabulary", inputs, lambda: _expand(run, recipe, base, progress), makes)
    return open_expansion(folder, base.tokenizer)


def _corpora_key(run: Run, recipe: Recipe) -> dict[str, str]:
    keys = {}
    for name in recipe.corpora:
        marker = run.finished(f"corpus-{name}")
        if marker is None:
            raise CorpusError(f"corpora.{name} has not been prepared in this run folder")
        keys[name] = marker["record"]["train_sha256"] + marker["record"]["validation_sha256"]
    return keys


def _expand(run: Run, recipe: Recipe, base: Prepared, progress: Progress) -> dict[str, Any]:
    source, target = recipe.languages.source, recipe.languages.target
    protected = [*texts_of(run, recipe, source, "train"), *_probe_prompts(recipe)]
    learning = list(texts_of(run, recipe, target, "train"))
    pinned = frozenset(dominant_scripts(learning) - dominant_scripts(protected))
    if recipe.vocabulary.method == "keep":
        expansion = keep_vocabulary(base.tokenizer)
    else:
        options = LearnOptions(
            num_tokens=recipe.vocabulary.new_tokens,
            min_count=recipe.vocabulary.min_count,
            max_characters=recipe.vocabulary.max_characters,
            veto_per_million=recipe.vocabulary.veto_per_million,
            allow_digits=recipe.vocabulary.allow_digits,
            pinned_scripts=pinned,
        )
        expansion = expand_vocabulary(base.tokenizer, learning, protected, options)
        if expansion.num_new < recipe.vocabulary.new_tokens:
            progress.note(
                f"vocabulary: {expansion.num_new} of {recipe.vocabulary.new_tokens} tokens were learned; no other pair "
                f"occurs {recipe.vocabulary.min_count} times and is admitted (vocabulary.min_count)"
            )
    held_out = {code: list(texts_of(run, recipe, code, "validation")) for code in (source, target)}
    texts = AuditTexts(
        target=held_out[target],
        protected=protected,
        source=held_out[source],
        max_source_drift=recipe.vocabulary.max_source_drift,
        exact_protection=recipe.vocabulary.veto_per_million == 0,
        pinned_scripts=pinned,
    )
    gates = audit_expansion(expansion, texts)

    def fill(folder: Path) -> None:
        expansion.save(folder)
        verdicts = json.dumps([gate.as_dict() for gate in gates], ensure_ascii=False, indent=1)
        (folder / "gates.json").write_text(verdicts, encoding="utf-8")

    publish_folder(run.path("vocabulary"), fill)
    refuse_failed_gates(gates)
    run.forget_measurements_named("fertility", "tokens_per_byte", "segmentation_drift")
    rows = list(_vocabulary_rows(expansion, held_out, source))
    run.measure(rows)
    progress.measured(rows)
    return {"num_new": expansion.num_new, "old_sha256": expansion.old.sha256, "new_sha256": expansion.new.sha256}


def _probe_prompts(recipe: Recipe) -> list[str]:
    """Return prompts of the text probes: they are protected like source text, so that both models read the same ids."""
    chosen = next((choice.options for choice in recipe.measure.probes if choice.name == "copain"), {})
    defaults = {name: option.default for name, option in probes.get("copain", "measure.probes").options().items()}
    num_items, shots = (int((defaults | dict(chosen))[name]) for name in ("num_items", "shots"))
    items = (make_item(task, index, shots=shots, seed=0) for task in TASKS for index in range(num_items))
    return [f"{item.prompt} {member}\n" for item in items for member in item.members]


def _vocabulary_rows(
    expansion: VocabularyExpansion, held_out: dict[str, list[str]], source: str
) -> Iterator[Measurement]:
    for language, texts in held_out.items():
        for stage, tokenizer in (("base", expansion.old), ("expanded", expansion.new)):
            fertility = measure_fertility(tokenizer, texts)
            yield Measurement(stage, 0, "fertility", fertility.tokens_per_word, language, count=fertility.words)
            yield Measurement(stage, 0, "tokens_per_byte", fertility.tokens_per_byte, language, count=fertility.bytes)
    changed, total, _ = segmentation_drift(expansion.old, expansion.new, held_out[source])
    yield Measurement("expanded", 0, "segmentation_drift", changed / max(1, total), source, count=total)


def prepare_stores(
    run: Run, recipe: Recipe, base: Prepared, tokenizer: TokenizerFile, progress: Progress
) -> dict[str, TokenStore]:
    """Return the token store of every corpus that a stage trains on, made once per tokenizer and text.

    Raises:
        CorpusError: a corpus has too few tokens for its share, now that they are counted.
    """
    # A share so small that it comes to no sequence is a share all the same: its corpus has a column in the quota table.
    used = set().union(*(stage.mix.corpora() for stage in recipe.stages))
    needed = needed_tokens(recipe)
    stores = {}
    for name in (name for name in recipe.corpora if name in used):
        progress.phase(f"tokens of {name}")
        stores[name] = _store(run, name, base, tokenizer)
        refuse_too_many_epochs(recipe, name, needed[name], stores[name].num_tokens)
    return stores


def _store(run: Run, name: str, base: Prepared, tokenizer: TokenizerFile) -> TokenStore:
    train = run.path("corpora", name, "train.jsonl")
    marker = run.finished(f"corpus-{name}")
    assert marker is not None
    corpus_sha256 = marker["record"]["train_sha256"]
    keys = {"tokenizer_sha256": tokenizer.sha256, "corpus_sha256": corpus_sha256}
    start, end = base.documents.start, base.documents.end
    folder = run.path("tokens", store_name(name, tokenizer.sha256, corpus_sha256, start, end))
    if not folder.exists():
        texts = (document.text for document in read_prepared(train))
        size, encode = tokenizer.num_ids, tokenizer.encode_batch
        try:
            build_store(texts, encode, folder, vocabulary_size=size, start_id=start, end_id=end, **keys)
        except CorpusError as error:
            marks = ", ".join(repr(tokenizer.decode([i])) for i in (start, end) if i is not None)
            raise CorpusError(f"corpora.{name} (border tokens: {marks}): {error}") from error
    return open_store(folder, **keys)


def prepare_embeddings(
    run: Run, recipe: Recipe, base: Prepared, expansion: VocabularyExpansion, progress: Progress
) -> Path:
    """Return the folder of the expanded model: old rows bit for bit, new rows by the chosen methods."""
    progress.phase("initial embeddings")
    inputs = {
        "embeddings": recipe.embeddings.model_dump(exclude={"max_source_rise"}),
        "row_multiple": recipe.vocabulary.row_multiple,
        "tokenizer": expansion.new.sha256,
        "weights": base.base_sha256,
        "seed": recipe.seed,
    }
    folder = run.path("embeddings", "model")
    makes = [folder / "config.json", folder / "tokenizer.json"]
    run.step("embeddings", inputs, lambda: _initialise(run, recipe, base, expansion), makes)
    return folder


def bind_init_methods(recipe: Recipe) -> dict[str, Callable[..., Any]]:
    """Return side → its bound init method; raises RecipeError on an unknown name or option."""
    choice = recipe.embeddings
    names = {"input": choice.input, "output": choice.output or choice.input}
    return {
        side: init_methods.get(name, f"embeddings.{side}").bind(choice.options, "embeddings.options")
        for side, name in names.items()
    }


def _initialise(run: Run, recipe: Recipe, base: Prepared, expansion: VocabularyExpansion) -> dict[str, Any]:
    model: Any = load_model(base.base_folder)
    tied = is_tied(model)
    choice, bound = recipe.embeddings, bind_init_methods(recipe)
    sides = {"input": (model.get_input_embeddings().weight, choice.input)}
    if not tied:
        sides["output"] = (model.get_output_embeddings().weight, choice.output or choice.input)
    filled = {}
    for side, (weight, name) in sides.items():
        method = bound[side]
        seed = int.from_bytes(hashlib.sha256(f"{recipe.seed}/{side}".encode()).digest()[:7], "little")
        generator = torch.Generator().manual_seed(seed)
        base_rows = weight.detach()
        context = InitContext(expansion, base_rows[: expansion.num_old].float(), side, generator)  # type: ignore[arg-type]
        rows = padded_rows(expansion.new.num_ids, len(base_rows), recipe.vocabulary.row_multiple)
        filled[side] = fill_rows(context, base_rows, method, name, rows)
    replace_embeddings(model, filled["input"], filled.get("output"))

    def fill(folder: Path) -> None:
        (folder / "model").mkdir()
        save_model(
            model,
            folder / "model",
            tokenizer=expansion.new,
            base_folder=base.base_folder,
            changed=expansion.num_new > 0,
        )
        check_folder(folder / "model")
        for side, embeddings in filled.items():
            lines = (
                json.dumps([i, o.kind, o.method, list(o.pieces)])
                for i, o in enumerate(embeddings.origins)
                if o.kind != "copied"
            )
            (folder / f"origins-{side}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    publish_folder(run.path("embeddings"), fill)
    counts = {side: embeddings.counts() for side, embeddings in filled.items()}
    return counts | {
        "weights_sha256": weights_digest(model),
        "tied": tied,
        "rows": len(filled["input"].matrix),
    }
