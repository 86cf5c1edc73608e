"""Mitosis: every expert becomes several (Algorithm 2 of Doubly Sparse Softmax)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .compaction import select_rows
from .gate import EPSILON, spread_directions
from .softmax import DSSoftmax

Directions = Callable[[Tensor, Tensor, float], Tensor]  # as `gate.spread_directions`; fewer rows make fewer children
ChooseRows = Callable[[Tensor, Tensor], Tensor]  # expert [M] and class [M] of every possible row -> mask [M]


@torch.no_grad()
def clone(
    module: DSSoftmax,
    contexts: Tensor,
    generator: torch.Generator,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    children: int = 2,
    noise: float = 2.0,
    choose: ChooseRows | None = None,
    directions: Directions = spread_directions,
) -> None:
    """Replace every expert of `module`, in place, by `children` clones with its classes, weights and momentum.

    contexts: [n, d], a sample. noise: standard deviation of what a child's gate adds to the score of its parent's
    contexts. A gate over more experts gives smaller values; the weights make up for that by one factor a parent.
    choose: the rows to make, all by default; the others are never allocated. directions: `spread_directions`, or
    `separate_directions`, which may make fewer children of an expert.
    """
    before, parents = module.gates(contexts).max(dim=1)
    count, device = module.experts, module.ids.device
    normal = torch.randn((count * children, contexts.shape[1]), generator=generator).to(contexts.device)
    clones = []
    for parent, noise_rows in enumerate(torch.split(normal, children)):
        parent_contexts = contexts[parents == parent]
        clones.append(directions(parent_contexts if len(parent_contexts) > 1 else contexts, noise_rows, noise))
    parent_of = torch.repeat_interleave(torch.tensor([len(rows) for rows in clones], device=device))
    select_rows(module.gate, parent_of, optimizer)
    module.gate.add_(torch.cat(clones))
    parts = torch.split(torch.arange(len(module.ids), device=device), module.sizes)
    rows = torch.cat([parts[parent] for parent in parent_of.tolist()])
    owners = torch.repeat_interleave(module.offsets.diff()[parent_of])
    if choose is not None:
        row_mask = choose(owners, module.ids[rows])
        rows, owners = rows[row_mask], owners[row_mask]
    module.select_rows(rows, torch.bincount(owners, minlength=len(parent_of)), optimizer)
    after = module.gates(contexts).max(dim=1).values
    factors = gate_ratios(before, after, parents, count)[parent_of[owners]]
    module.weight.mul_(factors[:, None])
    module.bias.mul_(factors)


def gate_ratios(before: Tensor, after: Tensor, parents: Tensor, count: int) -> Tensor:
    """[count]: by how much the gate's values [n] fell on each parent's contexts; 1 for a parent without contexts."""
    sums = [value.new_zeros(count).index_add(0, parents, value) for value in (before, after)]
    return torch.where(sums[1] > 0, sums[0] / sums[1].clamp(min=EPSILON), 1.0)
