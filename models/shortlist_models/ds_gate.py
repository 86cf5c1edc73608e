"""The sparse gate's parts: rows grouped by expert, the load's variation, noise for new gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

SMALL = 1e-10


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
    """Gaussian noise [m, d] shaped by the covariance C of `contexts` [n, d]: C normal, across their mean.

    Its products with the contexts have mean 0 and deviation `size`: siblings share the contexts about evenly, along
    the directions in which these differ most.
    """
    centred = contexts - contexts.mean(dim=0)
    shaped = (normal @ centred.T) @ centred
    mean = nn.functional.normalize(contexts.mean(dim=0), dim=0)
    rest = shaped - (shaped @ mean)[:, None] * mean
    return rest * (size / (contexts @ rest.T).std(dim=0).clamp(min=SMALL))[:, None]


def variation(sums: Tensor) -> Tensor:
    """Squared coefficient of variation of `sums` [K]."""
    return sums.var(correction=0) / (sums.mean() ** 2 + SMALL)
