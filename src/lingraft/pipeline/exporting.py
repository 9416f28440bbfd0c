"""What is put beside an exported model for programs other than transformers."""

from collections.abc import Iterator
from pathlib import Path

from lingraft.corpus import read_prepared
from lingraft.run import Run
from lingraft.vocabulary import DIFFICULT, TokenizerFile
from lingraft.vocabulary.sentencepiece_model import refuse_other_ids, sentencepiece_model

__all__ = ["add_sentencepiece"]


def add_sentencepiece(run: Run, folder: Path, tokenizer: TokenizerFile) -> int:
    """Write ``tokenizer.model`` into a model folder, and return on how many texts it was found to give the same ids.

    The texts are the difficult strings of the vocabulary's gates and the held-out documents of every corpus.

    Raises:
        VocabularyError: the tokenizer cannot be written in that form, or reads one of the texts otherwise there.
        MissingExtraError: the sentencepiece package is not installed.
    """
    model = sentencepiece_model(tokenizer)
    checked = refuse_other_ids(model, tokenizer, DIFFICULT, "the difficult strings")
    checked += refuse_other_ids(model, tokenizer, _held_out(run), "the held-out documents")
    (folder / "tokenizer.model").write_bytes(model)
    return checked


def _held_out(run: Run) -> Iterator[str]:
    for path in sorted(run.path("corpora").glob("*/validation.jsonl")):
        yield from (document.text for document in read_prepared(path))
