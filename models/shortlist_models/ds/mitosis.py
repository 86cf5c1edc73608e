"""Mitosis: every expert becomes several (Algorithm 2 of Doubly Sparse Softmax)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .compaction import keep_rows
from .gate import SMALL, spread
from .softmax import DSSoftmax

Directions = Callable[[Tensor, Tensor, float], Tensor]  # as `ds_gate.spread`; fewer rows make fewer children
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
    directions: Directions = spread,
) -> None:
    """Make `children` of every expert, with its classes, weights and momentum.

    contexts: [n, d], a sample. noise: standard deviation of what a child's gate adds to the score of its parent's
    contexts; see `spread`. A gate over more experts gives smaller values; the weights make up for that by one
    factor a parent. choose: the rows to make; the others are never allocated. directions: `spread`, or
    `apart`, which may make fewer children of an expert.
    """
    before, parents = module.gates(contexts).max(dim=1)
    count, device = module.experts, module.ids.device
    normal = torch.randn((count * children, contexts.shape[1]), generator=generator).to(contexts.device)
    added = []
    for parent, own in enumerate(torch.split(normal, children)):
        mine = contexts[parents == parent]
        added.append(directions(mine if len(mine) > 1 else contexts, own, noise))
    parent_of = torch.repeat_interleave(torch.tensor([len(own) for own in added], device=device))
    keep_rows(module.gate, parent_of, optimizer)
    module.gate.add_(torch.cat(added))
    parts = torch.split(torch.arange(len(module.ids), device=device), module.sizes)
    rows = torch.cat([parts[parent] for parent in parent_of.tolist()])
    owners = torch.repeat_interleave(module.offsets.diff()[parent_of])
    if choose is not None:
        made = choose(owners, module.ids[rows])
        rows, owners = rows[made], owners[made]
    module.take(rows, torch.bincount(owners, minlength=len(parent_of)), optimizer)
    after = module.gates(contexts).max(dim=1).values
    factors = fallen(before, after, parents, count)[parent_of[owners]]
    module.weight.mul_(factors[:, None])
    module.bias.mul_(factors)


def fallen(before: Tensor, after: Tensor, parents: Tensor, count: int) -> Tensor:
    """[count]: by how much the gate's values [n] fell on each parent's contexts; 1 for one without any."""
    sums = [value.new_zeros(count).index_add(0, parents, value) for value in (before, after)]
    return torch.where(sums[1] > 0, sums[0] / sums[1].clamp(min=SMALL), 1.0)
