"""What tokens cost on their way to the model: encoding into a store, and going on far into a stage.

    python benchmarks/data_path.py FOLDER_WITH_TOKENIZER TEXT_FILE...

The first table holds making a token store against the tokenizer's bare batch encoding of the same texts, in turns, as
medians. The second builds the loader of a stage of 2 × 10⁹ tokens and takes a batch at its beginning and after 10⁹.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from lingraft.corpus import Reading, Rejects, build_store, read_files
from lingraft.corpus.apportionment import apportion
from lingraft.corpus.loader import SequenceLoader
from lingraft.corpus.mixing import make_schedule
from lingraft.corpus.parts import Encoding
from lingraft.vocabulary import TokenizerFile

BATCH, LENGTH, SEQUENCES = 256, 2048, 32


def seconds(action: Callable[[], object]) -> float:
    """Return how long an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def encode(tokenizer: TokenizerFile, texts: list[str]) -> None:
    """Encode and count, and nothing else."""
    for start in range(0, len(texts), BATCH):
        tokenizer.encode_batch(texts[start : start + BATCH])


def store(tokenizer: TokenizerFile, texts: list[str]) -> None:
    """Make a whole store: encode, check, write, hash, open and verify."""
    encoding = Encoding(tokenizer.encode_batch, tokenizer.num_ids, None, 0)
    with tempfile.TemporaryDirectory() as folder:
        build_store(texts, encoding, Path(folder) / "store", tokenizer_sha256="t", corpus_sha256="c")


def throughput(tokenizer: TokenizerFile, texts: list[str], repeats: int) -> None:
    """Print the store's speed as a share of bare encoding."""
    tokens = sum(map(len, tokenizer.encode_batch(texts)))
    times = [
        (seconds(lambda: encode(tokenizer, texts)), seconds(lambda: store(tokenizer, texts))) for _ in range(repeats)
    ]
    bare, whole = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{tokens:,} tokens: encoding {tokens / bare:,.0f} tokens/s, a store {tokens / whole:,.0f}: {bare / whole:.2f}"
    )


def resuming(repeats: int) -> None:
    """Print what building the loader and its first batch cost, by how far the stage is."""
    tokens = np.zeros(10**7, dtype=np.uint16)
    source = SimpleNamespace(tokens=tokens, document_ends=np.arange(1000, len(tokens) + 1, 1000, dtype=np.uint64))
    mixes = {
        "constant, 2 corpora": ("constant", {"mix": {"a": 0.8, "b": 0.2}}),
        "linear, 3 corpora": (
            "linear",
            {"before": {"a": 0.8, "b": 0.199, "c": 0.001}, "after": {"a": 0.5, "b": 0.4, "c": 0.1}},
        ),
        "constant, 20 corpora": ("constant", {"mix": {f"c{n}": 0.05 for n in range(20)}}),
    }
    steps = 2 * 10**9 // (LENGTH * SEQUENCES)

    for name, (kind, options) in mixes.items():
        names = sorted({corpus for mix in options.values() for corpus in mix})

        def begin(step: int, kind: str = kind, options: dict[str, dict[str, float]] = options) -> None:
            mix = apportion(make_schedule(kind, options, "mix"), names, steps * SEQUENCES, grain=SEQUENCES)  # noqa: B023
            stores = dict.fromkeys(names, source)  # noqa: B023
            SequenceLoader(stores, mix, sequences=SEQUENCES, sequence_length=LENGTH, seed=0).batch(step)

        first = statistics.median(seconds(lambda: begin(0)) for _ in range(repeats))
        later = statistics.median(seconds(lambda: begin(steps // 2)) for _ in range(repeats))
        print(f"{name}: at token 0 {1000 * first:.0f} ms, at token 10⁹ {1000 * later:.0f} ms: {later / first:.2f}")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    reading = read_files(given.texts, Reading(), corpus="text", rejects=Rejects(), where="texts")
    throughput(TokenizerFile.open(given.tokenizer), [document.text for document in reading], given.repeats)
    resuming(given.repeats)


if __name__ == "__main__":
    main()
