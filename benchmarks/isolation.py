"""What keeping documents apart costs: a forward and a backward pass with and without, in turns.

    python benchmarks/isolation.py --lengths 512 2048

A Llama of SmolLM2-135M's width and of six layers, random weights; each row holds documents of about 200 tokens. Only
the ratios mean anything.
"""

import argparse
import statistics
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from lingraft.model.base import hidden_states

DOCUMENT, ROWS = 200, 2


def make(length: int) -> torch.nn.Module:
    """Return the model."""
    config = LlamaConfig(
        vocab_size=8192, hidden_size=576, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=length,
    )  # fmt: skip
    model: torch.nn.Module = AutoModelForCausalLM.from_config(config).train()
    return model


def seconds(model: torch.nn.Module, ids: torch.Tensor, documents: torch.Tensor | None, is_bf16: bool) -> float:
    """Return how long a step's two passes take."""
    begin = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
        hidden = hidden_states(model, ids, documents=documents)
    torch.autograd.backward(hidden.float().square().mean())
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each length and type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    for length in given.lengths:
        model, ids = make(length), torch.randint(0, 8192, (ROWS, length))
        documents = (torch.arange(length) // DOCUMENT).expand(ROWS, -1)
        for is_bf16 in (False, True):
            pairs = [
                (seconds(model, ids, None, is_bf16), seconds(model, ids, documents, is_bf16))
                for _ in range(given.repeats + 1)
            ]
            ratios = [apart / open_ for open_, apart in pairs[1:]]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{length} tokens, {'bf16' if is_bf16 else 'fp32'}: {spread}")


if __name__ == "__main__":
    main()
