"""Sweeps and comparisons on a terminal, as tables."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from lingraft.quantities import format_duration, format_tokens
from lingraft.terminal import plain

if TYPE_CHECKING:
    from lingraft.measure.comparison import Match
    from lingraft.measure.verdict import Verdict
    from lingraft.pipeline.sweeping import ArmState, SweepPlan
    from lingraft.report.comparison import Comparison

__all__ = ["show_comparison", "show_recommendation", "show_states", "show_sweep_plan"]


def show_sweep_plan(plan: "SweepPlan", folder: Path, console: Console) -> None:
    """Print a sweep's arms with what each adds: tokens, time, disk; then what it comes to, and every arm's warnings."""
    table = Table(title=f"sweep {plain(plan.sweep.name)}: {len(plan.sweep.arms)} arms", title_justify="left")
    table.add_column("arm", overflow="fold")
    table.add_column("its values", overflow="fold")
    for header in ("trains", "tokens", "training here", "disk"):
        table.add_column(header, justify="right")
    for arm, own, tokens, seconds, size in zip(
        plan.sweep.arms, plan.own_stages, plan.tokens, plan.seconds, plan.bytes, strict=True
    ):
        stages = ", ".join(own) or "nothing of its own"
        cells = (format_tokens(tokens), f"about {format_duration(seconds)}", f"{size / 2**30:.1f} GiB")
        table.add_row(plain(arm.name), plain(arm.label), plain(stages), *cells)
    console.print(table)
    need, free = sum(plan.bytes), _free(folder)
    console.print(
        f"in all {format_tokens(sum(plan.tokens))} training tokens, about {format_duration(sum(plan.seconds))} of "
        f"training here (measuring comes in addition), {need / 2**30:.1f} GiB on disk ({free / 2**30:.1f} are free)",
        highlight=False,
    )
    if need > free:
        console.print("[yellow]warning:[/yellow] the disk has less room than all arms need", highlight=False)
    told: dict[str, list[str]] = {}
    for arm, one in zip(plan.sweep.arms, plan.plans, strict=True):
        for warning in one.warnings:
            told.setdefault(warning, []).append(arm.name)
    for warning, names in told.items():
        whose = "all arms" if len(names) == len(plan.plans) else ", ".join(names)
        console.print(f"[yellow]warning:[/yellow] {plain(whose)}: {plain(warning)}", highlight=False)


def _free(folder: Path) -> int:
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    return shutil.disk_usage(existing).free


def show_states(states: Sequence["ArmState"], console: Console) -> None:
    """Print how each arm went; of one that failed, the first line of its error."""
    table = Table(title="arms", title_justify="left")
    for header in ("arm", "how it went", "taken over from others"):
        table.add_column(header, overflow="fold")
    for state in states:
        said = state.error.strip().split("\n")
        # The last line of what is no message of ours says what it was; the first of ours does.
        line = said[-1] if said[0].startswith("Traceback") else said[0]
        went = f"failed: {plain(line)}" if state.status == "failed" else state.status
        table.add_row(plain(state.name), went, plain(", ".join(state.taken) or "–"))
    console.print(table)


def show_comparison(comparison: "Comparison", console: Console) -> None:
    """Print every arm's change from the base, how arms differ, what is refused, and the verdict."""
    from lingraft.report.comparison import rules_in_words

    console.print(_standings(comparison.verdict))
    for reference in dict.fromkeys(match.first for match in comparison.matches):
        console.print(_differences(comparison.matches, reference))
    for refused in comparison.refused:
        names = f"{refused.quantity.label}, {refused.second} against {refused.first}"
        console.print(f"not compared: {plain(names)}: {plain(refused.reason)}", highlight=False)
    for name, reason in comparison.experiment.left_out.items():
        console.print(f"left out: {plain(name)}: {plain(reason)}", highlight=False)
    console.print(plain(f"Compared is each run's end. {rules_in_words(comparison.experiment)}"), highlight=False)
    for note in comparison.experiment.notes:
        console.print(plain(note), highlight=False)
    told = comparison.recommendation
    _say(told.headline, told.caveat, told.reasons, console)


def _standings(verdict: "Verdict") -> Table:
    from lingraft.report.recommendation import change_in_words

    table = Table(title="change from the base model in bits per byte (fewer are better)", title_justify="left")
    for header in ("arm", verdict.target, verdict.source, "runs"):
        table.add_column(header, overflow="fold")
    for one in verdict.standings:
        table.add_row(plain(one.arm), *(plain(change_in_words(change)) for change in one.changes), str(len(one.seeds)))
    return table


def _differences(matches: Sequence["Match"], reference: str) -> Table:
    from lingraft.report.recommendation import detectable_in_words, difference_in_words, p_in_words, told_in_words

    table = Table(title=f"minus {plain(reference)}, on the same items", title_justify="left")
    for header in ("quantity", "arm", "difference", "told apart", "p by Holm", "would show from"):
        table.add_column(header, overflow="fold")
    for match in (one for one in matches if one.first == reference):
        words = (difference_in_words(match.difference), told_in_words(match), p_in_words(match.adjusted))
        table.add_row(*map(plain, (match.quantity.label, match.second, *words, detectable_in_words(match))))
    return table


def show_recommendation(path: Path, console: Console) -> None:
    """Print the verdict that the JSON file of a comparison holds."""
    told = json.loads(path.read_text(encoding="utf-8"))["recommendation"]
    _say(told["headline"], told["caveat"], told["reasons"], console)


def _say(headline: str, caveat: str, reasons: Sequence[str], console: Console) -> None:
    console.print(f"[bold]{plain(headline)}[/bold]", highlight=False)
    console.print(plain(caveat), highlight=False)
    for reason in reasons:
        console.print(f"- {plain(reason)}", highlight=False)
