"""Mitosis: every expert becomes several (Algorithm 2 of Doubly Sparse Softmax)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .compaction import keep_rows
from .ds import DSSoftmax
from .ds_gate import SMALL, spread

Choose = Callable[[Tensor, Tensor], Tensor]  # (expert, class) of every row of the clones, [M] each -> which to make


@torch.no_grad()
def clone(
    module: DSSoftmax,
    contexts: Tensor,
    generator: torch.Generator,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    children: int = 2,
    noise: float = 2.0,
    choose: Choose | None = None,
) -> None:
    """Make `children` of every expert, with its classes, weights and momentum.

    contexts: [n, d], a sample. noise: standard deviation of what a child's gate adds to the score of its parent's
    contexts; see `spread`. A gate over more experts gives smaller values; the weights make up for that by one
    factor a parent. choose: the rows to make; the others are never allocated.
    """
    before, parents = module.gates(contexts).max(dim=1)
    count, device = module.experts, module.ids.device
    keep_rows(module.gate, torch.arange(count, device=device).repeat_interleave(children), optimizer)
    normal = torch.randn(module.gate.shape, generator=generator).to(contexts.device)
    for parent, own in enumerate(torch.split(normal, children)):
        mine = contexts[parents == parent]
        start = parent * children
        module.gate[start : start + children] += spread(mine if len(mine) > 1 else contexts, own, noise)
    parts = torch.split(torch.arange(len(module.ids), device=device), module.sizes)
    rows = torch.cat([part for part in parts for _ in range(children)])
    owners = torch.arange(count * children, device=device).repeat_interleave(
        module.offsets.diff().repeat_interleave(children)
    )
    if choose is not None:
        made = choose(owners, module.ids[rows])
        rows, owners = rows[made], owners[made]
    module.take(rows, torch.bincount(owners, minlength=count * children), optimizer)
    after = module.gates(contexts).max(dim=1).values
    factors = fallen(before, after, parents, count)[owners // children]
    module.weight.mul_(factors[:, None])
    module.bias.mul_(factors)


def fallen(before: Tensor, after: Tensor, parents: Tensor, count: int) -> Tensor:
    """[count]: by how much the gate's values [n] fell on each parent's contexts; 1 for one without any."""
    sums = [value.new_zeros(count).index_add(0, parents, value) for value in (before, after)]
    return torch.where(sums[1] > 0, sums[0] / sums[1].clamp(min=SMALL), 1.0)
