"""Write docs/recipe.md: every option of a recipe, from the pydantic model itself, and every name that it may use.

    python scripts/write_recipe_reference.py            write docs/recipe.md
    python scripts/write_recipe_reference.py --check    say whether it is up to date (exit status 1 if not)

Names, kinds, limits and defaults come from ``lingraft.recipe`` and the registries. Only the sentence on what an option
means stands here; an option without one, or a sentence without an option, is an error.
"""

import argparse
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lingraft import recipe as recipes
from lingraft import recipe_pairs
from lingraft.corpus.mixing import mix_schedules
from lingraft.corpus.quality import quality_filters
from lingraft.embeddings import init_methods
from lingraft.measure.probes import probes
from lingraft.registry import Registry
from lingraft.training.guards import guards
from lingraft.training.learning_rate import lr_schedules
from lingraft.training.optimizer import optimizers

__all__ = ["main", "reference"]

TARGET = Path(__file__).parents[1] / "docs" / "recipe.md"

_PARTS = (
    ("", recipes.Recipe),
    ("languages", recipes.Languages),
    ("corpora.NAME", recipes.Corpus),
    ("corpora.NAME.pairs", recipe_pairs.Pairs),
    ("corpora.NAME.language_id", recipes.LanguageId),
    ("corpora.NAME.near_duplicates", recipes.NearDuplicates),
    ("documents", recipes.Documents),
    ("vocabulary", recipes.Vocabulary),
    ("embeddings", recipes.EmbeddingInit),
    ("embeddings.choose.N", recipes.InitPair),
    ("blocks", recipes.Blocks),
    ("stages.N", recipes.Stage),
    ("stages.N.mix", recipes.MixSpec),
    ("stages.N.train", recipes.Layers),
    ("stages.N.lr", recipes.LearningRate),
    ("stages.N.batch", recipes.Batch),
    ("stages.N.optimizer", recipes.Optimizer),
    ("stages.N.bpe_dropout", recipes.BpeDropout),
    ("stages.N.alarms", recipes.Alarms),
    ("stages.N.ema", recipes.Ema),
    ("stages.N.slices", recipes.Slices),
    ("interpolate", recipes.Interpolation),
    ("export", recipes.Export),
    ("measure", recipes.Measure),
    ("measure.drift", recipes.Drift),
    ("measure.windows", recipes.Windows),
    ("measure.tasks.N", recipes.DownstreamTask),
    ("measure.alarm", recipes.ForgettingAlarm),
    ("measure.generation", recipes.Generation),
    ("measure.probes.N", recipes.Choice),
)

_KINDS = {
    "parse_tokens": "tokens, as `50M`",
    "_parse_fraction": "fraction, as `10%` or `0.1`",
    "_parse_length": "fraction of the stage, as `10%`, or tokens, as `5M`",
    "_parse_language": "language code, as `eu`",
}
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "nothing"}

_MEANINGS = {
    "name": "Name of the run; its folder is `runs/NAME`.",
    "seed": "Decides sampling order, new rows that are drawn, and dropout.",
    "base_model": "A hub id, a folder, a `.gguf` file, or `package:NAME` for an installed package with a GGUF file.",
    "revision": "Branch, tag or commit of a hub model.",
    "languages": "Source and target.",
    "corpora": "Name → corpus. A name that is a language code states the corpus's language.",
    "documents": "Border tokens of documents.",
    "vocabulary": "How the vocabulary grows.",
    "embeddings": "How new rows begin.",
    "precision": "Type of matrix products, in training and measuring. Weights, optimiser, loss and averages are fp32.",
    "device": "`auto` takes a GPU where there is one.",
    "stages": "What is trained, one after another.",
    "compile": "Compile the body for training (a minute or two at the start; needs a C++ compiler on a CPU).",
    "measure": "What is measured, when, on how much.",
    "track": "Experiment trackers beside `measurements.jsonl`, by name: `tensorboard`, `wandb`, `mlflow`, `trackio`, …",
    "languages.source": "The language that must not be forgotten.",
    "languages.target": "The language to learn.",
    "corpora.NAME.path": "File, folder, glob, or a list, seen from the recipe; with `split` a hub data set's name.",
    "corpora.NAME.language": "Language of the text; the corpus's name if not said.",
    "corpora.NAME.text": "The field of jsonl, parquet and hub rows that holds the text.",
    "corpora.NAME.split": "Split of a hub data set, as `train`; its presence makes `path` a hub name.",
    "corpora.NAME.config": "Configuration of a hub data set that has several.",
    "corpora.NAME.revision": "Revision of a hub data set; without one, the data can change between two runs.",
    "corpora.NAME.validation": "Share of documents held out, chosen by a hash.",
    "corpora.NAME.split_by": "What is hashed: the text, or the document's id (so that translations fall on one side).",
    "corpora.NAME.max_documents": "Read at most so many documents.",
    "corpora.NAME.bad_lines": "Stop at a line that cannot be read, leave it out and count it, or put U+FFFD where it "
    "cannot be text (what is no document even so is left out).",
    "corpora.NAME.max_bad_fraction": "With `skip` and `replace`, the largest share of lines left out or repaired.",
    "corpora.NAME.max_line_bytes": "A longer line is a bad one; no more of it is held in memory.",
    "corpora.NAME.tolerate_truncated_tail": "Files may end in the middle of a line or of their compression.",
    "corpora.NAME.normalise": "Unicode normal form that the text is put into.",
    "corpora.NAME.strip_bidi": "Take bidi marks out; joiners and non-joiners always stay.",
    "corpora.NAME.min_characters": "Leave out shorter documents.",
    "corpora.NAME.max_characters": "Leave out longer documents.",
    "corpora.NAME.quality": "Quality filters, each a name or `{name: …, OPTION: …}`; see `lingraft list filters`.",
    "corpora.NAME.language_id": "Check the language of each document.",
    "corpora.NAME.scripts": "Scripts that its letters should be of, as `[Latin]`; those of the language if not said.",
    "corpora.NAME.max_other_script": "Warn where a larger share of the letters is of other scripts.",
    "corpora.NAME.deduplicate": "Leave out documents whose text was seen before.",
    "corpora.NAME.near_duplicates": "Leave out documents that are nearly one seen before; `{}` takes the defaults.",
    "corpora.NAME.language_id.model": "`small`, or the path of a fastText model.",
    "corpora.NAME.language_id.labels": "Answers that count as the corpus's language; its code if not said.",
    "corpora.NAME.language_id.min_probability": "A guess with less is no answer.",
    "corpora.NAME.language_id.action": "Count documents in another language, or leave them out.",
    "corpora.NAME.near_duplicates.similarity": "Share of rows in common from which two documents are the same.",
    "corpora.NAME.near_duplicates.row_words": "Words in a row.",
    "corpora.NAME.near_duplicates.num_hashes": "Hashes in a signature.",
    "corpora.NAME.near_duplicates.num_bands": "Parts of a signature, of which one must agree; divides `num_hashes`.",
    "corpora.NAME.max_epochs": "Refuse to repeat the corpus more often, over all stages.",
    "corpora.NAME.pairs": "Parallel text: documents are pairs of a text and its translation.",
    "corpora.NAME.pairs.languages": "Of the two sides, as `[eu, en]`.",
    "corpora.NAME.pairs.fields": "Of the two sides in a row; not set, `path` lists two aligned files, as `languages`.",
    "corpora.NAME.pairs.direction": "Which side stands first: the first, the second, or each in half of the documents.",
    "corpora.NAME.pairs.separator": "What stands between the two.",
    "documents.start": "Token in front of each document; `auto` is what the base tokenizer puts there, `none` is none.",
    "documents.end": "Token after each document; `auto` is EOS.",
    "documents.condition_on": "Token in front of every scored text; `auto` is BOS, or EOS where there is no BOS.",
    "vocabulary.method": "Leave the vocabulary as it is, append tokens, or let rare old tokens give way to new ones.",
    "vocabulary.new_tokens": "At most so many; `auto` stops where more of them save too little.",
    "vocabulary.max_new_tokens": "With `auto`, the most that it may come to.",
    "vocabulary.min_saving": "With `auto`, the share of held-out target tokens that a further thousand must save.",
    "vocabulary.second_tokenizer": "Only tokens of this tokenizer are added, with what lies on the way to them: "
    "a folder, "
    "a `tokenizer.json`, or a hub id.",
    "vocabulary.languages": "Languages whose text is to be shortened; several grow in turn, the one that pays "
    "most first. "
    "The target alone if not said. Text of all other corpora is protected.",
    "vocabulary.sample_bytes": "Of each language, learn on at most so much text, spread evenly over it.",
    "vocabulary.pre_tokenizer": "Whether the pattern that cuts words is changed so that it keeps marks in "
    "words: where it cuts one target word in twenty, never, or always. With a changed pattern llama.cpp cuts target "
    "text wrongly, without an error.",
    "vocabulary.min_count": "How often a token must occur in the target text to be learned.",
    "vocabulary.max_characters": "Longest token, its leading space not counted.",
    "vocabulary.veto_per_million": "How often a merge may fire per million tokens of protected source text; 0: never.",
    "vocabulary.allow_digits": "Whether tokens may hold digits.",
    "vocabulary.max_source_drift": "Largest share of held-out source tokens that may change.",
    "vocabulary.row_multiple": "Matrices that grow are padded to a multiple of so many rows; spare rows of "
    "the base are used first.",
    "embeddings.input": "Init method of the input matrix (and of a tied head): a name, or `{name: …, OPTION: …}`.",
    "embeddings.output": "Init method of the output matrix of an untied model; as `input` if not said.",
    "embeddings.choose": "Candidates of the bake-off; each a method, or `{input: …, output: …}`. The best "
    "fills the rows.",
    "embeddings.choose.N.input": "As `embeddings.input`; a candidate that is only a name has this alone.",
    "embeddings.choose.N.output": "As `embeddings.output`.",
    "embeddings.choose_steps": "Optimiser steps that each candidate gets, on the text of the first stage.",
    "embeddings.calibrate": "Rescale new input rows of untied models to the length of rows of the target's script.",
    "embeddings.max_source_mass": "Stop if new ids get more of the probability on source text, right after filling.",
    "embeddings.max_source_rise": "Stop if source bits per byte rise by more, right after the rows are filled.",
    "blocks": "Blocks to insert into the base, if any; a number is enough.",
    "blocks.count": "How many copies, one behind each of as many groups of blocks.",
    "blocks.after": "Or the blocks, from 0, behind which a copy of each stands.",
    "stages.N.name": "Name of the stage, unlike all others.",
    "stages.N.train": "Words, patterns over parameter names, or layers at the ends; see above.",
    "stages.N.tokens": "Length; rounded up to whole optimiser steps.",
    "stages.N.mix": "Shares of the corpora, in tokens.",
    "stages.N.lr": "Learning rate over time.",
    "stages.N.batch": "Size of an optimiser step.",
    "stages.N.optimizer": "The optimiser and its constants.",
    "stages.N.z_loss": "Weight of log² Z in the loss, as `1e-4`, which keeps the normaliser near 1.",
    "stages.N.extra_heads": "Heads that predict further ahead while the stage trains; the model does not keep them.",
    "stages.N.bpe_dropout": "Merges left out at random in training text, if any.",
    "stages.N.bpe_dropout.rate": "How often a merge that could be made is not.",
    "stages.N.bpe_dropout.merges": "Which merges may be left out.",
    "stages.N.alarms": "What follows a step that looks wrong.",
    "stages.N.train.top_layers": "So many layers nearest the output.",
    "stages.N.train.bottom_layers": "So many layers nearest the input.",
    "stages.N.train.also": "What else trains, in words and patterns.",
    "stages.N.alarms.spikes": "What follows a spike.",
    "stages.N.alarms.sigmas": "How far above the mean a spike lies, in standard deviations.",
    "stages.N.alarms.window": "Over how many steps mean and deviation are taken; before that nothing is a spike.",
    "stages.N.alarms.bad_steps": "So many steps in a row that are not finite stop the stage.",
    "stages.N.ema": "Averaging of the weights, if any.",
    "stages.N.guards": "Guards against forgetting by name, with their options, as `{name: l2_start, strength: 0.01}`.",
    "stages.N.checkpoint_every": "Distance between checkpoints; a run that was begun may change it.",
    "stages.N.saves_beside": "Whether training goes on while a checkpoint is written from a copy; one process only.",
    "stages.N.mix.schedule": "Name of a mix schedule.",
    "stages.N.mix.options": "Its options; written beside `schedule`.",
    "stages.N.lr.schedule": "Name of a learning-rate schedule: the shape after warm-up.",
    "stages.N.lr.peak": "Highest rate; needed unless `rewarm` is false.",
    "stages.N.lr.embeddings": "Peak of the embedding matrices; as `peak` if not said.",
    "stages.N.lr.rewarm": "Whether the stage warms up to a peak, or begins at the rate that the one before ended with.",
    "stages.N.lr.decay": "Length of the last, falling part of `wsd` and `infinite`; theirs if not said.",
    "stages.N.lr.cooldown": "Length of the first, falling part of `infinite`; its own if not said.",
    "stages.N.lr.plateau": "Rate of the level part of `infinite`, as a share of the peak; its own if not said.",
    "stages.N.lr.warmup": "Length of the linear rise to the peak.",
    "stages.N.lr.floor": "Rate at the end of the stage, as a share of the peak.",
    "stages.N.batch.tokens": "Tokens per optimiser step; a multiple of `sequence_length`.",
    "stages.N.batch.sequence_length": "Tokens per sequence.",
    "stages.N.batch.micro_batch": "Sequences per forward pass; changes memory and time, not what is learned. "
    "A run goes on with another one after `--accept-changed memory`.",
    "stages.N.batch.checkpoint_activations": "Activations are made again in the backward pass: less memory, more time.",
    "stages.N.batch.isolate": (
        "Whether documents of one sequence are kept from seeing each other. Off, because it needs an explicit mask "
        "(slower kernels), and models that take none are refused. Without a start token of documents, name one."
    ),
    "stages.N.optimizer.name": "Name of an optimiser.",
    "stages.N.optimizer.start": "Whether moments begin anew or go on from the stage before.",
    "stages.N.optimizer.momentum": "Of `sgd` and `muon`; their own if not said.",
    "stages.N.optimizer.betas": "Decay of the two moments.",
    "stages.N.optimizer.eps": "Added to the root of the second moment.",
    "stages.N.optimizer.weight_decay": "On matrices only; never on tables of which only some rows learn.",
    "stages.N.optimizer.clip": "Largest norm of the gradient.",
    "stages.N.slices": "Whether the stage is trained in slices that are merged.",
    "stages.N.slices.count": "How many slices; the stage's steps must be a multiple of it.",
    "stages.N.slices.width": "How many branches start from the same weights and are merged.",
    "stages.N.slices.merge": "How: on the line, or on the arc.",
    "stages.N.ema.kind": "Which average; see above.",
    "stages.N.ema.decay": "Weight of the old weights, α; of the start with `to_start`. Each kind has "
    "its own: 0.92 for `live` and `lr_matched`, 0.5 for `lookahead`, 0.01 for `to_start`, 0.999 for `shadow`.",
    "stages.N.ema.every": "Average every so many optimiser steps, η: 1, 5 for `lookahead`, 10 for `to_start` and "
    "`uniform`.",
    "stages.N.ema.warmup": "`shadow` only: whether the n-th update's decay is at most (1 + n) / (10 + n); true.",
    "stages.N.ema.after": "`uniform` only: where in the stage the mean begins; 50%.",
    "corpora.NAME.license": "Under which licence its text is; told on the model card.",
    "export": "What the published folder says of itself; may be changed in a finished run.",
    "export.license": "The licence of the new model, if its publisher has chosen one; the card's front matter has it.",
    "export.base_license": "The licence of the base model, where it does not state its own.",
    "export.tokenizer_class": "What `tokenizer_config.json` names: as the base does, or `PreTrainedTokenizerFast`, "
    "which transformers 4 knows too; `auto` takes it in place of a name that only version 5 knows.",
    "interpolate": "A sweep back to the base at the end, if any.",
    "interpolate.weights": "The λ to measure, between 0, the base, and 1, what was trained.",
    "interpolate.max_source_rise": "How many source bits per byte more than the base's the best λ may cost.",
    "interpolate.export": "Whether to publish the best as `model-interpolated`.",
    "measure.at": "Points of each stage, as fractions; the end is always one.",
    "measure.bits_per_byte": "Languages to measure; all that have a corpus if not said.",
    "measure.checkpoint_rule": "Which weights of the run's end comparisons take: raw, averaged, or both as arms.",
    "measure.validation_bytes": "Held-out text per language.",
    "measure.segment_bytes": "Longest piece that is scored by itself.",
    "measure.tasks": "Downstream tasks, by name; they need the extra `eval`.",
    "measure.tasks_folder": "Folder of tasks for all entries that name none; lm-eval's own, from a hub, if not said.",
    "measure.tasks_code": "Whether Python functions that files of such a folder name may be run.",
    "measure.tasks_at": "Where tasks run, beside the base: at the run's end, at stage ends, or at every point.",
    "measure.label_items": "Items of each multiple-choice task whose answers' perplexity is measured at every point.",
    "measure.tasks.N.name": "A task, group or tag, or `set:LANGUAGE`.",
    "measure.tasks.N.label": "Under which results are filed; `name` if not said.",
    "measure.tasks.N.folder": "Folder with the task's YAML and data.",
    "measure.tasks.N.shots": "Demonstrations; the task's own number if not said.",
    "measure.tasks.N.language": "The language that the task is about.",
    "measure.tasks.N.prompt_language": "The language of the prompt: chosen where a task has several, else stated.",
    "measure.tasks.N.labels": "Names of the options in place of the task's, as `[A, B, C, D]`.",
    "measure.tasks.N.prompt": "Template in place of the task's `doc_to_text`.",
    "measure.tasks.N.description": "Text in front of everything.",
    "measure.tasks.N.items": "At most so many items, chosen by a hash.",
    "measure.tasks.N.cluster": "Field that items of one passage share; looked for if not said.",
    "measure.windows": "How long text is scored.",
    "measure.windows.mode": "Windows that overlap, or that share no token.",
    "measure.windows.stride": "Share of a window by which each begins behind the one before.",
    "measure.windows.full": "Whether whole documents are scored too, at the base and at stage ends.",
    "measure.windows.with_end": "Whether the ends of documents are scored too, in a row of their own.",
    "measure.probes": "Probes of in-context learning; heavy ones run on the base and at stage ends.",
    "measure.benchmark_files": "Files of evaluation items (jsonl, txt); those found in training text are reported.",
    "measure.parameter_shift": "Whether to measure how far the weights have moved.",
    "measure.drift": "How far function and weights have come from the base's, at stage ends.",
    "measure.drift.tokens": "Tokens of source text, and of random copies, for KL and CKA; 0 for neither.",
    "measure.drift.spectral_layers": "Layers whose matrices' changes are taken apart; 0 for none.",
    "measure.alarm": "When training has cost too much, and what follows.",
    "measure.alarm.action": "What follows: nothing, a warning with advice, or a stop with a checkpoint.",
    "measure.alarm.probe": "The score of a light probe to watch, as in `random_copy/accuracy`.",
    "measure.alarm.probe_drop": "Share of the base's score that may be lost.",
    "measure.alarm.source_rise": "Share by which the base's bits per byte of source text may rise.",
    "measure.alarm.shift": "Relative distance that attention or MLP matrices may move.",
    "measure.alarm.every": "How often to look between the measuring points of `measure.at`; only there if not said.",
    "measure.generation": "What base and adapted model write by themselves.",
    "measure.generation.prompts": "Continuations of each style; 0 for none.",
    "measure.generation.tokens": "Length of each.",
    "measure.generation.questions": "Your own questions in the target language.",
    "measure.batch_size": "Sequences per forward pass when measuring.",
    "measure.samples": "Prompts to continue before and after; the beginnings of held-out documents if none.",
    "measure.sample_tokens": "Length of the continuations.",
    "measure.probes.N.name": "Name of a probe.",
    "measure.probes.N.options": "Its options; written beside `name`.",
}

_HEAD = """\
# Recipe reference

<!-- Written by scripts/write_recipe_reference.py from src/lingraft/recipe.py. Do not edit. -->

Every option of a recipe, with its default. A recipe states only what differs; `lingraft plan` checks it, and the
resolved copy is `recipe.yaml` in the run folder. `--set PATH=VALUE` puts a value over a recipe's own, with the paths
used here (`N` counts from 0): `--set stages.1.tokens=1M`.

Lengths are in tokens (`200k`, `50M`, `1B`); fractions may be written `10%` or `0.1`. YAML is read strictly: unknown and
repeated keys, anchors and tags are refused, `no` is Norwegian and not false, `1e-4` is a number.
"""

_NAMES_HEAD = """\
## Names

What `lingraft list` shows. A recipe may also name a function of yours, as `my_package.my_module:my_function`; its
keyword-only arguments are its options.
"""


def main() -> int:
    """Write the page, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    if parser.parse_args().check:
        return int(not TARGET.exists() or TARGET.read_text(encoding="utf-8") != reference())
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(reference(), encoding="utf-8")
    return 0


def reference() -> str:
    """Return the page as Markdown.

    Raises:
        SystemExit: an option has no meaning here, or a meaning has no option.
    """
    options = {f"{path}.{name}".lstrip(".") for path, part in _PARTS for name in part.model_fields}
    if options != _MEANINGS.keys():
        sys.exit(f"options and their meanings differ in {sorted(options ^ _MEANINGS.keys())}")
    parts = [_HEAD, *(_part(path, part) for path, part in _PARTS), _NAMES_HEAD, *map(_registry, _registries())]
    return "\n".join(parts)


def _part(path: str, part: type[BaseModel]) -> str:
    title = f"`{path}`" if path else "The top level"
    lines = [f"## {title}", "", _prose(part), "", "| option | value | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in part.model_fields.items():
        meaning = _MEANINGS[f"{path}.{name}".lstrip(".")]
        lines.append(f"| `{name}` | {_kind(field)} | {_default(field)} | {meaning} |")
    return "\n".join([*lines, ""])


def _prose(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").replace("``", "`")


def _kind(field: FieldInfo) -> str:
    return _described(field.annotation, field.metadata).replace("|", r"\|")


def _described(annotation: Any, metadata: Any = ()) -> str:
    """Return a type in words: the units of lingraft.quantities by name, limits behind."""
    for item in metadata:
        name = getattr(getattr(item, "func", None), "__name__", None)
        if name in _KINDS:
            return _KINDS[name]
    limits = ", ".join(_limits(metadata))
    return f"{_plain(annotation)}, {limits}" if limits else _plain(annotation)


def _plain(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [m for item in arguments[1:] for m in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _described(arguments[0], inner)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_plain(option) for option in arguments if option is not type(None))
    if origin is tuple:
        return f"list of {_plural(_plain(arguments[0]))}" if arguments[-1] is ... else f"{len(arguments)} numbers"
    if origin is dict:
        return "options" if arguments[1] is Any else f"name → {_plain(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{_anchor(annotation)})"
    return _WORDS[annotation]


def _plural(words: str) -> str:
    kind, comma, rest = words.partition(",")
    return words if words.startswith("[") else f"{kind}s{comma}{rest}"


def _anchor(part: type[BaseModel]) -> str:
    """Return what GitHub makes of a heading such as ``stages.N.mix``: lower case, without dots."""
    return next(path for path, known in _PARTS if known is part).lower().replace(".", "")


def _limits(metadata: Any) -> Iterator[str]:
    for item in metadata:
        if isinstance(item, annotated_types.Ge):
            yield f"≥ {item.ge}"
        elif isinstance(item, annotated_types.Gt):
            yield f"> {item.gt}"
        elif isinstance(item, annotated_types.Lt):
            yield "< 2⁶³" if item.lt == 2**63 else f"< {item.lt}"
        elif isinstance(item, annotated_types.MinLen):
            yield "not empty"
        elif getattr(item, "pattern", None):
            yield "letters, digits, `.`, `_`, `-`"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default()
    if value is None:
        return "not set"
    if isinstance(value, BaseModel):
        return "all defaults"
    if isinstance(value, tuple):
        return ", ".join(f"`{getattr(item, 'name', item)}`" for item in value) or "none"
    if value == {}:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _registries() -> Iterator[tuple[str, str, Registry]]:
    yield "Init methods", "for `embeddings.input` and `embeddings.output`", init_methods
    yield "Mix schedules", "for `stages.N.mix.schedule`", mix_schedules
    yield "Learning-rate schedules", "for `stages.N.lr.schedule`", lr_schedules
    yield "Optimisers", "for `stages.N.optimizer.name`", optimizers
    yield "Guards", "for `stages.N.guards`", guards
    yield "Probes", "for `measure.probes`", probes
    yield "Quality filters", "for `corpora.NAME.quality`", quality_filters


def _registry(entry: tuple[str, str, Registry]) -> str:
    title, where, registry = entry
    lines = [f"### {title}, {where}", "", "| name | options | what it is | reference |", "| --- | --- | --- | --- |"]
    for known in registry:
        options = ", ".join(
            f"`{name}`" if p.default is p.empty else f"`{name}` = {p.default}" for name, p in known.options().items()
        )
        summary = known.summary.removeprefix("Return").lstrip(" ,").replace("|", r"\|").replace("``", "`")
        what = summary[0].upper() + summary[1:]
        lines.append(f"| `{known.name}` | {options or 'none'} | {what} | {known.reference} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
