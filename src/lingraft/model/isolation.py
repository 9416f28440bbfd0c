"""Documents in one sequence that do not see each other.

A packed sequence holds several documents. Here attention is kept inside each of them, and positions count from each
document's first token, so that a document is computed as if it stood alone.

With eager and SDPA attention the mask is built here and handed over in full: ``i`` sees ``j`` where ``j ≤ i``, both are
of one document and, in layers with a window w, ``i − j < w``. FlexAttention and flash attention take no such mask;
there transformers derives the same from positions that start again. Neither is taken on trust: :func:`refuse_leaks`
asks the model itself.
"""

import inspect
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from lingraft.errors import ModelError

__all__ = ["isolating_inputs", "masked_inputs", "positions_in_documents", "refuse_leaks"]

_TAKES_A_MASK = ("eager", "sdpa")
_TOLERANCE = 1e-4
# A bf16 product has 8 bits, and a pack is summed in another order than a document alone; a leak is a matter of 0.1.
_HALF_TOLERANCE = 3e-2


def positions_in_documents(documents: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
    """Return how far each token is from the first of its document in the row: 0 0 0 1 1 becomes 0 1 2 0 1."""
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - (places * begins).cummax(dim=1).values


def isolating_inputs(model: nn.Module, documents: Int[Tensor, "batch position"]) -> dict[str, Any]:
    """Return the arguments by which a model's body keeps documents apart.

    Args:
        model: the causal language model; its configuration says which attention it uses, and with which windows.
        documents: the number of each token's document in its row, never falling.

    Returns:
        ``position_ids`` where the model takes them, and ``attention_mask``: with SDPA of booleans, with eager attention
        of numbers to be added, ``(batch, 1, position, position)``; by kind of layer where layers differ.
    """
    places = torch.arange(documents.shape[1], device=documents.device)
    seen = (documents[:, :, None] == documents[:, None, :]) & (places[:, None] >= places[None, :])
    return masked_inputs(model, seen, positions_in_documents(documents))


def masked_inputs(
    model: nn.Module, seen: Bool[Tensor, "batch position position"], positions: Int[Tensor, "batch position"]
) -> dict[str, Any]:
    """Return the arguments by which a model's body computes each token from those that it is to see, and no others.

    Args:
        model: the causal language model.
        seen: for each token, a row of what it sees; itself is one of them.
        positions: where each token stands in its own text; what is a window's width further back is not seen in layers
            with a window.

    Returns:
        As :func:`isolating_inputs`.
    """
    given: Any = model
    inputs: dict[str, Any] = {}
    if "position_ids" in inspect.signature(given.base_model.forward).parameters:
        inputs["position_ids"] = positions
    config = given.config.get_text_config()
    if config._attn_implementation not in _TAKES_A_MASK:
        return inputs
    window, kinds = getattr(config, "sliding_window", None), set(getattr(config, "layer_types", None) or ())
    masks = {"full_attention": seen if kinds or window is None else seen & _within(positions, window)}
    if "sliding_attention" in kinds and window is not None:
        masks["sliding_attention"] = seen & _within(positions, window)
    made = {kind: mask[:, None] for kind, mask in masks.items()}
    if config._attn_implementation == "eager":
        dtype = next(given.parameters()).dtype
        made = {kind: _additive(mask, dtype) for kind, mask in made.items()}
    return inputs | {"attention_mask": made["full_attention"] if len(made) == 1 else made}


def _within(positions: Int[Tensor, "batch position"], window: int) -> Bool[Tensor, "batch position position"]:
    return positions[:, :, None] - positions[:, None, :] < window


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


def refuse_leaks(model: nn.Module, num_ids: int, where: str) -> None:
    """Check on a small pack that a model keeps documents apart, and each at its own positions.

    A word of the first of two documents is changed: no state of the second may move, by a single bit. And the second
    must be computed as it is when it stands alone.

    Raises:
        ModelError: it does not; the message names the recipe path ``where``.
    """
    given: Any = model
    device = given.get_input_embeddings().weight.device
    ids = (torch.arange(12, device=device)[None] * 7 + 1) % num_ids
    documents = (torch.arange(12, device=device)[None] >= 5).long()
    other = ids.clone()
    other[0, 2] = (other[0, 2] + 1) % num_ids
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            inputs = isolating_inputs(model, documents)
            first, second = (_states(given, tokens, inputs)[0, 5:] for tokens in (ids, other))
            alone = _states(given, ids[:, 5:], {})[0]
    except (ValueError, TypeError, RuntimeError, AttributeError, KeyError, IndexError) as error:
        raise _refusal(model, where, f"it does not take the mask: {error!r}") from error
    finally:
        model.train(training)
    moved, scale = (first - second).abs().max().item(), alone.abs().max().item() or 1.0
    if moved > 0:
        reason = f"a changed word moves the states of the next document by {moved / scale:.2g} of their size"
        raise _refusal(model, where, reason)
    apart = (first - alone).abs().max().item() / scale
    if apart > (_HALF_TOLERANCE if torch.is_autocast_enabled(device.type) else _TOLERANCE):
        raise _refusal(model, where, f"a document in a pack differs from the same one alone by {apart:.2g} of its size")


def _states(model: Any, ids: Tensor, inputs: dict[str, Any]) -> Tensor:
    output: Tensor = model.base_model(input_ids=ids, use_cache=False, **inputs).last_hidden_state
    return output.float()


def _refusal(model: nn.Module, where: str, reason: str) -> ModelError:
    given: Any = model
    attention = given.config.get_text_config()._attn_implementation
    return ModelError(
        f"{where}: {type(model).__name__} with {attention} attention does not keep documents apart ({reason}); write "
        "isolate: false, and documents of one sequence see each other"
    )
