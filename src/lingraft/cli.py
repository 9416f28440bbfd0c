"""The command line: each verb is one function of the Python API. torch is imported inside the verbs that need it."""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.cli_models import model_verbs
from lingraft.cli_options import Overrides, RecipePath, RunFolder, new_console, read_recipe, say
from lingraft.cli_runs import run_verbs

__all__ = ["app", "main"]

app = typer.Typer(
    name="lingraft",
    help="Teach an existing language model a new language, and prove that it has not forgotten the old one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

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


@app.command()
def init(
    base_model: Annotated[str, typer.Option(help="hub id, folder, .gguf file or package:name")],
    target: Annotated[str, typer.Option(help="code of the language to learn")],
    corpus: Annotated[
        list[str], typer.Option(metavar="CODE=PATH", help="the text of a language, by its code; give one for each")
    ],
    source: Annotated[str, typer.Option(help="code of the language the model is good at")] = "en",
    to: Annotated[Path, typer.Option(help="the file to write")] = Path("recipe.yaml"),
) -> None:
    """Write a commented recipe."""
    import json

    from lingraft.errors import RecipeError
    from lingraft.quantities import is_language
    from lingraft.recipe_file import parse_recipe
    from lingraft.run import write_file

    if to.exists():
        raise RecipeError(f"{to} is there already; nothing was written")
    pairs = [item.partition("=") for item in corpus]
    for name, separator, path in pairs:
        if not (separator and name and path):
            raise RecipeError(f"--corpus {name}: write CODE=PATH, as in eu=data/eu")
    named = [name for name, _, _ in pairs]
    if missing := next((code for code in (target, source) if is_language(code) and code not in named), None):
        raise RecipeError(
            f"--corpus: none is called {missing!r}; here a corpus is called by the code of its language, as in "
            f"--corpus {missing}=PATH (given: {', '.join(named)})"
        )
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
    say(f"{to} is written; see what it comes to with: lingraft plan {to}")


def _seen_from(folder: Path, path: str) -> str:
    """Return a path of the command line as a recipe in ``folder`` must write it: relative to itself."""
    return path if Path(path).is_absolute() else os.path.relpath(path, folder)


@app.command()
def plan(
    recipe: RecipePath,
    overrides: Overrides = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="try five steps of every stage, so that time and memory are measured")
    ] = False,
    price: Annotated[float | None, typer.Option(min=0, help="of an hour of this machine")] = None,
) -> None:
    """Show what a recipe will do; loads no weights and refuses what cannot work."""
    from lingraft.pipeline.plan import make_plan
    from lingraft.terminal import show_plan

    made = make_plan(read_recipe(recipe, overrides))
    if calibrate:
        from lingraft.pipeline import calibrating

        made = calibrating.calibrate(made)
    show_plan(made, new_console(), price)


@app.command()
def data(recipe: RecipePath, overrides: Overrides = None, to: RunFolder = None) -> None:
    """Read, clean and split the corpora, and report on them; the same folder can be run from then on."""
    from lingraft.pipeline.data import data_report
    from lingraft.terminal import TerminalProgress, show_data

    console, resolved = new_console(), read_recipe(recipe, overrides)
    folder, progress = to or Path("runs") / resolved.name, TerminalProgress(console)
    try:
        found = data_report(resolved, folder, progress=progress)
    finally:
        progress.close()
    show_data(found, console)
    say(f"report: {folder / 'data.html'} and {folder / 'data.json'}")


@app.command()
def run(
    recipe: RecipePath,
    overrides: Overrides = None,
    to: RunFolder = None,
    until: Annotated[str | None, typer.Option(help="stop after this step")] = None,
    accept_changed: Annotated[
        str | None,
        typer.Option(
            metavar="mix,data,memory,alarm",
            help="go on although the mix, the corpora or what decides memory have changed, or over an alarm",
        ),
    ] = None,
) -> None:
    """Do what a recipe says; the same command again goes on where it stopped."""
    accepted = [kind.strip() for kind in accept_changed.split(",")] if accept_changed else []
    folder = _adapt(recipe, overrides, to, until, accepted=accepted).folder
    if os.environ.get("RANK", "0") != "0":
        return
    if until is None:
        say(f"model:  {folder / 'model'}\nreport: {folder / 'report.html'}")
    else:
        say(f"stopped after {until} as asked; the same command without --until goes on ({folder})")


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

    console = new_console()
    resolved = read_recipe(recipe, overrides)
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
        show_curve(FertilityCurve.from_dict(stored["curve"]), new_console())
    say(f"tokenizer: {folder / 'tokenizer.json'}\ngates: {folder / 'gates.json'}")
    if not vocabulary_only:
        say(f"expanded model: {folder.parent / 'embeddings' / 'model'}")


@app.command()
def bakeoff(recipe: RecipePath, overrides: Overrides = None, to: RunFolder = None) -> None:
    """Try the init methods of embeddings.choose by short training runs, and show which is best."""
    from lingraft.errors import RecipeError
    from lingraft.pipeline.bakeoff import tastings
    from lingraft.terminal import show_tastings

    candidates = read_recipe(recipe, overrides).embeddings.choose
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
    show_tastings(tastings(done["record"]), done["record"]["chosen"], new_console())


app.add_typer(model_verbs)
app.add_typer(run_verbs)


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
    except OSError as error:
        # What the system refuses, a user can act on: a place that cannot be written, a file that may not be read.
        if error.filename is None or error.strerror is None:
            raise
        from lingraft.report.escaping import visible

        print(f"error: {visible(_meant(error.filename2 or error.filename))}: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _meant(place: Any) -> str:
    """Return the path that a user named, where the system names the one under which it was being written."""
    path = Path(os.fsdecode(place)) if isinstance(place, str | bytes) else Path(str(place))
    return str(path.with_name(re.sub(r"^\.(.+)\.\d+\.tmp$", r"\1", path.name)))
