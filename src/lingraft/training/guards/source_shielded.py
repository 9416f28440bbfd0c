"""Source-shielded updates: the columns of the body that source text leans on most do not move."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lingraft.errors import TrainingError
from lingraft.model.base import hidden_states
from lingraft.polling import poll
from lingraft.training.companion import Companion, StageStart
from lingraft.training.guards.guard import SourceText, guard

__all__ = ["SourceShielded", "input_norms", "shielded_columns"]


@guard(
    "source_shielded",
    reference="arXiv 2512.04844",
    copies=1,
    limits={"share": (0, 1), "tokens": (1, inf)},
    divides=False,
    of_body=True,
)
class SourceShielded(Companion):
    """Freezes the most important columns of every matrix of the body; what is important, a little source text says.

    The importance of a weight is |Wᵢⱼ| · ‖Xⱼ‖₂ (arXiv 2306.11695), with Xⱼ the j-th input of the matrix over all
    source tokens; that of column j, the weights that read input j, is their sum over i. Of each matrix the top
    ``share`` of the columns is frozen: no gradient, and the starting bits back behind every step, whatever the
    optimiser decays. Embeddings, head, norms and biases train as ever. Rows and columns are those of y = W x.

    Args:
        start: the stage's start.
        source: where the source text comes from.
        share: of the columns of each matrix, between 0 and 1.
        tokens: how much source text importance is taken from.

    Raises:
        TrainingError: the stage trains no matrix of the body.
    """

    group: ClassVar[str] = "source_shielded"

    def __init__(self, start: StageStart, source: SourceText, *, share: float = 0.5, tokens: int = 131_072) -> None:
        norms = source.kept("source_shielded", lambda: input_norms(start, source.sequences(tokens)))
        if not norms:
            raise TrainingError("source_shielded: the stage trains no matrix of the body: there is nothing to shield")
        self._parameters = {name: start.parameters[name] for name in norms}
        self._columns = _columns_of(start.model, norms, share)
        self._start = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @property
    def num_shielded(self) -> int:
        """How many weights do not move."""
        return sum(int(mask.expand_as(self._start[name]).sum()) for name, mask in self._columns.items())

    @torch.no_grad()
    def before_update(self, step: int) -> None:  # noqa: ARG002 - the same at every step
        """Take the gradients of shielded columns away."""
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                parameter.grad.masked_fill_(self._columns[name], 0)

    @torch.no_grad()
    def after_update(self, step: int) -> None:  # noqa: ARG002 - the same at every step
        """Put the starting bits of shielded columns back, which weight decay has shrunk."""
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.where(self._columns[name], self._start[name], parameter))


def shielded_columns(scores: Tensor, share: float) -> Tensor:
    """Return which of some columns are shielded: the top ``share`` by score, the earlier of equals first."""
    shielded = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    shielded[torch.sort(scores, descending=True, stable=True).indices[: round(share * len(scores))]] = True
    return shielded


def _columns_of(model: nn.Module, norms: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return, by parameter, a mask that is true on shielded columns and stretches over the matrix."""
    masks = {}
    for name, module in _matrices(model):
        if name in norms:
            weight: Tensor = module.weight.detach().float()
            side = _input_side(module)
            mask = shielded_columns(weight.abs().sum(dim=1 - side) * norms[name].to(weight.device), share)
            masks[name] = mask[None, :] if side == 1 else mask[:, None]
    return masks


def input_norms(start: StageStart, sequences: Any) -> dict[str, Tensor]:
    """Return ‖Xⱼ‖₂ over some sequences for each input j of every matrix of the body that trains, by parameter name."""
    squares: dict[str, Tensor] = {}
    start.model.eval()
    with torch.no_grad(), _watched(start, squares):
        for sequence in sequences:
            poll()
            hidden_states(start.model, sequence[None, :-1])
    return {name: total.sqrt().float() for name, total in squares.items()}


@contextmanager
def _watched(start: StageStart, squares: dict[str, Tensor]) -> Iterator[None]:
    """Add the squares of every matrix's inputs up inside."""

    def watch(name: str) -> Any:
        def add(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            found = given[0].detach().double().flatten(0, -2).square().sum(dim=0)
            squares[name] = squares[name] + found if name in squares else found

        return add

    with ExitStack() as stack:
        for name, module in _matrices(start.model):
            if name in start.parameters:
                stack.callback(module.register_forward_pre_hook(watch(name)).remove)
        yield


def _matrices(model: Any) -> list[tuple[str, Any]]:
    """Return the linear maps of the body by the name of their weight: not the head, not embeddings."""
    tables = {id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings())}
    found = [(name, module) for name, module in model.named_modules() if _is_linear(module)]
    return [(f"{name}.weight", module) for name, module in found if id(module.weight) not in tables]


def _is_linear(module: nn.Module) -> bool:
    # Conv1D is GPT-2's linear map, with its matrix lying on its side.
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _input_side(module: nn.Module) -> int:
    return 1 if isinstance(module, nn.Linear) else 0
