"""Checks of what a Doubly Sparse Softmax is made from and trained on; each raises ValueError with one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

STALLED_ROUNDS = 300  # that a stage may go on for without a row less


def check_parts(weight: Tensor, bias: Tensor, gate: Tensor, ids: list[Tensor], classes: int) -> None:
    """Raise ValueError where weight [N, d], bias [N], gate [K, d] and each expert's ids do not fit each other."""
    if classes < 2:
        raise ValueError("there is one class only, whose probability is 1: nothing is to be gained from experts")
    if len(gate) != len(ids):
        raise ValueError(f"the gate has {len(gate)} rows for {len(ids)} experts: give one row for each")
    empty = [expert for expert, expert_ids in enumerate(ids) if not len(expert_ids)]
    if empty:
        raise ValueError(f"expert {empty[0]} has no class left: prune less (lower lasso), or leave the expert out")
    total = sum(len(expert_ids) for expert_ids in ids)
    if len(weight) != total or len(bias) != total:
        raise ValueError(f"there are {len(weight)} weights and {len(bias)} biases for {total} classes of experts")
    for expert, expert_ids in enumerate(ids):
        if int(expert_ids.min()) < 0 or int(expert_ids.max()) >= classes or bool((expert_ids.diff() <= 0).any()):
            raise ValueError(f"expert {expert}'s ids must ascend and lie in 0 to {classes - 1}")


def check_targets(targets: Tensor, rows: int, classes: int) -> None:
    """Raise ValueError for targets outside 0 to `classes` - 1, or not one for each of `rows` contexts."""
    if len(targets) != rows or (targets.ndim == 2 and targets.shape[1] != classes):
        raise ValueError(f"targets have shape {list(targets.shape)} for {rows} contexts and {classes} classes")
    if targets.ndim == 1 and rows and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        raise ValueError(
            f"targets go from {int(targets.min())} to {int(targets.max())} but classes from 0 to {classes - 1}"
        )


def check_pruning(rows: Sequence[int]) -> None:
    """Raise ValueError where a stage that must shrink has not, by the `rows` that it had after each round so far."""
    if len(rows) > STALLED_ROUNDS and len(set(rows[-STALLED_ROUNDS:])) == 1:
        raise ValueError(
            f"no row was pruned in {STALLED_ROUNDS} rounds, and the {rows[-1]} that are left are too many to clone the "
            "experts: raise lasso, threshold or learning_rate, choose fewer experts, or leave evidence on"
        )
