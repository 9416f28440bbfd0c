"""Time and peak memory of the loss against all logits at once and against libraries' kernels, in one run.

    python benchmarks/chunked_loss.py
    python benchmarks/chunked_loss.py --positions 8192 --ids 128256 --width 2048

Forward and backward. ``torch`` is ``torch.nn.functional.linear_cross_entropy`` in chunks, ``cce`` the compiled form of
the package cut-cross-entropy, where that can be imported; its own kernel and Liger's want a GPU. Every measurement is a
process of its own, because a process's peak memory never goes down again. Memory is what the loss adds to the states
and the matrix that are there before it.
"""

import argparse
import importlib.util
import multiprocessing
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingraft.model.base import Head
from lingraft.training.loss import chunked_cross_entropy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def naive_cross_entropy(hidden: torch.Tensor, targets: torch.Tensor, head: Head, dtype: torch.dtype) -> torch.Tensor:
    """Return the summed loss from all logits at once, in fp32."""
    logits = (hidden.to(dtype) @ head.weight[: head.num_ids].to(dtype).T).float()
    return nn.functional.cross_entropy(logits, targets, reduction="sum")


def chunked(hidden: torch.Tensor, targets: torch.Tensor, head: Head, dtype: torch.dtype) -> torch.Tensor:
    """Return the summed loss from a chunk of logits at a time."""
    return chunked_cross_entropy(hidden, targets, head, dtype=dtype)[0]


def torchs(hidden: torch.Tensor, targets: torch.Tensor, head: Head, dtype: torch.dtype) -> torch.Tensor:
    """Return the summed loss from torch's own chunks."""
    return nn.functional.linear_cross_entropy(
        hidden.to(dtype), head.weight[: head.num_ids].to(dtype), targets, reduction="sum",
        options=nn.LinearCrossEntropyOptions(),
    )  # fmt: skip


def cut(hidden: torch.Tensor, targets: torch.Tensor, head: Head, dtype: torch.dtype) -> torch.Tensor:
    """Return the summed loss of cut-cross-entropy without its kernel."""
    from cut_cross_entropy import linear_cross_entropy

    weight = head.weight[: head.num_ids].to(dtype)
    return linear_cross_entropy(hidden.to(dtype), weight, targets, impl="torch_compile", reduction="sum")


LOSSES = {"naive": naive_cross_entropy, "lingraft": chunked, "torch": torchs} | (
    {"cce": cut} if importlib.util.find_spec("cut_cross_entropy") else {}
)


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes; ru_maxrss counts the parent's in (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


def measure(loss_name: str, dtype_name: str, options: argparse.Namespace, results: Any) -> None:
    """Put ``(median seconds, peak bytes, loss)`` of one loss into a queue; runs in a process of its own."""
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(options.positions, options.width, generator=generator, requires_grad=True)
    weight = nn.Parameter(torch.randn(options.ids, options.width, generator=generator) * 0.05)
    targets = torch.randint(options.ids, (options.positions,), generator=generator)
    head = Head(weight, None, None, options.ids)
    before = peak_memory()
    seconds = []
    for _ in range(options.repeats + 1):
        hidden.grad = weight.grad = None
        start = time.perf_counter()
        loss = LOSSES[loss_name](hidden, targets, head, DTYPES[dtype_name])
        torch.autograd.backward(loss)
        seconds.append(time.perf_counter() - start)
    peak = peak_memory() - before
    results.put((statistics.median(seconds[1:]), peak, loss.item() / options.positions))


def main() -> None:
    """Measure all, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--positions", type=int, default=2048, help="tokens of a forward pass")
    parser.add_argument("--ids", type=int, default=51_200, help="the vocabulary")
    parser.add_argument("--width", type=int, default=576, help="of the hidden states")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    print(f"{options.positions} positions, {options.ids} ids, width {options.width}, {options.threads} threads")
    print("| type | loss | seconds | ratio | MiB | ratio | nats |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    context = multiprocessing.get_context("spawn")
    for dtype_name in DTYPES:
        first = None
        for loss_name in LOSSES:
            results = context.Queue()
            process = context.Process(target=measure, args=(loss_name, dtype_name, options, results))
            process.start()
            seconds, peak, loss = results.get()
            process.join()
            first = first or (seconds, peak)
            print(
                f"| {dtype_name} | {loss_name} | {seconds:.2f} | {seconds / first[0]:.2f} | {peak / 2**20:,.0f} "
                f"| {peak / first[1]:.2f} | {loss:.5f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
