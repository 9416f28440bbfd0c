"""A tiny Llama with a tiny byte-level tokenizer, and tiny corpora: everything real, nothing large.

jaxtyping and beartype check every shape annotation of the package while the tests run.
"""

import contextlib
import io
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# The hook names its type checker by an import path. An int is a float here, as PEP 484 and mypy have it.
_checker = types.ModuleType("lingraft_type_checker")
_checker.check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # type: ignore[attr-defined]
sys.modules["lingraft_type_checker"] = _checker
install_import_hook("lingraft", "lingraft_type_checker.check")

# Two threads on a model this small only wait for each other, and for the other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SAMPLE = Path(__file__).parents[1] / "recipes" / "sample"

ENGLISH = [
    "The light in the night is bright, and the metadata of the file is involved.",
    "To open a document, choose File and then Open; the dialog shows the folders.",
    "A cell can hold a number, a text or a formula, and the sheet shows its value.",
    "When the button is pressed the window closes and the settings are kept.",
] * 12

BASQUE = [
    "Dokumentu bat irekitzeko, hautatu Fitxategia eta ondoren Ireki; elkarrizketa-koadroak karpetak erakusten ditu.",
    "Gelaxka batek zenbaki bat, testu bat edo formula bat eduki dezake, eta orriak haren balioa erakusten du.",
    "Botoia sakatzean leihoa itxi egiten da eta ezarpenak gorde egiten dira.",
    "Egin klik eskuineko botoiarekin gelaxkan eta aukeratu erabili nahi duzun aukera.",
] * 12


def make_tokenizer_text(texts: list[str], vocab_size: int, *, specials: tuple[str, ...]) -> str:
    """Return a trained byte-level BPE as the text of its tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()


@pytest.fixture(scope="session")
def tokenizer_text() -> str:
    """A byte-level BPE of 394 tokens (420 are asked for) that knows English and has an end token at id 0."""
    return make_tokenizer_text(ENGLISH, 420, specials=("<|endoftext|>", "<|im_start|>"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_text: str):
    """The same as a TokenizerFile."""
    from lingraft.vocabulary import TokenizerFile

    return TokenizerFile(tokenizer_text, "tiny")


def make_llama(folder: Path, tokenizer_text: str, *, tied: bool, rows: int = 420, seed: int = 0) -> Path:
    """Write a two-layer Llama of width 32 with its tokenizer; random weights, real classes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=rows,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer_text, encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "bos_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def tied_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer_text: str) -> Path:
    """A tiny Llama whose head is its input matrix."""
    return make_llama(tmp_path_factory.mktemp("models") / "tied", tokenizer_text, tied=True)


@pytest.fixture(scope="session")
def untied_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer_text: str) -> Path:
    """A tiny Llama with a head of its own."""
    return make_llama(tmp_path_factory.mktemp("models") / "untied", tokenizer_text, tied=False)


@pytest.fixture(scope="session")
def corpora_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``eu.jsonl`` and ``en.jsonl`` with 48 different documents each."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, texts in (("eu", BASQUE), ("en", ENGLISH)):
        lines = [json.dumps({"id": f"{n}", "text": f"{text} {n}."}, ensure_ascii=False) for n, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run_command(*words: object) -> Said:
    """Run a command line in this process, through the same door as the console script."""
    from lingraft.cli import main

    out, err = io.StringIO(), io.StringIO()
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "argv", ["lingraft", *map(str, words)])
    code = 0
    with patch.context(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    patch.undo()
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def lingraft() -> Callable[..., Said]:
    """The command, as it is typed."""
    return run_command


CHOICE_TASK = """\
task: colours
test_split: test
fewshot_split: test
output_type: multiple_choice
doc_to_text: "{{question}}\\nA: {{options[0]}}\\nB: {{options[1]}}\\nErantzuna:"
doc_to_choice: ["A", "B"]
doc_to_target: answer
"""


@pytest.fixture
def choice_tasks(tmp_path: Path) -> Path:
    """A folder of two tasks of six items, ``colours`` and ``numbers``."""
    made = tmp_path / "tasks"
    made.mkdir()
    for name in ("colours", "numbers"):
        (made / f"{name}.yaml").write_text(CHOICE_TASK.replace("colours", name), encoding="utf-8")
        rows = [{"question": f"{name} {n}?", "options": ["x", "y"], "answer": n % 2} for n in range(6)]
        (made / f"{name}.test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return made
