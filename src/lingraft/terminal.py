"""What people see: progress of a run, and plans as tables. Escape codes in corpus text never reach the terminal."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from lingraft.measurement import Measurement
from lingraft.quantities import format_tokens
from lingraft.report.escaping import visible

if TYPE_CHECKING:
    from lingraft.pipeline.plan import Plan

__all__ = ["TerminalProgress", "show_plan"]

_HEADLINES = ("bits_per_byte", "probe/random_copy/accuracy", "probe/copain/exact_match", "fertility", "shift/mean_l2")


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
        self._line(f"[bold]{visible(title)}[/bold]")

    def note(self, text: str) -> None:
        """Show a remark."""
        self._line(f"[yellow]{visible(text)}[/yellow]")

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
            self._task = self._bar.add_task(visible(name), total=num_steps, completed=done, state="")
            self._bar.start()

    def step(self, step: int, losses: dict[str, float], learning_rate: float) -> None:
        """Show a step."""
        now = time.perf_counter()
        first, began = self._first or (step, now)
        self._first = (first, began)
        speed = (step - first) * self._tokens_per_step / (now - began) if step > first else 0.0
        shown = " ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
        seen, whole = (format_tokens(n * self._tokens_per_step) for n in (step, self._num_steps))
        tokens = f"{seen}/{whole} tokens"
        state = f"{tokens}  {speed:,.0f} tok/s  loss {visible(shown)}  lr {learning_rate:.2g}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, state=state)
        elif now - self._said > 10 or step == self._num_steps:
            self._said = now
            left = (self._num_steps - step) * self._tokens_per_step / speed if speed else 0.0
            self._line(f"step {step}/{self._num_steps}  {state}  {left:,.0f} s left")

    def measured(self, rows: Sequence[Measurement]) -> None:
        """Show the headline numbers of a measurement."""
        shown = [
            f"{row.name.split('/')[-1]} {row.language or ''}".strip() + f" {row.value:.3f}"
            for row in rows
            if row.name in _HEADLINES
        ]
        if shown:
            self._line(f"  measured {visible(rows[0].stage)}: {'  '.join(map(visible, shown))}")


def show_plan(plan: "Plan", console: Console) -> None:
    """Print a plan: corpora, stages, mix and rate over time, size, memory, time, warnings."""
    recipe, base = plan.recipe, plan.base
    console.print(
        f"[bold]{visible(recipe.name)}[/bold]: {visible(plan.base_name)} learns {recipe.languages.target}",
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
    if plan.fertility:
        before, after = plan.fertility
        console.print(
            f"{recipe.languages.target}: {before:.2f} → {after:.2f} tokens a word (estimated on a sample)",
            highlight=False,
        )
    console.print(_corpora_table(plan))
    console.print(_stages_table(plan))
    for outline in plan.stages:
        console.print(_course_table(outline.stage.name, outline.mix, outline.rates))
    for warning in plan.warnings:
        console.print(f"[yellow]warning:[/yellow] {visible(warning)}", highlight=False)


def _corpora_table(plan: "Plan") -> Table:
    table = Table(title="corpora", title_justify="left")
    for header in ("corpus", "language", "text", "words", "tokens", "needed", "passes"):
        table.add_column(header, justify="left" if header in ("corpus", "language") else "right")
    for corpus in plan.corpora:
        about = "~" if corpus.is_estimate else ""
        size = (
            [f"{corpus.bytes / 1e6:.2f} MB", f"{corpus.words:,}", f"{about}{format_tokens(corpus.tokens)}"]
            if corpus.files
            else ["?"] * 3
        )
        passes = f"{corpus.epochs:.2f}" if corpus.files else "?"
        table.add_row(visible(corpus.name), corpus.language, *size, format_tokens(corpus.needed), passes)
    return table


def _stages_table(plan: "Plan") -> Table:
    """One column per stage: what is said of it stands below each other, so that the table fits a narrow terminal."""
    table = Table(title="stages", title_justify="left")
    table.add_column("")
    columns = []
    for outline in plan.stages:
        stage = outline.stage
        table.add_column(visible(stage.name), justify="right")
        trains = stage.train if isinstance(stage.train, str) else ", ".join(stage.train)
        ema = f"{stage.ema.kind}, {stage.ema.decay:g} every {stage.ema.every}" if stage.ema else "none"
        columns.append(
            {
                "trains": f"{visible(trains)} ({format_tokens(outline.trainable)} weights)",
                "tokens": format_tokens(outline.tokens),
                "steps": f"{outline.num_steps:,} of {format_tokens(stage.batch.tokens)} tokens",
                "sequences": f"{stage.batch.sequences} of {stage.batch.sequence_length} tokens",
                "averaging": ema,
                "peak memory": f"about {outline.memory_bytes / 2**30:.1f} GiB",
                "time here": f"about {_duration(outline.seconds)}",
            }
        )
    for row in columns[0]:
        table.add_row(row, *(column[row] for column in columns))
    return table


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


def _course_table(name: str, mix: Sequence[dict[str, float]], rates: Sequence[float]) -> Table:
    table = Table(title=f"{visible(name)} over time", title_justify="left")
    table.add_column("")
    points = [point for point in range(len(rates)) if point % 2 == 0 or point == 1]
    for point in points:
        table.add_column(f"{point * 100 // len(rates)} %", justify="right", no_wrap=True)
    for corpus in dict.fromkeys(name for mixture in mix for name in mixture):
        table.add_row(visible(corpus), *(f"{mix[point].get(corpus, 0):.0%}" for point in points))
    table.add_row("rate", *(f"{rates[point]:.1e}" for point in points))
    return table
