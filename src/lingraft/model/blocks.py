"""Deeper models: copies of blocks that at first do nothing, so that only they need to learn (arXiv 2401.02415).

A block adds what its attention and its MLP put out to the states that run past it. A copy whose output projections are
zero adds nothing: the deeper model computes what the base does, and the copies begin to matter as they train.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.errors import ModelError
from lingraft.model.base import quiet_transformers

__all__ = ["block_names", "deeper_without_weights", "expand_blocks", "inserted_positions", "layer_list", "originals"]

_TOLERANCE = 1e-6


def inserted_positions(num_layers: int, where: int | Sequence[int]) -> tuple[int, ...]:
    """Return which blocks of the deeper model are copies, ascending.

    Args:
        num_layers: blocks of the base.
        where: how many copies, one behind each of as many groups of about the same size; or the blocks, from 0, that
            are copied, each copy standing right behind its block.

    Raises:
        ModelError: there are more copies than blocks, or a block is not one of the base's.
    """
    return tuple(place + n + 1 for n, place in enumerate(_copied(num_layers, where)))


def _copied(num_layers: int, where: int | Sequence[int]) -> list[int]:
    if isinstance(where, int):
        if not 1 <= where <= num_layers:
            raise ModelError(f"blocks: {where} copies of {num_layers} blocks; 1 to {num_layers} are possible")
        return [round((n + 1) * num_layers / where) - 1 for n in range(where)]
    if list(where) != sorted(set(where)) or not where or not 0 <= where[0] <= where[-1] < num_layers:
        raise ModelError(f"blocks: {list(where)} must be ascending numbers of the base's {num_layers} blocks, from 0")
    return list(where)


def originals(num_layers: int, where: int | Sequence[int]) -> list[int]:
    """Return, for each block of the deeper model, the block of the base that it is or is a copy of."""
    order = []
    copied = set(_copied(num_layers, where))
    for block in range(num_layers):
        order += [block, block] if block in copied else [block]
    return order


def layer_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Return the list of a model's blocks and its name, as in ``model.layers``.

    Raises:
        ModelError: there is not exactly one list with as many modules as the configuration states.
    """
    given: Any = model
    count = given.config.get_text_config().num_hidden_layers
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    # Lists inside of blocks, of experts for instance, may happen to be as long.
    outer = [(n, m) for n, m in found if not any(n != other and n.startswith(f"{other}.") for other, _ in found)]
    if len(outer) != 1:
        names = ", ".join(name for name, _ in outer) or "none"
        raise ModelError(
            f"blocks: {type(model).__name__} has not exactly one list of {count} blocks (found: {names}), so where to "
            "put new ones is not known"
        )
    return outer[0]


def block_names(model: nn.Module, where: int | Sequence[int]) -> tuple[str, ...]:
    """Return the module names of the inserted blocks of a deeper model, as ``model.layers.4``."""
    name, layers = layer_list(model)
    added = where if isinstance(where, int) else len(where)
    return tuple(f"{name}.{position}" for position in inserted_positions(len(layers) - added, where))


def deeper_without_weights(folder: Path, where: int | Sequence[int]) -> nn.Module:
    """Return a folder's model as it is once blocks are inserted, from its configuration alone, without memory."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with quiet_transformers(), torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        order = originals(config.get_text_config().num_hidden_layers, where)
        model: nn.Module = AutoModelForCausalLM.from_config(_deeper_config(config, order))
    return model


def expand_blocks(model: nn.Module, where: int | Sequence[int]) -> nn.Module:
    """Return a deeper model of the same class that computes what the given one does, and prove that it does.

    The configuration gets the new number of blocks, and lists with an entry per block get one for each copy, equal to
    its original's. The model is built from it, so each block knows its own number and the cache works; then weights are
    copied and the copies' output projections zeroed: in every part of a block, the last linear map that a token passes,
    and all others of that name (experts), with their biases.

    Args:
        model: the base.
        where: see :func:`inserted_positions`.

    Raises:
        ModelError: the blocks cannot be told, the positions are not the model's, or the deeper model's logits differ
            by more than 1e-6 of their size: some architectures do more with a block than add its output (scale it by
            its number, share caches, route over depth), and these are refused.
    """
    given: Any = model
    name, layers = layer_list(model)
    order = originals(len(layers), where)
    positions = inserted_positions(len(layers), where)
    outputs = _output_names(model, layers)
    deeper = _build(given, _deeper_config(given.config, order))
    weights = dict(_deeper_weights(given.state_dict(), name, order))
    try:
        deeper.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise ModelError(f"blocks: {type(model).__name__} cannot be made deeper: {error}") from error
    deeper.tie_weights()
    _, blocks = layer_list(deeper)
    for position in positions:
        _silence(blocks[position], outputs[order[position]])
    _prove(given, deeper)
    made: nn.Module = deeper.train(given.training)
    return made


def _deeper_config(config: Any, order: Sequence[int]) -> Any:
    """Return a configuration with a block for each entry of ``order``."""
    deeper = copy.deepcopy(config)
    text = deeper.get_text_config()
    count = text.num_hidden_layers
    text.num_hidden_layers = len(order)
    for key, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == count and "layer" in key:
            setattr(text, key, [value[block] for block in order])
    return deeper


def _build(model: Any, config: Any) -> Any:
    weight = model.get_input_embeddings().weight
    # Initial weights are drawn and thrown away; what the program draws afterwards must not depend on how many.
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        try:
            deeper = type(model)(config)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ModelError(
                f"blocks: {type(model).__name__} does not take the deeper configuration: {error}"
            ) from error
    deeper.generation_config = model.generation_config
    return deeper.to(weight.device, weight.dtype).eval()


def _deeper_weights(state: dict[str, Tensor], name: str, order: Sequence[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the deeper model's tensors by name, each block's from the one it is or is a copy of."""
    inside = f"{name}."
    for key, tensor in state.items():
        if not key.startswith(inside):
            yield key, tensor
    for position, block in enumerate(order):
        start = f"{inside}{block}."
        for key, tensor in state.items():
            if key.startswith(start):
                yield f"{inside}{position}.{key.removeprefix(start)}", tensor


def _output_names(model: Any, layers: nn.ModuleList) -> list[set[str]]:
    """Return, for each block, the names in it of the linear maps whose output joins the states that run past."""
    size = model.get_input_embeddings().weight.shape[1]
    called: list[list[str]] = [[] for _ in layers]
    handles = [
        module.register_forward_hook(_noting(called[number], name, size))
        for number, block in enumerate(layers)
        for name, module in block.named_modules()
        if _is_linear(module)
    ]
    try:
        with torch.no_grad():
            model(input_ids=_probe(model), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return [_last_of_each_part(block, names) for block, names in zip(layers, called, strict=True)]


def _noting(names: list[str], name: str, size: int) -> Any:
    def note(_: nn.Module, __: Any, output: Tensor) -> None:
        if output.shape[-1] == size:
            names.append(name)

    return note


def _last_of_each_part(block: nn.Module, called: Sequence[str]) -> set[str]:
    """Return the last called map of each part of a block, and its namesakes in that part."""
    last = {name.split(".", 1)[0]: name for name in called}
    linear = [name for name, module in block.named_modules() if _is_linear(module)]
    return {
        other
        for part, name in last.items()
        for other in linear
        if other.split(".", 1)[0] == part and other.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]
    }


def _is_linear(module: nn.Module) -> bool:
    # Conv1D is GPT-2's linear map.
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


@torch.no_grad()
def _silence(block: nn.Module, names: set[str]) -> None:
    for name in names:
        for parameter in block.get_submodule(name).parameters():
            parameter.zero_()


def _probe(model: Any) -> Tensor:
    """Return two sequences of token ids that are not all alike."""
    weight = model.get_input_embeddings().weight
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, weight.shape[0], (2, 12), generator=generator).to(weight.device)


@torch.no_grad()
def _prove(model: Any, deeper: Any) -> None:
    """Raise a ModelError unless both give the same logits."""
    ids, training = _probe(model), model.training
    model.eval()
    before = model(input_ids=ids, use_cache=False).logits.double()
    after = deeper(input_ids=ids, use_cache=False).logits.double()
    model.train(training)
    scale = before.abs().max().item() or 1.0
    error = (before - after).abs().max().item() / scale
    if not error <= _TOLERANCE:
        raise ModelError(
            f"blocks: a deeper {type(model).__name__} does not compute what the base does (logits differ by "
            f"{error:.2g} of their size): its blocks do more than add their output"
        )
