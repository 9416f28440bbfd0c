"""Base tokenizers of every BPE family, made from the demo's sample, and real text to grow them on."""

import io
import json
from pathlib import Path

import pytest
import zstandard
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from lingraft.vocabulary import TokenizerFile

SAMPLE = Path(__file__).parents[2] / "recipes" / "sample"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def sample(language, count, first=0):
    """Return paragraphs of the demo's text, each once."""
    with zstandard.open(SAMPLE / f"{language}.jsonl.zst", "rb") as file:
        texts = [json.loads(line)["text"] for line in io.TextIOWrapper(file, "utf-8")]
    lines = dict.fromkeys(line for text in texts for line in text.splitlines() if len(line) > 60)
    return list(lines)[first : first + count]


def every_split(vocabulary):
    """Return each way to make a token of two, the tokens in the order of their ids: the merges of a concat file."""
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    cuts = ((token[:at], token[at:]) for token in ordered for at in range(1, len(token)))
    return [[left, right] for left, right in cuts if left in vocabulary and right in vocabulary]


def byte_level(texts, size, *, concat):
    """Return a byte-level BPE; in concat style as Llama 3 is, with its added tokens outside the model's vocabulary."""
    made = Tokenizer(models.BPE(ignore_merges=concat))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(texts, trainer)
    raw = json.loads(made.to_str())
    if concat:
        raw["model"]["merges"] = every_split(raw["model"]["vocab"])
    made = Tokenizer.from_str(json.dumps(raw))
    made.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    bos = ("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))
    made.post_processor = processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    return TokenizerFile(made.to_str(), "llama 3" if concat else "gpt 2")


def sentencepiece(texts, size, *, kind):
    """Return a BPE of the SentencePiece type as Llama 2 (``llama``), Gemma (``gemma``) or Mistral (``metaspace``)."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    trained.train_from_iterator((line for text in texts for line in text.splitlines()), trainer)
    learned = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    # As sentencepiece has it: control tokens, bytes, runs of spaces, pieces by score, and the characters last.
    pieces = [piece for piece, _ in learned if len(piece) > 1]
    characters = [piece for piece, _ in learned if len(piece) == 1]
    runs = ["\n", "\n\n", "▁▁", "▁▁▁▁"] if kind == "gemma" else []
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *runs, *pieces, *characters]
    vocabulary = {token: n for n, token in enumerate(tokens)}
    made = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[tuple(pair) for pair in every_split(vocabulary)],
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    to_metaspace, to_space = normalizers.Replace(" ", "▁"), decoders.Replace("▁", " ")
    steps = [to_space, decoders.ByteFallback(), decoders.Fuse()]
    if kind == "llama":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), to_metaspace])
        made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    elif kind == "gemma":
        made.normalizer = to_metaspace
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        made.decoder = decoders.Sequence(steps)
        made.add_tokens([AddedToken(run, normalized=False, special=False) for run in runs])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return TokenizerFile(made.to_str(), kind)


@pytest.fixture(scope="session")
def basque_lines():
    """A thousand different lines of Basque."""
    return sample("eu", 1000)


@pytest.fixture(scope="session")
def english_lines():
    """A thousand different lines of English."""
    return sample("en", 1000)


@pytest.fixture(scope="session")
def held_out_lines():
    """English lines that no tokenizer and no veto has seen."""
    return sample("en", 300, first=1000)


@pytest.fixture(scope="session")
def bases(english_lines):
    """One tokenizer of each kind: ``pair`` and ``concat`` on bytes, and three shapes of SentencePiece."""
    return {
        "pair": byte_level(english_lines, 800, concat=False),
        "concat": byte_level(english_lines, 800, concat=True),
        "llama": sentencepiece(english_lines, 800, kind="llama"),
        "gemma": sentencepiece(english_lines, 800, kind="gemma"),
        "metaspace": sentencepiece(english_lines, 800, kind="metaspace"),
    }


@pytest.fixture(scope="session")
def target(basque_lines):
    """Lines to shorten: enough to learn on, few enough to be quick."""
    return basque_lines[:300]


@pytest.fixture(scope="session")
def source(english_lines):
    """Lines that must stay as they are."""
    return english_lines[:300]


def _texts_of(folder, language):
    return [json.loads(line)["text"] for line in (folder / f"{language}.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="session")
def basque(corpora_folder):
    """The texts of the tiny Basque corpus."""
    return _texts_of(corpora_folder, "eu")


@pytest.fixture(scope="session")
def english(corpora_folder):
    """The texts of the tiny English corpus."""
    return _texts_of(corpora_folder, "en")
