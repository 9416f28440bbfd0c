"""How demonstrations and a query are written: without a word of any language but the frame itself."""

from collections.abc import Callable, Sequence

__all__ = ["TEMPLATES"]

Pairs = Sequence[tuple[str, str]]


def _arrow(shown: Pairs, query: str) -> str:
    return "".join(f"{asked} -> {answer}\n" for asked, answer in shown) + f"{query} ->"


def _input_output(shown: Pairs, query: str) -> str:
    lines = [f"Input: {asked}\nOutput: {answer}\n\n" for asked, answer in shown]
    return "".join(lines) + f"Input: {query}\nOutput:"


TEMPLATES: dict[str, Callable[[Pairs, str], str]] = {"arrow": _arrow, "input_output": _input_output}
"""By name: a function from demonstrations and a query to a prompt that ends where the answer, with a space, begins."""
