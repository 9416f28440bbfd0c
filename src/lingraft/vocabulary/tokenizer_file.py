"""A ``tokenizer.json``: read, understood, encoded with, and grown without moving anything.

Slow tokenizer classes are never needed. Everything that encodes text in lingraft goes through here, so that
training, measurement and the gates see the same ids.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from lingraft.errors import VocabularyError

__all__ = ["TokenizerFile", "bytes_to_spelling", "spelling_to_bytes"]


def _byte_alphabet() -> dict[int, str]:
    """Return GPT-2's reversible map from bytes to printable characters (the spelling of byte-level tokens)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in spelled)
    return spelled | {byte: chr(256 + n) for n, byte in enumerate(others)}


_SPELLED = _byte_alphabet()
_UNSPELLED = {character: byte for byte, character in _SPELLED.items()}


def bytes_to_spelling(raw: bytes) -> str:
    """Return the byte-level spelling of raw bytes, as in ``b" the"`` → ``"Ġthe"``."""
    return "".join(_SPELLED[byte] for byte in raw)


def spelling_to_bytes(spelling: str) -> bytes | None:
    """Return the bytes that a byte-level token stands for, or None if it is not spelled in the byte alphabet."""
    try:
        return bytes(_UNSPELLED[character] for character in spelling)
    except KeyError:
        return None


class TokenizerFile:
    """A tokenizer as its ``tokenizer.json`` defines it.

    Args:
        text: the whole file.
        source: what to call it in messages.

    Raises:
        VocabularyError: the text is no tokenizer, or does not give each token an id of its own, the one that it states.
    """

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        try:
            self.raw: dict[str, Any] = json.loads(text)
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:
            raise VocabularyError(f"{source}: not a tokenizer.json that can be read: {error}") from error
        # Text is text: '<|endoftext|>' written in a corpus must not become the control token.
        self._tokenizer.encode_special_tokens = True
        # A file may ask for texts to be cut or filled up; here every text has its own tokens, all of them.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.text = text
        self._refuse_shared_ids()
        self._refuse_moved_ids()

    @classmethod
    def open(cls, folder: Path) -> "TokenizerFile":
        """Read ``tokenizer.json`` from a model folder."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise VocabularyError(f"{folder}: no tokenizer.json; a fast tokenizer is needed (AutoTokenizer saves one)")
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> "TokenizerFile":
        """Read a file of that form, whatever its name.

        Raises:
            VocabularyError: it cannot be read, or is no such file.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise VocabularyError(f"{path}: not UTF-8 at byte {error.start}") from error
        except OSError as error:
            raise VocabularyError(f"{path}: cannot be read: {error}") from error
        return cls(text, str(path))

    def _refuse_shared_ids(self) -> None:
        by_id: dict[int, str] = {}
        for token, token_id in self.vocabulary.items():
            if by_id.setdefault(token_id, token) != token:
                raise VocabularyError(f"{self.source}: id {token_id} belongs to both {by_id[token_id]!r} and {token!r}")

    def _refuse_moved_ids(self) -> None:
        # The loader gives an added token outside the model's vocabulary the next free id, whatever the file says.
        for entry in self.raw.get("added_tokens") or ():
            if (loaded := self.vocabulary.get(entry["content"])) != entry["id"]:
                name = entry["content"]
                raise VocabularyError(
                    f"{self.source}: {name!r} should have id {entry['id']}, but loads with id {loaded}"
                )

    @cached_property
    def sha256(self) -> str:
        """The hash of the file's text: stores and checkpoints are bound to it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Token → id, added tokens included."""
        return dict(self._tokenizer.get_vocab(with_added_tokens=True))

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        """The merge list of a BPE file, in the order of rank; empty for other models."""
        merges = self.raw["model"].get("merges", [])
        pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges)
        return [(left, right) for left, right in pairs]

    @cached_property
    def pieces(self) -> list[tuple[str, float]]:
        """The pieces of a Unigram file with their scores, in the order of ids; empty for other models."""
        if self.family != "unigram":
            return []
        return [(piece, score) for piece, score in self.raw["model"]["vocab"]]

    @cached_property
    def model_vocabulary(self) -> Mapping[str, int]:
        """Token → id of the model itself: what is an added token only is not among them."""
        if self.family == "unigram":
            return {piece: n for n, (piece, _) in enumerate(self.pieces)}
        vocabulary: dict[str, int] = self.raw["model"].get("vocab") or {}
        return vocabulary

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of what has no token, or None where everything has one."""
        model = self.raw["model"]
        if self.family == "unigram":
            unknown: int | None = model.get("unk_id")
            return unknown
        return self.id_of(model.get("unk_token") or "")

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the added tokens that are marked special."""
        return frozenset(entry["id"] for entry in self.raw.get("added_tokens") or () if entry.get("special"))

    @property
    def num_ids(self) -> int:
        """One more than the largest id: the rows that a matrix must have at least."""
        return max(self.vocabulary.values()) + 1

    @cached_property
    def family(self) -> str:
        """The kind of tokenizer: ``byte_bpe``, ``sentencepiece_bpe``, ``unigram``, ``wordpiece`` or ``other``."""
        model = self.raw["model"]
        # Old files do not say what they are; the library tells a BPE by its merges, and so do we.
        kind = model.get("type") or ("BPE" if "merges" in model else None)
        if kind == "BPE":
            if "ByteLevel" in _part_types(self.raw.get("pre_tokenizer")) and not model.get("byte_fallback"):
                return "byte_bpe"
            return "sentencepiece_bpe"
        return {"Unigram": "unigram", "WordPiece": "wordpiece"}.get(str(kind), "other")

    def id_of(self, token: str) -> int | None:
        """Return the id of a token by its spelling in the file, or None."""
        return self.vocabulary.get(token)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text: no BOS, no EOS, control tokens spelled in the text read as plain text.

        Raises:
            VocabularyError: a character has no token, and neither has the token for such characters.
        """
        return [encoding.ids for encoding in self._encodings(texts, self._tokenizer.encode_batch_fast)]

    def _encodings(self, texts: Sequence[str], encode: Callable[..., list[Encoding]]) -> list[Encoding]:
        try:
            return encode(list(texts), add_special_tokens=False)
        except Exception as error:
            # The library has no class of its own for what a model refuses.
            if type(error) is not Exception:
                raise
            model, why = self.raw["model"], str(error)
            if (unknown := model.get("unk_token")) is not None and unknown not in self.model_vocabulary:
                why = f"model.unk_token is {unknown!r}, which is not in model.vocab, and a character has no token"
            raise VocabularyError(f"{self.source}: a text cannot be tokenised: {why}") from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text, as :meth:`encode_batch` does."""
        return self.encode_batch([text])[0]

    def encode_words(self, texts: Sequence[str]) -> list[list[tuple[int, ...]]]:
        """Return the ids of each text, pre-token ("word") by pre-token: merges never cross these borders."""
        encodings = self._encodings(texts, self._tokenizer.encode_batch)
        return [_grouped(encoding.ids, encoding.word_ids) for encoding in encodings]

    def unknown_characters(self, texts: Sequence[str]) -> int:
        """Return how many characters of the texts have no token."""
        unknown = self.unknown_id
        return sum(
            end - start
            for encoding in self._encodings(texts, self._tokenizer.encode_batch)
            for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token_id == unknown
        )

    def leading_ids(self) -> list[int]:
        """Return the ids that the tokenizer itself puts in front of a text (BOS, or nothing)."""
        plain, whole = self.encode("a"), self._tokenizer.encode("a").ids
        return whole[: whole.index(plain[0])] if plain and plain[0] in whole else []

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control tokens are kept."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def stream_decode(self, ids: Iterable[int]) -> Iterator[str]:
        """Return the text of ids piece by piece, as they come; joined, the pieces are what :meth:`decode` returns.

        A character that is spelled in several tokens comes out with the last of them. A run of fallback bytes comes out
        when it ends: until then each of its bytes may still turn out to be no text.
        """
        last: list[int] = []
        waiting: list[int] = []
        for token_id in ids:
            waiting.append(token_id)
            text = self._continued(last, waiting)
            if token_id not in self.fallback_ids and text and not text.endswith("\ufffd"):
                yield text
                last, waiting = waiting, []
        if waiting:
            yield self._continued(last, waiting)

    def _continued(self, last: list[int], waiting: list[int]) -> str:
        # What stands in front decides, for one, whether a leading space is a space or the mark of a text's beginning.
        return self.decode([*last, *waiting])[len(self.decode(last)) :]

    @cached_property
    def fallback_ids(self) -> frozenset[int]:
        """Ids of the tokens that stand for one byte each, where characters without a token are spelled in bytes."""
        spelled = self.raw["model"].get("byte_fallback") and (f"<0x{byte:02X}>" for byte in range(256))
        return frozenset(self.vocabulary[token] for token in spelled or () if token in self.vocabulary)

    @cached_property
    def _bare_model(self) -> Tokenizer:
        bare = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"))
        model = self.raw["model"] | {"ignore_merges": False}
        return Tokenizer.from_str(json.dumps(self.raw | bare | {"model": model, "added_tokens": []}))

    def encode_by_merges(self, spelling: str) -> list[int]:
        """Return what merges alone make of a spelling: no pre-tokenizer and no whole-word look-up."""
        return list(self._bare_model.encode(spelling, add_special_tokens=False).ids)

    def encode_all_by_merges(self, spellings: Sequence[str]) -> list[list[int]]:
        """Return what :meth:`encode_by_merges` makes of each of many spellings."""
        found = self._bare_model.encode_batch_fast(list(spellings), add_special_tokens=False)
        return [list(encoding.ids) for encoding in found]

    def without_look_up(self) -> "TokenizerFile":
        """Return this tokenizer without whole-word look-up (``ignore_merges``), which some runtimes do not know."""
        if not self.raw["model"].get("ignore_merges"):
            return self
        return self._with(self.raw["model"] | {"ignore_merges": False}, "merges only")

    def normalise(self, text: str) -> str:
        """Return a text as the tokenizer's normaliser leaves it."""
        normalizer = self._tokenizer.normalizer
        return normalizer.normalize_str(text) if normalizer is not None else text

    def pre_tokenize(self, text: str) -> list[str]:
        """Return the normalised pieces of a text, as the model gets them: added tokens are cut out before."""
        pre_tokenizer = self._tokenizer.pre_tokenizer
        parts = self._added_words.split(text) if self._added_words is not None else [text]
        normal = [self.normalise(part) for part in parts if part]
        if pre_tokenizer is None:
            return normal
        return [piece for part in normal for piece, _ in pre_tokenizer.pre_tokenize_str(part)]

    @cached_property
    def _added_words(self) -> re.Pattern[str] | None:
        """Matches the added tokens that text may hold by chance: those not special, with a letter in them."""
        added = [e["content"] for e in self.raw.get("added_tokens") or () if not e.get("special")]
        words = sorted((w for w in added if any(map(str.isalpha, w))), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, words))) if words else None

    def extended(
        self, tokens: Sequence[str], merges: Sequence[tuple[str, str]], ids: Sequence[int] | None = None
    ) -> "TokenizerFile":
        """Return this tokenizer with tokens and merges appended; every old id and merge keeps its place.

        Args:
            tokens: spellings of the new tokens.
            merges: their merges, in order.
            ids: the ids of the new tokens; by default those behind the largest old one.

        Added tokens get a row of their own in the model's vocabulary at their old id. Without it, loading a file
        whose vocabulary has grown moves them behind it (seen with Llama 3: BOS went from 128000 to 129000).
        """
        model = self._model_with_added_tokens()
        first = self.num_ids
        model["vocab"] |= dict(zip(tokens, ids if ids is not None else range(first, first + len(tokens)), strict=True))
        as_text = bool(model["merges"]) and isinstance(model["merges"][0], str)
        model["merges"] = list(model["merges"]) + [f"{a} {b}" if as_text else [a, b] for a, b in merges]
        return self._with(model, "expanded")

    def without(self, tokens: Iterable[str]) -> "TokenizerFile":
        """Return this BPE tokenizer without some tokens and without every merge that makes one of them."""
        gone = set(tokens)
        model = self._model_with_added_tokens()
        model["vocab"] = {token: i for token, i in model["vocab"].items() if token not in gone}
        listed = zip(self.merges, model["merges"], strict=True)
        model["merges"] = [entry for (left, right), entry in listed if left + right not in gone]
        return self._with(model, "reduced")

    def _model_with_added_tokens(self) -> dict[str, Any]:
        model = dict(self.raw["model"])
        vocabulary = dict(model["vocab"])
        for entry in self.raw.get("added_tokens") or ():
            vocabulary.setdefault(entry["content"], entry["id"])
        model["vocab"] = vocabulary
        return model

    def _with(self, model: dict[str, Any], what: str) -> "TokenizerFile":
        text = json.dumps(self.raw | {"model": model}, ensure_ascii=False, indent=1)
        return TokenizerFile(text, f"{self.source.removesuffix(' (reduced)')} ({what})")


def _grouped(ids: Sequence[int], words: Sequence[int | None]) -> list[tuple[int, ...]]:
    """Return the ids in runs that belong to one word."""
    runs = []
    start = 0
    for position in range(1, len(ids) + 1):
        if position == len(ids) or words[position] != words[start]:
            runs.append(tuple(ids[start:position]))
            start = position
    return runs


def _part_types(part: dict[str, Any] | None) -> set[str]:
    """Return the types of a pre-tokenizer and, for a sequence, of its members."""
    if not part:
        return set()
    members = part.get("pretokenizers") or part.get("normalizers") or []
    return {part["type"]}.union(*(_part_types(member) for member in members))
