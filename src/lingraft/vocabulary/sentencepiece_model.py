"""A BPE of SentencePiece's kind as ``tokenizer.model``, the file that llama.cpp's converter reads.

In that file it is scores, not a list of merges, that say what is joined first. Without it the converter takes
tokenizer.json, which has no scores, gives every piece the same one, and the converted model joins from left to right:
other ids, no error.
"""

from collections.abc import Iterable
from typing import Any

from lingraft.errors import MissingExtraError, VocabularyError
from lingraft.polling import poll
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = ["refuse_other_ids", "sentencepiece_model"]

_SPACE = "▁"
_BPE = 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTES = 1, 2, 3, 4, 5, 6
_TO_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
_PREFIX = {"type": "Prepend", "prepend": _SPACE}
_SHOWN = 60


def sentencepiece_model(tokenizer: TokenizerFile) -> bytes:
    """Return the content of a ``tokenizer.model`` that reads text as ``tokenizer`` does.

    A piece's score is −n, where n counts the pieces by the first merge that makes them: what is merged first in the one
    scores highest in the other. Pieces that no merge makes are marked as unused; characters and bytes are found
    without merges. The form is ``ModelProto`` of
    https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.

    Raises:
        VocabularyError: the tokenizer is of another kind, or changes text before it cuts it in a way that the form has
            no word for.
        MissingExtraError: the sentencepiece package is not installed.
    """
    if tokenizer.family != "sentencepiece_bpe":
        raise VocabularyError(
            f"{tokenizer.source}: a tokenizer.model is made of a BPE of SentencePiece's kind, and this one is "
            f"{tokenizer.family.replace('_', ' ')}; such a model is converted from tokenizer.json"
        )
    model = _message()
    order, kinds = _order(tokenizer), _kinds(tokenizer)
    named = {token_id: token for token, token_id in tokenizer.vocabulary.items()}
    for token_id in range(tokenizer.num_ids):
        token = named.get(token_id, f"<no token {token_id}>")
        piece = model.pieces.add()
        piece.piece = token
        piece.type = kinds.get(token, _NORMAL if len(token) == 1 or token in order else _UNUSED)
        piece.score = 0.0 if token in kinds else -float(order.get(token, len(order)))
    model.trainer_spec.model_type = _BPE
    model.trainer_spec.vocab_size = tokenizer.num_ids
    model.trainer_spec.byte_fallback = bool(tokenizer.raw["model"].get("byte_fallback"))
    for role, token in (("unk", tokenizer.raw["model"].get("unk_token")), ("bos", "<s>"), ("eos", "</s>")):
        known = tokenizer.id_of(token or "")
        setattr(model.trainer_spec, f"{role}_id", -1 if known is None else known)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = _has_prefix(tokenizer)
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    return bytes(model.SerializeToString())


def refuse_other_ids(model: bytes, tokenizer: TokenizerFile, texts: Iterable[str], what: str) -> int:
    """Check that a ``tokenizer.model`` gives the ids of ``tokenizer`` on every text; return how many there were.

    SentencePiece puts its space in front of every text, a ``Metaspace`` pattern only in front of one that does not
    begin with a space; so there, texts are compared from their first other character on.

    Args:
        model: the file's content.
        tokenizer: what it was made of.
        texts: real ones.
        what: which texts they are, for the message.

    Raises:
        VocabularyError: it does not, on one of them; the message shows where. Or SentencePiece cannot read it.
        MissingExtraError: the sentencepiece package is not installed.
    """
    read, number = _processor(model, tokenizer.source), 0
    passed_over = f" {_SPACE}" if _cutter(tokenizer) == "Metaspace" else ""
    for number, whole in enumerate(texts, start=1):
        poll()
        text = whole.lstrip(passed_over) if passed_over else whole
        wanted, found = tokenizer.encode(text), read.encode(text)
        if wanted != found:
            at = next((n for n, pair in enumerate(zip(wanted, found, strict=False)) if len({*pair}) > 1), 0)
            around = tokenizer.decode(wanted[max(0, at - 5) : at + 5])[:_SHOWN]
            raise VocabularyError(
                f"{tokenizer.source}: no tokenizer.model gives the same ids: text {number} of {what} becomes "
                f"{len(wanted)} tokens here and {len(found)} there, first different near {around!r}"
            )
    return number


def _message() -> Any:
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise MissingExtraError("writing tokenizer.model", "sentencepiece") from error
    return sentencepiece_model_pb2.ModelProto()


def _processor(model: bytes, source: str) -> Any:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise MissingExtraError("reading tokenizer.model", "sentencepiece") from error
    try:
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise VocabularyError(
            f"{source}: SentencePiece does not read the tokenizer.model made of it: {error}"
        ) from error


def _order(tokenizer: TokenizerFile) -> dict[str, int]:
    """Return token → how many others have a merge before its first."""
    made = dict.fromkeys(left + right for left, right in tokenizer.merges)
    return {token: place for place, token in enumerate(made)}


def _kinds(tokenizer: TokenizerFile) -> dict[str, int]:
    """Return what kind those tokens are of that no merge makes."""
    model = tokenizer.raw["model"]
    found = {token: _BYTES for token, token_id in tokenizer.vocabulary.items() if token_id in tokenizer.fallback_ids}
    for entry in tokenizer.raw.get("added_tokens") or ():
        found[entry["content"]] = _CONTROL if entry.get("special") else _USER_DEFINED
    return found | ({model["unk_token"]: _UNKNOWN} if model.get("unk_token") else {})


def _cutter(tokenizer: TokenizerFile) -> str | None:
    kind: str | None = (tokenizer.raw.get("pre_tokenizer") or {}).get("type")
    return kind


def _has_prefix(tokenizer: TokenizerFile) -> bool:
    """Return whether a space is put in front of a text; raise a VocabularyError where more is done to it than that."""
    normalizer, cutter = tokenizer.raw.get("normalizer"), tokenizer.raw.get("pre_tokenizer") or {}
    steps = (normalizer or {}).get("normalizers", [normalizer] if normalizer else [])
    for step in steps:
        if step not in (_TO_SPACE, _PREFIX):
            raise VocabularyError(
                f"{tokenizer.source}: its normaliser {step.get('type')} cannot be put into a tokenizer.model"
            )
    is_gemma = cutter.get("type") == "Split" and cutter.get("pattern") == {"String": " "}
    if _cutter(tokenizer) not in (None, "Metaspace") and not is_gemma:
        raise VocabularyError(
            f"{tokenizer.source}: its pattern for cutting text, {_cutter(tokenizer)}, cannot be put into a "
            "tokenizer.model"
        )
    return _PREFIX in steps or cutter.get("prepend_scheme", "never") != "never"
