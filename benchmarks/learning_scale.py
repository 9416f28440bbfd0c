"""Time and memory of learning 32,000 tokens from 100 MB of text.

    python benchmarks/learning_scale.py BASE [--megabytes 100] [--tokens 32000] [--text FILE.jsonl.zst ...]

BASE is a folder with a tokenizer.json, or that file. Without ``--text`` the text is made: words of random syllables,
drawn by Zipf's law from 800,000 types, which is more types than real text of that size has, and so the harder case.
Runs in a process of its own; prints seconds, the peak of resident memory in bytes above an empty interpreter's, and
what came out.
"""

import argparse
import io
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard

from lingraft.model.locate import locate_tokenizer
from lingraft.vocabulary import LearnOptions, expand_vocabulary

CONSONANTS, VOWELS = "bdfghjklmnprstxz", ["a", "e", "i", "o", "u", "ai", "au", "ei"]
TYPES, WORDS_OF_A_DOCUMENT = 800_000, 2000


def made_text(megabytes: float, seed: int = 0) -> Iterator[str]:
    """Yield documents of random words that follow Zipf's law, so many bytes in all."""
    chooser = np.random.default_rng(seed)
    syllables = np.array([c + v for c in CONSONANTS for v in VOWELS])
    lengths = chooser.integers(1, 6, TYPES)
    parts = syllables[chooser.integers(0, len(syllables), (TYPES, 5))]
    words = np.array(["".join(row[:n]) for row, n in zip(parts, lengths, strict=True)])
    shares = 1 / (np.arange(TYPES) + 2.7)
    borders = np.cumsum(shares / shares.sum())
    size = 0
    while size < megabytes * 1e6:
        drawn = words[np.minimum(np.searchsorted(borders, chooser.random(WORDS_OF_A_DOCUMENT)), TYPES - 1)]
        text = " ".join(drawn)
        size += len(text)
        yield text


def read_text(paths: list[Path], megabytes: float) -> Iterator[str]:
    """Yield the documents of zst files of JSON lines, so many bytes at most."""
    size = 0
    for path in paths:
        with path.open("rb") as file:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
                text = json.loads(line)["text"]
                size += len(text.encode())
                if size > megabytes * 1e6:
                    return
                yield text


def main() -> None:
    """Learn, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--tokens", type=int, default=32_000)
    parser.add_argument("--text", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    tokenizer = locate_tokenizer(given.base)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    texts = read_text(given.text, given.megabytes) if given.text else made_text(given.megabytes)
    began = time.perf_counter()
    grown = expand_vocabulary(tokenizer, texts, [], LearnOptions(given.tokens))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "family": tokenizer.family,
                "text_bytes": grown.record["sample_bytes"]["target"],
                "learned": grown.num_new,
                "seconds": round(seconds, 1),
                "peak_gib": round(peak / 2**20, 2),
                "idle_gib": round(idle / 2**20, 2),
                "simulation": grown.record.get("simulation"),
            }
        )
    )


if __name__ == "__main__":
    main()
