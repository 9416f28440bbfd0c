"""What plain transformers makes of the two folders: control tokens and chat template must come out as before."""

import tempfile
from pathlib import Path
from typing import Any

from lingraft.errors import ModelError

__all__ = ["refuse_changed_template"]

_TALK = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "Thanks, and <b>of Spain</b>?"},
]


def refuse_changed_template(base: Path, expanded: Path) -> None:
    """Raise a ModelError when control tokens or a rendered conversation have other ids in the expanded folder (gate
    T4).

    Both folders are opened by ``AutoTokenizer``, and the expanded one again after ``save_pretrained``: what a user's
    own code does. A base without a chat template is held against its control tokens only.
    """
    from transformers import AutoTokenizer

    if not (base / "tokenizer_config.json").is_file():
        return
    before = AutoTokenizer.from_pretrained(base)
    after = AutoTokenizer.from_pretrained(expanded)
    _compare(before, after, "the expanded folder")
    with tempfile.TemporaryDirectory() as again:
        after.save_pretrained(again)
        _compare(before, AutoTokenizer.from_pretrained(again), "the expanded folder, saved and loaded again")


def _compare(before: Any, after: Any, what: str) -> None:
    for token, token_id in before.get_added_vocab().items():
        if (found := after.convert_tokens_to_ids(token)) != token_id:
            raise ModelError(f"{what}: the control token {token!r} has id {found}, it had {token_id}")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        if getattr(before, name) != getattr(after, name):
            raise ModelError(f"{what}: {name} is {getattr(after, name)}, it was {getattr(before, name)}")
    if before.chat_template != after.chat_template:
        raise ModelError(f"{what}: the chat template is another")
    if before.chat_template and (expected := _rendered(before)) != (found := _rendered(after)):
        place = next((n for n, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), -1)
        raise ModelError(f"{what}: a rendered conversation has other ids, the first at place {place}")


def _rendered(tokenizer: Any) -> list[int]:
    text = tokenizer.apply_chat_template(_TALK, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
