"""Compaction: rows leave a parameter and its optimizer's state for good, so that their memory is free."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def select_rows(parameter: nn.Parameter, rows: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
    """Keep `rows` [m] of a parameter, in place, and free its gradient; a row that is named twice is cloned.

    The optimizer's tensors of the parameter's shape follow, so that a clone inherits its parent's momentum.
    """
    shape = parameter.shape
    parameter.grad = None
    values = parameter.data[rows]
    # An earlier loss that is still held keeps the node that gathers this gradient, with the old shape; a change of
    # dtype is what makes torch let go of it.
    other = torch.float32 if values.dtype == torch.float64 else torch.float64
    parameter.data = torch.empty(0, dtype=other, device=values.device)
    parameter.data = values
    if optimizer is None or parameter not in optimizer.state:
        return
    state = optimizer.state[parameter]
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == shape:
            state[name] = value[rows]


def count_allocated_bytes(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> int:
    """Bytes that parameters, gradients and the optimizer's state take now."""
    tensors = [tensor for p in module.parameters() for tensor in (p, p.grad) if tensor is not None]
    if optimizer is not None:
        states = (optimizer.state[p] for p in module.parameters() if p in optimizer.state)
        tensors += [value for state in states for value in state.values() if isinstance(value, Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def add_required_rows(
    row_mask: Tensor, worth: Tensor, ids: Tensor, owners: Tensor, classes: int, *, keep_one: bool
) -> Tensor:
    """`row_mask` [N] and the rows that must stay.

    That of the largest `worth` of each expert and, with `keep_one`, class.
    """
    kept_rows = row_mask.clone()
    for groups, count in ((owners, int(owners.max()) + 1), *([(ids, classes)] if keep_one else [])):
        largest = worth.new_zeros(count).scatter_reduce(0, groups, worth, "amax")
        kept_rows |= mark_first_rows(worth == largest[groups], groups, count)
    return kept_rows


def mark_first_rows(row_mask: Tensor, ids: Tensor, classes: int) -> Tensor:
    """Mask [N] of the first row in `row_mask` of each group; ids: the group of every row, a class or an expert."""
    rows = row_mask.nonzero()[:, 0]
    first = torch.full((classes,), len(ids), device=ids.device).scatter_reduce(0, ids[rows], rows, "amin")
    first_rows = torch.zeros_like(row_mask)
    first_rows[first[first < len(ids)]] = True
    return first_rows
