"""What is put beside an exported model: a tokenizer.model, if it reads the run's own text as it should."""

import json
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, models, normalizers

from lingraft.errors import VocabularyError
from lingraft.pipeline.exporting import add_sentencepiece
from lingraft.run import Run
from lingraft.vocabulary import DIFFICULT, TokenizerFile

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
TEXT = "kaixo kai"


def made(*merges: tuple[str, str]) -> TokenizerFile:
    """Return a tokenizer with these merges, as Gemma's is made."""
    characters = ["▁", *"kaixo"]
    tokens = ["<unk>", *BYTES, *characters, *dict.fromkeys(left + right for left, right in merges)]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    model = models.BPE(vocab=vocabulary, merges=list(merges), byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return TokenizerFile(tokenizer.to_str(), "made")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = tmp_path / "run" / "corpora" / "eu"
    folder.mkdir(parents=True)
    (folder / "validation.jsonl").write_text(json.dumps({"id": "1", "text": TEXT}) + "\n", encoding="utf-8")
    return Run(tmp_path / "run")


def test_the_file_is_written_and_reads_the_held_out_text_alike(run: Run, tmp_path: Path) -> None:
    tokenizer = made(("a", "i"), ("k", "ai"), ("x", "o"))
    assert add_sentencepiece(run, tmp_path, tokenizer) == len(DIFFICULT) + 1
    read = SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    assert read.encode(TEXT) == tokenizer.encode(TEXT)
    assert read.encode(TEXT, out_type=str) == ["kai", "xo", "▁", "kai"]


def test_a_tokenizer_whose_pieces_meet_in_other_ways_is_refused(run: Run, tmp_path: Path) -> None:
    """``kai`` has one merge, of ``ka`` and ``i``; SentencePiece makes it of ``k`` and ``ai`` just as well."""
    tokenizer = made(("a", "i"), ("k", "a"), ("ka", "i"))
    assert tokenizer.encode("kai") == [tokenizer.id_of("k"), tokenizer.id_of("ai")]
    with pytest.raises(
        VocabularyError, match=r"text 1 of the held-out documents becomes \d+ tokens here and \d+ there"
    ):
        add_sentencepiece(run, tmp_path, tokenizer)
    assert not (tmp_path / "tokenizer.model").exists()
