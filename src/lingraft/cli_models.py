"""Verbs that look at models, without a run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lingraft.cli_options import ConditionOn, ModelName, cache, new_console, say

__all__ = ["diagnose", "evaluate", "generate", "merge", "model_verbs", "probe"]

model_verbs = typer.Typer()

_ModelToProbe = Annotated[
    str | None, typer.Argument(help="a hub id, a model folder, a .gguf file or package:name", show_default=False)
]


@model_verbs.command(name="eval")
def evaluate(
    model: ModelName,
    text: Annotated[list[str] | None, typer.Option(help="a file, folder or glob of text; may be repeated")] = None,
    field: Annotated[str, typer.Option(help="the text field of jsonl and parquet")] = "text",
    max_bytes: Annotated[int, typer.Option(min=1, help="how much of it to read")] = 200_000,
    condition_on: ConditionOn = None,
    *,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="NAME,NAME,...", help="downstream tasks or sets; see: lingraft list tasks"),
    ] = None,
    tasks_folder: Annotated[
        str | None, typer.Option(help="take them from YAML files there, with their data beside them; no hub is asked")
    ] = None,
    tasks_code: Annotated[
        bool, typer.Option("--tasks-code", help="let Python functions run that files of the folder name")
    ] = False,
    shots: Annotated[int | None, typer.Option(min=0, help="demonstrations (each task's own number by default)")] = None,
    items: Annotated[int | None, typer.Option(min=1, help="ask so many items of each task, chosen by a hash")] = None,
    prompt_language: Annotated[
        str | None, typer.Option(help="which of a task's prompts, else what its prompt is written in")
    ] = None,
    labels: Annotated[str | None, typer.Option(metavar="A,B,C", help="other names for the options")] = None,
    label_items: Annotated[
        int | None, typer.Option(min=0, help="label perplexity on so many items of each task (all by default)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the choice of demonstrations and items")] = 0,
    json: Annotated[Path | None, typer.Option(help="write rows, conditions and every item's scores there")] = None,
) -> None:
    """Measure a model: bits per byte on text, downstream tasks, or both."""
    from lingraft.errors import RecipeError
    from lingraft.pipeline import asking, inspecting
    from lingraft.terminal_tasks import show_answers, show_prepared

    if not text and not task:
        raise RecipeError(
            "say what to measure: --text PATH for bits per byte, --task NAME for downstream tasks, or both"
        )
    if not task:
        _refuse_without_task(tasks_folder, shots, items, prompt_language, labels, label_items, json)
    options = {
        "shots": shots,
        "items": items,
        "prompt_language": prompt_language,
        "labels": tuple(label.strip() for label in labels.split(",")) if labels else (),
    }
    stated = asking.stated_tasks(task, options) if task else {}
    if json is not None:
        asking.refuse_unwritable(json)
    found = inspecting.find_model(model, condition_on=condition_on, cache=cache())
    console = new_console()
    prepared = asking.prepare_tasks(found, stated, folder=tasks_folder, code=tasks_code, seed=seed) if stated else None
    if prepared:
        show_prepared(prepared, console)
    opened = found.load()
    if text:
        bits = inspecting.evaluate(opened, text, text_field=field, max_bytes=max_bytes)
        interval = "no interval from one document"
        if bits.low is not None and bits.high is not None:
            interval = f"95 % interval {bits.low:.4f} to {bits.high:.4f}"
        left_out = f"; {bits.lossy} left out, as the tokenizer changes them" if bits.lossy else ""
        print(
            f"{bits.value:.4f} bits per byte, {interval}; "
            f"{bits.documents} documents, {bits.bytes:,} bytes, {bits.tokens:,} tokens{left_out}"
        )
    if prepared:
        answers = asking.ask_tasks(opened, prepared, label_items=label_items)
        show_answers(answers, console)
        if json is not None:
            asking.write_answers(json, found, answers)
            say(f"{len(answers.items):,} items with their scores: {json}")


def _refuse_without_task(*options: Any) -> None:
    from lingraft.errors import RecipeError

    names = ("--tasks-folder", "--shots", "--items", "--prompt-language", "--labels", "--label-items", "--json")
    given = [name for name, option in zip(names, options, strict=True) if option is not None]
    if given:
        raise RecipeError(f"{given[0]} is about downstream tasks; name one with --task, or leave it out")


@model_verbs.command()
def probe(
    model: _ModelToProbe = None,
    name: Annotated[str, typer.Option("--probe", help="see: lingraft list probes")] = "random_copy",
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="an option of the probe")
    ] = None,
    items: Annotated[
        Path | None, typer.Option(help="write the prompts and answers there, with a manifest beside; needs no model")
    ] = None,
    condition_on: ConditionOn = None,
) -> None:
    """Run one probe of in-context learning, or write what it asks."""
    from lingraft.errors import RecipeError
    from lingraft.pipeline import inspecting
    from lingraft.strict_yaml import parse_value

    pairs = [item.partition("=") for item in options or ()]
    for key, separator, _ in pairs:
        if not (separator and key):
            raise RecipeError(f"--set {key}: write OPTION=VALUE, as in num_items=16")
    chosen = {key: parse_value(value) for key, _, value in pairs}
    if model is None and items is None:
        raise RecipeError("name a model to run the probe on, or a file with --items to write what it asks")
    if items is not None:
        manifest = inspecting.write_probe_items(name, chosen, items)
        print(
            f"{manifest['items']:,} items of {len(manifest['tasks'])} tasks in {items}; what they hash to is in "
            f"{items}.manifest.json"
        )
    if model is not None:
        opened = inspecting.open_model(model, condition_on=condition_on, cache=cache())
        for score in inspecting.probe(opened, name, chosen):
            interval = f"  ({score.low:.3f} to {score.high:.3f})" if score.low is not None else ""
            print(f"{score.name:32} {score.value:10.4f}{interval}")


@model_verbs.command()
def diagnose(model: ModelName, against: Annotated[str, typer.Option(help="the base model")]) -> None:
    """Show how far a model's weights are from another's, by kind of tensor."""
    from lingraft.pipeline import inspecting

    opened = [inspecting.open_model(name, cache=cache()) for name in (model, against)]
    shift, grown = inspecting.diagnose(*opened)
    say(f"mean L2 over tensors: {shift.mean_l2:.4f}; {grown} tokens more than {against}")
    for kind, sums in sorted(shift.kinds.items()):
        print(f"{kind:16} relative L2 {sums.relative_l2:.5f}  cosine {sums.cosine:.6f}")


@model_verbs.command()
def generate(
    model: ModelName,
    prompt: Annotated[list[str], typer.Option("--prompt", "-p", help="may be repeated")],
    against: Annotated[str | None, typer.Option(help="a second model for the same prompt")] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 40,
    condition_on: ConditionOn = None,
) -> None:
    """Continue a prompt, before and after."""
    from lingraft.pipeline import inspecting

    names = [name for name in (against, model) if name]
    models = [inspecting.open_model(name, condition_on=condition_on, cache=cache()) for name in names]
    for text, told in zip(prompt, inspecting.compare_continuations(models, prompt, max_tokens=max_tokens), strict=True):
        say(f"> {text}")
        for name, continuation in zip(names, told, strict=True):
            say(f"  {name}:\n    {continuation}")


@model_verbs.command()
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
    say(f"{merged.folder}: rows of {merged.averaged:,} tokens averaged{alone}")
