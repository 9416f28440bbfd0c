"""How far a model's function is from the base's: hidden states of a fixed text, and the divergence of predictions.

The base model is asked once. Its last states are kept in fp32: with its output matrix, which lies on disk, they are its
predictions, whatever the size of the vocabulary. Its other states are kept in bf16, for CKA.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lingraft.errors import MeasurementError
from lingraft.model.base import Head
from lingraft.polling import poll

__all__ = ["States", "kept_sequences", "mean_divergence", "read_states", "states_of", "write_states"]

_CHUNK = 128
_IDS, _LAYER = "ids", "layer"


@dataclass(frozen=True)
class States:
    """What a model makes of some sequences of equal length.

    Attributes:
        ids: the sequences, the condition token in front; each row is one.
        layers: the states behind the embeddings (0) and behind each layer, but the last one, ``(tokens, dim)``, rows of
            ``ids`` one behind the other without their first token, whose states are of another size.
        last: what the head reads, likewise.
    """

    ids: Int[Tensor, "sequence position"]
    layers: tuple[Float[Tensor, "tokens dim"], ...]
    last: Float[Tensor, "tokens dim"]


def kept_sequences(pieces: Sequence[Sequence[int]], length: int, tokens: int) -> list[list[int]]:
    """Return the first ``length`` ids of pieces that are as long, until there are ``tokens`` of them; at least one.

    Where no piece is as long, the longest gives the length: fixed tests must be possible on short text too.
    """
    longest = max(map(len, pieces), default=0)
    size = min(length, longest)
    long_enough = [list(piece[:size]) for piece in pieces if len(piece) >= size > 0]
    return long_enough[: max(1, tokens // max(1, size))]


@torch.no_grad()
def states_of(
    model: nn.Module,
    sequences: Sequence[Sequence[int]],
    *,
    condition_id: int,
    batch_size: int = 8,
    skip: Sequence[int] = (),
) -> States:
    """Return a model's states of sequences of one length, in fp32 on the CPU.

    Args:
        model: a causal language model.
        sequences: ids; the condition token is put in front of each.
        condition_id: that token.
        batch_size: sequences per forward pass.
        skip: layers, counted from 0, whose states are left out: those that the base model does not have.
    """
    given: Any = model.eval()
    ids = torch.tensor([[condition_id, *sequence] for sequence in sequences])
    device = next(model.parameters()).device
    found: list[list[Tensor]] = []
    for part in torch.split(ids, batch_size):
        poll()
        output = given.base_model(input_ids=part.to(device), use_cache=False, output_hidden_states=True)
        kept = [s for n, s in enumerate(output.hidden_states[:-1]) if n - 1 not in skip]
        found.append([s[:, 1:].flatten(0, 1).float().cpu() for s in (*kept, output.last_hidden_state)])
    *layers, last = (torch.cat(states) for states in zip(*found, strict=True))
    return States(ids, tuple(layers), last)


def write_states(path: Path, states: Mapping[str, States]) -> None:
    """Write named states: the last ones in fp32, all others in bf16."""
    tensors = {}
    for name, made in states.items():
        tensors[f"{name}/{_IDS}"] = made.ids
        tensors[f"{name}/last"] = made.last.contiguous()
        for number, layer in enumerate(made.layers):
            tensors[f"{name}/{_LAYER}/{number}"] = layer.to(torch.bfloat16).contiguous()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    save_file(tensors, temporary)
    temporary.replace(path)


def read_states(path: Path, name: str) -> States:
    """Return states that :func:`write_states` wrote.

    Raises:
        MeasurementError: they are not there, or the file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            count = sum(key.startswith(f"{name}/{_LAYER}/") for key in file.keys())  # noqa: SIM118 - not a mapping
            layers = tuple(file.get_tensor(f"{name}/{_LAYER}/{n}").float() for n in range(count))
            return States(file.get_tensor(f"{name}/{_IDS}"), layers, file.get_tensor(f"{name}/last"))
    except (OSError, SafetensorError) as error:
        raise MeasurementError(
            f"{path}: the base model's states cannot be read ({error}); delete it, and the same command makes it again"
        ) from error


@torch.no_grad()
def mean_divergence(
    base: Float[Tensor, "tokens dim"],
    adapted: Float[Tensor, "tokens dim"],
    heads: tuple[Head, Head],
    shared: Int[Tensor, "shared"],
) -> Float[Tensor, "tokens"]:
    """Return KL(base ‖ adapted) in nats at every token: Σᵥ p(v) (log p(v) − log q(v)) over the ids of both.

    p and q are renormalised over those ids, since the base knows no others: what new tokens take from all old ones
    alike is no drift here (``new_token_mass`` tells it).

    Args:
        base: the base's states, as its head reads them.
        adapted: the model's states of the same tokens.
        heads: of the base and of the model.
        shared: the ids that both have, ascending.
    """
    found = []
    device = heads[1].weight.device
    for one, other in zip(torch.split(base, _CHUNK), torch.split(adapted, _CHUNK), strict=True):
        poll()
        p = _log_shares(one.to(device), heads[0], shared.to(device))
        q = _log_shares(other.to(device), heads[1], shared.to(device))
        found.append((p.exp() * (p - q)).sum(dim=1).clamp_min(0).cpu())
    return torch.cat(found)


def _log_shares(
    states: Float[Tensor, "tokens dim"], head: Head, shared: Int[Tensor, "shared"]
) -> Float[Tensor, "tokens shared"]:
    logits = head.logits(states)
    every = len(shared) == logits.shape[1]
    return (logits if every else logits.index_select(1, shared)).log_softmax(dim=1)
