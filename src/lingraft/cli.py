"""The command line: each verb is one function of the Python API. torch is imported inside the verbs that need it."""

import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "main"]

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

app = typer.Typer(
    name="lingraft",
    help="Teach an existing language model a new language, and prove that it has not forgotten the old one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RecipePath = Annotated[Path, typer.Argument(help="the recipe file", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="put a value over the recipe's, as in stages.1.tokens=1M"),
]
RunFolder = Annotated[Path | None, typer.Option("--to", help="the run folder (runs/NAME by default)")]
ModelName = Annotated[
    str, typer.Argument(help="a hub id, a model folder, a .gguf file or package:name", show_default=False)
]
ConditionOn = Annotated[str | None, typer.Option(help="the token in front of every text (BOS, else EOS, by default)")]

_RECIPE = """\
# A lingraft recipe. What is not said here has its default; `lingraft plan` shows what it comes to.
name: {name}
base_model: {base}
languages: {{source: {source}, target: {target}}}

corpora:
{corpora}
vocabulary: {{method: expand, new_tokens: 2000}}   # a number or auto; keep | expand | replace
embeddings: {{input: subword_mean}}                # `lingraft list init-methods`

stages:
  - name: embeddings-only        # only the rows of new tokens learn
    train: new_embeddings
    tokens: 2M
    mix: {{{target}: 1.0}}
    lr: {{peak: 1e-3, warmup: 5%}}
  - name: continued-pretraining  # everything learns; the source language is replayed
    train: all
    tokens: 20M
    mix: {{{target}: 0.8, {source}: 0.2}}
    lr: {{peak: 1e-4, warmup: 10%}}
"""


def _console() -> Any:
    from rich.console import Console

    return Console(emoji=False)


def _load(recipe: Path, overrides: list[str] | None) -> Any:
    from lingraft.recipe_file import load_recipe

    return load_recipe(recipe, overrides or ())


@app.command()
def init(
    base_model: Annotated[str, typer.Option(help="hub id, folder, .gguf file or package:name")],
    target: Annotated[str, typer.Option(help="code of the language to learn")],
    corpus: Annotated[list[str], typer.Option(metavar="NAME=PATH", help="a corpus; give one per language")],
    source: Annotated[str, typer.Option(help="code of the language the model is good at")] = "en",
    to: Annotated[Path, typer.Option(help="the file to write")] = Path("recipe.yaml"),
) -> None:
    """Write a commented recipe."""
    import json

    from lingraft.errors import RecipeError
    from lingraft.recipe_file import parse_recipe
    from lingraft.run import write_file

    if to.exists():
        raise RecipeError(f"{to} is there already; nothing was written")
    pairs = [item.partition("=") for item in corpus]
    for name, separator, path in pairs:
        if not (separator and name and path):
            raise RecipeError(f"--corpus {name}: write NAME=PATH, as in eu=data/eu")
    quote = json.dumps  # a JSON string is a YAML string, and no language code is read as a truth value
    lines = "".join(f"  {quote(name)}: {{path: {quote(_seen_from(to.parent, path))}}}\n" for name, _, path in pairs)
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", base_model.rstrip("/").split("/")[-1].split(":")[-1]).strip("._-")
    text = _RECIPE.format(
        name=f"{model or 'model'}-{target}",
        base=quote(_seen_from(to.parent, base_model) if Path(base_model).exists() else base_model),
        source=quote(source),
        target=quote(target),
        corpora=lines,
    )
    parse_recipe(text, str(to))
    write_file(to, text)
    print(f"{to} is written; see what it comes to with: lingraft plan {to}")


def _seen_from(folder: Path, path: str) -> str:
    """Return a path of the command line as a recipe in ``folder`` must write it: relative to itself."""
    return path if Path(path).is_absolute() else os.path.relpath(path, folder)


@app.command()
def plan(recipe: RecipePath, overrides: Overrides = None) -> None:
    """Show what a recipe will do; loads no weights and refuses what cannot work."""
    from lingraft.pipeline.plan import make_plan
    from lingraft.terminal import show_plan

    show_plan(make_plan(_load(recipe, overrides)), _console())


@app.command()
def data(recipe: RecipePath, overrides: Overrides = None, to: RunFolder = None) -> None:
    """Read, clean and split the corpora, and report on them; the same folder can be run from then on."""
    from lingraft.pipeline.data import data_report
    from lingraft.terminal import TerminalProgress, show_data

    console, resolved = _console(), _load(recipe, overrides)
    folder, progress = to or Path("runs") / resolved.name, TerminalProgress(console)
    try:
        found = data_report(resolved, folder, progress=progress)
    finally:
        progress.close()
    show_data(found, console)
    print(f"report: {folder / 'data.html'} and {folder / 'data.json'}")


@app.command()
def run(
    recipe: RecipePath,
    overrides: Overrides = None,
    to: RunFolder = None,
    until: Annotated[str | None, typer.Option(help="stop after this step")] = None,
    accept_changed: Annotated[
        str | None, typer.Option(metavar="mix,data", help="go on although the mix or the corpora have changed")
    ] = None,
) -> None:
    """Do what a recipe says; the same command again goes on where it stopped."""
    accepted = [kind.strip() for kind in accept_changed.split(",")] if accept_changed else []
    folder = _adapt(recipe, overrides, to, until, accepted=accepted).folder
    if os.environ.get("RANK", "0") != "0":
        return
    if until is None:
        print(f"model:  {folder / 'model'}\nreport: {folder / 'report.html'}")
    else:
        print(f"stopped after {until} as asked; the same command without --until goes on ({folder})")


def _adapt(
    recipe: Path,
    overrides: list[str] | None,
    to: Path | None,
    until: str | None,
    *,
    vocabulary_only: bool = False,
    accepted: Sequence[str] = (),
) -> Any:
    from lingraft.terminal import TerminalProgress

    console = _console()
    resolved = _load(recipe, overrides)
    folder = to or Path("runs") / resolved.name
    from lingraft.errors import InterruptedRunError
    from lingraft.pipeline.adapt import adapt, expand_tokenizer

    progress = TerminalProgress(console)
    try:
        if vocabulary_only:
            done = expand_tokenizer(resolved, folder, progress=progress)
        else:
            done = adapt(resolved, folder, until=until, accept_changed=accepted, progress=progress)
    except KeyboardInterrupt as stop:
        raise InterruptedRunError("stopped at once; what came after the last checkpoint is lost") from stop
    finally:
        progress.close()
    return done


@app.command()
def expand(
    recipe: RecipePath,
    overrides: Overrides = None,
    to: RunFolder = None,
    vocabulary_only: Annotated[
        bool, typer.Option("--vocabulary-only", help="make the tokenizer only; the base needs no weights")
    ] = False,
    curve: Annotated[bool, typer.Option("--curve", help="show fertility over the number of new tokens")] = False,
) -> None:
    """Make the expanded model only: vocabulary and initial embeddings, for people who train elsewhere."""
    from lingraft.terminal import show_curve
    from lingraft.vocabulary import FertilityCurve

    if vocabulary_only:
        folder = _adapt(recipe, overrides, to, None, vocabulary_only=True).path("vocabulary")
    else:
        folder = _adapt(recipe, overrides, to, "embeddings").path("vocabulary")
    if curve:
        stored = json.loads((folder / "expansion.json").read_text(encoding="utf-8"))
        show_curve(FertilityCurve.from_dict(stored["curve"]), _console())
    print(f"tokenizer: {folder / 'tokenizer.json'}\ngates: {folder / 'gates.json'}")
    if not vocabulary_only:
        print(f"expanded model: {folder.parent / 'embeddings' / 'model'}")


@app.command()
def bakeoff(recipe: RecipePath, overrides: Overrides = None, to: RunFolder = None) -> None:
    """Try the init methods of embeddings.choose by short training runs, and show which is best."""
    from lingraft.errors import RecipeError
    from lingraft.pipeline.bakeoff import tastings
    from lingraft.terminal import show_tastings

    candidates = _load(recipe, overrides).embeddings.choose
    if not candidates:
        raise RecipeError(
            "embeddings.choose: no candidates are given; write them in the recipe, or "
            "--set 'embeddings.choose=[subword_mean, mean, gaussian]'"
        )
    if len(candidates) == 1:
        raise RecipeError(
            f"embeddings.choose: {candidates[0].label!r} is the only candidate, so there is nothing to choose between"
        )
    run = _adapt(recipe, overrides, to, "bakeoff")
    done = run.finished("bakeoff")
    if done is None:
        raise RecipeError("vocabulary.method: there are no new rows, so there is nothing to choose between")
    show_tastings(tastings(done["record"]), done["record"]["chosen"], _console())


@app.command(name="eval")
def evaluate(
    model: ModelName,
    text: Annotated[list[str], typer.Option(help="a file, folder or glob of text; may be repeated")],
    field: Annotated[str, typer.Option(help="the text field of jsonl and parquet")] = "text",
    max_bytes: Annotated[int, typer.Option(min=1, help="how much of it to read")] = 200_000,
    condition_on: ConditionOn = None,
) -> None:
    """Measure bits per byte of a model on text."""
    from lingraft.pipeline import inspecting

    opened = inspecting.open_model(model, condition_on=condition_on, cache=_cache())
    bits = inspecting.evaluate(opened, text, text_field=field, max_bytes=max_bytes)
    print(
        f"{bits.value:.4f} bits per byte, 95 % interval {bits.low:.4f} to {bits.high:.4f}; "
        f"{bits.documents} documents, {bits.bytes:,} bytes, {bits.tokens:,} tokens"
    )


@app.command()
def probe(
    model: ModelName,
    name: Annotated[str, typer.Option("--probe", help="see: lingraft list probes")] = "random_copy",
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="an option of the probe")
    ] = None,
    condition_on: ConditionOn = None,
) -> None:
    """Run one probe of in-context learning."""
    from lingraft.errors import RecipeError
    from lingraft.pipeline import inspecting
    from lingraft.strict_yaml import parse_value

    pairs = [item.partition("=") for item in options or ()]
    for key, separator, _ in pairs:
        if not (separator and key):
            raise RecipeError(f"--set {key}: write OPTION=VALUE, as in num_items=16")
    chosen = {key: parse_value(value) for key, _, value in pairs}
    opened = inspecting.open_model(model, condition_on=condition_on, cache=_cache())
    for score in inspecting.probe(opened, name, chosen):
        interval = f"  ({score.low:.3f} to {score.high:.3f})" if score.low is not None else ""
        print(f"{score.name:32} {score.value:10.4f}{interval}")


@app.command()
def diagnose(model: ModelName, against: Annotated[str, typer.Option(help="the base model")]) -> None:
    """Show how far a model's weights are from another's, by kind of tensor."""
    from lingraft.pipeline import inspecting

    opened = [inspecting.open_model(name, cache=_cache()) for name in (model, against)]
    shift, grown = inspecting.diagnose(*opened)
    print(f"mean L2 over tensors: {shift.mean_l2:.4f}; {grown} tokens more than {against}")
    for kind, sums in sorted(shift.kinds.items()):
        print(f"{kind:16} relative L2 {sums.relative_l2:.5f}  cosine {sums.cosine:.6f}")


@app.command()
def generate(
    model: ModelName,
    prompt: Annotated[list[str], typer.Option("--prompt", "-p", help="may be repeated")],
    against: Annotated[str | None, typer.Option(help="a second model for the same prompt")] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 40,
    condition_on: ConditionOn = None,
) -> None:
    """Continue a prompt, before and after."""
    from lingraft.pipeline import inspecting
    from lingraft.report.escaping import visible

    names = [name for name in (against, model) if name]
    models = [inspecting.open_model(name, condition_on=condition_on, cache=_cache()) for name in names]
    for text, told in zip(prompt, inspecting.compare_continuations(models, prompt, max_tokens=max_tokens), strict=True):
        print(f"> {visible(text)}")
        for name, continuation in zip(names, told, strict=True):
            print(f"  {name}:\n    {visible(continuation)}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o")] = Path("report.html"),
) -> None:
    """Write one HTML page on one run, or on several side by side."""
    from lingraft.errors import RunFolderError
    from lingraft.report import write_report

    if output.is_dir():
        raise RunFolderError(f"{output} is a folder; name the file to write, as in {output / 'report.html'}")
    print(write_report(runs, output))


@app.command()
def export(
    run_folder: Annotated[Path, typer.Argument(help="a finished run", show_default=False)],
    to: Annotated[Path, typer.Option(help="the folder to make")],
) -> None:
    """Copy the model of a finished run to a folder of its own, checked again on arrival."""
    import shutil

    from lingraft.errors import RunFolderError
    from lingraft.model.export import check_folder
    from lingraft.run import Run, publish_folder

    model = Run(run_folder).path("model")
    if not model.is_dir():
        raise RunFolderError(f"{run_folder} has no exported model; finish it with: lingraft run")
    if to.exists():
        raise RunFolderError(f"{to} is there already; nothing was written")
    if to.resolve().is_relative_to(run_folder.resolve()):
        raise RunFolderError(f"{to} lies inside the run folder; export to a folder of its own")

    def fill(folder: Path) -> None:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        check_folder(folder)

    print(publish_folder(to, fill))


@app.command()
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


@app.command()
def merge(
    models: Annotated[
        list[str],
        typer.Argument(help="hub ids or model folders; the first gives the type of number", show_default=False),
    ],
    weights: Annotated[str, typer.Option(metavar="W,W,...", help="one for each model, with the sum 1, as in 0.5,0.5")],
    to: Annotated[Path, typer.Option(help="the folder to make")],
) -> None:
    """Average models, also where one has a larger vocabulary: rows meet by token."""
    from lingraft.errors import RecipeError
    from lingraft.model.base import fetch_folder
    from lingraft.model.locate import locate_base
    from lingraft.model.merge import merge_models

    try:
        shares = [float(share) for share in weights.split(",")]
    except ValueError as error:
        raise RecipeError(f"--weights {weights}: write numbers with commas between, as in 0.5,0.5") from error
    places = [locate_base(name, where="merge") for name in models]
    names = [place.public_name for place in places]
    merged = merge_models([fetch_folder(place) for place in places], shares, to, names=names)
    alone = "".join(
        f"; {count:,} that only {name} has" for name, count in zip(names, merged.copied, strict=True) if count
    )
    print(f"{merged.folder}: rows of {merged.averaged:,} tokens averaged{alone}")


@app.command(name="list")
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            help="init-methods, mix-schedules, lr-schedules, optimizers, averages, guards, probes or filters",
            show_default=False,
        ),
    ],
) -> None:
    """List what a recipe may name, with options and references."""
    from lingraft.errors import RecipeError, nearest

    if kind not in _REGISTRIES:
        listed = ", ".join(_REGISTRIES)
        raise RecipeError(f"list: unknown kind {kind!r}{nearest(kind, _REGISTRIES)} (kinds: {listed})")
    for entry in _registry(kind):
        options = ", ".join(f"{n}={p.default}" if p.default is not p.empty else n for n, p in entry.options().items())
        print(f"{entry.name}({options})\n    {entry.summary}\n    {entry.reference}")


def _registry(kind: str) -> Any:
    module, name = _REGISTRIES[kind]
    return getattr(importlib.import_module(f"lingraft.{module}"), name)


def _cache() -> Path:
    """Return where GGUF files are converted to for the verbs that have no run folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "lingraft"


def main() -> None:
    """Run the command; errors that a user can act on are one message and exit status 1, not a traceback."""
    from lingraft.errors import InterruptedRunError, LingraftError

    try:
        app()
    except InterruptedRunError as stop:
        print(f"{stop}\nThe same command goes on from here.", file=sys.stderr)
        sys.exit(130)
    except LingraftError as error:
        from lingraft.report.escaping import visible

        print(f"error: {visible(str(error))}", file=sys.stderr)
        sys.exit(1)
