"""Where a run stands just now: what is done, the step of its stage, its speed, and when its folder last changed.

Only the folder is asked. A run says nothing when it is killed, so all that can be told of one that is not finished is
for how long nothing has changed.
"""

import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lingraft.errors import LingraftError
from lingraft.quantities import format_duration
from lingraft.recipe import Recipe
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.lenient import mapping_of, number_of
from lingraft.report.reading import is_run_folder
from lingraft.run import Run

__all__ = ["Moment", "WatchedRun", "moments_block"]

_QUIET_SECONDS = 120
_TAIL_BYTES = 2**16
_STEPS_TIMED = 20
_PARTS = (
    "recipe.yaml",
    "environment.json",
    "measurements.jsonl",
    "items.jsonl",
    "samples.jsonl",
    "corpora/*/report.json",
    "corpora/overlap.json",
    "vocabulary/*.json",
    "embeddings/model/config.json",
    "steps/*.json",
)
"""What a page is made from."""
_TRACES = (*_PARTS, "corpora/*", "tokens/*", "stages/*", "stages/*/*", "stages/*/checkpoints/*", ".")
"""What changes while a run works."""


@dataclass(frozen=True)
class Moment:
    """Where a run stands.

    Attributes:
        name: the recipe's name, else the folder's.
        folder: where it lies.
        state: ``waiting`` (nothing is there yet), ``working``, ``quiet`` (not finished, and nothing has changed for two
            minutes) or ``finished``.
        steps: the steps of the run in words, in order, and whether each is done.
        stage: the stage in training; None before the first and after the last.
        step: optimiser steps done in it.
        num_steps: of so many.
        tokens: training tokens of the whole run so far.
        total_tokens: of so many.
        tokens_per_second: median speed of the last steps, measuring not counted.
        seconds_left: what the rest of the stage takes at that speed.
        quiet_for: seconds since anything in the folder changed; None where nothing is there.
    """

    name: str
    folder: Path
    state: str
    steps: tuple[tuple[str, bool], ...] = ()
    stage: str | None = None
    step: int = 0
    num_steps: int = 0
    tokens: int = 0
    total_tokens: int = 0
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    quiet_for: float | None = None

    @property
    def doing(self) -> str | None:
        """The first step that is not done; None where all are, or none is known."""
        return next((words for words, is_done in self.steps if not is_done), None)


class WatchedRun:
    """A run folder that may still grow, or may not be there yet; looking at it costs little."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._recipe: Recipe | None = None
        self._recipe_seen: tuple[tuple[str, int, int], ...] | None = None

    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """Return what changes when anything that the page is made from does: names, times and sizes of files."""
        return tuple(_stats(self.folder, _PARTS))

    def moment(self, now: float | None = None) -> Moment:
        """Return where the run stands.

        Args:
            now: seconds since 1970; the clock's by default.
        """
        recipe = self._read_recipe()
        name = recipe.name if recipe else self.folder.resolve().name
        changed = max((mtime for _, mtime, _ in _stats(self.folder, _TRACES)), default=None)
        if changed is None or not is_run_folder(self.folder):
            return Moment(name, self.folder, "waiting")
        quiet_for = max(0.0, (time.time() if now is None else now) - changed / 1e9)
        state = "quiet" if quiet_for > _QUIET_SECONDS else "working"
        if recipe is None:
            return Moment(name, self.folder, state, quiet_for=quiet_for)
        steps = _steps(recipe, self.folder)
        is_finished = steps[-1][1] and all(is_done for words, is_done in steps if words.startswith("stage "))
        moment = Moment(name, self.folder, "finished" if is_finished else state, steps, quiet_for=quiet_for)
        return _in_training(moment, recipe)

    def _read_recipe(self) -> Recipe | None:
        seen = tuple(_stats(self.folder, ("recipe.yaml",)))
        if seen != self._recipe_seen:
            self._recipe_seen, self._recipe = seen, None
            try:
                self._recipe = Run(self.folder).recipe if seen else None
            except (LingraftError, OSError):
                # What is wrong with it is told in the page itself.
                return None
        return self._recipe


def _stats(folder: Path, patterns: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)) if "*" in pattern else (folder / pattern,):
            try:
                found = path.stat()
            except OSError:
                continue  # gone since, or not there yet
            yield str(path.relative_to(folder)), found.st_mtime_ns, found.st_size


def _steps(recipe: Recipe, folder: Path) -> tuple[tuple[str, bool], ...]:
    """Return the steps of a run in words; one that has no marker was left out if a later one is done."""
    markers = {
        "corpora": [f"corpus-{name}" for name in recipe.corpora],
        "base model": ["base"],
        "vocabulary": ["vocabulary"],
        "first rows of new tokens": ["embeddings"],
        "base model measured": ["measure-base"],
        "expanded model measured": ["measure-expanded"],
        **{f"stage {s.name}": [f"stage-{i}-{s.name}"] for i, s in enumerate(recipe.stages, 1)},
        **({"interpolation": ["interpolate"]} if recipe.interpolate else {}),
        "export": ["export"],
        "samples": ["samples"],
    }
    done = [all((folder / "steps" / f"{name}.json").is_file() for name in names) for names in markers.values()]
    last = max((i for i, is_done in enumerate(done) if is_done), default=-1)
    return tuple((words, i <= last) for i, words in enumerate(markers))


def _in_training(moment: Moment, recipe: Recipe) -> Moment:
    """Add how far training has come, by the last rows of the measurements."""
    begins, before = {}, 0
    for stage in recipe.stages:
        begins[stage.name] = before
        before += stage.num_steps * stage.batch.tokens
    moment = replace(moment, total_tokens=before)
    speeds = [
        (str(row.get("stage")), int(tokens), float(value))
        for row in _last_rows(moment.folder / "measurements.jsonl")
        if row.get("name") == "tokens_per_second" and str(row.get("stage")) in begins
        if (tokens := number_of(row.get("tokens"))) is not None and (value := number_of(row.get("value")))
    ]
    if not speeds:
        return moment
    name, tokens, _ = speeds[-1]
    stage = next(one for one in recipe.stages if one.name == name)
    moment = replace(moment, tokens=tokens)
    if dict(moment.steps).get(f"stage {name}"):
        return moment
    step = min(stage.num_steps, max(0, (tokens - begins[name]) // stage.batch.tokens))
    speed = statistics.median(value for where, _, value in speeds[-_STEPS_TIMED:] if where == name)
    left = (stage.num_steps - step) * stage.batch.tokens / speed if speed > 0 else None
    return replace(moment, stage=name, step=step, num_steps=stage.num_steps, tokens_per_second=speed, seconds_left=left)


def _last_rows(path: Path) -> Iterator[dict]:
    """Yield the rows in the last part of a measurements file; torn and damaged lines are left out."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except OSError:
        return
    lines = tail.split(b"\n")[1 if size > _TAIL_BYTES else 0 : -1]
    for line in lines:
        try:
            yield dict(mapping_of(json.loads(line)))
        except (ValueError, RecursionError):
            continue


def moments_block(moments: Sequence[Moment]) -> Html:
    """Return where runs stand, one block each."""
    return join(_block(moment, len(moments) > 1) for moment in moments)


_BADGES = {"waiting": "Waiting", "working": "Running", "quiet": "No change", "finished": "Finished"}


def _block(moment: Moment, is_one_of_many: bool) -> Html:
    head = element(
        "p",
        element("span", _BADGES[moment.state], class_="badge"),
        " ",
        join(isolated(moment.name, "b"), ": ") if is_one_of_many else "",
        isolated(_sentence(moment), "span"),
    )
    return element("div", head, _bar(moment), _facts(moment), _course(moment), class_=f"moment {moment.state}")


def _sentence(moment: Moment) -> str:
    if moment.state == "waiting":
        return f"{moment.folder} is not a run folder yet; the page fills as soon as it is."
    if moment.state == "finished":
        return f"all {moment.total_tokens:,} training tokens are done, and the model is exported."
    if not moment.steps:
        told = "its recipe cannot be read, so how far it has come is not known"
    elif moment.stage:
        told = f"stage {moment.stage}, step {moment.step:,} of {moment.num_steps:,}"
    else:
        told = f"at work on: {moment.doing}" if moment.state == "working" else f"not done yet: {moment.doing}"
    if moment.state == "quiet":
        return (
            f"{told}. For {format_duration(moment.quiet_for or 0)} nothing has changed: it is at one long piece of "
            "work, or it was stopped. If it was, the same lingraft run goes on from the last checkpoint."
        )
    return f"{told}."


def _bar(moment: Moment) -> Html:
    if moment.state == "waiting" or not moment.total_tokens:
        return Html("")
    done = 100 if moment.state == "finished" else min(100, 100 * moment.tokens // moment.total_tokens)
    return element(
        "progress", f"{done} %", max="100", value=str(done), aria_label=f"Training of {moment.name}, percent"
    )


def _facts(moment: Moment) -> Html:
    if moment.state not in ("working", "quiet"):
        return Html("")
    facts = [f"{moment.tokens:,} of {moment.total_tokens:,} training tokens"] if moment.total_tokens else []
    if moment.tokens_per_second and moment.state == "working":
        facts.append(f"{moment.tokens_per_second:,.0f} tokens a second")
    if moment.seconds_left and moment.state == "working":
        facts.append(
            f"about {format_duration(moment.seconds_left)} of training left in this stage; measuring comes on top"
        )
    if moment.quiet_for is not None:
        facts.append(f"last change {format_duration(moment.quiet_for)} ago")
    return element("p", " · ".join(facts), class_="facts")


def _course(moment: Moment) -> Html:
    if not moment.steps:
        return Html("")
    items = [
        element("li", ("✓ " if is_done else "▸ " if words == moment.doing else ""), isolated(words),
                class_="done" if is_done else "doing" if words == moment.doing else "later")
        for words, is_done in moment.steps
    ]  # fmt: skip
    return element("ol", items, class_="course", aria_label="Steps of the run")
