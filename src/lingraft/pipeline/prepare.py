"""The steps before training: base model, token stores."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lingraft.corpus import (
    TokenStore,
    open_store,
    read_prepared,
    source_fingerprint,
    store_name,
)
from lingraft.corpus.store import clear_parts
from lingraft.errors import CorpusError
from lingraft.model.base import convert_gguf, fetch_folder
from lingraft.model.licence import stated_license
from lingraft.model.locate import describe_base, locate_base
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.settings import DocumentTokens, document_tokens, needed_tokens, refuse_too_many_epochs
from lingraft.pipeline.tokenising import tokenise
from lingraft.recipe import Recipe
from lingraft.run import Run, publish_folder
from lingraft.vocabulary import TokenizerFile

__all__ = ["Prepared", "corpora_key", "prepare_base", "prepare_stores", "texts_of"]


@dataclass(frozen=True)
class Prepared:
    """What the later steps stand on: the base's folder, its border tokens and its tokenizer."""

    base_folder: Path
    documents: DocumentTokens
    tokenizer: TokenizerFile
    base_sha256: str


def texts_of(run: Run, recipe: Recipe, language: str, side: str) -> Iterator[str]:
    """Yield the texts of one language's corpora, ``train`` or ``validation``."""
    for name in recipe.corpora:
        if recipe.language_of(name) == language:
            for document in read_prepared(run.path("corpora", name, f"{side}.jsonl")):
                yield document.text


def corpora_key(run: Run, recipe: Recipe) -> dict[str, str]:
    """Return corpus → the hashes of its prepared text, both sides."""
    keys = {}
    for name in recipe.corpora:
        marker = run.finished(f"corpus-{name}")
        if marker is None:
            raise CorpusError(f"corpora.{name} has not been prepared in this run folder")
        keys[name] = marker["record"]["train_sha256"] + marker["record"]["validation_sha256"]
    return keys


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
    told = {"name": location.public_name, "license": stated_license(location, folder)}
    run.step("base", found, lambda: told, source=f"the base model {location.public_name}")
    return Prepared(folder, documents, tokenizer, weights)


def prepare_stores(
    run: Run, recipe: Recipe, base: Prepared, tokenizer: TokenizerFile, progress: Progress
) -> dict[str, TokenStore]:
    """Return the token store of every corpus that a stage trains on or guards read, made once per tokenizer and text.

    Raises:
        CorpusError: a corpus has too few tokens for its share, now that they are counted.
    """
    # A share so small that it comes to no sequence is a share all the same: its corpus is tokenised.
    used = set().union(*(stage.mix.corpora() for stage in recipe.stages))
    if any(stage.guards for stage in recipe.stages):
        # Guards read source text, which is wanted most where no stage trains on any.
        used |= {name for name in recipe.corpora if recipe.language_of(name) == recipe.languages.source}
    stores = {}
    for name in (name for name in recipe.corpora if name in used):
        progress.phase(f"tokens of {name}")
        stores[name] = _store(run, name, base, tokenizer)
    needed = needed_tokens(recipe, {name: store.num_tokens for name, store in stores.items()})
    for name, store in stores.items():
        refuse_too_many_epochs(recipe, name, needed[name], store.num_tokens)
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
        try:
            tokenise(train, tokenizer, folder, start_id=start, end_id=end, corpus_sha256=corpus_sha256)
        except CorpusError as error:
            marks = ", ".join(repr(tokenizer.decode([i])) for i in (start, end) if i is not None)
            raise CorpusError(f"corpora.{name} (border tokens: {marks}): {error}") from error
    store = open_store(folder, **keys)
    clear_parts(folder)
    return store
