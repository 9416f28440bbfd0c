"""One page on the arms of an experiment: which to ship, what each gains and costs, and what the data cannot tell."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from lingraft.errors import LingraftError
from lingraft.measure.comparison import Arm, Match, Refused, matches, quantities_of
from lingraft.measure.verdict import Standing, Verdict, judge
from lingraft.report.arms import arms_table, settings_table
from lingraft.report.blocks import Figures, Section, section, table
from lingraft.report.contenders import Experiment, read_experiment
from lingraft.report.escaping import Html, element, isolated, join
from lingraft.report.frame import Content, compose_page
from lingraft.report.pareto import pareto_chart
from lingraft.report.recommendation import (
    Recommendation,
    change_in_words,
    detectable_in_words,
    difference_in_words,
    in_words,
    p_in_words,
    recommend,
    signed,
    told_in_words,
)
from lingraft.report.rows import format_share, language_name
from lingraft.run import write_file

__all__ = [
    "Comparison",
    "compare_runs",
    "comparison_json",
    "comparison_of",
    "comparison_sections",
    "rules_in_words",
    "write_comparison",
    "write_comparison_json",
]

_TITLES = {
    "recommendation": "Which to ship",
    "arms": "The arms",
    "trade": "Gain against loss",
    "differences": "Differences",
    "seeds": "Seeds",
    "not-compared": "Not compared",
    "settings": "What the arms share, and what sets them apart",
    "reading": "How to read this",
}
_KINDS = {
    "sure": ("use", "Recommended"),
    "unsure": ("unsure", "Recommended, with doubts"),
    "none": ("do-not-use", "None"),
}


@dataclass(frozen=True)
class Comparison:
    """Arms, what they differ by, and the verdict.

    Attributes:
        experiment: the arms.
        reference: the arm that the others are compared with.
        matches: every other arm minus the reference, in every quantity, and every third minus the recommended one; p is
            adjusted over those that the choice rests on, and over all others.
        refused: what could not be compared, and why.
        verdict: which to ship.
        recommendation: the same in words.
        failed: arm → the error that it ended with.
    """

    experiment: Experiment
    reference: str
    matches: tuple[Match, ...]
    refused: tuple[Refused, ...]
    verdict: Verdict
    recommendation: Recommendation
    failed: Mapping[str, str]


def compare_runs(
    folders: Sequence[Path], *, limits: Mapping[str, float] | None = None, failed: Mapping[str, str] | None = None
) -> Comparison:
    """Return how finished runs compare; the first arm is the one that the others are held against.

    Args:
        folders: run folders; those that differ in their seed alone are one arm.
        limits: fields of :class:`~lingraft.limits.Limits` that count in place of those that the recipes state.
        failed: arms that have no finished run, and the error that each ended with.

    Raises:
        RunFolderError: fewer than two of them are finished runs.
        MeasurementError: they are not of the same two languages.
    """
    experiment = read_experiment(folders)
    reference = experiment.arms[0].name
    may = replace(experiment.limits, **(limits or {}))
    verdict = judge(experiment.arms, target=experiment.target, source=experiment.source, limits=may)
    references = list(dict.fromkeys(name for name in (reference, verdict.chosen) if name))
    decisive = (*verdict.gains, *verdict.losses)
    found, refused = matches(experiment.arms, references, quantities_of(experiment.arms), decisive=decisive)
    words = recommend(verdict, experiment.arms)
    return Comparison(experiment, reference, found, refused, verdict, words, dict(failed or {}))


def write_comparison(comparison: Comparison, to: Path, *, title: str | None = None) -> Path:
    """Write the page, self-contained as a run's report is, and return its path; without a title it counts the arms."""
    figures = Figures()
    parts = comparison_sections(comparison, figures)
    base = next(iter(comparison.experiment.runs.values()))[0].recipe.base_model.rstrip("/").rsplit("/", 1)[-1]
    count = len(comparison.experiment.arms) + len(comparison.failed)
    title = title or f"{count} arms compared"
    way = (
        f": {count} ways of teaching it {language_name(comparison.experiment.target)} without losing "
        f"{language_name(comparison.experiment.source)}"
    )
    header = join(element("h1", isolated(title)), element("p", isolated(base, "b"), way, class_="subtitle"))
    contents = element("ul", (element("li", element("a", one.title, href=f"#{one.identifier}")) for one in parts))
    sections = join(section(*part) for part in parts)
    write_file(to, compose_page(Content(f"lingraft: {title}", header, contents, sections, figures)))
    return to


def comparison_sections(comparison: Comparison, figures: Figures) -> list[Section]:
    """Return all sections of the page; the page on several runs takes them in too."""
    made = {
        "recommendation": _recommendation(comparison.recommendation),
        "arms": arms_table(comparison.verdict, comparison.experiment, list(comparison.failed)),
        "trade": _trade(comparison.verdict, figures),
        "differences": _differences(comparison),
        "seeds": _seeds(comparison),
        "not-compared": _not_compared(comparison),
        "settings": settings_table(comparison.experiment),
        "reading": _reading(comparison),
    }
    return [Section(name, _TITLES[name], content) for name, content in made.items() if content]


def comparison_of(folders: Sequence[Path], figures: Figures) -> list[Section]:
    """Return the sections on runs held against each other; where they cannot be, one that says why.

    Unlike :func:`compare_runs`, this raises nothing: a page on runs that are still going, or damaged, must come out.
    """
    try:
        return comparison_sections(compare_runs(folders), figures)
    except LingraftError as error:
        # A page may be shown to anybody: not where the runs lie on this machine.
        why = reduce(lambda told, folder: told.replace(f"{folder}/", ""), folders, str(error))
    except (OSError, ValueError, TypeError, KeyError) as error:
        why = f"what they recorded of single items is damaged ({type(error).__name__})"
    first, *more = why.splitlines()
    told = element("p", "These runs are not compared item by item, so no recommendation is given: ", first, ".")
    listed = element("ul", (element("li", line.strip()) for line in more), class_="notes") if more else ""
    return [Section("recommendation", _TITLES["recommendation"], join(told, listed))]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return the numbers behind the page, as plain values."""
    verdict = comparison.verdict
    return {
        "recommendation": asdict(comparison.recommendation),
        "limits": asdict(verdict.limits),
        "checkpoint_rules": comparison.experiment.rules,
        "chosen": verdict.chosen,
        "tied": list(verdict.tied),
        "arms": [_standing_json(standing) for standing in verdict.standings],
        "reference": comparison.reference,
        "differences": [
            asdict(one) | {"detectable": one.detectable, "told": one.is_told} for one in comparison.matches
        ],
        "not_compared": [asdict(one) for one in comparison.refused],
        "left_out": dict(comparison.experiment.left_out),
        "failed": dict(comparison.failed),
    }


def _standing_json(standing: Standing) -> dict[str, Any]:
    told = asdict(replace(standing, falls={}, levels={}))
    told["falls"] = {quantity.label: asdict(fall) for quantity, fall in standing.falls.items()}
    told["levels"] = {quantity.label: asdict(level) for quantity, level in standing.levels.items()}
    return told


def _recommendation(words: Recommendation) -> Html:
    kind, badge = _KINDS[words.kind]
    head = element("div", element("span", badge, class_="badge"), element("p", words.headline, class_="headline"),
                   element("p", words.caveat, class_="caveat"), class_=f"verdict {kind}")  # fmt: skip
    return join(head, element("ul", (element("li", reason) for reason in words.reasons), class_="notes"))


def _trade(verdict: Verdict, figures: Figures) -> Html:
    chart = pareto_chart(verdict)
    return figures.grid([chart]) if chart else Html("")


def _differences(comparison: Comparison) -> Html:
    references = dict.fromkeys(one.first for one in comparison.matches)
    told = element(
        "p",
        f"p by Holm's rule is corrected for looking at many differences at once: {_families(comparison)}. Every number "
        "is rounded by itself, so that differences may be off by one in the last place.",
    )
    return (
        join(told, (_difference_table(comparison, reference) for reference in references)) if references else Html("")
    )


def _families(comparison: Comparison) -> str:
    """Return over how many differences p is corrected, in words."""
    verdict, others = comparison.verdict, sum(not one.is_decisive for one in comparison.matches)
    alone = f" (and one of {language_name(verdict.source)}, by itself)" if verdict.losses else ""
    gains = len(verdict.gains)
    return f"for the {gains} by which the arm is chosen{alone}, which are marked, and for the {others} others"


def _difference_table(comparison: Comparison, reference: str) -> Html:
    columns = ("what", "arm", f"minus {reference}", "told apart", "p", "p by Holm", "would show from", "items")
    rows = [
        (
            in_words(one.quantity),
            element("span", isolated(one.second), class_="name"),
            difference_in_words(one.difference),
            told_in_words(one),
            p_in_words(one.p),
            join(p_in_words(one.adjusted), element("small", "decides the choice") if one.is_decisive else ""),
            detectable_in_words(one),
            f"{one.difference.items:,}",
        )
        for one in comparison.matches
        if one.first == reference
    ]
    which = "recommended" if reference == comparison.verdict.chosen else "the first given"
    return table(f"Against {reference} ({which}), on the same items", columns, rows, "cards", whole=True)


def _seeds(comparison: Comparison) -> Html:
    if comparison.experiment.has_one_seed:
        return Html("")
    target, source = language_name(comparison.verdict.target), language_name(comparison.verdict.source)
    rows = [row for arm in comparison.experiment.arms if len(arm.runs) > 1 for row in _seed_rows(comparison, arm)]
    caption = "Each training run by itself: change of bits per byte from the base model; fewer are better"
    return table(caption, ("arm", "seed", target, source), rows, whole=True)


def _seed_rows(comparison: Comparison, arm: Arm) -> Iterator[tuple[str, ...]]:
    verdict = comparison.verdict
    for run in arm.runs:
        alone = judge([replace(arm, runs=(run,))], target=verdict.target, source=verdict.source).standings[0]
        yield arm.name, str(run.seed), *(change_in_words(change) for change in alone.changes)
    whole = verdict.standing(arm.name)
    spreads = (f"{one.seed_sd:.4f}" if one and one.seed_sd is not None else "–" for one in (whole.gain, whole.loss))
    yield (arm.name, "standard deviation over seeds", *spreads)


def _not_compared(comparison: Comparison) -> Html:
    items = [(name, f"failed: {error.strip().splitlines()[0]}") for name, error in comparison.failed.items()]
    items += [(name, f"left out: {reason}") for name, reason in comparison.experiment.left_out.items()]
    items += [(f"{in_words(one.quantity)}, {one.second} against {one.first}", one.reason) for one in comparison.refused]
    items += [("perplexity per token", reason) for reason in _other_tokenizers(comparison.experiment)]
    if not items:
        return Html("")
    return element("ul", (element("li", isolated(name, "b"), f": {reason}") for name, reason in items), class_="notes")


def _other_tokenizers(experiment: Experiment) -> Iterator[str]:
    found = {run.tokenizer for runs in experiment.runs.values() for run in runs}
    if len(found) > 1:
        yield (
            f"the runs have {len(found)} different tokenizers, so a loss or perplexity per token cannot be compared "
            "between them; bits per byte can"
        )


def _reading(comparison: Comparison) -> Html:
    limits, allowed = comparison.verdict.limits, comparison.verdict.allowed
    target, source = language_name(comparison.verdict.target), language_name(comparison.verdict.source)
    dearer, lower = format_share(limits.source_rise), format_share(limits.probe_drop)
    here = f" ({signed(allowed)} bits per byte)" if allowed is not None else ""
    told = {
        "Arms": f"""An arm is one recipe, trained by itself. Each taught the same base model {target}; they differ in
            nothing but the options under “{_TITLES["settings"]}”. An arm of several runs had several seeds. Where a run
            keeps averaged weights beside the raw ones, these are an arm of their own, called so.""",
        "Bits per byte": f"""How many bits the model needs for a byte of text that it was not trained on: fewer are
            better, and models with different tokenizers can be compared. A change of −0.1 is a gain of 0.1. Two
            languages cannot be held against each other. Where {source} gets cheaper too, even without any {source} text
            in the mix, the model has learned the form of the held-out text, as running text after a tuning for
            dialogue; whether abilities were lost is for probes and tasks to say.""",
        "In-context learning": """Whether the model still learns from examples in its prompt, as the base did: the
            share of right answers, more are better. Probes ask for it without any language: to repeat random tokens
            that it has just seen (random copy), to find the rule by which one of several numbers is chosen (Copain; who
            picks any of them is right in a third). It can be lost before bits per byte show anything.""",
        "The rule": f"""Fixed before anything was measured: of the arms with which {source} text costs at most {dearer}
            more than with the base model{here}, and whose score on no probe of in-context learning has clearly fallen
            by more than {lower} of the base's, the one that gains most; where the data do not tell gains apart, the one
            of them that costs least. What is compared is each run's end, never its best moment.
            {rules_in_words(comparison.experiment)}""",
        "Told apart": """Both arms answered the same items. Right and wrong answers: McNemar's exact test; else 10,000
            resamples of the differences, documents or passages drawn as wholes, each task by itself. With many
            comparisons some look good by chance: p by Holm's rule is corrected for that, for the differences by which
            the arm is chosen and for all others, and below 0.05 counts as told apart. Resampling knows no p under
            0.0002.""",
        "Would show from": """The smallest true difference that these items show in 8 of 10 tries, in bits per byte or
            as a share of right answers, looked at by itself: together with the others it takes a larger one. A smaller
            one may be there unseen. No number: not one item differs.""",
    }
    return join(element("p", element("strong", f"{name}. "), " ".join(text.split())) for name, text in told.items())


def rules_in_words(experiment: Experiment) -> str:
    """Return which weights are compared, as the recipes state it, and whether they state the same."""
    found = dict.fromkeys(experiment.rules.values())
    if len(found) == 1:
        return f"Which weights count was stated beforehand, in all recipes alike: {_WEIGHTS[next(iter(found))]}."
    listed = "; ".join(f"{name}: {_WEIGHTS[rule]}" for name, rule in experiment.rules.items())
    return f"Which weights count is not stated alike in all recipes, so the arms were not chosen by one rule: {listed}."


_WEIGHTS = {
    "last": "the raw ones",
    "averaged": "the averaged ones",
    "both": "the raw ones and, where averaged ones are kept, those as an arm of their own",
}


def write_comparison_json(comparison: Comparison, to: Path) -> Path:
    """Write the numbers behind the page as a JSON file, and return its path."""
    write_file(to, json.dumps(comparison_json(comparison), ensure_ascii=False, indent=1) + "\n")
    return to
