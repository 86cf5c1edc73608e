"""The sparse gate's parts: rows grouped by expert, the load's variation, noise for new gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

SMALL = 1e-10
LLOYD = 10  # rounds
SAME = 0.8  # cosine: halves of one cluster have .95 and more, clusters some 0


class Routed(NamedTuple):
    """Rows of a batch that go to one expert: `rows` [n], its number, and the gate's value [n]."""

    rows: Tensor
    expert: int
    value: Tensor


def by_expert(value: Tensor, chosen: Tensor, experts: int) -> Iterator[Routed]:
    """Rows grouped by `chosen` [B]."""
    order = chosen.argsort(stable=True)
    counts: list[int] = torch.bincount(chosen, minlength=experts).tolist()
    for expert, rows in enumerate(torch.split(order, counts)):
        if len(rows):
            yield Routed(rows, expert, value[rows])


def spread(contexts: Tensor, normal: Tensor, size: float) -> Tensor:
    """Directions [m, d] for m siblings that share `contexts` [n, d]: Gaussian noise, then rounds of k-means.

    The noise is C normal, with C the contexts' covariance: along where they differ most. Lloyd's rounds then move each
    direction to the mean of the contexts that it wins (not in the paper). Products with the contexts have mean 0 and
    deviation `size`, so that siblings share the contexts about evenly.
    """
    centred, mean = centre(contexts)
    return lloyd(sized((normal @ centred.T) @ centred, centred, mean, size), centred, mean, size)


def apart(contexts: Tensor, normal: Tensor, size: float) -> Tensor:
    """As `spread`, for contexts in clusters: at most m directions, each starting at the context farthest from those.

    Farthest-first (Gonzalez 1985) starts once in every cluster where noise may start twice in one and never in
    another. Of two directions that nearly agree, both in one cluster, the first alone stays.
    """
    centred, mean = centre(contexts)
    across = centred - (centred @ mean)[:, None] * mean
    unit = nn.functional.normalize(across, dim=1)
    chosen = [int((unit @ normal[0]).argmax())]
    nearest = unit @ unit[chosen[0]]
    for _ in normal[1:]:
        chosen.append(int(nearest.argmin()))
        nearest = torch.maximum(nearest, unit @ unit[chosen[-1]])
    found = lloyd(sized(across[chosen], centred, mean, size), centred, mean, size)
    agree = nn.functional.normalize(found, dim=1) @ nn.functional.normalize(found, dim=1).T
    return found[~(agree.tril(-1) > SAME).any(dim=1)]


def centre(contexts: Tensor) -> tuple[Tensor, Tensor]:
    """`contexts` [n, d] without their mean, and its direction [d]."""
    mean = contexts.mean(dim=0)
    return contexts - mean, nn.functional.normalize(mean, dim=0)


def lloyd(directions: Tensor, centred: Tensor, mean: Tensor, size: float) -> Tensor:
    """Rounds of k-means by products, until one of the `directions` [m, d] wins nothing."""
    for _ in range(LLOYD):
        won = nn.functional.one_hot((centred @ directions.T).argmax(dim=1), len(directions)).to(centred.dtype)
        if not bool((won.sum(dim=0) > 0).all()):
            break
        directions = sized((won.T @ centred) / won.sum(dim=0)[:, None], centred, mean, size)
    return directions


def sized(directions: Tensor, centred: Tensor, mean: Tensor, size: float) -> Tensor:
    """`directions` [m, d] across `mean` [d], their products with `centred` [n, d] of deviation `size`."""
    rest = directions - (directions @ mean)[:, None] * mean
    return rest * (size / (centred @ rest.T).std(dim=0).clamp(min=SMALL))[:, None]


def variation(sums: Tensor) -> Tensor:
    """Squared coefficient of variation of `sums` [K]."""
    return sums.var(correction=0) / (sums.mean() ** 2 + SMALL)
