"""The part of a recipe that says where a corpus lies, and what its documents must be like."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from lingraft.quantities import Fraction, LanguageCode
from lingraft.recipe_pairs import Pairs
from lingraft.recipe_part import Choice, NonEmpty, Part, as_tuple

__all__ = ["Corpus", "LanguageId", "NearDuplicates"]

Count = Annotated[int, Field(ge=1)]


class LanguageId(Part):
    """A check of documents by a language identifier (extra ``lid``), with a script check beside it.

    ``model`` is ``small`` (176 languages, comes with the extra) or the path of a fastText model such as GlotLID's.
    ``labels`` are the answers that count as the corpus's language: its code by itself, ``[eus_Latn]`` with GlotLID.
    """

    model: NonEmpty = "small"
    labels: Annotated[tuple[NonEmpty, ...], Field(min_length=1)] | None = None
    min_probability: Fraction = 0.5
    action: Literal["report", "reject"] = "report"

    _tuple = field_validator("labels", mode="before")(as_tuple)


class NearDuplicates(Part):
    """MinHash: leave out documents that share most of their rows of words with an earlier one (extra ``dedup``).

    A document shorter than a row is one row, so that unrelated short documents stay; in scripts without spaces a row
    is of characters.
    """

    similarity: Annotated[float, Field(gt=0, le=1)] = 0.8
    row_words: Annotated[int, Field(ge=1, le=64)] = 5
    num_hashes: Annotated[int, Field(ge=8)] = 128
    num_bands: Count = 16


class Corpus(Part):
    """Where one corpus of text lies, how its documents are read, and which of them are fit to learn from.

    ``path`` is a file, a folder or a glob of ``.txt``, ``.jsonl`` or ``.parquet`` (``.gz``, ``.zst``), or a list of
    them, or a folder that ``save_to_disk`` of Hugging Face's ``datasets`` has written; with ``split`` it may also be
    the name of a dataset on the hub, of which ``config`` names the configuration. ``validation`` is the share held out,
    decided by a hash of each document's content; of its ``id`` where translations of one page must fall on the same
    side. What each of the other options does to which text is told in docs/data.md.
    """

    path: NonEmpty | Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
    language: LanguageCode | None = None
    text: str = "text"
    split: str | None = None
    config: str | None = None
    revision: str | None = None
    validation: Fraction = 0.05
    split_by: Literal["content", "id"] = "content"
    max_documents: Count | None = None
    bad_lines: Literal["error", "skip", "replace"] = "error"
    max_bad_fraction: Fraction = 0.001
    max_line_bytes: Annotated[int, Field(ge=1024)] = 16_777_216
    tolerate_truncated_tail: bool = False
    normalise: Literal["none", "nfc"] = "none"
    strip_bidi: bool = False
    min_characters: Count = 1
    max_characters: Count | None = None
    quality: tuple[Choice, ...] = ()
    language_id: LanguageId | None = None
    scripts: Annotated[tuple[NonEmpty, ...], Field(min_length=1)] | None = None
    max_other_script: Fraction = 0.1
    deduplicate: bool = True
    near_duplicates: NearDuplicates | None = None
    max_epochs: Annotated[float, Field(gt=0)] = 4.0
    pairs: Pairs | None = None
    license: NonEmpty | None = None

    _tuples = field_validator("path", "quality", "scripts", mode="before")(as_tuple)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as a tuple, whether one or several were given."""
        return (self.path,) if isinstance(self.path, str) else self.path
