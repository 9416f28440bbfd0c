"""What one run may take over from another: finished steps that would come out the same, linked instead of made again.

A step may be taken over where two things agree. Its key, a hash of every part of the recipe that could have a say in
it, says which runs are asked at all. And when the run comes to the step, it compares the hash of the step's inputs (the
files, the weights, the text) with the one that was recorded, as it does when it goes on after a stop; where they differ
the step is done again, or, where files outside have changed since, the run stops and says so.

Files are hard links: nothing in a run folder is changed in place, only put in place of what was there.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingraft.recipe import Recipe
from lingraft.run import OF_THE_TOKENIZER, Run, fingerprint, publish_folder

__all__ = ["Piece", "pieces_of", "take_over"]

_NOT_IN_THE_RESULT = ("name", "track", "interpolate")


@dataclass(frozen=True)
class Piece:
    """A part of a run folder that can be taken over as a whole.

    Attributes:
        step: the step of a run after which it is there (see :func:`lingraft.pipeline.adapt.step_names`).
        markers: the steps whose markers vouch for it; those with ``*`` at the end, and those that not every run has,
            are taken if they are there.
        needs: the markers without which it is not there.
        paths: its files and folders; ``*`` stands for whatever is there.
        stages: whose measurements belong to it.
        about_tokenizer: whether, of these, only what describes the tokenizer does; else only the rest does.
        key: hash of all that the recipe says about it.
    """

    step: str
    markers: tuple[str, ...]
    needs: tuple[str, ...]
    paths: tuple[str, ...]
    stages: tuple[str, ...]
    about_tokenizer: bool
    key: str


def pieces_of(recipe: Recipe) -> tuple[Piece, ...]:
    """Return the parts of a run that another may take over, in the order in which they are made."""
    return (*_corpora(recipe), *_before_training(recipe), *_stages(recipe))


def _told(recipe: Recipe, *but: str) -> dict[str, Any]:
    """Return all that a recipe says, but for what never has a say in weights or numbers and for what is named."""
    return recipe.model_dump(mode="json", exclude={*_NOT_IN_THE_RESULT, *but})


def _piece(
    step: str,
    told: Any,
    *,
    needs: Sequence[str] = (),
    markers: Sequence[str] = (),
    paths: Sequence[str] = (),
    stages: Sequence[str] = (),
    about_tokenizer: bool = False,
) -> Piece:
    key = fingerprint([step, list(needs), told])
    return Piece(
        step, (*needs, *markers), tuple(needs), tuple(paths), tuple(stages), about_tokenizer=about_tokenizer, key=key
    )


def _corpora(recipe: Recipe) -> Iterator[Piece]:
    told = recipe.model_dump(mode="json")
    for name, corpus in recipe.corpora.items():
        says = [name, told["corpora"][name], told["languages"], recipe.seed if corpus.pairs else None]
        yield _piece("corpora", says, needs=[f"corpus-{name}"], paths=[f"corpora/{name}", f"pairs/{name}"])


def _before_training(recipe: Recipe) -> Iterator[Piece]:
    has_pairs = any(corpus.pairs for corpus in recipe.corpora.values())
    # What training says has no say in text, tokenizer or base; the seed has only where it chooses which side of a pair
    # stands first.
    text = _told(recipe, "stages", "embeddings", "measure", *([] if has_pairs else ["seed"]))
    text |= {"benchmarks": recipe.measure.benchmark_files, "probes": [p.model_dump() for p in recipe.measure.probes]}
    yield _piece("corpora", text, needs=["overlap"], paths=["corpora/overlap.json"])
    name = [recipe.base_model, recipe.revision]
    yield _piece("base", name, needs=["base"], markers=["base-conversion"], paths=["base"])
    yield _piece(
        "vocabulary",
        text,
        needs=["vocabulary"],
        markers=["second-tokenizer"],
        paths=["vocabulary"],
        stages=["base", "expanded"],
        about_tokenizer=True,
    )
    # Stores are named by what is in them.
    yield _piece("tokens", text, paths=["tokens"])
    # The bake-off trains on the first stage's text, and measures.
    chooses = [recipe.stages[0].model_dump(mode="json")] if recipe.embeddings.choose else []
    rows = _told(recipe, "stages", *([] if chooses else ["measure"]))
    markers = ["init-files", "bakeoff", "bakeoff-*"]
    yield _piece(
        "embeddings", [rows, chooses], needs=["embeddings"], markers=markers, paths=["embeddings"], stages=["bakeoff"]
    )
    base = [text, _told(recipe, "stages", "embeddings", "seed")]
    yield _piece("measure-base", base, needs=["measure-base"], paths=["base_*"], stages=["base"])
    expanded = [_told(recipe, "stages"), chooses]
    yield _piece(
        "measure-expanded", expanded, needs=["measure-expanded"], paths=["tasks/expanded-*"], stages=["expanded"]
    )


def _stages(recipe: Recipe) -> Iterator[Piece]:
    told = _told(recipe, "stages")
    for index, stage in enumerate(recipe.stages):
        number = index + 1
        following = recipe.stages[number].optimizer.start if number < len(recipe.stages) else None
        so_far = [each.model_dump(mode="json") for each in recipe.stages[:number]]
        name = f"{number}-{stage.name}"
        yield _piece(
            stage.name,
            [told, so_far, following],
            needs=[f"stage-{name}"],
            paths=[f"stages/{name}", f"tasks/{stage.name}-[0-9]*"],
            stages=[stage.name],
        )


def take_over(run: Run, recipe: Recipe, donors: Sequence[tuple[Recipe, Path]]) -> list[str]:
    """Link into a run what others have finished and it has not, and return the steps so taken over.

    Args:
        run: whose folder is filled; it is locked, and holds ``recipe``.
        recipe: its recipe.
        donors: recipe and folder of other runs, the ones to be asked first in front.
    """
    others = [(Run(folder), {piece.key: piece for piece in pieces_of(theirs)}) for theirs, folder in donors]
    taken = []
    for piece in pieces_of(recipe):
        donor = next((other for other, keys in others if piece.key in keys and _has(other, piece)), None)
        if donor is not None and not (piece.needs and _has(run, piece)):
            _take(run, donor, piece)
            taken.append(piece.needs[0] if piece.needs else piece.step)
    return taken


def _has(run: Run, piece: Piece) -> bool:
    if not piece.needs:
        return any(run.path(path).is_dir() for path in piece.paths)
    return all(run.finished(name) is not None for name in piece.needs)


def _take(run: Run, donor: Run, piece: Piece) -> None:
    """Link files, copy rows, and write the markers last: a piece that a kill cut short is taken again."""
    for path in piece.paths:
        if path == "tokens":
            _link_stores(donor.path(path), run.path(path))
        else:
            for found in sorted(donor.folder.glob(path)):
                _link(found, run.path(*found.relative_to(donor.folder).parts))
    if piece.stages:
        _copy_rows(run, donor, piece)
    for marker in _markers(donor, piece):
        to = run.path("steps", marker.name)
        to.parent.mkdir(parents=True, exist_ok=True)
        _link(marker, to)


def _markers(donor: Run, piece: Piece) -> Iterator[Path]:
    """Yield the markers that are there, those that the piece needs at the end."""
    for pattern in sorted(piece.markers, key=lambda name: name in piece.needs):
        yield from sorted(donor.path("steps").glob(f"{pattern}.json"))


def _link(source: Path, to: Path) -> None:
    if source.is_dir():
        publish_folder(to, lambda folder: _fill(source, folder))
    elif source.is_file():
        temporary = to.with_name(f".{to.name}.{os.getpid()}.tmp")
        to.parent.mkdir(parents=True, exist_ok=True)
        _link_file(source, temporary)
        temporary.replace(to)


def _fill(source: Path, folder: Path) -> None:
    for item in sorted(source.rglob("*")):
        if item.is_file() and not any(part.startswith(".") for part in item.relative_to(source).parts):
            to = folder / item.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            _link_file(item, to)


def _link_file(source: Path, to: Path) -> None:
    to.unlink(missing_ok=True)
    try:
        os.link(source, to)
    except OSError:
        # Another file system, or one without links.
        shutil.copy2(source, to)


def _link_stores(source: Path, to: Path) -> None:
    """Link every finished store that is not there; one that is being made has parts, or a hidden name."""
    for store in sorted(source.iterdir()):
        is_whole = store.is_dir() and not store.name.startswith(".") and not store.name.endswith(".parts")
        if is_whole and not (to / store.name).exists():
            _link(store, to / store.name)


def _copy_rows(run: Run, donor: Run, piece: Piece) -> None:
    def belongs(row: Any) -> bool:
        return row.stage in piece.stages and (row.name in OF_THE_TOKENIZER) == piece.about_tokenizer

    rows, records = donor.measurements(), donor.items()
    run.replace_rows(belongs, [row for row in rows if belongs(row)], [record for record in records if belongs(record)])
