"""What each measurement is called in plain words, how its numbers are written, and which way is better."""

import re
from dataclasses import dataclass, replace
from functools import cache

__all__ = ["Metric", "metric_of"]


@dataclass(frozen=True)
class Metric:
    """How a measurement is called and written.

    Attributes:
        pattern: a regular expression over the whole name of the measurement.
        label: plain words; ``{0}`` is the first group of the pattern.
        unit: ``number``, ``percent`` (a fraction in [0, 1], shown times 100), ``small`` (significant digits),
            ``count``, ``cosine`` or ``signed`` (a difference).
        better: ``lower``, ``higher``, or empty where neither is better by itself.
        per_token: whether it counts in tokens, so that models with other tokenizers cannot be ranked by it.
        of_one_tokenizer: whether, if it does, it is only there where base and adapted model have the same tokenizer.
        place: where it stands among others in a table.
    """

    pattern: str
    label: str
    unit: str = "number"
    better: str = ""
    per_token: bool = False
    of_one_tokenizer: bool = False
    place: int = 0

    def words(self, name: str) -> str:
        """Return the label of a measurement that matches the pattern."""
        match = re.fullmatch(self.pattern, name)
        return self.label.format(*(group.replace("_", " ") for group in match.groups())) if match else name


_OF_TRAINING = re.compile(
    "loss|share|language_share|learning_rate|gradient_norm|labels|tokens_per_second|peak_memory_bytes|seconds/.*|"
    "interpolation/.*"
)
"""What is drawn as a curve of training, or told as its cost; in a table it says nothing."""

_LISTED = (
    Metric("bits_per_byte", "bits per byte", better="lower"),
    Metric("bits_per_byte/difference", "bits per byte, more than the base model (paired)", "signed", "lower"),
    Metric("probe/random_copy/accuracy", "random copy: accuracy", "percent", "higher"),
    Metric("probe/random_copy/nll_drop", "random copy: drop in nats on the second time", better="higher"),
    Metric("probe/random_copy/nll", "random copy: nats on the second time", better="lower"),
    Metric("probe/copain/exact_match", "Copain: exact match, mean of tasks", "percent", "higher"),
    Metric("probe/copain/validity", "Copain: answers that are an element", "percent", "higher"),
    Metric("probe/copain/choice_accuracy", "Copain: choice accuracy, mean of tasks", "percent", "higher"),
    Metric("probe/copain/element_picker", "Copain: picking any element (baseline)", "percent"),
    Metric("probe/copain/([^/]+)/exact_match", "{0}: exact match", "percent", "higher"),
    Metric("probe/copain/([^/]+)/choice_accuracy", "{0}: choice accuracy", "percent", "higher"),
    Metric("probe/copain/([^/]+)/validity", "{0}: validity", "percent", "higher"),
    Metric("fertility", "fertility (tokens per word)", better="lower"),
    Metric("tokens_per_byte", "tokens per byte", better="lower"),
    Metric("segmentation_drift", "held-out documents whose tokens changed", "percent"),
    Metric("new_token_nats", "nats per new token", better="lower", per_token=True),
    Metric("new_token_mass", "probability on new tokens", "small"),
    Metric("norm/([^/]+)/old", "{0} rows: median norm of the old ones"),
    Metric("norm/([^/]+)/script", "{0} rows: median norm of old ones in the target's script"),
    Metric("norm/([^/]+)/new", "{0} rows: median norm of the new ones"),
    Metric("segmentation_drift/tokens", "held-out tokens that changed", "small"),
    Metric("tokens_per_character", "tokens per character", better="lower"),
    Metric("nats_per_token", "nats per token (not comparable between tokenizers)", per_token=True),
    Metric(
        "token_perplexity",
        "perplexity per token (the tokenizer is the base's)",
        better="lower",
        per_token=True,
        of_one_tokenizer=True,
    ),
    *(
        Metric(
            f"label_perplexity/(.+)/{score}", f"{{0}}: perplexity of labels, {words}", better="lower", per_token=True
        )
        for score, words in (
            ("gold", "of the right one"),
            ("all", "of all"),
            ("gold_nats", "right one, nats per token"),
            ("all_nats", "all, nats per token"),
        )
    ),
    Metric("drift/kl", "divergence of predictions from the base's (KL, nats)", better="lower"),
    Metric("drift/cka/source", "hidden states on source text: likeness to the base's (CKA)", "cosine", "higher"),
    Metric("drift/cka/copy", "hidden states on random copies: likeness to the base's (CKA)", "cosine", "higher"),
    Metric("drift/stable_rank", "stable rank of the matrices' changes, mean", "small"),
    Metric("drift/spectral_ratio", "largest singular value of a change over that of its matrix, highest", "small"),
    Metric("drift/intruder_share", "top singular directions that the base did not have", "percent", "lower"),
    Metric("shift/mean_l2", "mean distance per tensor from the start, absolute", "small"),
    Metric("shift/mean_relative_l2", "mean relative distance per tensor from the start", "small"),
    Metric("shift/(.+)/row_cosine", "{0}: mean cosine of a row with its start", "cosine"),
    Metric("shift/(.+)/row_cosine_low", "{0}: the same, lowest twentieth", "cosine"),
    Metric("shift/(.+)/relative_l2", "{0}: relative distance", "small"),
    Metric("shift/(.+)/cosine", "{0}: cosine with the start", "cosine"),
    Metric("bits_per_byte/dead_mass", "probability on padding rows", "small", "lower"),
    Metric("bits_per_byte/full_window", "bits per byte of whole documents", better="lower"),
    Metric("bits_per_byte/per_character", "bits per character", better="lower"),
    Metric("bits_per_byte/per_word", "bits per word", better="lower"),
    Metric("bits_per_byte/with_end", "bits per byte, ends of documents scored too", better="lower"),
    Metric("bits_per_byte/lossy_documents", "documents left out as not reversible", "count"),
    Metric("bits_per_byte/(.+)", "bits per byte: {0}", better="lower"),
)
_STYLES = {
    "base": "beginnings of documents",
    "question": "questions",
    "reference": "true text, as a check of the judge",
}
_WRITTEN = {
    "script_share": ("answers in the script of the target language", "percent", ""),
    "identified_share": ("answers that the language identifier takes for the target language", "percent", "higher"),
    "target_share": ("answers in the target language", "percent", "higher"),
    "source_share": ("answers in the source language", "percent", "lower"),
    "repetition": ("sequences of four tokens that have stood before", "percent", "lower"),
    "loops": ("answers that end in a loop", "percent", "lower"),
    "empty": ("answers that are empty", "percent", "lower"),
    "new_token_share": ("new tokens among all that were written", "percent", ""),
    "distinct_new_tokens": ("different new tokens that were written", "count", ""),
}
_GENERATION = tuple(
    Metric(f"generation/{style}/{name}", f"{about}: {words}", unit, better)
    for style, about in _STYLES.items()
    for name, (words, unit, better) in _WRITTEN.items()
)
_METRICS = tuple(replace(metric, place=place) for place, metric in enumerate((*_LISTED, *_GENERATION)))

# By the last part of a name that is not listed: what kind of number it is.
_KINDS = (
    ("accuracy|auc|acc|acc_norm|acc_bytes|exact_match|em|validity|choice_accuracy|f1|.*_accuracy", "percent", "higher"),
    (".*gain", "signed", "higher"),
    (".*share|.*_rate|.*coverage|empty|finished", "percent", ""),
    ("element_picker|chance|baseline|first|last|middle|repeat_last|majority_place", "percent", ""),
    ("gold_log_probability|.*log_probability", "number", "higher"),
    (".*nll|.*perplexity|gold|all|kl|.*divergence|.*bits_per_byte", "number", "lower"),
    ("relative_l2|.*mass|mean_l2|stable_rank.*|.*_l2", "small", ""),
    ("cosine|cka|.*_cka", "cosine", ""),
    ("count|.*_count|.*documents|.*items|new_tokens|intruder.*|seams_crossed|prompts_cut", "count", ""),
    (".*difference|.*change", "signed", ""),
)


@cache
def metric_of(name: str) -> Metric | None:
    """Return how a measurement is called and written; None for one that belongs on a curve of training only.

    A name that is not listed is called by its parts, and its last part tells what kind of number it is.
    """
    if _OF_TRAINING.fullmatch(name):
        return None
    listed = next((metric for metric in _METRICS if re.fullmatch(metric.pattern, name)), None)
    if listed:
        return listed
    plain = name.removeprefix("averaged/")
    if plain != name and (metric := metric_of(plain)) is not None:
        words = f"averaged weights, {metric.words(plain)}".replace("{", "{{").replace("}", "}}")
        return replace(metric, pattern=re.escape(name), label=words, place=len(_METRICS))
    last = name.rpartition("/")[2]
    unit, better = next(((unit, better) for kind, unit, better in _KINDS if re.fullmatch(kind, last)), ("small", ""))
    # Braces of a hostile name would be read as places to fill in.
    label = _in_words(name).replace("{", "{{").replace("}", "}}")
    return Metric(re.escape(name), label, unit, better, place=len(_METRICS))


def _in_words(name: str) -> str:
    """Return a name's parts in words: ``probe/position/auc`` is ``position: area over demonstrations``."""
    kind, *parts = name.split("/")
    if kind == "averaged" and parts:
        return f"averaged weights, {_in_words('/'.join(parts))}"
    if kind not in _FAMILIES or len(parts) < 2:
        return name.replace("_", " ").replace("/", ", ")
    *places, last = parts
    where = ", ".join(places).replace("_", " ")
    return f"{where}: {_FAMILIES[kind]}{_SCORES.get(last, last.replace('_', ' '))}"


_FAMILIES = {
    "probe": "",
    "task": "",
    "label_perplexity": "perplexity of labels, ",
    "generation": "",
    "drift": "drift, ",
}
_SCORES = {
    "auc": "area over log₂ of demonstrations",
    "icl_gain": "gain by true demonstrations over exchanged ones",
    "gold": "of the right one",
    "all": "of all",
    "target_share": "share of output in the target language",
    "acc": "acc",
    "acc_norm": "acc_norm (by characters)",
    "acc_bytes": "acc_bytes (by bytes)",
}
