"""Rows of a parameter taken out for good, from its gradient and the optimiser's state too; and what all that weighs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def keep_rows(parameter: nn.Parameter, rows: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
    """Keep (or, where `rows` repeats some, clone) rows of a parameter, its gradient freed.

    The optimiser's own tensors of the parameter's shape go with it, so that a clone inherits its parent's momentum.
    """
    shape = parameter.shape
    parameter.grad = None
    kept = parameter.data[rows]
    # An earlier loss that is still held keeps the node that gathers this gradient, with the old shape; a change of
    # dtype is what makes torch let go of it.
    other = torch.float32 if kept.dtype == torch.float64 else torch.float64
    parameter.data = torch.empty(0, dtype=other, device=kept.device)
    parameter.data = kept
    if optimizer is None or parameter not in optimizer.state:
        return
    state = optimizer.state[parameter]
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == shape:
            state[name] = value[rows]


def allocated_bytes(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> int:
    """Bytes of the parameters, of their gradients and of the optimiser's state, as they are allocated now."""
    tensors = [tensor for p in module.parameters() for tensor in (p, p.grad) if tensor is not None]
    if optimizer is not None:
        states = (optimizer.state[p] for p in module.parameters() if p in optimizer.state)
        tensors += [value for state in states for value in state.values() if isinstance(value, Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)
