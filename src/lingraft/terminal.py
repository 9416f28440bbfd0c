"""What people see: progress of a run, and plans as tables. Escape codes in corpus text never reach the terminal."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from lingraft.measurement import Measurement
from lingraft.quantities import format_duration, format_tokens
from lingraft.report.escaping import visible
from lingraft.vocabulary import FertilityCurve

if TYPE_CHECKING:
    from lingraft.pipeline.bakeoff import Tasting
    from lingraft.pipeline.plan import Plan
    from lingraft.pipeline.vocabulary_plan import VocabularyPlan

__all__ = ["TerminalProgress", "plain", "show_curve", "show_data", "show_plan", "show_tastings"]

_HEADLINES = {
    "bits_per_byte": "bits per byte",
    "probe/random_copy/accuracy": "copying",
    "probe/copain/exact_match": "Copain",
    "fertility": "tokens a word",
    "shift/mean_relative_l2": "relative shift",
}


def plain(text: str) -> str:
    """Return text that is shown as it is: no escape codes, and brackets that are not markup."""
    return escape(visible(text))


class TerminalProgress:
    """Progress on a terminal: one bar per stage with tokens, tokens/s, loss per corpus and time left.

    Where output is not a terminal (a log file), plain lines are printed instead, about one every ten seconds.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.perf_counter()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._tokens_per_step = 0
        self._num_steps = 0
        self._first: tuple[int, float] | None = None
        self._said = 0.0

    def close(self) -> None:
        """End the bar, if there is one."""
        if self._bar:
            self._bar.stop()
        self._bar = None

    def phase(self, title: str) -> None:
        """Begin a part of the run."""
        self.close()
        self._line(f"[bold]{plain(title)}[/bold]")

    def part(self, title: str) -> None:
        """Begin a part of measuring; the bar of a stage stays."""
        self._line(f"[dim]  measuring: {plain(title)}[/dim]")

    def note(self, text: str) -> None:
        """Show a remark."""
        self._line(f"[yellow]{plain(text)}[/yellow]")

    def _line(self, text: str) -> None:
        minutes, seconds = divmod(int(time.perf_counter() - self._began), 60)
        self._console.print(f"[dim]{minutes:02d}:{seconds:02d}[/dim] {text}", highlight=False, soft_wrap=True)

    def stage(self, name: str, num_steps: int, tokens_per_step: int, done: int) -> None:
        """Begin the bar of a stage."""
        self.close()
        self._tokens_per_step, self._num_steps, self._first = tokens_per_step, num_steps, None
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self._console)
            self._task = self._bar.add_task(plain(name), total=num_steps, completed=done, state="")
            self._bar.start()

    def step(self, step: int, losses: dict[str, float], learning_rate: float, tokens_per_second: float) -> None:
        """Show a step; the time left counts what measuring has cost so far."""
        now = time.perf_counter()
        first, began = self._first or (step, now)
        self._first = (first, began)
        left = (self._num_steps - step) * (now - began) / (step - first) if step > first else None
        shown = " ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
        seen, whole = (format_tokens(n * self._tokens_per_step) for n in (step, self._num_steps))
        state = f"{seen}/{whole} tokens  {tokens_per_second:,.0f} tok/s  loss {plain(shown)}  lr {learning_rate:.2g}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, state=state)
        elif now - self._said > 10 or step == self._num_steps:
            self._said = now
            self._line(f"step {step}/{self._num_steps}  {state}" + (f"  {left:,.0f} s left" if left else ""))

    def measured(self, rows: Sequence[Measurement]) -> None:
        """Show the headline numbers of a measurement."""
        chosen = [row for row in rows if row.name in _HEADLINES]
        stages = dict.fromkeys(row.stage for row in chosen)
        for stage in stages:
            shown = [_headline(row) for row in chosen if row.stage == stage]
            self._line(f"  measured {plain(stage)}: {'  '.join(map(plain, shown))}")


def _headline(row: Measurement) -> str:
    name = _HEADLINES[row.name]
    return f"{name} {row.language} {row.value:.3f}" if row.language else f"{name} {row.value:.3f}"


def show_plan(plan: "Plan", console: Console, price: float | None = None) -> None:
    """Print a plan: corpora, stages, mix and rate over time, size, memory, time, its price by the hour, warnings."""
    recipe, base = plan.recipe, plan.base
    console.print(
        f"[bold]{plain(recipe.name)}[/bold]: {plain(plan.base_name)} learns {recipe.languages.target}",
        highlight=False,
    )
    rows = (
        f"{base.num_rows:,} → {plan.num_rows:,} rows" if plan.num_rows != base.num_rows else f"{base.num_rows:,} rows"
    )
    tie = "tied" if base.is_tied else "untied"
    console.print(
        f"{base.num_parameters:,} parameters, {base.num_layers} layers, width {base.hidden_size}, {rows}, {tie} head",
        highlight=False,
    )
    if plan.vocabulary:
        _show_vocabulary(plan, plan.vocabulary, console)
    for need in plan.needs:
        console.print(f"embeddings: {plain(need)}", highlight=False)
    console.print(_corpora_table(plan))
    console.print(_stages_table(plan, price))
    whole = format_duration(sum(outline.seconds for outline in plan.stages))
    console.print(
        f"about {whole} of training in all; preparing and measuring come in addition, and can take longer where "
        "training is short",
        highlight=False,
    )
    for outline in plan.stages:
        console.print(_course_table(outline.stage.name, outline.mix, outline.rates, outline.table_rates))
    for warning in plan.warnings:
        console.print(f"[yellow]warning:[/yellow] {plain(warning)}", highlight=False)


def _show_vocabulary(plan: "Plan", vocabulary: "VocabularyPlan", console: Console) -> None:
    target, (before, after) = plan.recipe.languages.target, vocabulary.fertility
    console.print(f"{target}: {before:.2f} → {after:.2f} tokens a word (estimated on a sample)", highlight=False)
    if vocabulary.curve.points:
        size = f"{vocabulary.sample_bytes / 1e6:.2f} MB"
        console.print(_curve_table(vocabulary.curve, target, f"learned and counted on {size}"))
    cuts, normaliser = vocabulary.cuts, vocabulary.normaliser
    console.print(
        f"the base's pattern cuts {cuts.cut_fraction:.1%} of the {target} words; its normaliser changes "
        f"{normaliser.changed_fraction:.1%} of the documents",
        highlight=False,
    )
    now, then = vocabulary.cost
    console.print(
        f"rows: {now.rows:,} → {then.rows:,}, {now.matrix_bytes / 2**20:,.0f} → {then.matrix_bytes / 2**20:,.0f} MiB; "
        f"for a byte of {target} the head takes {_flops(now.head_flops)} → {_flops(then.head_flops)} and all other "
        f"layers {_flops(now.body_flops)} → {_flops(then.body_flops)}",
        highlight=False,
    )


def _flops(value: float) -> str:
    return f"{value / 1e6:,.1f} MFLOP"


def _curve_table(curve: FertilityCurve, text: str, source: str) -> Table:
    table = Table(title=f"fertility over new tokens ({text}, {source})", title_justify="left")
    for header in ("new tokens", "tokens a word", "tokens a byte", "tokens a character"):
        table.add_column(header, justify="right")
    whole = curve.sizes[text]
    for point in curve.points:
        tokens = point.tokens[text]
        ratios = (tokens / max(1, part) for part in (whole.words, whole.bytes, whole.characters))
        table.add_row(f"{point.num_new:,}", *(f"{ratio:.3f}" for ratio in ratios))
    return table


def show_curve(curve: FertilityCurve, console: Console) -> None:
    """Print the fertility curve of every watched text."""
    for text in curve.sizes:
        console.print(_curve_table(curve, text, f"counted on {curve.sizes[text].bytes / 1e6:.2f} MB held out"))


def show_tastings(tastings: Sequence["Tasting"], chosen: str, console: Console) -> None:
    """Print the bake-off: bits per byte of target and source after each number of steps, the best candidate first."""
    table = Table(title="bake-off: bits per byte of target / source after so many steps", title_justify="left")
    table.add_column("init methods", overflow="fold")
    steps = sorted({step for tasting in tastings for step in tasting.target})
    for step in steps:
        table.add_column(f"{step}", justify="right")
    for tasting in sorted(tastings, key=lambda tasting: tasting.last):
        cells = [f"{tasting.target[step]:.4f} / {tasting.source[step]:.4f}" for step in steps if step in tasting.target]
        told = cells or [plain(tasting.failure or "")]
        table.add_row(("→ " if tasting.label == chosen else "") + plain(tasting.label), *told)
    console.print(table)


def show_data(found: Mapping[str, Any], console: Console) -> None:
    """Print the data report: a line for each corpus, what was rejected and why, what training text gives away."""
    table = Table(title="corpora", title_justify="left")
    for header in ("corpus", "documents", "held out", "text", "rejected", "repaired", "scripts"):
        table.add_column(header, justify="left" if header in ("corpus", "scripts") else "right")
    for name, report in found["corpora"].items():
        letters = max(1, sum(report["scripts"].values()))
        shares = {script: count / letters for script, count in report["scripts"].items() if count >= letters / 2000}
        scripts = ", ".join(f"{script} {share:.1%}" for script, share in list(shares.items())[:3])
        repaired = sum(entry["count"] for entry in report["repairs"])
        cells = (f"{report['documents']:,}", f"{report['validation_documents']:,}", f"{report['bytes'] / 1e6:.2f} MB")
        table.add_row(plain(name), *cells, f"{report['rejected']:,}", f"{repaired:,}", plain(scripts))
    console.print(table)
    for name, report in found["corpora"].items():
        for entry in (*report["rejects"], *report["repairs"], *report["findings"]):
            console.print(f"{plain(name)}: {plain(entry['reason'])}: {entry['count']:,}", highlight=False)
    warnings = [f"{name}: {warning}" for name, report in found["corpora"].items() for warning in report["warnings"]]
    for warning in (*warnings, *found["overlap"]["warnings"]):
        console.print(f"[yellow]warning:[/yellow] {plain(warning)}", highlight=False)


def _corpora_table(plan: "Plan") -> Table:
    table = Table(title="corpora", title_justify="left")
    for header in ("corpus", "language", "text", "words", "tokens", "needed", "passes"):
        table.add_column(header, justify="left" if header in ("corpus", "language") else "right")
    for corpus in plan.corpora:
        about = "~" if corpus.is_estimate else ""
        size = (
            [
                f"{about}{corpus.bytes / 1e6:.2f} MB",
                f"{about}{format_tokens(corpus.words) if about else f'{corpus.words:,}'}",
                f"{about}{format_tokens(corpus.tokens)}",
            ]
            if corpus.files
            else ["?"] * 3
        )
        passes = f"{corpus.epochs:.2f}" if corpus.files else "?"
        table.add_row(plain(corpus.name), corpus.language, *size, format_tokens(corpus.needed), passes)
    return table


def _stages_table(plan: "Plan", price: float | None) -> Table:
    """One column per stage: what is said of it stands below each other, so that the table fits a narrow terminal."""
    table = Table(title="stages", title_justify="left")
    table.add_column("")
    columns = []
    for outline in plan.stages:
        stage = outline.stage
        table.add_column(plain(stage.name), justify="right")
        trains, most = ", ".join(stage.trains), "at most " if outline.is_most else ""
        average, halves, start = outline.averaging
        columns.append(
            {
                "trains": f"{plain(trains)} ({most}{format_tokens(outline.trainable)} weights)",
                "tokens": format_tokens(outline.tokens),
                "steps": f"{outline.num_steps:,} of {format_tokens(stage.batch.tokens)} tokens",
                "sequences": f"{stage.batch.sequences} of {stage.batch.sequence_length} tokens",
                "averaging": average,
                "half-life": halves,
                "weight of its start": start,
                "work": f"{outline.flops:.2e} FLOP",
                "peak memory": f"about {outline.memory_bytes / 2**30:.1f} GiB",
                "time here": f"about {format_duration(outline.seconds)}",
            }
            | ({} if outline.utilisation is None else {"of the product rate": f"{outline.utilisation:.0%}"})
            | ({} if price is None else {"price": f"about {outline.seconds / 3600 * price:,.2f}"})
        )
    for row in columns[0]:
        table.add_row(row, *(column[row] for column in columns))
    return table


def _course_table(
    name: str, mix: Sequence[dict[str, float]], rates: Sequence[float], table_rates: Sequence[float]
) -> Table:
    table = Table(title=f"{plain(name)} over time", title_justify="left")
    table.add_column("")
    points = [point for point in range(len(rates)) if point % 2 == 0 or point == 1]
    for point in points:
        table.add_column(f"{point * 100 // len(rates)} %", justify="right", no_wrap=True)
    for corpus in dict.fromkeys(name for mixture in mix for name in mixture):
        table.add_row(plain(corpus), *(f"{mix[point].get(corpus, 0):.0%}" for point in points))
    table.add_row("rate", *(f"{rates[point]:.1e}" for point in points))
    if table_rates != rates:
        table.add_row("rate of embeddings", *(f"{table_rates[point]:.1e}" for point in points))
    return table
