"""Verbs that look at models, without a run."""

from pathlib import Path
from typing import Annotated

import typer

from lingraft.cli_options import ConditionOn, ModelName, cache

__all__ = ["diagnose", "evaluate", "generate", "merge", "model_verbs", "probe"]

model_verbs = typer.Typer()

_ModelToProbe = Annotated[
    str | None, typer.Argument(help="a hub id, a model folder, a .gguf file or package:name", show_default=False)
]


@model_verbs.command(name="eval")
def evaluate(
    model: ModelName,
    text: Annotated[list[str], typer.Option(help="a file, folder or glob of text; may be repeated")],
    field: Annotated[str, typer.Option(help="the text field of jsonl and parquet")] = "text",
    max_bytes: Annotated[int, typer.Option(min=1, help="how much of it to read")] = 200_000,
    condition_on: ConditionOn = None,
) -> None:
    """Measure bits per byte of a model on text."""
    from lingraft.pipeline import inspecting

    opened = inspecting.open_model(model, condition_on=condition_on, cache=cache())
    bits = inspecting.evaluate(opened, text, text_field=field, max_bytes=max_bytes)
    print(
        f"{bits.value:.4f} bits per byte, 95 % interval {bits.low:.4f} to {bits.high:.4f}; "
        f"{bits.documents} documents, {bits.bytes:,} bytes, {bits.tokens:,} tokens"
    )


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
    print(f"mean L2 over tensors: {shift.mean_l2:.4f}; {grown} tokens more than {against}")
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
    from lingraft.report.escaping import visible

    names = [name for name in (against, model) if name]
    models = [inspecting.open_model(name, condition_on=condition_on, cache=cache()) for name in names]
    for text, told in zip(prompt, inspecting.compare_continuations(models, prompt, max_tokens=max_tokens), strict=True):
        print(f"> {visible(text)}")
        for name, continuation in zip(names, told, strict=True):
            print(f"  {name}:\n    {visible(continuation)}")


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
    print(f"{merged.folder}: rows of {merged.averaged:,} tokens averaged{alone}")
