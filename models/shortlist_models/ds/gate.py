"""The sparse gate: a batch's rows grouped by expert, the variation of its load, directions for new gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

EPSILON = 1e-10
LLOYD_ROUNDS = 10
SAME_CLUSTER_COSINE = 0.8  # halves of one cluster have .95 and more, two clusters about 0


class ExpertRows(NamedTuple):
    """The rows of a batch that go to one expert: `rows` [n], the expert's number, and the gate's values [n]."""

    rows: Tensor
    expert: int
    value: Tensor


def group_by_expert(value: Tensor, expert_of_row: Tensor, experts: int) -> Iterator[ExpertRows]:
    """The rows of each expert that has any, given the gate's value [B] and the expert [B] of each row."""
    order = expert_of_row.argsort(stable=True)
    counts: list[int] = torch.bincount(expert_of_row, minlength=experts).tolist()
    for expert, rows in enumerate(torch.split(order, counts)):
        if len(rows):
            yield ExpertRows(rows, expert, value[rows])


def spread_directions(contexts: Tensor, normal: Tensor, size: float) -> Tensor:
    """Directions [m, d] for m siblings that share `contexts` [n, d]: Gaussian noise, then rounds of k-means.

    The noise is `normal` [m, d] times the contexts' covariance, so that it lies along where they differ most. Rounds of
    k-means then move each direction to the mean of the contexts that it wins (not in the paper). Products with the
    contexts have mean 0 and standard deviation `size`, so that siblings share the contexts about evenly.
    """
    centred, mean = centre_contexts(contexts)
    return run_lloyd(scale_directions((normal @ centred.T) @ centred, centred, mean, size), centred, mean, size)


def separate_directions(contexts: Tensor, normal: Tensor, size: float) -> Tensor:
    """As `spread_directions`, for contexts in clusters: at most m directions, each begun at the context farthest off.

    Farthest-first (Gonzalez 1985) starts once in every cluster where noise may start twice in one and never in
    another. Of two directions that nearly agree, which are in one cluster, only the first stays.
    """
    centred, mean = centre_contexts(contexts)
    across = centred - (centred @ mean)[:, None] * mean
    unit = nn.functional.normalize(across, dim=1)
    starts = [int((unit @ normal[0]).argmax())]
    nearest = unit @ unit[starts[0]]
    for _ in normal[1:]:
        starts.append(int(nearest.argmin()))
        nearest = torch.maximum(nearest, unit @ unit[starts[-1]])
    directions = run_lloyd(scale_directions(across[starts], centred, mean, size), centred, mean, size)
    agree = nn.functional.normalize(directions, dim=1) @ nn.functional.normalize(directions, dim=1).T
    return directions[~(agree.tril(-1) > SAME_CLUSTER_COSINE).any(dim=1)]


def centre_contexts(contexts: Tensor) -> tuple[Tensor, Tensor]:
    """`contexts` [n, d] minus their mean, and the direction [d] of the mean."""
    mean = contexts.mean(dim=0)
    return contexts - mean, nn.functional.normalize(mean, dim=0)


def run_lloyd(directions: Tensor, centred: Tensor, mean: Tensor, size: float) -> Tensor:
    """Move `directions` [m, d] by rounds of k-means over products; stops where one of them wins no context."""
    for _ in range(LLOYD_ROUNDS):
        memberships = nn.functional.one_hot((centred @ directions.T).argmax(dim=1), len(directions)).to(centred.dtype)
        if not bool((memberships.sum(dim=0) > 0).all()):
            break
        directions = scale_directions((memberships.T @ centred) / memberships.sum(dim=0)[:, None], centred, mean, size)
    return directions


def scale_directions(directions: Tensor, centred: Tensor, mean: Tensor, size: float) -> Tensor:
    """`directions` [m, d] made orthogonal to `mean` [d], scaled so that products with `centred` deviate by `size`."""
    rest = directions - (directions @ mean)[:, None] * mean
    return rest * (size / (centred @ rest.T).std(dim=0).clamp(min=EPSILON))[:, None]


def squared_variation(sums: Tensor) -> Tensor:
    """Squared coefficient of variation of `sums` [K]."""
    return sums.var(correction=0) / (sums.mean() ** 2 + EPSILON)
