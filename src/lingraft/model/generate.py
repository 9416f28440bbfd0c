"""Greedy continuations of a prompt, for reading before and after."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from lingraft.errors import MeasurementError
from lingraft.model.base import quiet_transformers
from lingraft.polling import poll
from lingraft.vocabulary import TokenizerFile

__all__ = ["continue_text"]


class _OwnedIdsOnly(LogitsProcessor):  # type: ignore[misc]
    """Rules out rows that no token owns: they cannot be decoded. A stop is heard between two tokens."""

    def __init__(self, num_ids: int) -> None:
        self._num_ids = num_ids

    def __call__(
        self,
        input_ids: Int[Tensor, "batch position"],  # noqa: ARG002 - the interface of transformers
        scores: Float[Tensor, "batch rows"],
    ) -> Float[Tensor, "batch rows"]:
        poll()
        scores[:, self._num_ids :] = -torch.inf
        return scores


@torch.no_grad()
def continue_text(
    model: nn.Module, tokenizer: TokenizerFile, prompt: str, *, condition_id: int, end_id: int, max_tokens: int = 40
) -> str:
    """Return the model's most likely continuation of a prompt, step by step, up to ``max_tokens`` or a document's end.

    The condition token stands in front, as in every score. All ids are decoded at once, so characters that are spelled
    by several byte tokens come out whole.
    """
    given: Any = model.eval()
    prompt_ids = [condition_id, *tokenizer.encode(prompt)]
    room = getattr(given.config.get_text_config(), "max_position_embeddings", None)
    if room is not None and len(prompt_ids) >= room:
        raise MeasurementError(f"the prompt has {len(prompt_ids)} tokens, the model has {room} positions")
    if room is not None:
        max_tokens = min(max_tokens, room - len(prompt_ids))
    ids = torch.tensor([prompt_ids], device=given.device)
    settings = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=end_id, pad_token_id=end_id, bos_token_id=condition_id
    )
    with quiet_transformers():
        output = given.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=settings,
            logits_processor=LogitsProcessorList([_OwnedIdsOnly(tokenizer.num_ids)]),
        )
    fresh = [i for i in output[0, ids.shape[1] :].tolist() if i != end_id]
    return tokenizer.decode(fresh)
