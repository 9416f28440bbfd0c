"""Several processes that train one stage together: FSDP2 under torchrun.

Every rank holds a part of the rows of every parameter, of its gradient, of the optimiser's moments and of every average
(FSDP2, https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html; arXiv 2304.11277). A layer's rows are
gathered when it computes and let go behind it; input matrix, last norm and head stay gathered through a step, because
the loss reads the head's matrix itself.

Rank 0 is the one that decides and writes. What it has decided, and what has failed on any rank, the others hear as JSON
over a gloo group of its own, so that no message meets the traffic of training.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, distributed, nn

from lingraft import errors
from lingraft.errors import LingraftError, TrainingError
from lingraft.model.shards import held_rows, is_split, part_like, whole

__all__ = [
    "ALONE",
    "Ranks",
    "clip_gradients",
    "error_of",
    "joined_ranks",
    "read_tensors",
    "shard",
    "world_size",
    "write_tensors",
]

Value = TypeVar("Value")

# Rank 0 prepares data and measures while the others wait for its next word.
_PATIENCE = timedelta(days=30)
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class Ranks:
    """The processes that train together, seen from one of them; by default there is only this one.

    Attributes:
        rank: which one this is, from 0.
        count: how many there are.
        device: where this one computes.
        group: the process group for messages; None where there is one process.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    group: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that decides and writes."""
        return self.rank == 0

    def tell(self, value: Any = None) -> Any:
        """Return on every rank what rank 0 has given: a plain value."""
        if self.count == 1:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        length = torch.tensor([len(content)])
        distributed.broadcast(length, 0, group=self.group)
        message = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else _room(int(length))
        distributed.broadcast(message, 0, group=self.group)
        return json.loads(message.numpy().tobytes())

    def gather(self, numbers: Tensor) -> Tensor:
        """Return the vectors of all ranks, one behind the other; they are of one length."""
        if self.count == 1:
            return numbers
        parts = [torch.empty_like(numbers) for _ in range(self.count)]
        distributed.all_gather(parts, numbers.contiguous(), group=self.group)
        return torch.cat(parts)

    def any(self, flag: bool) -> bool:
        """Whether a flag is up on any rank."""
        return bool(self.gather(torch.tensor([int(flag)])).any())

    def first(self, action: Callable[[], Value]) -> Value:
        """Do something on rank 0 alone and return its outcome, a plain value, everywhere.

        Raises:
            LingraftError: on every rank, where it failed on rank 0.
        """
        if self.count == 1:
            return action()
        told: Value = self._outcome(action if self.is_first else lambda: None, from_rank_0=True)
        return told

    def together(self, action: Callable[[], Value]) -> Value:
        """Do something on every rank and return this one's own outcome.

        Raises:
            LingraftError: on every rank, where it failed on any.
        """
        return action() if self.count == 1 else self._outcome(action, from_rank_0=False)

    def _outcome(self, action: Callable[[], Any], *, from_rank_0: bool) -> Any:
        try:
            value = action()
        except Exception as error:
            # The others must not wait for this rank, whatever it is.
            self._failure(error)
            raise
        if words := self._failure(None):
            raise error_of(*words)
        return self.tell(value) if from_rank_0 else value

    def _failure(self, error: Exception | None) -> list[str]:
        """Return, everywhere, the kind and the text of the first rank's error that has one; nothing if none has."""
        failed = self.gather(torch.tensor([int(error is not None)])).tolist()
        return self._words_of(failed.index(1), error) if any(failed) else []

    def _words_of(self, rank: int, error: Exception | None) -> list[str]:
        """Return the kind and the text of a rank's error, everywhere."""
        words = json.dumps([type(error).__name__, str(error)]).encode() if error else b""
        length = torch.tensor([len(words)])
        distributed.broadcast(length, rank, group=self.group)
        message = torch.frombuffer(bytearray(words), dtype=torch.uint8) if self.rank == rank else _room(int(length))
        distributed.broadcast(message, rank, group=self.group)
        return list(json.loads(message.numpy().tobytes()))


ALONE = Ranks()


def error_of(name: str, text: str) -> LingraftError:
    """Return the error that another rank has told of: of its kind where that is one of ours, else a TrainingError."""
    kind = getattr(errors, name, None)
    # A MissingExtraError is made of other things than its text.
    is_ours = isinstance(kind, type) and issubclass(kind, LingraftError) and kind is not errors.MissingExtraError
    made: LingraftError = (kind if is_ours else TrainingError)(text)  # type: ignore[misc]
    return made


def _room(length: int) -> Tensor:
    return torch.empty(length, dtype=torch.uint8)


def world_size() -> int:
    """Return how many processes the environment says there are, as torchrun sets it; 1 where it says nothing.

    Raises:
        TrainingError: WORLD_SIZE is not a number from 1.
    """
    said = os.environ.get("WORLD_SIZE", "").strip() or "1"
    if not said.isdigit() or int(said) < 1:
        raise TrainingError(f"WORLD_SIZE must be a number from 1, not {said!r}")
    return int(said)


@contextmanager
def joined_ranks(kind: str) -> Iterator[Ranks]:
    """Join the processes that torchrun has started; alone, nothing is joined.

    Args:
        kind: ``cpu`` (gloo) or ``cuda`` (NCCL, one GPU per process).

    Raises:
        TrainingError: the environment is not torchrun's, there are fewer GPUs than processes on this machine, or
            another process has ended.
    """
    count = world_size()
    if count == 1:
        yield ALONE
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    rank = os.environ.get("RANK", "")
    if missing or not rank.isdigit() or int(rank) >= count:
        raise TrainingError(
            f"WORLD_SIZE is {count}, and {' and '.join(missing) or f'RANK {rank!r}'} does not fit; start with torchrun "
            "(docs/clusters.md)"
        )
    device = _own_device(kind)
    try:
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
        yield Ranks(int(rank), count, device, distributed.new_group(backend="gloo", timeout=_PATIENCE))
    except RuntimeError as error:
        if not (isinstance(error, distributed.DistError) or "gloo" in str(error)):
            raise
        raise TrainingError(
            f"rank {rank}: another process has ended or cannot be reached; what was saved is sound ("
            f"{str(error).splitlines()[0][:200]})"
        ) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _own_device(kind: str) -> torch.device:
    if kind != "cuda":
        return torch.device("cpu")
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= there:
        raise TrainingError(f"device: process {number} of this machine has no GPU of its own; there are {there}")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


class _Root(nn.Module):
    """What FSDP2 sees as the whole: inside its forward pass, parameters outside of the layers are gathered."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)


def shard(model: nn.Module, ranks: Ranks) -> Callable[..., Any]:
    """Divide a causal language model among ranks, in place; return what calls a function with gathered parameters.

    Groups are the layers (modules named in ``_no_split_modules``, else the members of the longest list of modules), the
    input matrix where the head has another, and all that is left: with it the head and the last norm.

    Args:
        model: whole on every rank, with the same weights; ``requires_grad`` is set.
        ranks: all of them; with only one, nothing is done.

    Raises:
        TrainingError: input and output matrix were one, and are not any longer.
    """
    if ranks.count == 1:
        return lambda function, *given: function(*given)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    given: Any = model
    read, spoken = given.get_input_embeddings(), given.get_output_embeddings()
    tied = read.weight is spoken.weight
    mesh = init_device_mesh(ranks.device.type, (ranks.count,))
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh)
    if not tied:
        fully_shard(read, mesh=mesh)
    root = _Root(model)
    fully_shard(root, mesh=mesh)
    if tied and given.get_input_embeddings().weight is not given.get_output_embeddings().weight:
        raise TrainingError(f"{type(model).__name__}: input and output matrix came apart when they were divided")
    return root


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the modules that are gathered one at a time, inner ones first."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    found = [module for module in model.modules() if type(module).__name__ in names]
    if not found:
        lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
        found = max(lists, key=len, default=[])
    return found[::-1]


def clip_gradients(parameters: Sequence[nn.Parameter], most: float) -> float:
    """Scale gradients so that their norm over all parameters and ranks is at most ``most``; return what it was."""
    if not any(is_split(parameter) for parameter in parameters):
        return float(torch.nn.utils.clip_grad_norm_(parameters, most).item())
    norm = whole(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)
    return float(norm.item())


def write_tensors(path: Path | None, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors that ranks hold parts of as one safetensors file of whole ones.

    Tensors are gathered one by one, so that no rank ever holds more than one whole tensor. Every rank must call this
    with the same names in the same order, and rank 0 with a path.

    Raises:
        OSError: the file could not be written; the gathering went on to its end, so that no rank is left waiting.
    """
    failure: OSError | None = None
    file = None
    for name in (order := sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))):
        gathered = whole(tensors[name].detach())
        if path is None or failure is not None:
            continue
        try:
            if file is None:
                file = path.open("wb")
                file.write(_header({name: tensors[name] for name in order}))
            file.write(gathered.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
        except OSError as error:
            failure = error
    if file is not None:
        file.close()
    if failure is not None:
        raise failure


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the head of a safetensors file: its length, and JSON padded to eight bytes."""
    entries, begin = {}, 0
    for name, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_tensors(path: Path, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file, each divided as the parameter of its name is: only this rank's rows are read.

    What belongs to no divided parameter, or has other rows, comes back whole. ``name::part`` belongs to ``name``.
    """
    found: dict[str, Tensor] = {}
    with safe_open(path, "pt") as file:
        for key in file.keys():  # noqa: SIM118 - it is no mapping
            parameter, stored = parameters.get(key.rpartition("::")[0] or key), file.get_slice(key)
            shape = tuple(stored.get_shape())
            if parameter is not None and is_split(parameter) and shape and shape[0] == len(parameter):
                begin, end = held_rows(parameter)
                found[key] = part_like(stored[begin:end] if begin < end else stored[:1][:0], parameter, shape)
            else:
                found[key] = file.get_tensor(key)
    return found
