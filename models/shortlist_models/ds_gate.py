"""The sparse gate's parts: rows grouped by expert, the load's variation, noise for new gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

SMALL = 1e-10
LLOYD = 10  # rounds


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
    centred = contexts - contexts.mean(dim=0)
    mean = nn.functional.normalize(contexts.mean(dim=0), dim=0)
    directions = sized((normal @ centred.T) @ centred, centred, mean, size)
    for _ in range(LLOYD):
        won = nn.functional.one_hot((centred @ directions.T).argmax(dim=1), len(normal)).to(contexts.dtype)
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
