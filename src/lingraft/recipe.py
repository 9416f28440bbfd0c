"""The frozen Recipe: the one statement of every option.

The command line (``--set path=value``), the Python API and the docs table all come from these classes.
A recipe states only what differs from the defaults; the resolved copy goes into the run folder.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lingraft.errors import nearest
from lingraft.quantities import Fraction, LanguageCode, TokenCount
from lingraft.recipe_corpus import Corpus, LanguageId, NearDuplicates
from lingraft.recipe_export import Export
from lingraft.recipe_forgetting import Drift, ForgettingAlarm, Generation
from lingraft.recipe_guard import Blocks, Ema, Interpolation, Slices
from lingraft.recipe_measure import Measure, Windows
from lingraft.recipe_part import Choice, Name, Part, as_tuple
from lingraft.recipe_stage import (
    TRAIN_WORDS,
    Alarms,
    Batch,
    BpeDropout,
    Layers,
    LearningRate,
    MixSpec,
    Optimizer,
    Stage,
)
from lingraft.recipe_tasks import DownstreamTask

__all__ = [
    "TRAIN_WORDS",
    "Alarms",
    "Batch",
    "Blocks",
    "BpeDropout",
    "Choice",
    "Corpus",
    "Documents",
    "DownstreamTask",
    "Drift",
    "Ema",
    "EmbeddingInit",
    "Export",
    "ForgettingAlarm",
    "Generation",
    "InitPair",
    "Interpolation",
    "LanguageId",
    "Languages",
    "Layers",
    "LearningRate",
    "Measure",
    "MixSpec",
    "NearDuplicates",
    "Optimizer",
    "Recipe",
    "Slices",
    "Stage",
    "Vocabulary",
    "Windows",
]


class Languages(Part):
    """The language that the base model is good at, and the one it is to learn."""

    source: LanguageCode
    target: LanguageCode

    @model_validator(mode="after")
    def _differ(self) -> "Languages":
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}")
        return self


class Documents(Part):
    """What stands at the borders of a document in the token stream.

    ``start`` is a token, ``none``, or ``auto``: what the base tokenizer itself puts in front of a text (nothing for
    SmolLM2, BOS for Llama); ``auto`` for ``end`` is the tokenizer's EOS. ``condition_on`` is the token that likelihoods
    are conditioned on and that is never scored; ``auto`` is BOS, or EOS where there is no BOS.
    """

    start: str = "auto"
    end: str = "auto"
    condition_on: str = "auto"


class Vocabulary(Part):
    """How the vocabulary grows.

    ``method`` is ``keep``, ``expand``, or ``replace`` (rare old tokens give way to as many new ones). ``new_tokens`` is
    a number, or ``auto``: growth stops where a further thousand tokens save less than ``min_saving`` of the held-out
    target tokens, at ``max_new_tokens`` at the latest. With ``second_tokenizer`` (a folder, a ``tokenizer.json`` or a
    hub id) only tokens of that tokenizer are added, and what lies on the way to them. ``languages`` are those whose
    text is to be shortened, the target alone by default; text of every other language is protected:
    ``veto_per_million`` is how often a new merge may fire per million tokens of it; 0 leaves it as it was, token for
    token. ``max_source_drift`` is the share of held-out source tokens that may change. ``pre_tokenizer`` says whether
    the pattern that cuts text into words is changed so that it keeps marks inside words: ``auto`` does so where it cuts
    one target word in twenty.
    """

    method: Literal["keep", "expand", "replace"] = "expand"
    new_tokens: Annotated[TokenCount, Field(gt=0)] | Literal["auto"] = 2000
    max_new_tokens: Annotated[TokenCount, Field(gt=0)] = 32_000
    min_saving: Annotated[float, Field(gt=0, lt=1)] = 0.01
    second_tokenizer: str | None = None
    languages: tuple[LanguageCode, ...] | None = None
    sample_bytes: Annotated[int, Field(ge=10_000)] = 100_000_000
    min_count: Annotated[int, Field(ge=1)] = 10
    max_characters: Annotated[int, Field(ge=2)] = 24
    veto_per_million: Annotated[float, Field(ge=0)] = 0.0
    allow_digits: bool = False
    max_source_drift: Fraction = 0.001
    pre_tokenizer: Literal["auto", "keep", "patch"] = "auto"
    row_multiple: Annotated[int, Field(ge=1)] = 64

    _tuple = field_validator("languages", mode="before")(as_tuple)

    @property
    def most_new_tokens(self) -> int:
        """The number of new tokens, with ``auto`` the largest that it may come to; 0 with ``keep``."""
        if self.method == "keep":
            return 0
        return self.max_new_tokens if self.new_tokens == "auto" else self.new_tokens


class InitPair(Part):
    """An init method for the input rows and one for the output rows; written short, one name or choice for both."""

    input: Choice
    output: Choice | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, data: Any) -> Any:
        return {"input": data} if isinstance(data, str) or (isinstance(data, dict) and "name" in data) else data

    @property
    def label(self) -> str:
        """The pair in a few words: ``subword_mean``, ``subword_mean + mean`` or ``omp(k=32)``."""
        return " + ".join(choice.label for choice in (self.input, self.output) if choice is not None)


class EmbeddingInit(Part):
    """How the rows of new tokens are filled; ``output`` (by default as ``input``) is for untied models only.

    With ``choose`` the method is found by the bake-off: every candidate trains for ``choose_steps`` optimiser steps of
    the first stage from the same state, and the one with the fewest target bits per byte after it is taken.
    ``calibrate`` rescales new input rows of untied models to the norm of existing rows of the target's script. The run
    stops when, right after the rows are filled, source bits per byte rise by more than ``max_source_rise`` or new ids
    get more than ``max_source_mass`` of the probability on source text: new rows that are too long, or a head that
    favours them.
    """

    input: Choice = Choice(name="subword_mean")
    output: Choice | None = None
    choose: tuple[InitPair, ...] = ()
    choose_steps: Annotated[int, Field(ge=1)] = 50
    calibrate: bool = False
    max_source_rise: Annotated[float, Field(gt=0)] = 0.05
    max_source_mass: Annotated[float, Field(gt=0, le=1)] = 0.05

    _tuple = field_validator("choose", mode="before")(as_tuple)

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> "EmbeddingInit":
        if self.choose and (self.input != Choice(name="subword_mean") or self.output is not None):
            raise ValueError("choose and input or output are given; the bake-off decides, so leave the others out")
        if any(pair in self.choose[:n] for n, pair in enumerate(self.choose)):
            raise ValueError("choose names a candidate twice")
        return self

    @property
    def candidates(self) -> tuple[InitPair, ...]:
        """The candidates of the bake-off, or the one choice that is made already."""
        return self.choose or (InitPair(input=self.input, output=self.output),)


class Recipe(Part):
    """Everything that decides a run. Frozen: two recipes that are equal give the same weights."""

    name: Name
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    base_model: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    languages: Languages
    corpora: Annotated[dict[Name, Corpus], Field(min_length=1)]
    documents: Documents = Documents()
    vocabulary: Vocabulary = Vocabulary()
    embeddings: EmbeddingInit = EmbeddingInit()
    blocks: Blocks | None = None
    precision: Literal["bf16", "fp32"] = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compile: bool = False
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    interpolate: Interpolation | None = None
    measure: Measure = Measure()
    export: Export = Export()
    track: tuple[Choice, ...] = ()

    _tuples = field_validator("stages", "track", mode="before")(as_tuple)

    @model_validator(mode="after")
    def _names_agree(self) -> "Recipe":
        known = self.corpora
        for index, stage in enumerate(self.stages):
            for name in sorted(stage.mix.named()):
                if name not in known:
                    listed = ", ".join(known)
                    raise _at(
                        ("stages", index, "mix"), f"unknown corpus {name!r}{nearest(name, known)} (known: {listed})"
                    )
        self._refuse_stages_without_new_tokens()
        self._refuse_handing_over_nothing()
        self._refuse_repeated_stage_names()
        self._refuse_unmeasurable_languages()
        self._refuse_rule_without_weights()
        return self

    def _refuse_stages_without_new_tokens(self) -> None:
        if self.vocabulary.method != "keep":
            return
        for index, stage in enumerate(self.stages):
            if stage.trains_new_rows:
                word = next(word for word in stage.trains if word.startswith("new_"))
                raise _at(("stages", index, "train"), f"{word} needs new rows, but vocabulary.method is keep")
            if stage.bpe_dropout and stage.bpe_dropout.merges == "new":
                raise _at(("stages", index, "bpe_dropout"), "there are no new merges: vocabulary.method is keep")

    def _refuse_handing_over_nothing(self) -> None:
        for index, stage in enumerate(self.stages):
            before = self.stages[index - 1] if index else None
            if not stage.lr.rewarm and before is None:
                raise _at(("stages", 0, "lr", "rewarm"), "no stage comes before the first, whose rate could go on")
            if stage.optimizer.start == "fresh":
                continue
            where = ("stages", index, "optimizer", "start")
            if before is None:
                raise _at(where, "no stage comes before the first, whose moments could be carried on")
            if before.slices or stage.slices:
                raise _at(where, "moments cannot be carried on to or from a stage in slices: every slice has its own")
            one, other = before.optimizer, stage.optimizer
            if (one.name, one.betas) != (other.name, other.betas):
                raise _at(where, "moments can only be carried on with the name and betas of the stage before")

    def _refuse_repeated_stage_names(self) -> None:
        seen: dict[str, int] = {"base": -1, "expanded": -1, "bakeoff": -1, "interpolated": -1}
        for index, stage in enumerate(self.stages):
            if stage.name in seen:
                raise _at(
                    ("stages", index, "name"),
                    f"{stage.name!r} is taken; names must differ (base, expanded, bakeoff and interpolated are ours)",
                )
            seen[stage.name] = index

    def _refuse_rule_without_weights(self) -> None:
        ema = self.stages[-1].ema
        if self.measure.checkpoint_rule == "averaged" and not (ema and ema.is_beside):
            raise _at(
                ("measure", "checkpoint_rule"),
                "averaged needs an average that the last stage keeps beside its weights (ema.kind shadow or uniform)",
            )

    def _refuse_unmeasurable_languages(self) -> None:
        spoken = {self.language_of(name) for name in self.single_language_corpora()}
        grown = self.vocabulary.languages
        if grown is not None and (self.languages.target not in grown or len(set(grown)) < len(grown)):
            listed = ", ".join(grown)
            raise _at(
                ("vocabulary", "languages"),
                f"the target {self.languages.target!r} must be among them, and each only once (given: {listed})",
            )
        for index, code in enumerate(self.vocabulary.languages or ()):
            if code not in spoken:
                listed = ", ".join(sorted(spoken))
                raise _at(("vocabulary", "languages", index), f"no corpus is in {code!r} (corpora are in: {listed})")
            if code == self.languages.source:
                raise _at(("vocabulary", "languages", index), f"{code!r} is the source language, which is protected")
        for role in ("source", "target"):
            code = getattr(self.languages, role)
            if code not in spoken:
                raise _at(
                    ("languages", role), f"no corpus is in {code!r} (corpora are in: {', '.join(sorted(spoken))})"
                )
        chosen = self.measure.bits_per_byte
        for role in ("source", "target"):
            code = getattr(self.languages, role)
            if chosen is not None and code not in chosen:
                raise _at(
                    ("measure", "bits_per_byte"),
                    f"the {role} language {code!r} must be among them: {', '.join(chosen)}",
                )
        for index, code in enumerate(chosen or ()):
            if code not in spoken:
                raise _at(("measure", "bits_per_byte", index), f"no corpus is in {code!r} to hold text out from")

    def language_of(self, corpus: str) -> str:
        """Return the language of a corpus: what it states, else its name; of parallel text both, as in ``eu+en``."""
        pairs = self.corpora[corpus].pairs
        return pairs.label if pairs else self.corpora[corpus].language or corpus

    def single_language_corpora(self) -> tuple[str, ...]:
        """Return the names of the corpora that are not parallel text."""
        return tuple(name for name, corpus in self.corpora.items() if corpus.pairs is None)

    def grown_languages(self) -> tuple[str, ...]:
        """Return the languages whose text new tokens are learned on, the target first."""
        return tuple(dict.fromkeys(self.vocabulary.languages or (self.languages.target,)))

    def measured_languages(self) -> tuple[str, ...]:
        """Return the languages whose bits per byte are measured, the target first."""
        if self.measure.bits_per_byte is not None:
            return self.measure.bits_per_byte
        spoken = dict.fromkeys([self.languages.target, self.languages.source])
        return tuple(spoken | dict.fromkeys(self.language_of(name) for name in self.single_language_corpora()))

    @property
    def total_tokens(self) -> int:
        """Training tokens over all stages, in whole steps."""
        return sum(stage.num_steps * stage.batch.tokens for stage in self.stages)


def _at(path: tuple[str | int, ...], message: str) -> PydanticCustomError:
    return PydanticCustomError("inconsistent", "{message}", {"message": message, "tail": path})
