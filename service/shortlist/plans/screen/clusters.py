"""What a screen's scores say of its clusters, and the unions of their candidate sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shortlist.core.results import FloatArray, IdArray

UNIONS = 8192  # that are remembered


class Union(NamedTuple):
    """Ascending `ids` of several sets, and their `positions` in those sets end to end."""

    ids: IdArray
    positions: IdArray


def unions(sets: list[IdArray]) -> Callable[[tuple[int, ...]], Union]:
    """The union of several of these sets, by their numbers; the last ones asked for are remembered."""

    @lru_cache(maxsize=UNIONS)
    def union(clusters: tuple[int, ...]) -> Union:
        return Union(*np.unique(np.concatenate([sets[cluster] for cluster in clusters]), return_index=True))

    return union


def margin(best: Sequence[float]) -> float:
    """By how much the best of the two best scores leads, over its size; of a single cluster, by everything."""
    return math.inf if len(best) == 1 else (best[0] - best[1]) / (abs(best[0]) or 1.0)


def best_clusters(scores: FloatArray, count: int) -> tuple[int, ...]:
    """The `count` best clusters of one row [r], best first."""
    order: list[int] = np.argsort(-scores, kind="stable")[:count].tolist()
    return tuple(order)


def groups(clusters: IdArray, opened: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Cluster and its rows, over the rows that open one cluster alone."""
    chosen: dict[int, list[int]] = {}
    for row, (cluster, count) in enumerate(zip(clusters.tolist(), opened, strict=True)):
        if count == 1:
            chosen.setdefault(cluster, []).append(row)
    yield from chosen.items()
