"""Token stores for stages that leave out merges: the corpus as often as it is read, in other pieces each time.

The pieces of a document are a function of the run's seed, of which reading it is, and of its text. The readings stand
one behind the other in one store, so that a sequence's place still says all there is to know of it.
"""

import math
from collections.abc import Mapping

from lingraft.corpus import TokenStore, open_store, read_prepared
from lingraft.corpus.parts import Encoding, write_part
from lingraft.corpus.store import clear_parts, join_parts, parts_folder
from lingraft.pipeline.prepare import Prepared
from lingraft.pipeline.progress import Progress
from lingraft.pipeline.settings import needed_tokens
from lingraft.recipe import BpeDropout, Recipe
from lingraft.run import Run, fingerprint
from lingraft.vocabulary import VocabularyExpansion
from lingraft.vocabulary.dropout import DroppedMerges

__all__ = ["drawn_stores"]


def drawn_stores(
    run: Run,
    recipe: Recipe,
    base: Prepared,
    expansion: VocabularyExpansion,
    plain: Mapping[str, TokenStore],
    dropout: BpeDropout,
    progress: Progress,
) -> dict[str, TokenStore]:
    """Return the stores of all corpora with merges left out, made once for their inputs.

    There are as many readings as the stages of the recipe make passes over a corpus, counted in plain tokens.
    """
    needed = needed_tokens(recipe, {name: store.num_tokens for name, store in plain.items()})
    stores = {}
    for name, store in plain.items():
        readings = max(1, math.ceil(needed.get(name, 0) / max(1, store.num_tokens)))
        made_of = [store.folder.name, dropout.model_dump(mode="json"), recipe.seed, readings]
        folder = run.path("tokens", f"{name}-{fingerprint(made_of)}")
        keys = {
            "tokenizer_sha256": expansion.new.sha256,
            "corpus_sha256": fingerprint([store.manifest.corpus_sha256, *made_of[1:]]),
        }
        if not folder.exists():
            progress.phase(f"tokens of {name}, {dropout.merges} merges left out at {dropout.rate:g}")
            encodings = [_encoding(expansion, base, dropout, f"{recipe.seed}/{name}/{n}") for n in range(readings)]
            parts = parts_folder(folder)
            try:
                text = run.path("corpora", name, "train.jsonl")
                written = [
                    write_part((document.text for document in read_prepared(text)), encoding, parts / f"{n:05d}")
                    for n, encoding in enumerate(encodings)
                ]
                join_parts(written, encodings[0], folder, **keys)
            finally:
                clear_parts(folder)
        stores[name] = open_store(folder, **keys)
        clear_parts(folder)
    return stores


def _encoding(expansion: VocabularyExpansion, base: Prepared, dropout: BpeDropout, seed: str) -> Encoding:
    merges = DroppedMerges(expansion, rate=dropout.rate, only_new=dropout.merges == "new", seed=seed)
    return Encoding(merges.encode_batch, expansion.new.num_ids, base.documents.start, base.documents.end)
