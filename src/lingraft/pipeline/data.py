"""The first step: corpora read, cleaned and split, with a report on each and on what they have in common."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingraft.corpus.bad_values import Reading
from lingraft.corpus.cleaning import Cleaning, LanguageCheck, content_digest
from lingraft.corpus.document import Document
from lingraft.corpus.language_id import parse_label, scripts_of_language
from lingraft.corpus.near_duplicates import NearDuplicates
from lingraft.corpus.overlap import Overlap, read_items
from lingraft.corpus.pairing import PAIRS
from lingraft.corpus.prepare import (
    SIDES,
    Place,
    Preparation,
    find_place,
    prepare_corpus,
    read_prepared,
    source_fingerprint,
)
from lingraft.corpus.quality import bind_filters
from lingraft.corpus.scripts import SCRIPTS
from lingraft.corpus.sources import find_files
from lingraft.errors import RecipeError, RunFolderError, nearest
from lingraft.pipeline.parallel import pair_files, prepare_pairs
from lingraft.pipeline.progress import Progress, Silent
from lingraft.pipeline.settings import refuse_shared_files, refuse_unmeasurable
from lingraft.pipeline.stopping import Stopper
from lingraft.polling import poll
from lingraft.recipe import Corpus, Recipe
from lingraft.report import write_data_page
from lingraft.run import Run, fingerprint, hash_file, read_own, write_file

__all__ = [
    "benchmark_files",
    "data_report",
    "overlap_of",
    "place_of",
    "preparation_of",
    "prepare_corpora",
]

_NOT_IN_THE_TEXT = {"path", "language", "max_epochs", "pairs", "license"}
# What the corpora of earlier versions were told by: a run begun with one of them goes on.
_ALWAYS_TOLD = [
    "split",
    "config",
    "revision",
    "bad_lines",
    "max_bad_fraction",
    "normalise",
    "deduplicate",
    "min_characters",
    "max_documents",
    "validation",
    "split_by",
]


def preparation_of(recipe: Recipe, name: str) -> Preparation:
    """Return what a recipe does with a corpus, in the words of the corpus room.

    Raises:
        RecipeError: a quality filter, a script or a number of bands cannot be used; the message holds the path.
    """
    corpus, where = recipe.corpora[name], f"corpora.{name}"
    near = NearDuplicates(**corpus.near_duplicates.model_dump()) if corpus.near_duplicates else None
    if near:
        near.refuse_uneven(f"{where}.near_duplicates")
    filters = [(choice.name, choice.options) for choice in corpus.quality]
    return Preparation(
        reading=Reading(
            text_field=corpus.text,
            bad_lines=corpus.bad_lines,
            max_bad_fraction=corpus.max_bad_fraction,
            max_line_bytes=corpus.max_line_bytes,
            tolerate_truncated_tail=corpus.tolerate_truncated_tail,
        ),
        cleaning=Cleaning(
            normalise=corpus.normalise,
            strip_bidi=corpus.strip_bidi,
            min_characters=corpus.min_characters,
            max_characters=corpus.max_characters,
            quality=bind_filters(filters, f"{where}.quality"),
            language=_language_check(corpus, recipe.language_of(name), where),
            scripts=_scripts(corpus, recipe.language_of(name), where),
            deduplicate=corpus.deduplicate,
            near_duplicates=near,
            max_documents=corpus.max_documents,
        ),
        validation=corpus.validation,
        split_by=corpus.split_by,
        max_other_script=corpus.max_other_script,
    )


def _language_check(corpus: Corpus, language: str, where: str) -> LanguageCheck | None:
    chosen = corpus.language_id
    if chosen is None:
        return None
    for index, label in enumerate(chosen.labels or ()):
        try:
            parse_label(label)
        except ValueError as error:
            raise RecipeError(f"{where}.language_id.labels.{index}: {error}") from error
    labels = chosen.labels or (language,)
    return LanguageCheck(labels, chosen.model, chosen.min_probability, chosen.action == "reject")


def _scripts(corpus: Corpus, language: str, where: str) -> frozenset[str]:
    """Return the scripts that a recipe states, else those that the language is known to be written in."""
    for index, script in enumerate(corpus.scripts or ()):
        if script not in SCRIPTS:
            raise RecipeError(f"{where}.scripts.{index}: {script!r} is no script{nearest(script, SCRIPTS)}")
    if corpus.scripts:
        return frozenset(corpus.scripts)
    try:
        return scripts_of_language(parse_label(language))
    except ValueError:
        return frozenset()


def place_of(recipe: Recipe, name: str) -> Place:
    """Return where the text of a corpus lies; raises CorpusError where there is none."""
    corpus = recipe.corpora[name]
    return find_place(
        corpus.paths, f"corpora.{name}", split=corpus.split, config=corpus.config, revision=corpus.revision
    )


def benchmark_files(recipe: Recipe) -> list[Path]:
    """Return the files of evaluation items that training text is held against; CorpusError where one is missing."""
    given = recipe.measure.benchmark_files
    return find_files(given, "measure.benchmark_files") if given else []


def prepare_corpora(run: Run, recipe: Recipe, progress: Progress) -> None:
    """Read, clean and split every corpus into the run folder; a corpus whose files did not change is not read again.

    What is found of held-out text and benchmark items in training text goes into ``corpora/overlap.json``.

    Raises:
        CorpusError: see :func:`lingraft.corpus.prepare_corpus`; or two corpora read the same text.
        RecipeError: see :func:`preparation_of`.
    """
    preparations = {name: preparation_of(recipe, name) for name in recipe.corpora}
    places = {name: place_of(recipe, name) for name in recipe.corpora}
    refuse_shared_files(recipe)
    for name, preparation in preparations.items():
        progress.phase(f"corpus {name}")
        folder, place, corpus = run.path("corpora", name), places[name], recipe.corpora[name]
        prepare, pairs = partial(prepare_corpus, name, folder, place, preparation), run.path("pairs", name)
        if corpus.pairs:
            prepare = partial(prepare_pairs, recipe, name, place, preparation, pairs, folder)
        record = run.step(
            f"corpus-{name}",
            _inputs(corpus, place) | {"pairs": _pairs_inputs(recipe, name, place)},
            prepare,
            makes=[*_prepared(folder), folder / "report.json", *([pairs / PAIRS] if corpus.pairs else [])],
            source=f"the text of corpora.{name}",
        )
        _refuse_damaged(record, [*_prepared(folder), pairs / PAIRS])
        report = read_own(folder / "report.json")
        for warning in report.get("warnings", ()):
            progress.note(f"corpora.{name}: {warning}")
    refuse_unmeasurable(recipe, lambda name: run.path("corpora", name, "validation.jsonl").stat().st_size > 0)
    _find_overlap(run, recipe, progress)


def _prepared(folder: Path) -> list[Path]:
    return [folder / f"{side}.jsonl" for side in SIDES]


def _refuse_damaged(record: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Refuse prepared text that is not what was written: everything later would be made of it, and measured on it."""
    for path in paths:
        known = record.get(f"{path.stem}_sha256")
        if known is not None and hash_file(path, poll) != known:
            raise RunFolderError(
                f"{path}: it is not the text that was written there; delete it, and the same command makes it again"
            )


def _pairs_inputs(recipe: Recipe, name: str, place: Place) -> list[Any] | None:
    """Return what decides on the pairs of a corpus, beside its files."""
    pairs = recipe.corpora[name].pairs
    if pairs is None:
        return None
    # Earlier versions took two files in the order of their names, whatever the recipe said: where that is another
    # order, what they made has its languages exchanged, and must not pass for what is made now.
    in_order = list(pair_files(recipe, name, place)) == list(place.sources.files)
    return [pairs.options(), recipe.seed, *([] if in_order else ["in the order of the recipe"])]


def _inputs(corpus: Corpus, place: Place) -> dict[str, Any]:
    """Return what decides on the prepared text: files by content, and options; new ones only where they are used."""
    told = corpus.model_dump(mode="json", exclude=_NOT_IN_THE_TEXT)
    changed = {name: value for name, value in told.items() if value != _default(name)}
    always = {name: told[name] for name in _ALWAYS_TOLD} | {"text_field": corpus.text}
    options = (changed | always) | {"paths": [Path(path).name for path in corpus.paths]}
    if corpus.language_id and corpus.language_id.model != "small":
        options["language_id"] |= {"model": source_fingerprint([Path(corpus.language_id.model)])}
    options.pop("text", None)
    return {"options": options, "sources": source_fingerprint(place.files)}


def _default(name: str) -> Any:
    default = Corpus.model_fields[name].get_default()
    return list(default) if isinstance(default, tuple) else default


def _find_overlap(run: Run, recipe: Recipe, progress: Progress) -> None:
    markers = {name: run.finished(f"corpus-{name}") for name in recipe.corpora}
    files = (
        find_files(recipe.measure.benchmark_files, "measure.benchmark_files") if recipe.measure.benchmark_files else []
    )
    inputs = {
        "corpora": {name: marker["record"] if marker else None for name, marker in markers.items()},
        "benchmarks": source_fingerprint(files),
    }
    to = run.path("corpora", "overlap.json")
    progress.phase("overlap of training text with held-out text and benchmark items")

    def measure() -> dict[str, Any]:
        found = overlap_of({name: run.path("corpora", name) for name in recipe.corpora}, files)
        write_file(to, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        return {"fingerprint": fingerprint(found)}

    run.step("overlap", inputs, measure, makes=[to])
    for warning in read_own(to).get("warnings", ()):
        progress.note(warning)


def overlap_of(corpora: Mapping[str, Path], benchmark_files: list[Path]) -> dict[str, Any]:
    """Return what training text gives away, and how many documents corpora share.

    Args:
        corpora: name → folder with its prepared text.
        benchmark_files: evaluation items, see :func:`~lingraft.corpus.overlap.read_items`.

    Returns:
        ``watched``: for the validation side of each corpus and for each benchmark file, how many documents have 13
        words in a row in common with the training text of which corpus. ``shared_documents``: pairs of corpora that
        hold equal documents. ``warnings``, in words.
    """
    overlap = Overlap()
    for name, folder in corpora.items():
        overlap.watch(f"validation of {name}", read_prepared(folder / "validation.jsonl"))
    for path in benchmark_files:
        overlap.watch(path.name, read_items(path))
    digests: dict[str, NDArray[np.uint64]] = {}
    for name, folder in corpora.items():
        found = [_digest(document) for document in _read_both(folder, overlap, name)]
        digests[name] = np.unique(np.array(found, dtype=np.uint64))
    overlap.settle()
    shared = [
        {"corpora": [one, other], "documents": len(np.intersect1d(digests[one], digests[other]))}
        for one, other in combinations(corpora, 2)
    ]
    told: dict[str, Any] = {
        "watched": [watched.as_json() for watched in overlap.watched],
        "shared_documents": [pair for pair in shared if pair["documents"]],
    }
    return told | {"warnings": list(_overlap_warnings(told))}


def _read_both(folder: Path, overlap: Overlap, name: str) -> Iterator[Document]:
    for document in read_prepared(folder / "train.jsonl"):
        overlap.read(document.text, name)
        yield document
    yield from read_prepared(folder / "validation.jsonl")


def _digest(document: Document) -> int:
    return int.from_bytes(content_digest(document.text)[:8], "big")


def _overlap_warnings(told: dict[str, Any]) -> Iterator[str]:
    for watched in told["watched"]:
        if watched["overlapping"]:
            where = ", ".join(watched["found_in"])
            yield (
                f"{watched['name']}: {watched['overlapping']:,} of {watched['documents']:,} documents "
                f"({watched['share']:.1%}) have 13 words in a row in common with training text of {where}"
            )
    for pair in told["shared_documents"]:
        one, other = pair["corpora"]
        yield f"corpora {one} and {other} share {pair['documents']:,} documents"


def data_report(recipe: Recipe, folder: str | Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """Prepare the corpora of a recipe, and nothing else, in a run folder that ``lingraft run`` goes on from.

    Beside the corpora the folder gets ``data.json``, all that was found, and ``data.html``, the same as a page.

    Returns:
        ``corpora``: name → data report; ``overlap``: see :func:`overlap_of`.

    Raises:
        LingraftError: of any of its kinds.
    """
    with Run(folder) as run, Stopper():
        run.adopt(recipe)
        for name in recipe.corpora:
            preparation_of(recipe, name).cleaning.refuse_unusable(f"corpora.{name}")
        prepare_corpora(run, recipe, progress or Silent())
        found = {
            "corpora": {name: read_own(run.path("corpora", name, "report.json")) for name in recipe.corpora},
            "overlap": read_own(run.path("corpora", "overlap.json")),
        }
        write_file(run.path("data.json"), json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        write_data_page(run.folder, run.path("data.html"))
    return found
