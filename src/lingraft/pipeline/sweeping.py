"""Runs the arms of a sweep, one after another or one per process, and makes what they share once.

    sweeps/name/
      arms/NAME/           a run folder for each arm, as `lingraft run` would have made it
      recipes/NAME.yaml    its recipe
      states/NAME.json     how it went: done, or failed and with what error
      comparison.html      all finished arms on one page, with a recommendation
      comparison.json      its numbers

An arm takes over from the others every step that would come out the same (see :mod:`lingraft.pipeline.sharing`); an arm
that fails is written down and the others go on; the same command goes on where the sweep was stopped.
"""

import json
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from lingraft.errors import InterruptedRunError, LingraftError, RecipeError, RunFolderError
from lingraft.pipeline.adapt import adapt, step_names
from lingraft.pipeline.arms import Sweep, SweepArm
from lingraft.pipeline.plan import Plan, make_plan
from lingraft.pipeline.progress import Progress, Silent
from lingraft.pipeline.sharing import pieces_of, take_over
from lingraft.recipe import Recipe
from lingraft.recipe_file import dump_recipe
from lingraft.report.comparison import compare_runs, write_comparison, write_comparison_json
from lingraft.run import Run, fingerprint, read_own, write_file

__all__ = ["ArmState", "SweepPlan", "arm_folder", "plan_sweep", "read_states", "run_sweep"]

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ArmState:
    """How an arm went.

    Attributes:
        name: the arm.
        status: ``waiting``, ``done`` or ``failed``.
        error: what it failed with.
        taken: the steps that it took over from other arms.
        recipe: hash of the recipe that is done.
    """

    name: str
    status: str = "waiting"
    error: str = ""
    taken: tuple[str, ...] = ()
    recipe: str = ""


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep will do.

    Attributes:
        sweep: its arms.
        plans: the plan of each arm.
        own_stages: for each arm, the names of the stages that no arm before it has trained.
        seconds: of training, of each arm's own stages, guessed from this machine.
        bytes: on disk that each arm adds.
    """

    sweep: Sweep
    plans: tuple[Plan, ...]
    own_stages: tuple[tuple[str, ...], ...]
    seconds: tuple[float, ...]
    bytes: tuple[int, ...] = field(default=())

    @property
    def tokens(self) -> tuple[int, ...]:
        """Training tokens of each arm's own stages."""
        return tuple(
            sum(outline.tokens for outline in plan.stages if outline.stage.name in own)
            for plan, own in zip(self.plans, self.own_stages, strict=True)
        )


def plan_sweep(sweep: Sweep) -> SweepPlan:
    """Return what a sweep will do; every arm is refused that its run would refuse.

    Raises:
        LingraftError: an arm's recipe cannot be run; the message names the arm.
    """
    plans, own, seconds, sizes = [], [], [], []
    trained: set[str] = set()
    for arm in sweep.arms:
        plan = _planned(arm)
        keys = {piece.step: piece.key for piece in pieces_of(arm.recipe)}
        names = tuple(stage.name for stage in arm.recipe.stages if keys[stage.name] not in trained)
        has_embeddings = keys["embeddings"] in trained
        trained |= set(keys.values())
        plans.append(plan)
        own.append(names)
        seconds.append(sum(outline.seconds for outline in plan.stages if outline.stage.name in names))
        sizes.append(_size(plan, len(names) + (not has_embeddings)))
    return SweepPlan(sweep, tuple(plans), tuple(own), tuple(seconds), tuple(sizes))


def _planned(arm: SweepArm) -> Plan:
    try:
        return make_plan(arm.recipe)
    except LingraftError as error:
        # A new error of the same kind: its arguments are the message alone.
        raise type(error)(f"arm {arm.name!r}: {error}") from error


def _size(plan: Plan, models: int) -> int:
    """Return bytes on disk: fp32 weights of so many models, of the exported one, and of averages beside them."""
    tables = plan.base.hidden_size * (1 if plan.base.is_tied else 2)
    parameters = plan.base.num_parameters + (plan.num_rows - plan.base.num_rows) * tables
    averaged = sum(stage.ema is not None and stage.ema.is_beside for stage in plan.recipe.stages)
    return 4 * parameters * (models + 1 + averaged)


def arm_folder(folder: Path, arm: SweepArm | str) -> Path:
    """Return the run folder of an arm."""
    return folder / "arms" / (arm if isinstance(arm, str) else arm.name)


def read_states(folder: Path, sweep: Sweep) -> tuple[ArmState, ...]:
    """Return how each arm has gone so far; one whose recipe is another now is waiting."""
    return tuple(_state(folder, arm) for arm in sweep.arms)


def _state(folder: Path, arm: SweepArm) -> ArmState:
    path = folder / "states" / f"{arm.name}.json"
    if not (path.is_file() and arm_folder(folder, arm).is_dir()):
        return ArmState(arm.name)
    found = read_own(path)
    state = ArmState(arm.name, found["status"], found["error"], tuple(found["taken"]), found["recipe"])
    return state if state.recipe == _recipe_key(arm.recipe) else ArmState(arm.name)


def _recipe_key(recipe: Recipe) -> str:
    return fingerprint(recipe.model_dump(mode="json", exclude={"track"}))


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    only: int | None = None,
    limits: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> tuple[ArmState, ...]:
    """Run the arms of a sweep that are not done, and return how each has gone.

    Args:
        sweep: the arms.
        folder: of the sweep.
        only: run this arm alone, as one task of a cluster's array does; what it shares with others it makes behind a
            lock, so that it is made once, whoever comes first.
        limits: what an arm may lose to be recommended, as :func:`lingraft.report.comparison.compare_runs` has it.
        progress: who is told.

    Raises:
        InterruptedRunError: the user stopped it; the same call goes on.
        RunFolderError: the folder holds another sweep.
        LingraftError: an arm's recipe cannot be run: nothing has been run then.
    """
    folder, teller = Path(folder), progress or Silent()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError(
            "a sweep is run by one process; for an arm by several, start torchrun with: lingraft run "
            f"{folder}/recipes/ARM.yaml --to {folder}/arms/ARM"
        )
    chosen = sweep.arms if only is None else (sweep.arm(only),)
    waiting = [arm for arm in chosen if _state(folder, arm).status != "done"]
    for arm in waiting:
        _planned(arm)
    _adopt(sweep, folder)
    for arm in waiting:
        teller.phase(f"arm {sweep.arms.index(arm) + 1} of {len(sweep.arms)}: {arm.name}")
        _write_state(folder, arm, _ended(sweep, folder, arm, teller, is_alone=only is not None))
        _compare(sweep, folder, limits, teller)
    if not waiting:
        _compare(sweep, folder, limits, teller)
    return read_states(folder, sweep)


def _compare(sweep: Sweep, folder: Path, limits: Mapping[str, float] | None, progress: Progress) -> None:
    """Write the comparison of the arms that are done, as soon as there are two."""
    states = read_states(folder, sweep)
    done = [arm_folder(folder, state.name) for state in states if state.status == "done"]
    failed = {state.name: state.error for state in states if state.status == "failed"}
    if len(done) < 2:
        return
    try:
        found = compare_runs(done, limits=limits, failed=failed)
        write_comparison_json(found, folder / "comparison.json")
        write_comparison(found, folder / "comparison.html", title=sweep.name)
    except LingraftError as error:
        progress.note(f"the arms cannot be compared: {error}")


def _adopt(sweep: Sweep, folder: Path) -> None:
    """Write the arms' recipes, or check that the folder is this sweep's; arms may come in addition.

    Raises:
        RunFolderError: it holds arms that this sweep has not, or has otherwise.
    """
    recipes = folder / "recipes"
    if folder.exists() and not recipes.is_dir() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} is not empty and is not a sweep's folder (it has no recipes/)")
    stated = {arm.name for arm in sweep.arms}
    if others := sorted(path.stem for path in recipes.glob("*.yaml") if path.stem not in stated):
        raise RunFolderError(
            f"{folder} holds a sweep of other arms ({', '.join(others[:4])}); choose another folder (--to)"
        )
    for arm in sweep.arms:
        path = recipes / f"{arm.name}.yaml"
        if not path.exists():
            write_file(path, dump_recipe(arm.recipe))


def _ended(sweep: Sweep, folder: Path, arm: SweepArm, progress: Progress, *, is_alone: bool) -> ArmState:
    """Run an arm to its end and return how it went; only a stop by the user is raised."""
    taken: list[str] = []
    try:
        with _lock(folder, progress):
            taken += _taken_over(sweep, folder, arm, progress)
            if is_alone and (step := _last_shared_step(sweep, arm)):
                adapt(arm.recipe, arm_folder(folder, arm), until=step, progress=progress)
        adapt(arm.recipe, arm_folder(folder, arm), progress=progress)
    except InterruptedRunError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other arms go on, and it is written down whole
        progress.note(f"arm {arm.name} failed: {error}")
        told = str(error) if isinstance(error, LingraftError) else "".join(traceback.format_exception(error))
        return ArmState(arm.name, "failed", told, tuple(taken), _recipe_key(arm.recipe))
    return ArmState(arm.name, "done", "", tuple(taken), _recipe_key(arm.recipe))


@contextmanager
def _lock(folder: Path, progress: Progress) -> Iterator[None]:
    lock = FileLock(folder / ".shared.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.note("another arm makes what all share; waiting for it")
        lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _taken_over(sweep: Sweep, folder: Path, arm: SweepArm, progress: Progress) -> list[str]:
    donors = [
        (other.recipe, arm_folder(folder, other))
        for other in sweep.arms
        if other is not arm and arm_folder(folder, other).is_dir()
    ]
    with Run(arm_folder(folder, arm)) as run:
        run.adopt(arm.recipe)
        taken = take_over(run, arm.recipe, donors)
    if taken:
        progress.note(f"taken over from other arms: {', '.join(taken)}")
    return taken


def _last_shared_step(sweep: Sweep, arm: SweepArm) -> str | None:
    """Return the last step of an arm that another arm has in just the same way."""
    theirs: set[str] = set()
    for other in sweep.arms:
        if other is not arm:
            theirs |= {piece.key for piece in pieces_of(other.recipe)}
    shared = [piece.step for piece in pieces_of(arm.recipe) if piece.key in theirs]
    known: Sequence[str] = step_names(arm.recipe)
    return max(shared, key=known.index, default=None)


def _write_state(folder: Path, arm: SweepArm, state: ArmState) -> None:
    told = {"status": state.status, "error": state.error, "taken": state.taken, "recipe": state.recipe}
    write_file(folder / "states" / f"{arm.name}.json", json.dumps(told, ensure_ascii=False, indent=1))
