"""Verbs on run folders, and the list of what a recipe may name."""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.cli_options import Overrides, new_console, say

__all__ = ["compare", "export", "interpolate", "list_names", "report", "run_verbs", "sweep"]

run_verbs = typer.Typer()

SourceRise = Annotated[
    float | None,
    typer.Option(
        min=0,
        show_default=False,
        help="by what share of the base's bits per byte those of source text may rise for an arm to be shipped; as the "
        "recipes state it (measure.alarm.source_rise) by default",
    ),
]
ProbeDrop = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        show_default=False,
        help="by what share of the base's score an in-context probe may fall, where the fall is certain; as the "
        "recipes state it (measure.alarm.probe_drop) by default",
    ),
]

_REGISTRIES = {
    "init-methods": ("embeddings", "init_methods"),
    "mix-schedules": ("corpus.mixing", "mix_schedules"),
    "lr-schedules": ("training.learning_rate", "lr_schedules"),
    "optimizers": ("training.optimizer", "optimizers"),
    "averages": ("training.averaging", "averages"),
    "guards": ("training.guards", "guards"),
    "probes": ("measure.probes", "probes"),
    "filters": ("corpus.quality", "quality_filters"),
}


@run_verbs.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="the file to write", show_default="report.html")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="write nothing; serve the page to a browser, and keep it up to date")
    ] = False,
    host: Annotated[str, typer.Option(help="with --live: the address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="with --live: 0 takes any that is free")] = 8321,
) -> None:
    """Write one HTML page on one run, or on several side by side; or serve it while they run."""
    from lingraft.errors import RunFolderError
    from lingraft.report import write_report

    if live:
        if output is not None:
            raise typer.BadParameter("--live writes no file; leave it out, or --output")
        _serve(runs, host, port)
        return
    to = output or Path("report.html")
    if to.is_dir():
        raise RunFolderError(f"{to} is a folder; name the file to write, as in {to / 'report.html'}")
    say(write_report(runs, to))


def _serve(runs: list[Path], host: str, port: int) -> None:
    from lingraft.report.live import open_server

    with open_server(runs, host, port) as server:
        print(f"{server.url} shows the page and keeps it up to date; Ctrl-C ends this.", flush=True)
        if host not in ("127.0.0.1", "::1", "localhost"):
            print("Whoever reaches this machine can read it there.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nended; the run is not touched by this")


@run_verbs.command()
def export(
    run_folder: Annotated[Path, typer.Argument(help="a finished run", show_default=False)],
    to: Annotated[Path, typer.Option(help="the folder to make")],
    tokenizer_class: Annotated[
        str, typer.Option(metavar="auto|keep|PreTrainedTokenizerFast", help="what tokenizer_config.json names")
    ] = "keep",
    sentencepiece: Annotated[
        bool, typer.Option("--sentencepiece", help="write tokenizer.model too, which llama.cpp reads")
    ] = False,
) -> None:
    """Copy the model of a finished run to a folder of its own, checked again on arrival."""
    import shutil

    from lingraft.errors import RecipeError, RunFolderError, nearest
    from lingraft.model.auto_tokenizer import choose_tokenizer_class
    from lingraft.model.export import check_folder
    from lingraft.pipeline.exporting import add_sentencepiece
    from lingraft.run import Run, publish_folder
    from lingraft.vocabulary import TokenizerFile

    known = ("auto", "keep", "PreTrainedTokenizerFast")
    if tokenizer_class not in known:
        listed = ", ".join(known)
        raise RecipeError(f"--tokenizer-class: {tokenizer_class!r}{nearest(tokenizer_class, known)} (known: {listed})")

    model = Run(run_folder).path("model")
    if not model.is_dir():
        raise RunFolderError(f"{run_folder} has no exported model; finish it with: lingraft run")
    if to.exists():
        raise RunFolderError(f"{to} is there already; nothing was written")
    if to.resolve().is_relative_to(run_folder.resolve()):
        raise RunFolderError(f"{to} lies inside the run folder; export to a folder of its own")

    def fill(folder: Path) -> None:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        tokenizer = TokenizerFile.open(folder)
        choose_tokenizer_class(folder, tokenizer, tokenizer_class)
        if sentencepiece:
            texts = add_sentencepiece(Run(run_folder), folder, tokenizer)
            print(f"tokenizer.model gives the ids of tokenizer.json on all of {texts:,} held-out and difficult texts")
        check_folder(folder)

    say(publish_folder(to, fill))


@run_verbs.command()
def interpolate(
    run_folder: Annotated[Path, typer.Argument(help="a run whose last stage is done", show_default=False)],
    weights: Annotated[
        str, typer.Option(metavar="L,L,...", help="points between the base, 0, and what was trained, 1")
    ] = "0,0.25,0.5,0.75,1",
    max_source_rise: Annotated[float, typer.Option(help="source bits per byte that the best may cost")] = 0.01,
    export: Annotated[bool, typer.Option("--export", help="publish the best as model-interpolated")] = False,
) -> None:
    """Measure source and target on the way from the base to the trained weights."""
    from pydantic import ValidationError

    from lingraft.errors import RecipeError
    from lingraft.pipeline.adapt import interpolate_back
    from lingraft.recipe import Interpolation

    try:
        points = tuple(float(point) for point in weights.split(","))
        spec = Interpolation(weights=points, max_source_rise=max_source_rise, export=export)
    except (ValueError, ValidationError) as error:
        raise RecipeError(f"--weights {weights}: write different numbers between 0 and 1, as in 0,0.5,1") from error
    found = interpolate_back(run_folder, spec)
    for point, target, source in zip(points, found["target"], found["source"], strict=True):
        mark = "  best" if point == found["best"] else ""
        print(f"{point:g}: target {target:.4f}, source {source:.4f} bits per byte{mark}")


def _limits(source_rise: float | None, probe_drop: float | None) -> dict[str, float]:
    """Return those that were asked for."""
    asked = {"source_rise": source_rise, "probe_drop": probe_drop}
    return {name: value for name, value in asked.items() if value is not None}


@run_verbs.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="run folders, two or more", show_default=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="an HTML page to write as well")] = None,
    source_rise: SourceRise = None,
    probe_drop: ProbeDrop = None,
) -> None:
    """Compare finished runs item by item, the others with the first, and say which to ship."""
    from lingraft.errors import RunFolderError
    from lingraft.report.comparison import compare_runs, write_comparison
    from lingraft.terminal_sweeps import show_comparison

    if output is not None and output.is_dir():
        raise RunFolderError(f"{output} is a folder; name the file to write, as in {output / 'compare.html'}")
    found = compare_runs(runs, limits=_limits(source_rise, probe_drop))
    show_comparison(found, new_console())
    if output is not None:
        say(write_comparison(found, output))


@run_verbs.command()
def sweep(
    recipe: Annotated[Path, typer.Argument(help="a recipe, or a file that states a sweep of one", show_default=False)],
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="PATH=V,V,...", help="an arm for each value; several options are crossed"),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", metavar="NAME:PATH=V,PATH=V", help="an arm with values of its own; may be repeated"),
    ] = None,
    overrides: Overrides = None,
    to: Annotated[Path | None, typer.Option("--to", help="the sweep's folder (sweeps/NAME by default)")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="show arms, tokens, disk and time; run nothing")] = False,
    arm_index: Annotated[
        int | None,
        typer.Option(envvar="SLURM_ARRAY_TASK_ID", help="run this arm alone, counted from 0", show_default=False),
    ] = None,
    source_rise: SourceRise = None,
    probe_drop: ProbeDrop = None,
) -> None:
    """Run a recipe with several values of its options, and compare what comes out; the same command again goes on."""
    from lingraft import terminal_sweeps
    from lingraft.errors import InterruptedRunError
    from lingraft.pipeline.arms import read_sweep
    from lingraft.pipeline.sweeping import plan_sweep, run_sweep
    from lingraft.terminal import TerminalProgress

    console = new_console()
    stated = read_sweep(recipe, overrides=overrides or (), vary=vary or (), arms=arm or ())
    folder = to or Path("sweeps") / stated.name
    if plan:
        terminal_sweeps.show_sweep_plan(plan_sweep(stated), folder, console)
        return
    progress, limits = TerminalProgress(console), _limits(source_rise, probe_drop)
    try:
        states = run_sweep(stated, folder, only=arm_index, limits=limits, progress=progress)
    except KeyboardInterrupt as stop:
        raise InterruptedRunError("stopped at once; what came after the last checkpoint is lost") from stop
    finally:
        progress.close()
    terminal_sweeps.show_states(states, console)
    if (page := folder / "comparison.html").is_file():
        terminal_sweeps.show_recommendation(folder / "comparison.json", console)
        say(f"comparison: {page}")
    ended = states if arm_index is None else states[arm_index : arm_index + 1]
    if any(state.status == "failed" for state in ended):
        raise typer.Exit(1)


@run_verbs.command(name="list")
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="init-methods, mix-schedules, lr-schedules, optimizers, averages, guards, probes, filters or tasks",
            show_default=False,
        ),
    ] = None,
    tasks_folder: Annotated[Path | None, typer.Option(help="of tasks: which of them are in this folder")] = None,
) -> None:
    """List what a recipe may name, with options and references; without a kind, the kinds."""
    from lingraft.errors import RecipeError, nearest

    kinds = (*_REGISTRIES, "tasks")
    if kind is None:
        print("\n".join(f"lingraft list {one}" for one in kinds))
        return
    if kind not in kinds:
        raise RecipeError(f"list: unknown kind {kind!r}{nearest(kind, kinds)} (kinds: {', '.join(kinds)})")
    if kind == "tasks":
        from lingraft.terminal_tasks import show_task_sets

        show_task_sets(tasks_folder, new_console())
        return
    if tasks_folder is not None:
        raise RecipeError(f"--tasks-folder is about tasks, not {kind}")
    for entry in _registry(kind):
        options = ", ".join(f"{n}={p.default}" if p.default is not p.empty else n for n, p in entry.options().items())
        print(f"{entry.name}({options})\n    {entry.summary}\n    {entry.reference}")


def _registry(kind: str) -> Any:
    module, name = _REGISTRIES[kind]
    return getattr(importlib.import_module(f"lingraft.{module}"), name)
