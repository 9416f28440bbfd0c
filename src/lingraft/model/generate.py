"""Greedy continuations of a prompt, for reading before and after."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from lingraft.errors import MeasurementError
from lingraft.model.base import quiet_transformers
from lingraft.polling import poll
from lingraft.vocabulary import TokenizerFile

__all__ = ["continue_all", "continue_text", "continue_until"]


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


class _StopStrings(StoppingCriteria):  # type: ignore[misc]
    """Ends generation when the text made so far holds one of some strings, whatever tokens spell it."""

    def __init__(self, tokenizer: TokenizerFile, prompt_length: int, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._prompt_length = prompt_length
        self._stops = stops

    def __call__(
        self,
        input_ids: Int[Tensor, "batch position"],
        scores: Any,  # noqa: ARG002 - the interface of transformers
        **_: Any,
    ) -> Tensor:
        texts = [self._tokenizer.decode(row[self._prompt_length :].tolist()) for row in input_ids]
        found = [any(stop in text for stop in self._stops) for text in texts]
        return torch.tensor(found, device=input_ids.device)


def continue_text(
    model: nn.Module, tokenizer: TokenizerFile, prompt: str, *, condition_id: int, end_id: int, max_tokens: int = 40
) -> str:
    """Return the model's most likely continuation of a prompt, step by step, up to ``max_tokens`` or a document's end.

    The condition token stands in front, as in every score. All ids are decoded at once, so characters that are spelled
    by several byte tokens come out whole.
    """
    given: Any = model
    prompt_ids = tokenizer.encode(prompt)
    room = getattr(given.config.get_text_config(), "max_position_embeddings", None)
    if room is not None and len(prompt_ids) + 1 >= room:
        raise MeasurementError(f"the prompt has {len(prompt_ids) + 1} tokens, the model has {room} positions")
    if room is not None:
        max_tokens = min(max_tokens, room - len(prompt_ids) - 1)
    return continue_until(model, tokenizer, prompt_ids, condition_id=condition_id, end_id=end_id, max_tokens=max_tokens)


@torch.no_grad()
def continue_until(
    model: nn.Module,
    tokenizer: TokenizerFile,
    prompt_ids: Sequence[int],
    *,
    condition_id: int,
    end_id: int,
    max_tokens: int,
    stops: Sequence[str] = (),
) -> str:
    """Return the most likely continuation of a prompt given as ids, up to the first of some strings.

    What stands before that string is returned; generation also ends at ``end_id`` and after ``max_tokens``. Prompt and
    continuation must fit the model's positions, the condition token included.
    """
    given: Any = model.eval()
    ids = torch.tensor([[condition_id, *prompt_ids]], device=given.device)
    settings = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=end_id, pad_token_id=end_id, bos_token_id=condition_id
    )
    criteria = StoppingCriteriaList([_StopStrings(tokenizer, ids.shape[1], stops)] if stops else [])
    with quiet_transformers():
        output = given.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=settings,
            logits_processor=LogitsProcessorList([_OwnedIdsOnly(tokenizer.num_ids)]),
            stopping_criteria=criteria,
        )
    text = tokenizer.decode([i for i in output[0, ids.shape[1] :].tolist() if i != end_id])
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


@torch.no_grad()
def continue_all(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    num_ids: int,
    condition_id: int,
    end_id: int,
    max_tokens: int,
    batch_size: int = 8,
) -> list[list[int]]:
    """Return the most likely continuation of each of many prompts given as ids, several at a time; ends are left out.

    Shorter prompts are filled up on the left, where no token sees the filling. A prompt that leaves no room for
    ``max_tokens`` loses its first tokens.
    """
    given: Any = model.eval()
    room = getattr(given.config.get_text_config(), "max_position_embeddings", None)
    most = max(1, room - max_tokens - 1) if room else None
    kept = [list(prompt)[-most:] if most else list(prompt) for prompt in prompts]
    settings = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=end_id, pad_token_id=end_id, bos_token_id=condition_id
    )
    found: list[list[int]] = [[] for _ in kept]
    order = sorted(range(len(kept)), key=lambda n: (len(kept[n]), n))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        length = 1 + max(len(kept[n]) for n in chosen)
        ids = torch.full((len(chosen), length), end_id)
        mask = torch.zeros_like(ids)
        for row, n in enumerate(chosen):
            ids[row, length - 1 - len(kept[n]) :] = torch.tensor([condition_id, *kept[n]])
            mask[row, length - 1 - len(kept[n]) :] = 1
        with quiet_transformers():
            output = given.generate(
                ids.to(given.device),
                attention_mask=mask.to(given.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList([_OwnedIdsOnly(num_ids)]),
            )
        for n, made in zip(chosen, output[:, length:].tolist(), strict=True):
            found[n] = made[: made.index(end_id)] if end_id in made else made
    return found
