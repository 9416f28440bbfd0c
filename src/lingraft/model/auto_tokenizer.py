"""What plain ``AutoTokenizer`` makes of a folder: the ids of tokenizer.json, and control tokens and chat as before."""

import json
import tempfile
from pathlib import Path
from typing import Any

from lingraft.errors import ModelError
from lingraft.model.locate import read_json_object
from lingraft.vocabulary import DIFFICULT, TokenizerFile

__all__ = ["choose_tokenizer_class", "refuse_changed_template", "settle_tokenizer_class"]

# A class that takes tokenizer.json as it is.
_PLAIN_CLASS = "PreTrainedTokenizerFast"
# What transformers 5 writes for any tokenizer.json; version 4 fails on it.
_NEWEST_CLASS = "TokenizersBackend"
_COMPARED_IDS = 500
_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")

_TALK = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "Thanks, and <b>of Spain</b>?"},
]


def settle_tokenizer_class(folder: Path, tokenizer: TokenizerFile) -> None:
    """See to it that ``AutoTokenizer`` gives the ids of tokenizer.json, and raise a ModelError if it cannot be had.

    Some tokenizer classes build their own pattern instead of the file's (Qwen2Tokenizer of transformers 5 does), so
    that a changed pattern is lost on loading. Then ``tokenizer_class`` in tokenizer_config.json becomes the plain one.
    """
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return
    texts = [*DIFFICULT, *_newest(tokenizer)]
    loaded = _loaded(folder)
    if _ids_agree(loaded, tokenizer, texts):
        return
    settings = read_json_object(path)
    was = settings.get("tokenizer_class")
    # A class may know tokens that the file does not name; the plain one knows none.
    named = {name: str(getattr(loaded, name)) for name in _NAMED if getattr(loaded, name) is not None}
    changed = named | settings | {"tokenizer_class": _PLAIN_CLASS}
    path.write_text(json.dumps(changed, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if not _ids_agree(_loaded(folder), tokenizer, texts):
        raise ModelError(
            f"{folder}: AutoTokenizer gives other ids than tokenizer.json, with tokenizer_class {was!r} and with "
            f"{_PLAIN_CLASS!r}; the folder could not be used as it was measured"
        )


def choose_tokenizer_class(folder: Path, tokenizer: TokenizerFile, wanted: str = "auto") -> str | None:
    """Name the class that loads the tokenizer of a folder, and return its name; None where the folder names none.

    Args:
        folder: the model folder, changed in place.
        tokenizer: what its tokenizer.json holds.
        wanted: ``keep``; ``PreTrainedTokenizerFast``, which old and new stacks know; or ``auto``: that one in place of
            a name that only transformers 5 knows, as long as tokens and control tokens stay the same.

    Raises:
        ModelError: the class asked for gives other tokens, or other control tokens.
    """
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    settings = read_json_object(path)
    stated = settings.get("tokenizer_class")
    was = stated if isinstance(stated, str) else None
    if wanted == "keep" or was == _PLAIN_CLASS or (wanted == "auto" and was != _NEWEST_CLASS):
        return was
    before = _loaded(folder)
    named = {name: str(getattr(before, name)) for name in _NAMED if getattr(before, name) is not None}
    settled = named | settings | {"tokenizer_class": _PLAIN_CLASS}
    path.write_text(json.dumps(settled, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    try:
        after = _loaded(folder)
        if not _ids_agree(after, tokenizer, [*DIFFICULT, *_newest(tokenizer)]):
            raise ModelError(f"{folder}: with tokenizer_class {_PLAIN_CLASS!r} AutoTokenizer gives other tokens")
        _compare(before, after, f"{folder} with tokenizer_class {_PLAIN_CLASS!r}")
    except ModelError:
        path.write_text(text, encoding="utf-8")
        if wanted != "auto":
            raise
        return was
    return _PLAIN_CLASS


def _newest(tokenizer: TokenizerFile) -> list[str]:
    """Return texts of the tokens with the largest ids, joined as words and without a space."""
    ids = sorted(set(tokenizer.model_vocabulary.values()) - tokenizer.special_ids)[-_COMPARED_IDS:]
    words = [tokenizer.decode([token_id]).strip() for token_id in ids]
    return [" ".join(words[n : n + 20]) for n in range(0, len(words), 20)] + ["".join(words[:60])]


def _loaded(folder: Path | str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise ModelError(f"{folder}: AutoTokenizer cannot read it: {error}") from error


def _ids_agree(loaded: Any, tokenizer: TokenizerFile, texts: list[str]) -> bool:
    names = [entry["content"] for entry in tokenizer.raw.get("added_tokens") or ()]
    # Spelled out in a text, a control token is plain text to us and the control token itself to transformers.
    plain = [text for text in texts if not any(name in text for name in names)]
    expected = tokenizer.encode_batch(plain)
    return all(
        list(loaded(text, add_special_tokens=False)["input_ids"]) == ids
        for text, ids in zip(plain, expected, strict=True)
    )


def refuse_changed_template(base: Path, expanded: Path) -> None:
    """Raise a ModelError when control tokens or a rendered conversation have other ids in the expanded folder (gate
    T4).

    Both folders are opened by ``AutoTokenizer``, and the expanded one again after ``save_pretrained``: what a user's
    own code does. A base without a chat template is held against its control tokens only.
    """
    if not (base / "tokenizer_config.json").is_file():
        return
    before, after = _loaded(base), _loaded(expanded)
    _compare(before, after, "the expanded folder")
    with tempfile.TemporaryDirectory() as again:
        after.save_pretrained(again)
        _compare(before, _loaded(again), "the expanded folder, saved and loaded again")


def _compare(before: Any, after: Any, what: str) -> None:
    for token, token_id in before.get_added_vocab().items():
        if (found := after.convert_tokens_to_ids(token)) != token_id:
            raise ModelError(f"{what}: the control token {token!r} has id {found}, it had {token_id}")
    for name in (f"{named}_id" for named in _NAMED):
        if getattr(before, name) != getattr(after, name):
            raise ModelError(f"{what}: {name} is {getattr(after, name)}, it was {getattr(before, name)}")
    if before.chat_template != after.chat_template:
        raise ModelError(f"{what}: the chat template is another")
    expected = _rendered(before) if before.chat_template else None
    if expected is not None and expected != _rendered(after):
        raise ModelError(f"{what}: a rendered conversation is another, or its control tokens are")


def _rendered(tokenizer: Any) -> tuple[str, list[int]] | None:
    """Return a conversation as text and the ids of its control tokens; None where the template refuses it.

    Its words may be new tokens; its control tokens must be what they were.
    """
    try:
        text = tokenizer.apply_chat_template(_TALK, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "jinja2":
            return None
        raise
    control = set(tokenizer.get_added_vocab().values())
    return text, [i for i in tokenizer(text, add_special_tokens=False)["input_ids"] if i in control]
