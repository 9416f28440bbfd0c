"""What a token says, whatever its family's spelling: `Ġkaixo` and `▁kaixo` are both " kaixo"."""

import re
import unicodedata

from lingraft.errors import VocabularyError
from lingraft.vocabulary import TokenizerFile
from lingraft.vocabulary.tokenizer_file import spelling_to_bytes

__all__ = ["token_bytes", "token_texts"]

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LAYOUT = "\t\n\r"


def token_bytes(tokenizer: TokenizerFile) -> dict[int, bytes]:
    """Return id → the bytes of text that a token stands for; special tokens stand for none and are left out.

    Raises:
        VocabularyError: the tokens of this family cannot be read as text (WordPiece).
    """
    if tokenizer.family not in ("byte_bpe", "sentencepiece_bpe", "unigram"):
        raise VocabularyError(f"{tokenizer.source}: tokens of a {tokenizer.family} tokenizer cannot be read as text")
    added = _added(tokenizer)
    found = {token_id: token.encode() for token, token_id in added.items() if token_id not in tokenizer.special_ids}
    is_spelled = tokenizer.family == "byte_bpe"
    for token, token_id in tokenizer.vocabulary.items():
        if token not in added:
            raw = spelling_to_bytes(token) if is_spelled else _piece_bytes(token)
            if raw is not None:
                found[token_id] = raw
    return found


def token_texts(tokenizer: TokenizerFile) -> dict[int, str]:
    """Return id → text, white space included, of the tokens that are clean text.

    Left out are added tokens, single bytes of a fallback, tokens that cut a character in two, and control characters
    other than line break and tab.
    """
    apart = set(_added(tokenizer).values())
    if tokenizer.family != "byte_bpe":
        apart |= {token_id for token, token_id in tokenizer.vocabulary.items() if _BYTE.fullmatch(token)}
    texts = {token_id: _clean(raw) for token_id, raw in token_bytes(tokenizer).items() if token_id not in apart}
    return {token_id: text for token_id, text in texts.items() if text}


def _added(tokenizer: TokenizerFile) -> dict[str, int]:
    return {entry["content"]: entry["id"] for entry in tokenizer.raw.get("added_tokens") or ()}


def _piece_bytes(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


def _clean(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    is_clean = all(c in _LAYOUT or unicodedata.category(c) != "Cc" for c in text)
    return text if is_clean else None
