"""Where every arm of an experiment stands beside the base model, and which options make it what it is."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lingraft.measure.comparison import Level, Quantity
from lingraft.measure.paired import Estimate
from lingraft.measure.verdict import Standing, Verdict, bits_of
from lingraft.quantities import format_duration
from lingraft.recipe import Recipe
from lingraft.report.blocks import definitions, table
from lingraft.report.contenders import Contender, Experiment
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.recommendation import difference_in_words, in_words
from lingraft.report.rows import first_at, language_name

__all__ = ["arms_table", "option_in_words", "settings_table"]

_WHY_NOT = {"source": "costs too much", "icl": "in-context learning lost"}
# More than these would hide what stands beside them; the table of options has all.
_OPTIONS_SHOWN = 4


def arms_table(verdict: Verdict, experiment: Experiment, failed: Sequence[str]) -> Html:
    """Return what the base model and every arm have of each quantity, and what became of the arm."""
    probes = dict.fromkeys(quantity for one in verdict.standings for quantity in one.falls)
    shown = [bits_of(verdict.target), bits_of(verdict.source), *probes]
    columns = [
        "arm",
        "verdict",
        *(f"{in_words(one)} ({'fewer' if one.is_bits else 'more'} are better)" for one in shown),
    ]
    rows = [["base model", "–", *_base_cells(verdict, shown)]]
    rows += [_row(verdict, experiment, standing, shown) for standing in verdict.standings]
    rows += [[name, "failed", *["–"] * len(shown)] for name in failed]
    chosen = [number for number, one in enumerate(verdict.standings, start=1) if one.arm == verdict.chosen]
    caption = "Base model and arms; under each number its change from the base model, with a 95 % interval"
    return table(caption, columns, rows, "arms cards", whole=True, chosen=chosen)


def _base_cells(verdict: Verdict, shown: Sequence[Quantity]) -> list[str]:
    """Return the base model's numbers; a dash where arms began with different ones, whose changes say more."""
    cells = []
    for quantity in shown:
        found = {f"{one.levels[quantity].before:.3f}" for one in verdict.standings if quantity in one.levels}
        cells.append(found.pop() if len(found) == 1 else "–")
    return cells


def _row(verdict: Verdict, experiment: Experiment, standing: Standing, shown: Sequence[Quantity]) -> list[str]:
    changes: dict[Quantity, Estimate | None] = {quantity: fall.negated for quantity, fall in standing.falls.items()}
    changes[bits_of(verdict.target)], changes[bits_of(verdict.source)] = standing.changes
    cells = [_cell(standing.levels.get(quantity), changes.get(quantity)) for quantity in shown]
    return [_name(experiment, standing), _became(verdict, standing), *cells]


def _cell(level: Level | None, change: Estimate | None) -> str:
    if level is None or change is None:
        return "–"
    # An interval stays whole where its line breaks.
    told = difference_in_words(change).replace(", ", ",\u00a0")
    return element("span", f"{level.after:.3f}", element("small", told))


def _name(experiment: Experiment, standing: Standing) -> Html:
    """Return an arm's name, and beneath it the options that are its own, and its seeds."""
    run = experiment.runs[standing.arm][0]
    own = experiment.own_settings(standing.arm)
    told = [f"{option_in_words(path, run.recipe, short=True)} {value}" for path, value in own.items() if value != "–"]
    seeds = f"seed{'s' if len(standing.seeds) > 1 else ''} {', '.join(map(str, standing.seeds))}"
    more = [f"and {len(told) - _OPTIONS_SHOWN} more"] if len(told) > _OPTIONS_SHOWN else []
    lines = [*told[:_OPTIONS_SHOWN], *more, seeds]
    small = (element("small", isolated(line)) for line in lines)
    return join(element("span", isolated(standing.arm), class_="name"), *small)


def _became(verdict: Verdict, standing: Standing) -> str:
    if standing.arm == verdict.chosen:
        return "recommended"
    if standing.excluded:
        return _WHY_NOT.get(standing.excluded, "not judged")
    if standing.arm in (verdict.best, *verdict.tied):
        return "tied with the recommended"
    if beaten := verdict.dominated_by(standing.arm):
        return f"{beaten} gains more and costs less"
    return "gains less, told apart" if any(one.second == standing.arm and one.is_told for one in verdict.gains) else ""


def settings_table(experiment: Experiment) -> Html:
    """Return the options in which recipes differ, in words and by their path, and what to know of the runs."""
    names = list(next(iter(experiment.settings.values()), {}))
    recipe = next(iter(experiment.runs.values()))[0].recipe
    rows = [(_option(path, recipe), *(values[name] for name in names)) for path, values in experiment.settings.items()]
    caption = "Options of the recipe in which the arms differ; a dash: not set"
    shown = table(caption, ("option", *names), rows, whole=True) if rows else ""
    notes = experiment.notes
    told = element("ul", (element("li", note) for note in notes), class_="notes") if notes else ""
    return join(definitions(_shared(experiment)), shown, _cost_table(experiment), told)


def _cost_table(experiment: Experiment) -> Html:
    """Return what every arm's training took, where it is recorded, as the mean of its runs."""
    # The averaged weights of a run are an arm too, and cost what its raw ones do.
    trained: dict[tuple[Path, ...], tuple[str, tuple[Contender, ...]]] = {}
    for arm, runs in experiment.runs.items():
        trained.setdefault(tuple(run.folder for run in runs), (arm, runs))
    rows = [
        (
            isolated(arm),
            _mean([_recorded(run, "seconds/stage", sum) for run in runs], format_duration),
            _mean([_recorded(run, "peak_memory_bytes", max) for run in runs], _gibibytes),
        )
        for arm, runs in trained.values()
    ]
    if all(cells == ["–", "–"] for _, *cells in rows):
        return Html("")
    caption = "What the training of an arm took, measuring left out, on whatever machine it ran; the mean of its runs"
    return table(caption, ("arm", "time", "peak memory"), rows, whole=True)


def _recorded(run: Contender, name: str, sum_up: Callable[[Iterable[float]], float]) -> float:
    """Return a number of all stages of a run, 0 where none is recorded."""
    return sum_up([0.0, *(row.value for row in run.record.rows if row.name == name)])


def _mean(values: Sequence[float], told: Callable[[float], str]) -> str:
    return told(sum(values) / len(values)) if all(values) else "–"


def _gibibytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def _shared(experiment: Experiment) -> dict[str, str]:
    """Return what to know of the training of all arms; what is not the same is left to the table of options."""
    runs = [run for runs in experiment.runs.values() for run in runs]
    facts = [_facts(experiment, run) for run in runs]
    return {name: value for name, value in facts[0].items() if all(other.get(name) == value for other in facts)}


def _facts(experiment: Experiment, run: Contender) -> dict[str, str]:
    recipe, found = run.recipe, {"base model": run.recipe.base_model.rstrip("/").rsplit("/", 1)[-1]}
    for stage in recipe.stages:
        rate = f", rate {stage.lr.peak:g}" if stage.lr.peak is not None else ""
        trains = ", ".join(word.replace("_", " ") for word in stage.trains)
        found[f"stage {stage.name}"] = f"{stage.tokens:,} tokens{rate}, trains {trains}"
    for language in (experiment.target, experiment.source):
        row = first_at(run.record.rows, "base", "bits_per_byte", language)
        if row is not None and row.count:
            found[f"held-out text, {language_name(language)}"] = f"{row.count:,} documents"
    return found


def _option(path: str, recipe: Recipe) -> Html:
    words = option_in_words(path, recipe)
    return join(isolated(words), element("small", isolated(path, "code")) if words != path else "")


def option_in_words(path: str, recipe: Recipe, *, short: bool = False) -> str:
    """Return ``stages.1.mix.en`` as ``share of en in stage joint``, any other option of a stage with the stage.

    Args:
        path: of an option.
        recipe: one that has it, or the stage that it would stand in.
        short: leave the stage out.
    """
    first, *rest = path.split(".")
    if first != "stages" or len(rest) < 2 or not rest[0].isdigit() or int(rest[0]) >= len(recipe.stages):
        return path
    number, option = int(rest[0]), ".".join(rest[1:])
    if rest[1] == "mix" and len(rest) == 3:
        option = f"share of {rest[2]}"
    return option if short or len(recipe.stages) == 1 else f"{option} in stage {recipe.stages[number].name}"
