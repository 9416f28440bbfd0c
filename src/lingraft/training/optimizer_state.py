"""The state of an optimiser: groups of parameters, rows of different age, and what survives between two stages."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lingraft.errors import CheckpointError
from lingraft.model.freeze import Trainable
from lingraft.model.shards import held_rows, is_split, part_like, whole

__all__ = ["RowwiseAdamW", "carried_state", "parameter_groups", "take_over"]

_MOMENTS = ("exp_avg", "exp_avg_sq")


class RowwiseAdamW(torch.optim.AdamW):
    """AdamW whose rows may be of different age.

    A row that begins to learn later than the rest of its matrix has moments of its own age, and bias correction divides
    by 1 − βᵏ with k the steps that *it* has made. Where a parameter's state has ``row_step``, ``(rows, 1)``, the step
    is made with these in place of the one counter; elsewhere this is torch's AdamW.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Make one step."""
        late = [
            (group, parameter, parameter.detach().clone())
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and "row_step" in self.state[parameter]
        ]
        loss = super().step(closure)
        for group, parameter, before in late:
            self._step_again(group, parameter, before)
        return loss

    def _step_again(self, group: Mapping[str, Any], parameter: Tensor, before: Tensor) -> None:
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        age = state["row_step"].add_(1)
        mean = state["exp_avg"] / (1 - beta1**age)
        spread = (state["exp_avg_sq"] / (1 - beta2**age)).sqrt_().add_(group["eps"])
        parameter.copy_(before).mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(mean, spread, value=-group["lr"])


def parameter_groups(
    parameters: Mapping[str, nn.Parameter], trainable: Trainable, *, weight_decay: float, table_factor: float
) -> list[dict[str, Any]]:
    """Return the groups of a stage: body and tables, each with and without decay.

    Vectors are not decayed, nor matrices of which only some rows learn: decay does not ask for a gradient.

    Args:
        parameters: what trains; what is not the model's own counts as a table.
        trainable: which of them are tables, and of which only some rows learn.
        weight_decay: of the others.
        table_factor: the tables' learning rate over that of the body.
    """
    groups: dict[tuple[bool, bool], dict[str, Any]] = {}
    for name, parameter in parameters.items():
        is_table = name in trainable.tables or name not in trainable.names
        decays = parameter.ndim >= 2 and name not in trainable.partial
        group = {
            "params": [],
            "weight_decay": weight_decay if decays else 0.0,
            "factor": table_factor if is_table else 1.0,
            "is_table": is_table,
        }
        groups.setdefault((is_table, decays), group)["params"].append(parameter)
    return list(groups.values())


def carried_state(
    made: Sequence[Optimizer], parameters: Mapping[str, nn.Parameter], trainable: Trainable
) -> dict[str, Tensor]:
    """Return the moments that the next stage may go on from, keyed ``name::part``; ``age`` is steps, one per row.

    Rows that did not learn are of age 0.
    """
    names: dict[Tensor, str] = {p: name for name, p in parameters.items() if name in trainable.names}
    kept: dict[str, Tensor] = {}
    for optimizer in made:
        for parameter, state in optimizer.state.items():
            if parameter not in names or "exp_avg" not in state:
                continue
            name = names[parameter]
            age = whole(state.get("row_step", state["step"].detach().cpu().expand(_row_shape(parameter)))).clone()
            trainable.keep_new_rows(name, age)
            kept |= {f"{name}::{part}": state[part].detach() for part in _MOMENTS}
            kept[f"{name}::age"] = age
    return kept


def take_over(
    made: Sequence[Optimizer],
    parameters: Mapping[str, nn.Parameter],
    trainable: Trainable,
    carried: Mapping[str, Tensor],
) -> int:
    """Start from the moments of the stage before; return for how many parameters there were any.

    Moments of rows that do not learn in this stage are dropped: a row that has momentum moves although its gradient is
    masked. What the stage before did not train begins with none, at age 0.

    Raises:
        CheckpointError: a moment is of another shape than its parameter.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in parameters.items()}
    taken = 0
    for optimizer in made:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            name = names[parameter]
            if f"{name}::age" not in carried:
                continue
            optimizer.state[parameter] = _moments(name, parameter, trainable, carried)
            taken += 1
    return taken


def _moments(
    name: str, parameter: nn.Parameter, trainable: Trainable, carried: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    state = {part: carried[f"{name}::{part}"].to(parameter.device).clone() for part in _MOMENTS}
    age = carried[f"{name}::age"].to(parameter.device).clone()
    if any(moment.shape != parameter.shape for moment in state.values()):
        raise CheckpointError(f"the moments of {name} that the stage before left are of another shape")
    for tensor in (*state.values(), age):
        trainable.keep_new_rows(name, tensor)
    learning = age[trainable.new_index] if name in trainable.partial else age
    if bool((learning == learning.max()).all()):
        return _divided(state, parameter) | {"step": learning.max().clone()}
    return _divided(state | {"row_step": age}, parameter) | {"step": learning.max().clone()}


def _divided(state: Mapping[str, Tensor], parameter: Tensor) -> dict[str, Tensor]:
    """Return whole tensors divided among ranks by rows as a parameter is, if it is."""
    if not is_split(parameter):
        return dict(state)
    rows = slice(*held_rows(parameter))
    return {part: part_like(tensor[rows], parameter, tuple(tensor.shape)) for part, tensor in state.items()}


def _row_shape(parameter: Tensor) -> tuple[int, ...]:
    """Return ``(rows, 1, …)``: what broadcasts over a parameter row by row."""
    return (parameter.shape[0], *(1 for _ in parameter.shape[1:])) if parameter.ndim else ()
