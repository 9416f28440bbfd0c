"""The model card: README.md of an exported model, from its recipe and its measurements."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lingraft.quantities import format_tokens
from lingraft.recipe import MixSpec, Recipe, Stage
from lingraft.report.averaged import averaged_record
from lingraft.report.card_results import markdown_table, results
from lingraft.report.escaping import markdown_text
from lingraft.report.evidence import summary_of
from lingraft.report.lenient import mapping_of, mappings_of, number_of
from lingraft.report.reading import RunRecord, read_record
from lingraft.report.rows import language_name
from lingraft.version import __version__

__all__ = ["model_card"]

# Of a method's options a path: all of it but its last part.
_FOLDERS = re.compile(r"(?<==)[^,()]*[/\\]")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LOADING = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "path/to/this/folder"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
prompt = tokenizer("…", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=40)[0]))
```"""
_MEASURING = (
    "Bits per byte: sum of −log₂ p over the tokens of held-out text, divided by its UTF-8 bytes; "
    "documents are scored independently, the first condition token is never scored, rows of padding "
    "are masked. It does not depend on the tokenizer, but it cannot be compared between languages. "
    "Random copy: accuracy on the second showing of a random sequence. Copain-style tasks: few-shot "
    "patterns over numbers and letters, exact match, mean of tasks. Downstream tasks: the answer with the "
    "highest log-probability is right (acc), the highest per character (acc_norm), per UTF-8 byte "
    "(acc_bytes); the perplexity of labels is per token. The ladder: mean score over 1 to 16 "
    "demonstrations on a logarithmic scale, and what true demonstrations gain over exchanged ones. Share of "
    "output: greedy continuations that are in the target language. In brackets are 95 % intervals "
    "over documents or items of one training run; another seed was not tried."
)
_ONE_FILE = (
    "tokenizer.json is the one authoritative tokenizer file. No tokenizer.model is shipped, nor vocab.json or "
    "merges.txt: they would spell out the base model's tokenizer, which is another one."
)
_LIMITS = (
    "It continues text; it was not made safe or helpful by this adaptation, and whatever the base "
    "model and the corpora hold (errors, bias, private or offensive text) can come out.",
    "Only what the tables list was measured. Knowledge, instruction following and safety were not.",
    "Held-out text comes from the same corpora as training text; other kinds of text may gain less.",
)


def model_card(run_folder: Path, *, averaged: bool = False, interpolated: float | None = None) -> str:
    """Return the model card of a run: YAML front matter, then Markdown.

    With ``averaged`` it is the card of ``model-averaged``: its numbers are those of the averaged weights. With
    ``interpolated``, the λ, it is that of ``model-interpolated``.

    All that comes from recipes, corpora or tokens is escaped for Markdown; local paths are cut to their last
    part, since a card is published. What the run folder lacks is left out or said to be missing.
    """
    record = read_record(run_folder)
    average = averaged_record(record)
    shown = average if averaged and average else record
    which = _which(shown, averaged=averaged) if average or averaged else ""
    if interpolated is not None:
        which = (
            f"These weights lie at **λ = {interpolated:g}** on the line from the base (0) to the trained weights (1), "
            "which are in `model`; rows of new tokens are the trained ones. The numbers below are of the trained "
            "weights; those of this and other λ are in the report of the run."
        )
    parts = [_front_matter(shown), f"# {markdown_text(shown.name)}", which, *_sections(shown)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _which(record: RunRecord, *, averaged: bool) -> str:
    """Say whether a folder holds the raw or the averaged weights, and where the others are."""
    ema = record.recipe.stages[-1].ema if record.recipe else None
    how = f" ({markdown_text(ema.label)})" if ema else ""
    if averaged:
        return (
            f"These are the **averaged** weights of the last stage{how}; the raw ones, which were trained, are in "
            "`model`. The numbers below are of the averaged weights."
        )
    return f"These are the **raw** weights; averaged ones{how} are in `model-averaged`, with a card of their own."


def _front_matter(record: RunRecord) -> str:
    chosen = record.recipe.export.license if record.recipe else None
    fields: dict[str, Any] = {"license": chosen or "unknown"}
    if record.recipe:
        codes = (record.target, record.source)
        fields["language"] = [code for code in codes if code]
        if _is_hub_name(record.recipe.base_model):
            fields["base_model"] = record.recipe.base_model
    fields |= {"library_name": "transformers", "pipeline_tag": "text-generation"}
    fields["tags"] = ["lingraft", "language-adaptation", "continued-pretraining", *_vocabulary_tag(record)]
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=False)}---"


def _vocabulary_tag(record: RunRecord) -> list[str]:
    method = record.recipe.vocabulary.method if record.recipe else "keep"
    return {"expand": ["vocabulary-expansion"], "replace": ["vocabulary-replacement"]}.get(method, [])


def _is_hub_name(name: str) -> bool:
    return bool(_HUB_NAME.fullmatch(name)) and not Path(name).exists()


def _last_part(name: str) -> str:
    """A hub name whole, a path without its folders: where a file lay on a machine is nobody's business."""
    return name if _is_hub_name(name) else name.rstrip("/").rsplit("/", 1)[-1]


def _sections(record: RunRecord) -> Iterator[str]:
    recipe = record.recipe
    yield _introduction(record)
    yield f"## Results\n\n{results(record)}"
    if recipe:
        yield f"## How it was made\n\n{_making(record, recipe)}"
        yield f"## Vocabulary\n\n{_vocabulary(record, recipe)}"
        yield f"## Corpora\n\n{_corpora(record, recipe)}"
        yield f"## Licences\n\n{_licences(record, recipe)}"
    yield "## Limits\n\n" + "\n".join(f"- {limit}" for limit in _LIMITS)
    yield f"## How to load it\n\n{_LOADING}"
    yield f"## How the numbers were measured\n\n{_MEASURING}"
    yield f"Made with lingraft {__version__}; {_versions(record)}."


def _introduction(record: RunRecord) -> str:
    if record.recipe is None:
        return "The recipe of this run is missing, so what it was made of cannot be said here."
    base = markdown_text(_last_part(record.recipe.base_model))
    target, source = (language_name(code) for code in (record.target or "", record.source or ""))
    text = (
        f"A causal language model: {base}, a model of {source}, taught {target} by continued "
        "pretraining, with checks that it has not forgotten."
    )
    summary = summary_of(record)
    if summary is None:
        return text
    found = "\n".join(f"- {markdown_text(finding.text)}" for finding in (*summary.gained, *summary.lost))
    notes = "\n\n".join(markdown_text(note) for note in summary.notes)
    return f"{text}\n\n**{summary.verdict.value}.** {markdown_text(summary.headline)}\n\n{found}\n\n{notes}"


def _making(record: RunRecord, recipe: Recipe) -> str:
    head = ("stage", "trains", "tokens", "mix", "learning rate", "weights averaged")
    stages = markdown_table(head, [_stage(stage) for stage in recipe.stages])
    return (
        f"{stages}\n\n{_beginning(record, recipe)}{_inserted(record)}Precision {recipe.precision}, seed {recipe.seed}."
    )


def _inserted(record: RunRecord) -> str:
    """Say which blocks were put into the base model."""
    found = record.embeddings.get("inserted_blocks")
    places = [f"`{_code(name)}`" for name in found if isinstance(name, str)] if isinstance(found, list) else []
    if not places:
        return ""
    return (
        f"Inserted blocks: {', '.join(places)}, each a copy of the block before it that began with output projections "
        "of zero. "
    )


def _beginning(record: RunRecord, recipe: Recipe) -> str:
    """Say how the new rows began: what was recorded, or what the recipe asks for where it names one method."""
    if recipe.vocabulary.method == "keep":
        return ""
    candidates = [_code(pair.label) for pair in recipe.embeddings.candidates]
    chosen = record.bakeoff.get("chosen")
    label = record.init_methods or (chosen if isinstance(chosen, str) else None)
    if label is None and recipe.embeddings.choose:
        return f"Which of `{'`, `'.join(candidates)}` filled the new rows is not recorded. "
    found = f"New rows began as `{_code(label) if label else candidates[0]}`"
    tried = f", the best of {len(candidates)} in a bake-off" if record.bakeoff else ""
    fallbacks = [number_of(mapping_of(record.embeddings.get(side)).get("fallback")) for side in ("input", "output")]
    counted = f", {max(filter(None, fallbacks)):,.0f} of them by a fallback" if any(fallbacks) else ""
    return f"{found}{tried}{counted}. "


def _code(text: str) -> str:
    """Text for between backticks, which know no escape; of paths only the last part."""
    return "".join(c for c in _FOLDERS.sub("", text) if c.isalnum() or c in "_.:-+=,() ")


def _stage(stage: Stage) -> tuple[str, ...]:
    trains = ", ".join(stage.trains)
    begins = "goes on from the stage before" if stage.lr.peak is None else f"peak {stage.lr.peak:g}"
    rate = f"{stage.lr.schedule}, {begins}"
    average = stage.ema.label if stage.ema else "no"
    tokens = format_tokens(stage.num_steps * stage.batch.tokens)
    return stage.name, trains, tokens, _mix(stage.mix), rate, average


def _mix(mix: MixSpec) -> str:
    options = [f"{_mix_option(name)}{_mix_value(value)}" for name, value in mix.options.items()]
    return "; ".join(options if mix.schedule == "constant" else [mix.schedule, *options])


def _mix_option(name: str) -> str:
    return "" if name == "mix" else f"{name} "


def _mix_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_mix_value(share)}" for name, share in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_mix_value, value))
    return f"{100 * value:.3g}%" if isinstance(value, float) else str(value)


def _vocabulary(record: RunRecord, recipe: Recipe) -> str:
    if recipe.vocabulary.method == "keep":
        return (
            "The base model's tokenizer, unchanged. tokenizer.json is the one authoritative tokenizer file; no "
            "tokenizer.model is shipped."
        )
    listed = record.expansion.get("new_tokens")
    old = number_of(record.expansion.get("num_old"))
    new = len(listed) if isinstance(listed, list) else number_of(record.expansion.get("num_new"))
    if not isinstance(old, int) or not isinstance(new, int):
        return "The record of the expansion is missing."
    parts = [_came(record, old, new), _checks(record), _ONE_FILE, *_changed_pattern(record), *_scores(record)]
    return "\n\n".join(part for part in parts if part)


def _came(record: RunRecord, old: int, new: int) -> str:
    """Say which ids are new, which were given up, and how many rows that makes."""
    if record.expansion.get("method") == "replace":
        removed = len(mappings_of(record.expansion.get("removed")))
        came, ids = f"{removed:,} of the {old:,} tokens of the base model gave way", old + new - removed
        rest = (
            f" Their ids now belong to {new:,} new tokens; vocabulary/expansion.json of the run lists what went. All "
            "other ids are unchanged."
        )
    else:
        came, ids = f"{new:,} tokens were added to the {old:,} of the base model", old + new
        rest = " Ids of old tokens are unchanged."
    rows = number_of(record.embeddings.get("rows")) or number_of(record.expansion.get("num_rows"))
    sized = f"; the matrices have {rows:,} rows" if rows else ""
    padded = ", the rest padding" if rows and rows > ids else ""
    return f"{came}{sized}{padded}.{rest}"


def _checks(record: RunRecord) -> str:
    if not record.gates:
        return ""
    passed = sum(gate.get("passed") is True for gate in record.gates)
    warned = sum(gate.get("passed") is not True and gate.get("stops") is False for gate in record.gates)
    return f"{passed} of {len(record.gates)} checks of the vocabulary passed" + (
        f", {warned} gave a warning." if warned else "."
    )


def _changed_pattern(record: RunRecord) -> Iterator[str]:
    if not record.is_patched:
        return
    yield (
        "The pattern that cuts text into words was changed so that it keeps marks in words. **Not for llama.cpp:** its "
        "converter to GGUF takes these files without an error or a warning, but the converted model cuts text with a "
        "pattern that is built in and knows nothing of the change, so target text gets wrong ids. (Measured with "
        "SmolLM2 expanded for Hindi: wrong ids on 212 of 212 Hindi documents.) A run with "
        "`vocabulary.pre_tokenizer: keep` leaves the pattern as it is and avoids this."
    )
    if record.pattern is not None:
        yield f"The pattern: {markdown_text(record.pattern)}"


def _scores(record: RunRecord) -> Iterator[str]:
    """Say what llama.cpp needs beside tokenizer.json, where the new tokenizer is one with scores elsewhere."""
    if record.expansion.get("family") == "sentencepiece_bpe" and record.expansion.get("num_new"):
        yield (
            "**For llama.cpp**, export the run with `lingraft export RUN --to FOLDER --sentencepiece`: its converter "
            "reads the order of merges from a tokenizer.model, which that command writes and checks. Without one, it "
            "takes a tokenizer of Llama 2's or Mistral's kind without an error or a warning, and the converted model "
            "gives text wrong ids."
        )


def _corpora(record: RunRecord, recipe: Recipe) -> str:
    rows = []
    for name, corpus in recipe.corpora.items():
        report = record.corpora.get(name, {})
        counts = (report.get(key) for key in ("documents", "words", "bytes"))
        paths = ", ".join(_last_part(path) for path in corpus.paths)
        numbers = [f"{n:,}" if isinstance(n, int) else "not recorded" for n in counts]
        rows.append((name, language_name(recipe.language_of(name)), paths, *numbers))
    table = markdown_table(("corpus", "language", "read from", "documents", "words", "bytes"), rows)
    return "\n\n".join([table, *_changed_text(recipe)])


def _changed_text(recipe: Recipe) -> Iterator[str]:
    """Say which corpora were normalised: what the model is given should be as well."""
    composed = [name for name, corpus in recipe.corpora.items() if corpus.normalise == "nfc"]
    stripped = [name for name, corpus in recipe.corpora.items() if corpus.strip_bidi]
    for names, done in (
        (composed, "was put into Unicode's form C (NFC)"),
        (stripped, "had its direction marks taken out (bidi controls)"),
    ):
        if names:
            yield (
                f"Text of {', '.join(map(markdown_text, names))} {done} before anything was learned from it or "
                "measured on it; give the model text in that form too, unless its tokenizer sees to that."
            )


def _licences(record: RunRecord, recipe: Recipe) -> str:
    """Say what base and corpora state; which licence follows from them is not for a program to say."""
    recorded = record.steps.get("base", {}).get("license")
    base = recipe.export.base_license or (recorded if isinstance(recorded, str) else None)
    stated = [(_last_part(recipe.base_model), "base model", base)]
    stated += [(name, "corpus", corpus.license) for name, corpus in recipe.corpora.items()]
    table = markdown_table(("what", "it is", "its licence"), [(*what, said or "not stated") for *what, said in stated])
    chosen = (
        f"This model is published under: {markdown_text(recipe.export.license)}."
        if recipe.export.license
        else "No licence has been chosen for this model (`export.license` of the recipe)."
    )
    silent = " Whether it may be used where a licence is not stated has not been worked out here."
    return f"{table}\n\n{chosen}" + (silent if any(said is None for *_, said in stated) else "")


def _versions(record: RunRecord) -> str:
    versions = record.environment.get("versions")
    if not isinstance(versions, dict):
        return "versions were not recorded"
    return ", ".join(f"{markdown_text(str(name))} {markdown_text(str(value))}" for name, value in versions.items())
