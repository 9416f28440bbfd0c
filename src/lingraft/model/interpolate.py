"""Weights between weights: on the way from one model to another of the same shapes, and merges of several."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import ModelError
from lingraft.model.freeze import row_index
from lingraft.polling import poll
from lingraft.registry import Registry

__all__ = ["interpolate", "linear", "merge_weights", "merges", "slerp"]

_PARALLEL = 1 - 1e-7

merges: Registry[Callable[[Tensor, Tensor, float], Tensor]] = Registry("merge")


@torch.no_grad()
def interpolate(
    model: nn.Module, base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], weight: float, new_ids: Sequence[int]
) -> None:
    """Put θ_base + λ (θ − θ_base) into a model: λ = 0 is the base, λ = 1 the tuned model, both bit for bit.

    The rows of new tokens have no base to go back to and are the tuned ones for every λ. A tied matrix is one
    parameter, so both sides get the same (arXiv 2606.00284 calls this reversion).

    Args:
        model: of the shapes of both; its weights are overwritten.
        base: θ_base by parameter name.
        tuned: θ by parameter name.
        weight: λ.
        new_ids: ids of new tokens, ascending.

    Raises:
        ModelError: the three do not have the same parameters.
    """
    parameters = dict(model.named_parameters())
    _refuse_other_shapes(parameters, base, tuned)
    tables, rows = _tables(model), row_index(new_ids)
    for name, parameter in parameters.items():
        poll()
        parameter.copy_(torch.lerp(base[name], tuned[name], weight))
        if new_ids and any(parameter is table for table in tables):
            parameter[rows] = tuned[name][rows].to(parameter.device, parameter.dtype)


def _tables(model: Any) -> list[Tensor]:
    return [module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings())]


def _refuse_other_shapes(first: Mapping[str, Tensor], *others: Mapping[str, Tensor]) -> None:
    for other in others:
        strange = sorted(first.keys() ^ other.keys())
        strange += [name for name in first if name in other and first[name].shape != other[name].shape]
        if strange:
            raise ModelError(f"weights of other models cannot be mixed: they differ in {strange[0]}")


def merge_weights(branches: Sequence[Mapping[str, Tensor]], method: str, where: str = "merge") -> dict[str, Tensor]:
    """Return weights amid several that were trained from one start, by parameter name, each with the same share.

    They are taken in one after another, the k-th with the share 1/k, so that two are met half-way. What is the same in
    all of them, such as rows that did not train, stays as it is, bit for bit.

    Raises:
        ModelError: they do not have the same parameters.
        RecipeError: there is no such method.
    """
    combine = merges.get(method, where).function
    merged = {name: tensor.detach().clone() for name, tensor in branches[0].items()}
    for number, branch in enumerate(branches[1:], 2):
        _refuse_other_shapes(merged, branch)
        for name, tensor in merged.items():
            poll()
            found = combine(tensor, branch[name], 1 / number)
            merged[name] = torch.where(tensor == branch[name], tensor, found)
    return merged


@merges.register("linear", reference="arXiv 2203.05482")
def linear(one: Tensor, other: Tensor, share: float) -> Tensor:
    """Return (1 − t) · a + t · b."""
    return torch.lerp(one, other, share)


@merges.register("slerp", reference="arXiv 2407.08699")
def slerp(one: Tensor, other: Tensor, share: float) -> Tensor:
    """Return the point between two tensors on the arc between them: its length does not fall as a chord's does.

    a · sin((1 − t) Ω) / sin Ω + b · sin(t Ω) / sin Ω, with Ω the angle between a and b as vectors, worked out in fp64.
    Tensors that are parallel, opposite or zero have no one arc between them and are met on the line.
    """
    a, b = one.double(), other.double()
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    cosine = float((a * b).sum() / lengths) if float(lengths) else 1.0
    if abs(cosine) >= _PARALLEL:
        return linear(one, other, share)
    angle = torch.arccos(torch.tensor(cosine, dtype=torch.float64))
    parts = torch.sin((1 - share) * angle) * a + torch.sin(share * angle) * b
    return (parts / torch.sin(angle)).to(one.dtype)
